"""Declares `lakecore cdc`; `cdc.py` carries it out.

Each action has its own flags, so this command passes all arguments to it unchanged.
"""

from __future__ import annotations

from typing import Annotated

import typer

from lakecore.cli.output import flush, write
from lakecore.cli.run import run

__all__ = ["add_to"]

HELP = """\
Usage: lakecore cdc ACTION [--FLAG VALUE]...
       lakecore cdc run FILE.toml [--FLAG VALUE]...
       lakecore cdc status [--warehouse PATH] [--state PATH] [--json]

  Replicate a database or a topic to tables, including schema changes.

  lakecore cdc ACTION --help lists the flags of an action: mysql_sync_table, mysql_sync_database,
  postgres_sync_table, kafka_sync_table, kafka_sync_database, files_sync_table,
  files_sync_database.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to a program."""
    app.command(
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )(cdc)


def cdc(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ACTION [--FLAG VALUE]...",
            help="An action and its flags, `run`, or `status`.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Replicate a database or a topic to tables, including schema changes."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        write(HELP)
        flush()
        return
    run("lakecore.cli.cdc", "cdc", arguments)
