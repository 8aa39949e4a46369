"""Declares `lakecore compact`; `compact.py` carries it out."""

from __future__ import annotations

from typing import Annotated

import typer

from lakecore.cli.arguments import (
    AsCsv,
    AsJson,
    Format,
    Full,
    Interval,
    Options,
    Output,
    Partitions,
    PartitionsWhere,
    TableName,
    Warehouse,
    chosen,
)
from lakecore.cli.run import run

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the commands to a program."""
    app.command()(compact)


def compact(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    full: Full = False,
    partition: Partitions = None,
    where: PartitionsWhere = None,
    bucket: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Only this bucket; repeatable.")
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Work in steps that read at most SIZE, such as '512 mb'."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be done.")
    ] = False,
    order_strategy: Annotated[
        str | None,
        typer.Option(
            metavar="order|zorder|hilbert", help="Sort all rows of a table without a primary key."
        ),
    ] = None,
    order_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN,...", help="With --order-strategy: the columns to sort by."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep compacting while others write, until stopped.")
    ] = False,
    interval: Interval = 10.0,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Merge the files of each bucket into fewer sorted runs.

    In a table without a primary key, pack small files into larger ones.
    """
    form = chosen(output, json=json, csv=csv)
    if watch and form not in {Format.TABLE, Format.JSON}:
        raise typer.BadParameter("--watch prints text or JSON lines")
    what = {
        "full": full,
        "partitions": partition,
        "where": where,
        "buckets": bucket,
        "max_bytes": max_bytes,
        "dry_run": dry_run,
        "order_strategy": order_strategy,
        "order_by": order_by,
    }
    every = interval if watch else None
    run("lakecore.cli.compact", "compact", table, warehouse, option, what, every, form)
