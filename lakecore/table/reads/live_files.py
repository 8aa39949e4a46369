"""The live files of a snapshot in partitions that match a condition, from few manifests.

A manifest list states the range of partitions of each manifest. Manifests that cannot hold an entry
of a matching partition are not read. Entries of other partitions are dropped before the fold,
because the entries they cancel may be in manifests that were not read.

This module also reads the deletion vectors of a snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from lakecore.model.files import DELETION_VECTORS
from lakecore.model.manifest import fold
from lakecore.plan.manifests import live_count, may_hold
from lakecore.plan.pruning import matches_exactly

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.io.history.history import History
    from lakecore.model.files import IndexFile, VectorRange
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


def vectors_of(
    history: History, snapshot: Snapshot | None
) -> Mapping[tuple[bytes, int], Mapping[str, tuple[IndexFile, VectorRange]]]:
    """The deletion vectors of a snapshot, by bucket and data file name."""
    found: dict[tuple[bytes, int], dict[str, tuple[IndexFile, VectorRange]]] = defaultdict(dict)
    for entry in history.index_entries(snapshot):
        if entry.file.index_type == DELETION_VECTORS:
            for where in entry.file.vectors or ():
                found[entry.partition, entry.bucket][where.data_file] = (entry.file, where)
    return found
