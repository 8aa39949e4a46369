"""Repair of the hints EARLIEST and LATEST, which name the first and the last snapshot.

A hint saves readers a listing. It may be missing or outdated. A wrong hint costs time, and a hint
EARLIEST above the first snapshot hides snapshots from readers that trust it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.format.layout import CHANGELOG_PREFIX, SNAPSHOT_PREFIX, parse_numbered
from lakecore.table.context import require_table

if TYPE_CHECKING:
    from lakecore.table.context import TableContext

__all__ = ["repair_hints"]


def repair_hints(context: TableContext) -> tuple[int, int] | None:
    """Write the hints of snapshots and long-lived changelogs from a listing.

    Returns the first and the last snapshot. Returns None and writes nothing if there are no
    snapshots.
    """
    require_table(context)
    layout = context.layout
    for directory, prefix, earliest, latest in (
        (
            layout.changelog_dir,
            CHANGELOG_PREFIX,
            layout.changelog_earliest_hint,
            layout.changelog_latest_hint,
        ),
        (layout.snapshot_dir, SNAPSHOT_PREFIX, layout.earliest_hint, layout.latest_hint),
    ):
        names = (status.path.rpartition("/")[2] for status in context.store.list(directory))
        ids = [number for name in names if (number := parse_numbered(name, prefix)) is not None]
        if ids:
            # The first id of the last contiguous range: a fast-forward may leave older ids behind.
            first = last = max(ids)
            while first - 1 in ids:
                first -= 1
            context.store.put(earliest, str(first).encode())
            context.store.put(latest, str(last).encode())
    return (first, last) if ids else None
