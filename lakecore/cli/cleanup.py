"""`lakecore orphans`, `lakecore repair`, `lakecore partition-done` and `lakecore iceberg`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from lakecore.cli.arguments import (
    Form,
    Format,
    OfTable,
    OfWarehouse,
    Verbs,
    argument,
    flag,
    partitions_of,
    switch,
)
from lakecore.cli.confirm import require_consent
from lakecore.cli.printing import note, say, write_frame, write_record
from lakecore.deferred import deferred_module
from lakecore.display import show_bytes

if TYPE_CHECKING:
    import polars as pl
else:
    pl = deferred_module("polars")

commands = Verbs()
_ALL = ".*"


@commands("orphans")
def orphans(  # noqa: PLR0913  one parameter per option
    table: Annotated[
        str,
        argument("PATH|DB.TABLE|DB.*", "A table, or all tables of a database of the warehouse."),
    ],
    of: OfWarehouse,
    *,
    older_than: Annotated[str, flag("TIME", "Only files changed before this time or age.")] = "1 d",
    force: Annotated[
        bool, switch("Allow an age below 1 h. No one may write to the table.")
    ] = False,
    dry_run: Annotated[bool, switch("Only print what would be deleted.")] = False,
    yes: Annotated[bool, switch("Do not ask for confirmation.", "--yes", "-y")] = False,
    form: Form,
) -> None:
    """Delete orphan files: left by failed writes, in no snapshot, tag or branch.

    With --dry-run, only print their paths.
    """
    if table.endswith(_ALL):
        database, session = table.removesuffix(_ALL), of.session()
        tables = [session.get_table(f"{database}.{each}") for each in session.list_tables(database)]
    else:
        tables = [OfTable(table=table, option=of.option, warehouse=of.warehouse).open()]
    if not dry_run:
        require_consent(f"delete the orphan files of {table}, older than {older_than}?", yes=yes)
    rows: list[tuple[str, str]] = []
    size_bytes = 0
    for each in tables:
        result = each.remove_orphan_files(older_than, force=force, dry_run=dry_run)
        rows += ((each.identifier, path) for path in result.paths)
        size_bytes += result.bytes
    if dry_run or form is not Format.TABLE:
        write_frame(pl.DataFrame(rows, {"table": str, "path": str}, orient="row"), form)
    verb = "found" if dry_run else "deleted"
    said = f"{verb} {len(rows):,} orphan files ({show_bytes(size_bytes)}) in {len(tables):,} tables"
    (note if form is not Format.TABLE else say)(said)


@commands("repair")
def repair(
    name: Annotated[
        str | None, argument("[DB|DB.TABLE]", "What to repair; all databases by default.")
    ] = None,
    *,
    of: OfWarehouse,
    form: Form,
) -> None:
    """Register the databases and tables of a warehouse in its catalog, with their schemas.

    Use it for JDBC and Hive catalogs: after a crash, or if the warehouse was filled without the
    catalog. Prints the names of the repaired tables.
    """
    repaired = of.session().repair(name)
    write_frame(pl.DataFrame({"table": repaired}, {"table": str}), form)


@commands("partition-done")
def partition_done(
    of: OfTable,
    *,
    partition: Annotated[
        list[str], flag("KEY=VALUE,...", "Mark partitions with these values; repeatable.")
    ],
    form: Form,
) -> None:
    """Mark partitions as done, so that other jobs know that they are complete.

    The option partition.mark-done-action chooses how they are marked.
    """
    marked = of.open().mark_partition_done(*partitions_of(partition))
    write_frame(pl.DataFrame({"partition": marked}, {"partition": str}), form)


@commands("iceberg")
def iceberg(
    of: OfTable,
    *,
    rebuild: Annotated[bool, switch("Begin again from the files of the latest snapshot.")] = False,
    form: Form,
) -> None:
    """Write Iceberg metadata of the latest snapshot, for DuckDB, Spark and other readers."""
    result = of.open().export_iceberg(rebuild=rebuild)
    write_record(asdict(result), form, str(result))
