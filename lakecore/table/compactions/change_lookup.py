"""Whether the options may change that say how the levels of a bucket count.

Where compaction looks up rows, the row of the lowest level above 0 has taken up those of its key
above it, and they count no more. Elsewhere all of them are merged. An engine that folds would lose
rows of tables that were compacted in the one way and are read in the other, or fold them twice; a
sequence field would lose to a lower level.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from lakecore.io.history import History
    from lakecore.options import TableOptions


def check_lookup_change(history: History, before: TableOptions, after: TableOptions) -> None:
    """Raise InvalidRequest if rows of the newest snapshot would be read otherwise."""
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
            "levels above 0: compact the table in full first",
            changelog_producer=after.changelog_producer,
            force_lookup=after.force_lookup,
            merge_engine=after.merge_engine,
            buckets=several,
            table=after.table,
        )
