"""`lakecore orphans`, `lakecore repair` and `lakecore partition-done`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from lakecore.cli.arguments import Format, stated
from lakecore.cli.confirm import require_consent
from lakecore.cli.printing import note, say, write_frame
from lakecore.cli.target import session_of, table_of
from lakecore.display import show_bytes

if TYPE_CHECKING:
    from lakecore.table.handle import Table

__all__ = ["orphans", "partition_done", "repair"]

_ALL = ".*"


def orphans(  # noqa: PLR0913  the parameters of the command
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    older_than: str,
    form: Format,
    *,
    force: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete orphan files, or print their paths."""
    tables = _tables(name, warehouse, option)
    if not dry_run:
        require_consent(f"delete the orphan files of {name}, older than {older_than}?", yes=yes)
    rows: list[tuple[str, str]] = []
    size_bytes = 0
    for table in tables:
        result = table.remove_orphan_files(older_than, force=force, dry_run=dry_run)
        rows += ((table.identifier, path) for path in result.paths)
        size_bytes += result.bytes
    if dry_run or form is not Format.TABLE:
        frame = pl.DataFrame(rows, {"table": pl.String, "path": pl.String}, orient="row")
        write_frame(frame, form)
    verb = "found" if dry_run else "deleted"
    said = f"{verb} {len(rows):,} orphan files ({show_bytes(size_bytes)}) in {len(tables):,} tables"
    (note if form is not Format.TABLE else say)(said)


def _tables(name: str, warehouse: str | None, option: list[str] | None) -> list[Table]:
    if not name.endswith(_ALL):
        return [table_of(name, warehouse, option)]
    database = name.removesuffix(_ALL)
    session = session_of(None, warehouse, option)
    return [session.get_table(f"{database}.{each}") for each in session.list_tables(database)]


def repair(name: str | None, warehouse: str | None, option: list[str] | None, form: Format) -> None:
    """Repair the catalog, and print the names of the repaired tables."""
    repaired = session_of(None, warehouse, option).repair(name)
    write_frame(pl.DataFrame({"table": repaired}, {"table": pl.String}), form)


def partition_done(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    partitions: list[str],
    form: Format,
) -> None:
    """Mark partitions, and print their directories."""
    table = table_of(name, warehouse, option)
    marked = table.mark_partition_done(
        *({**stated(each.split(","), "a partition")} for each in partitions)
    )
    write_frame(pl.DataFrame({"partition": marked}, {"partition": pl.String}), form)
