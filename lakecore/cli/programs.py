"""`lakecore action` and `lakecore cdc`, whose flags depend on the action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakecore.cli.action_table import HELP
from lakecore.cli.arguments import Verbs
from lakecore.cli.output import write
from lakecore.deferred import deferred

if TYPE_CHECKING:
    from lakecore.cli.actions import run_action
    from lakecore.cli.cdc import run_pipeline
else:
    run_action = deferred("lakecore.cli.actions", "run_action")
    run_pipeline = deferred("lakecore.cli.cdc", "run_pipeline")

commands = Verbs()
_CDC_HELP = """\
Usage: lakecore cdc ACTION [--FLAG VALUE]...
       lakecore cdc run FILE.toml [--FLAG VALUE]...
       lakecore cdc status [--warehouse PATH] [--state PATH] [--json]
       lakecore cdc resync NAME --tables A,B [--warehouse PATH] [--state PATH]

  Replicate a database or a topic to tables, including schema changes.

  lakecore cdc ACTION --help lists the flags of an action: mysql_sync_table, mysql_sync_database,
  postgres_sync_table, kafka_sync_table, kafka_sync_database, files_sync_table,
  files_sync_database.
"""


@commands("action", raw=True)
def action(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME [--FLAG VALUE]...", help="An action and its flags."),
    ] = None,
) -> None:
    """Run an action of Paimon's Flink action jar, with the same name and flags."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        write(HELP)
    else:
        run_action(arguments)


@commands("cdc", raw=True)
def cdc(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ACTION [--FLAG VALUE]...", help="An action and its flags, `run`, or `status`."
        ),
    ] = None,
) -> None:
    """Replicate a database or a topic to tables, including schema changes."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        write(_CDC_HELP)
    else:
        run_pipeline(arguments)
