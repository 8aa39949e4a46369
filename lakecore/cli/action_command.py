"""Declares `lakecore action`; `actions.py` carries it out.

Each action has its own flags, so this command passes all arguments to it unchanged.
"""

from __future__ import annotations

from typing import Annotated

import typer

from lakecore.cli.action_table import HELP
from lakecore.cli.output import flush, write
from lakecore.cli.run import run

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to a program."""
    app.command(
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )(action)


def action(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME [--FLAG VALUE]...", help="An action and its flags.", show_default=False
        ),
    ] = None,
) -> None:
    """Run an action of Paimon's Flink action jar, with the same name and flags."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        write(HELP)
        flush()
        return
    run("lakecore.cli.actions", "action", arguments)
