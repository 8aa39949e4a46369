"""Declares `lakecore read`, `count` and `changes`; `rows.py` carries them out."""

from __future__ import annotations

from typing import Annotated

import typer

from lakecore.cli.arguments import (
    AsCsv,
    AsJson,
    Columns,
    Format,
    Limit,
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
    app.command()(read)
    app.command()(count)
    app.command()(changes)


def read(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    columns: Columns = None,
    where: Where = None,
    limit: Limit = None,
    snapshot: Annotated[
        int | None,
        typer.Option("--snapshot", "--snapshot-id", metavar="N", help="Read this snapshot."),
    ] = None,
    tag: Annotated[str | None, typer.Option(metavar="NAME", help="Read this tag.")] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Read the newest snapshot at this time (ISO 8601)."),
    ] = None,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Print the rows of a table, merged by their keys."""
    at = {"snapshot_id": snapshot, "tag": tag, "timestamp": timestamp}
    form = chosen(output, json=json, csv=csv)
    run("lakecore.cli.rows", "read", table, warehouse, option, (columns, where, limit), at, form)


def count(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    where: Where = None,
    snapshot: Annotated[
        int | None,
        typer.Option("--snapshot", "--snapshot-id", metavar="N", help="Count in this snapshot."),
    ] = None,
    tag: Annotated[str | None, typer.Option(metavar="NAME", help="Count in this tag.")] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Count in the newest snapshot at this time (ISO 8601)."),
    ] = None,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Count the rows of a table, merged by their keys."""
    at = {"snapshot_id": snapshot, "tag": tag, "timestamp": timestamp}
    form = chosen(output, json=json, csv=csv)
    run("lakecore.cli.rows", "count", table, warehouse, option, where, at, form)


def changes(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="POINT", help="Changes after this snapshot, tag, date or time (ISO 8601)."
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(metavar="POINT", help="Changes up to this point."),
    ] = None,
    columns: Columns = None,
    where: Where = None,
    limit: Limit = None,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Print the changes between two snapshots or times, with row kinds.

    The column _row_kind is +I (new), -U and +U (before and after an update) or -D (deleted).
    """
    form = chosen(output, json=json, csv=csv)
    run(
        "lakecore.cli.rows",
        "changes",
        table,
        warehouse,
        option,
        (columns, where, limit),
        (start, end),
        form,
    )
