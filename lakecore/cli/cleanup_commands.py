"""Declares `lakecore orphans`, `repair` and `partition-done`; `cleanup.py` carries them out."""

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

_MODULE = "lakecore.cli.cleanup"


def add_to(app: typer.Typer) -> None:
    """Add the commands to a program."""
    app.command()(orphans)
    app.command()(repair)
    app.command("partition-done")(partition_done)


def orphans(  # noqa: PLR0913  one parameter per option
    table: Annotated[
        str,
        typer.Argument(
            metavar="PATH|DB.TABLE|DB.*",
            help="A table, or all tables of a database of the warehouse.",
            show_default=False,
        ),
    ],
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    older_than: Annotated[
        str,
        typer.Option(metavar="TIME", help="Only files changed before this time or age."),
    ] = "1 d",
    force: Annotated[
        bool,
        typer.Option("--force", help="Allow an age below 1 h. No one may write to the table."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be deleted.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Delete orphan files: left by failed writes, in no snapshot, tag or branch.

    With --dry-run, only print their paths.
    """
    form = chosen(output, json=json, csv=csv)
    run(
        *(_MODULE, "orphans", table, warehouse, option, older_than, form),
        force=force,
        dry_run=dry_run,
        yes=yes,
    )


def repair(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[DB|DB.TABLE]",
            help="What to repair; all databases by default.",
            show_default=False,
        ),
    ] = None,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Register the databases and tables of a warehouse in its catalog, with their schemas.

    Use it for JDBC and Hive catalogs: after a crash, or if the warehouse was filled without the
    catalog. Prints the names of the repaired tables.
    """
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "repair", name, warehouse, option, form)


def partition_done(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    partition: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=VALUE,...", help="Mark partitions with these values; repeatable."
        ),
    ],
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Mark partitions as done, so that other jobs know that they are complete.

    The option partition.mark-done-action chooses how they are marked.
    """
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "partition_done", table, warehouse, option, partition, form)
