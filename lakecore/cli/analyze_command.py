"""Declares `lakecore analyze`; `analyze.py` carries it out."""

from __future__ import annotations

from typing import Annotated

import typer

from lakecore.cli.arguments import (
    AsCsv,
    AsJson,
    Columns,
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
    app.command()(analyze)


def analyze(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    columns: Columns = None,
    only_rows: Annotated[
        bool, typer.Option("--only-rows", help="Only count the rows; analyze no column.")
    ] = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Compute and store statistics of a table, for the query planners of other engines."""
    form = chosen(output, json=json, csv=csv)
    if only_rows and columns:
        raise typer.BadParameter("name columns, or give --only-rows")
    run("lakecore.cli.analyze", "analyze", table, warehouse, option, columns, only_rows, form)
