"""Which manifests of a table a commit merges, so that planning does not slow down with its age.

Given the manifests of a snapshot in order (https://paimon.apache.org/docs/master/maintenance/manage-manifest/):

1. *Full*: manifests that are small or hold deletions "must change". When they reach
   `manifest.full-compaction-threshold-size` together, they become one group.
2. *Minor*: otherwise neighbours are gathered; a gathering that reaches
   `manifest.target-file-size` becomes a group, the last one only if it has at least
   `manifest.merge-min-count` manifests.

INVARIANT: an ADD stays before its DELETE. Groups of neighbours keep the order; a full merge moves
entries of small manifests past large ones, so it takes only deletions whose ADD is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.model.manifest import EntryIdentity, ManifestEntry, ManifestFile


def neighbours_to_merge(
    manifests: Sequence[ManifestFile], *, target_bytes: int, count_min: int
) -> list[list[ManifestFile]]:
    """The manifests in order, in groups of neighbours; a group of more than one is to be merged."""
    groups: list[list[ManifestFile]] = []
    gathered: list[ManifestFile] = []
    size_bytes = 0
    for manifest in manifests:
        gathered.append(manifest)
        size_bytes += manifest.size_bytes
        if size_bytes >= target_bytes:
            groups.append(gathered)
            gathered, size_bytes = [], 0
    if len(gathered) >= count_min:
        groups.append(gathered)
    else:
        groups += [[manifest] for manifest in gathered]
    return groups


def full_merge_is_due(
    manifests: Sequence[ManifestFile], *, target_bytes: int, threshold_bytes: int
) -> bool:
    """Whether small manifests and those with deletions have grown past the threshold together."""
    must_change = [m for m in manifests if m.deleted_count or m.size_bytes < target_bytes]
    return len(must_change) > 1 and sum(m.size_bytes for m in must_change) >= threshold_bytes


def cancel(entries: Iterable[ManifestEntry]) -> tuple[ManifestEntry, ...]:
    """The entries without each ADD and DELETE of the same file that are both among them.

    Raises CorruptTable if a file is added, or deleted, twice in a row.
    """
    kept: dict[EntryIdentity, ManifestEntry] = {}
    for entry in entries:
        before = kept.pop(entry.identity, None)
        if before is None:
            # A deletion whose ADD is not here stays: its file lies in a manifest before these.
            kept[entry.identity] = entry
        elif before.kind is entry.kind:
            raise CorruptTable(
                "a file is added or deleted twice", file=entry.file.name, kind=entry.kind.name
            )
    return tuple(kept.values())
