"""The statistics of partitions in the form of Paimon's JSON, which catalogs and servers exchange.

https://paimon.apache.org/docs/master/concepts/rest/rest-api/
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from lakecore.model.manifest import FileKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.model.manifest import ManifestEntry
    from lakecore.plan.partitions import Partitions

__all__ = ["PartitionStatistics", "Spec", "partition_statistics", "statistics_of"]


Spec: TypeAlias = tuple[tuple[str, str], ...]
"""The partition keys with their values, as strings."""


class PartitionStatistics(TypedDict):
    """Counts and sizes of the files of a partition, under the names of Paimon's JSON."""

    spec: dict[str, str]
    recordCount: int
    fileSizeInBytes: int
    fileCount: int
    lastFileCreationTime: int
    totalBuckets: int


def partition_statistics(
    entries: Iterable[ManifestEntry], partitions: Partitions
) -> dict[Spec, PartitionStatistics]:
    """The net change of each partition by a commit; numbers may be negative.

    Partitions with the same spec are counted together: null and blank strings have the same spec.
    """
    specs: dict[bytes, Spec] = {}
    grouped: dict[Spec, list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        if entry.partition not in specs:
            specs[entry.partition] = tuple(partitions.spec(entry.partition).items())
        grouped[specs[entry.partition]].append(entry)
    return {spec: statistics_of(spec, own) for spec, own in grouped.items()}


def statistics_of(spec: Spec, entries: Sequence[ManifestEntry]) -> PartitionStatistics:
    """The sums of the files that these entries add, minus those of the files that they delete."""
    signs = [1 if entry.kind is FileKind.ADD else -1 for entry in entries]
    pairs = list(zip(signs, entries, strict=True))
    times = [e.file.creation_time_ms for sign, e in pairs if sign > 0 and e.file.creation_time_ms]
    return {
        "spec": dict(spec),
        "recordCount": sum(sign * entry.file.row_count for sign, entry in pairs),
        "fileSizeInBytes": sum(sign * entry.file.size_bytes for sign, entry in pairs),
        "fileCount": sum(signs),
        "lastFileCreationTime": max(times, default=0),
        "totalBuckets": entries[-1].total_buckets if entries else 0,
    }
