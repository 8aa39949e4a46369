"""A snapshot and a condition on partitions -> its live files, reading as few manifests as possible.

A manifest list states the range of partitions of each manifest. Manifests that cannot hold an entry
of a matching partition are not read. Entries of other partitions are dropped before the fold,
because the entries they cancel may be in manifests that were not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.model.manifest import fold
from lakecore.plan.manifests import live_count, may_hold
from lakecore.plan.pruning import matches_exactly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.io.history.history import History
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.plan.partitions import Partitions
    from lakecore.plan.predicate import Predicate


def live_files(
    history: History, partitions: Partitions, snapshot: Snapshot, condition: Predicate | None
) -> tuple[Sequence[ManifestEntry], int]:
    """The live files of partitions that match (None: of all), and the number of all live files."""
    if condition is None:
        live = history.live_entries(snapshot)
        return live, len(live)
    if history.live_if_known(snapshot) is None:
        manifests = history.manifests(snapshot)
        opened = may_hold(condition, manifests, partitions)
        if not opened.all():
            chosen = [each for each, may in zip(manifests, opened, strict=True) if may]
            entries = in_partitions(history.entries(chosen), partitions, condition)
            return fold(entries), live_count(manifests)
    live = history.live_entries(snapshot)
    return in_partitions(live, partitions, condition), len(live)


def in_partitions(
    entries: Sequence[ManifestEntry], partitions: Partitions, condition: Predicate | None
) -> Sequence[ManifestEntry]:
    """The entries of partitions that match the condition (None: all entries)."""
    if condition is None or not entries:
        return entries
    distinct = list({entry.partition: None for entry in entries})
    matches = matches_exactly(condition, partitions.values(distinct))
    wanted = {value for value, match in zip(distinct, matches, strict=True) if match}
    return [entry for entry in entries if entry.partition in wanted]
