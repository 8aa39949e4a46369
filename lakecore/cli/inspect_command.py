"""Declares `lakecore inspect`; `picture.py` carries it out."""

from __future__ import annotations

from typing import Annotated

import typer

from lakecore.cli.arguments import (
    AsCsv,
    AsJson,
    Format,
    Options,
    Output,
    TableName,
    Warehouse,
    chosen,
)
from lakecore.cli.run import run

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to a program."""
    app.command()(inspect)


def inspect(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    html: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write a self-contained HTML page."),
    ] = None,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Draw a table: snapshots, tags, consumers, buckets, files, and what would expire."""
    form = chosen(output, json=json, csv=csv)
    run("lakecore.cli.picture", "inspect", table, warehouse, option, html, form)
