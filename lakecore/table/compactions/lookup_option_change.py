"""Whether options that decide how the levels of a bucket are read may change.

If compaction looks up rows, the row of a key in the lowest level above 0 already includes the rows
of the key in higher levels, and a read ignores those. Otherwise a read merges the rows of all
levels. If a table is compacted in one way and read in the other, an aggregation loses rows or
counts them twice, and the row with the greatest sequence field can lose against an older row.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from lakecore.io.history.history import History
    from lakecore.options import TableOptions


def check_lookup_change(history: History, before: TableOptions, after: TableOptions) -> None:
    """Raise InvalidRequest if the change would alter how rows of the newest snapshot are read."""
    turned_on = after.needs_lookup and bool(after.sequence_field)
    if before.needs_lookup == after.needs_lookup:
        return
    if not (after.folds_rows or turned_on):
        return
    snapshot = history.latest_snapshot()
    levels: dict[tuple[bytes, int], set[int]] = defaultdict(set)
    for entry in () if snapshot is None else history.live_entries(snapshot):
        if entry.file.level > 0:
            levels[entry.partition, entry.bucket].add(entry.file.level)
    several = sum(len(found) > 1 for found in levels.values())
    if several:
        raise InvalidRequest(
            "whether compaction looks up rows cannot change while a bucket has rows in several "
            "levels above 0: run a full compaction of the table first",
            changelog_producer=after.changelog_producer,
            force_lookup=after.force_lookup,
            merge_engine=after.merge_engine,
            buckets=several,
            table=after.table,
        )
