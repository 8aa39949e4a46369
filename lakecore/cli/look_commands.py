"""Declares `lakecore tables`, `show` and `explain`; `look.py` carries them out."""

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
    Where,
    chosen,
)
from lakecore.cli.run import run

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the commands to a program."""
    app.command()(tables)
    app.command()(show)
    app.command()(explain)


def tables(
    path: Annotated[
        str | None, typer.Argument(metavar="[WAREHOUSE]", help="Path or URI of the warehouse.")
    ] = None,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the tables of a warehouse, with keys, snapshot and rows.

    Rows are counted as stored, before a merge.
    """
    run("lakecore.cli.look", "tables", path, warehouse, option, chosen(output, json=json, csv=csv))


def show(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    schema: Annotated[bool, typer.Option("--schema", help="Show columns and keys.")] = False,
    options: Annotated[
        bool, typer.Option("--options", help="Show the options that are set.")
    ] = False,
    snapshots: Annotated[
        bool, typer.Option("--snapshots", help="Show the snapshots that can be read.")
    ] = False,
    files: Annotated[
        bool, typer.Option("--files", help="Show the data files of the latest snapshot.")
    ] = False,
    manifests: Annotated[
        bool, typer.Option("--manifests", help="Show the manifests, and how many are small.")
    ] = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Show the schema, options and snapshots of a table.

    With flags, show only what they name.
    """
    flags = {
        "schema": schema,
        "options": options,
        "snapshots": snapshots,
        "files": files,
        "manifests": manifests,
    }
    asked = [name for name, flag in flags.items() if flag] or ["schema", "options", "snapshots"]
    form = chosen(output, json=json, csv=csv)
    if form in {Format.CSV, Format.PARQUET} and len(asked) > 1:
        raise typer.BadParameter(
            "CSV and Parquet hold one table: name one of " + " ".join(f"--{f}" for f in flags)
        )
    run("lakecore.cli.look", "show", table, warehouse, option, asked, form)


def explain(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    columns: Columns = None,
    where: Where = None,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Show which files a read would skip, merge and read."""
    form = chosen(output, json=json, csv=csv)
    run("lakecore.cli.look", "explain", table, warehouse, option, columns, where, form)
