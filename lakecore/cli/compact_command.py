"""Declares `lakecore compact`; `compact.py` carries it out."""

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

_YEAR_SECONDS = 365 * 86_400


def add_to(app: typer.Typer) -> None:
    """Add the commands to a program."""
    app.command()(compact)


def compact(  # noqa: PLR0913  one option per part of the question
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Merge everything into one sorted run per bucket.")
    ] = False,
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="Only such partitions; repeatable."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Only partitions that match.")
    ] = None,
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
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep compacting while others write, until stopped.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            min=0.01, max=_YEAR_SECONDS, metavar="SECONDS", help="With --watch: wait between looks."
        ),
    ] = 10.0,
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
    }
    every = interval if watch else None
    run("lakecore.cli.compact", "compact", table, warehouse, option, what, every, form)
