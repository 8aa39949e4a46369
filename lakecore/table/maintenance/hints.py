"""Repair of the hints EARLIEST and LATEST, which name the first and the last snapshot.

A hint saves readers a listing. It may be missing or outdated. A wrong hint costs time, and a hint
EARLIEST above the first snapshot hides snapshots from readers that trust it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable, InvalidRequest, NotFound
from lakecore.format.layout import CHANGELOG_PREFIX, SNAPSHOT_PREFIX, parse_numbered
from lakecore.table.context import require_table
from lakecore.table.maintenance.steps import require_whole

if TYPE_CHECKING:
    from lakecore.table.context import TableContext

__all__ = ["repair_earliest_snapshot", "repair_hints"]


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
            while first - 1 in ids and not _is_expiring(context, directory, first - 1):
                first -= 1
            context.store.put(earliest, str(first).encode())
            context.store.put(latest, str(last).encode())
    return (first, last) if ids else None


def _is_expiring(context: TableContext, directory: str, snapshot_id: int) -> bool:
    """Whether an interrupted expiry has deleted files of a snapshot that readers do not list."""
    if directory != context.layout.snapshot_dir:
        return snapshot_id not in context.history.changelog_ids()
    snapshot = context.history.snapshot_if_there(snapshot_id)
    if snapshot is None or context.history.listed_snapshot(snapshot_id) is not None:
        return False
    try:
        require_whole(context, snapshot)
    except CorruptTable:
        return True
    return False


def repair_earliest_snapshot(context: TableContext, snapshot_id: object) -> int:
    """Point the hint EARLIEST at the first snapshot after a gap. Returns the former first one.

    Every snapshot from `snapshot_id` to the newest must exist. The snapshot before it must not
    exist, unless EARLIEST already points at `snapshot_id`.
    """
    require_table(context)
    if not isinstance(snapshot_id, int) or isinstance(snapshot_id, bool):
        raise InvalidRequest("a snapshot is named by its id", snapshot_id=snapshot_id)
    layout = context.layout
    names = (status.path.rpartition("/")[2] for status in context.store.list(layout.snapshot_dir))
    ids = {
        number for name in names if (number := parse_numbered(name, SNAPSHOT_PREFIX)) is not None
    }
    first = context.history.earliest_snapshot_id()
    if not ids or first is None:
        raise NotFound("the table has no snapshot", table=context.identifier)
    last = max(ids)
    if not first <= snapshot_id <= last:
        raise InvalidRequest(
            "the snapshot is not between the first and the newest one",
            snapshot_id=snapshot_id,
            first=first,
            newest=last,
        )
    missing = [number for number in range(snapshot_id, last + 1) if number not in ids]
    if missing:
        raise NotFound("a snapshot does not exist", snapshot_id=missing[0], newest=last)
    if snapshot_id != first and snapshot_id - 1 in ids:
        raise InvalidRequest(
            "the snapshot does not follow a gap: the one before it exists", snapshot_id=snapshot_id
        )
    context.history.write_earliest_hint(snapshot_id)
    return first
