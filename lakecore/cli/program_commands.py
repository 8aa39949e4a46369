"""Declares `lakecore version` and `demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from lakecore import __version__
from lakecore.cli.arguments import (
    AsCsv,
    AsJson,
    Format,
    Output,
    chosen,
)
from lakecore.cli.output import flush, write
from lakecore.cli.run import run

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the commands to a program."""
    app.command()(version)
    app.command()(demo)


def version(*, output: Output = Format.TABLE, json: AsJson = False, csv: AsCsv = False) -> None:
    """Print the version."""
    texts = {
        Format.TABLE: __version__,
        Format.JSON: f'{{"version":"{__version__}"}}',
        Format.CSV: f"version\n{__version__}",
    }
    form = chosen(output, json=json, csv=csv)
    if form not in texts:
        raise typer.BadParameter("the version is text, JSON or CSV")
    write(f"{texts[form]}\n")
    flush()


def demo(
    path: Annotated[
        str | None,
        typer.Option(metavar="DIRECTORY", help="Directory of the warehouse. Default: a new one."),
    ] = None,
    *,
    keep: Annotated[bool, typer.Option(help="Keep the table afterwards.")] = True,
) -> None:
    """Show what lakecore does, with a year of real flights."""
    run("lakecore.cli.demo", "demo", path, keep)
