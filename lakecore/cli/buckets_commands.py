"""Declares `lakecore rescale` and `lakecore compact-database`; `buckets.py` carries them out."""

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

_MODULE = "lakecore.cli.buckets"


def add_to(app: typer.Typer) -> None:
    """Add the commands to a program."""
    app.command()(rescale)
    app.command("compact-database")(compact_database)


def rescale(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    bucket_num: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="The number of buckets. Default: the option bucket."),
    ] = None,
    partition: Partitions = None,
    where: PartitionsWhere = None,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Give partitions another number of buckets, in one commit."""
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "rescale", table, warehouse, option, bucket_num, partition, where, form)


def compact_database(  # noqa: PLR0913  one parameter per option
    warehouse: Warehouse = None,
    option: Options = None,
    *,
    including_databases: Annotated[
        str, typer.Option(metavar="REGEX", help="Databases whose whole name matches.")
    ] = ".*",
    including_tables: Annotated[
        str,
        typer.Option(metavar="REGEX", help="Tables whose whole name matches, as `t` or `db.t`."),
    ] = ".*",
    excluding_tables: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Tables to leave out.")
    ] = None,
    mode: Annotated[
        str,
        typer.Option(metavar="divided|combined", help="One job per table, or one for all tables."),
    ] = "divided",
    full: Full = False,
    max_bytes: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Work in steps that read at most SIZE per table."),
    ] = None,
    table_option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A dynamic option of all tables; repeatable."),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Repeat until stopped, also with tables that are created later."
        ),
    ] = False,
    interval: Interval = 10.0,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Compact all tables of a warehouse whose names match."""
    form = chosen(output, json=json, csv=csv)
    if watch and form not in {Format.TABLE, Format.JSON}:
        raise typer.BadParameter("--watch prints text or JSON lines")
    what = {
        "including_databases": including_databases,
        "including_tables": including_tables,
        "excluding_tables": excluding_tables,
        "mode": mode,
        "full": full,
        "max_bytes": max_bytes,
        "table_options": table_option,
    }
    every = interval if watch else None
    run(_MODULE, "compact_tables", warehouse, option, what, every, form)
