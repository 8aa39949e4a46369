"""Which snapshots matter for readers of changes, and which rows of each snapshot they read.

A stream (https://paimon.apache.org/docs/master/primary-key-table/changelog-producer/):

| changelog-producer | snapshots that count | rows |
|---|---|---|
| none, and append tables | APPEND | the files that were added, row by row as stored |
| input, lookup, full-compaction | those with a changelog | the changelog's |

OVERWRITE snapshots are skipped unless `streaming-read-overwrite` (with a primary key) or
`streaming-read-append-overwrite` (without one) is set. A read between two snapshots follows the
same rules, but always skips OVERWRITE snapshots. `incremental-between-scan-mode` selects the added
files or the changelog regardless of the producer.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum, auto
from typing import TYPE_CHECKING

from lakecore.model.snapshot import CommitKind
from lakecore.options import ChangelogProducer, IncrementalScanMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.options import TableOptions


class Taken(Enum):
    """The rows that are read as a snapshot's changes: added files, changelog, or replaced rows."""

    ADDED = auto()
    """The rows of the files that it added, as they were stored."""
    CHANGELOG = auto()
    """The rows of its changelog files."""
    REPLACED = auto()
    """The rows of the removed files as -D, then the rows of the added files."""


def taken_by_stream(snapshot: Snapshot, options: TableOptions, *, keyed: bool) -> Taken | None:
    """The rows that a stream reads from a snapshot; None if it skips the snapshot."""
    if snapshot.commit_kind is CommitKind.OVERWRITE:
        if keyed and options.streaming_read_overwrite:
            return Taken.REPLACED
        if not keyed and options.streaming_read_append_overwrite:
            return Taken.ADDED
    if options.changelog_producer is not ChangelogProducer.NONE:
        return None if snapshot.changelog_manifest_list is None else Taken.CHANGELOG
    return Taken.ADDED if snapshot.commit_kind is CommitKind.APPEND else None


def taken_between(snapshot: Snapshot, mode: IncrementalScanMode) -> Taken | None:
    """What a read between snapshots takes from one of them; `mode` is `delta` or `changelog`."""
    if mode is IncrementalScanMode.DELTA:
        return Taken.ADDED if snapshot.commit_kind is CommitKind.APPEND else None
    assert mode is IncrementalScanMode.CHANGELOG, mode
    if snapshot.commit_kind is CommitKind.OVERWRITE or snapshot.changelog_manifest_list is None:
        return None
    return Taken.CHANGELOG


def mode_between(options: TableOptions) -> IncrementalScanMode:
    """The mode of a read between snapshots: `delta`, `changelog` or `diff`."""
    mode = options.incremental_between_scan_mode
    if mode is not IncrementalScanMode.AUTO:
        return mode
    if options.changelog_producer is ChangelogProducer.NONE:
        return IncrementalScanMode.DELTA
    return IncrementalScanMode.CHANGELOG


def files_of_first_plan(
    entries: Sequence[ManifestEntry], options: TableOptions
) -> list[ManifestEntry]:
    """The files that the first plan of a stream reads, out of the files of some buckets.

    Files whose rows a later compaction will write to the changelog are skipped; otherwise the
    stream would return their rows twice. With full-compaction, the changelog already has the rows
    of the deepest level of a bucket, whatever number the last level had at that time.
    """
    match options.changelog_producer:
        case ChangelogProducer.LOOKUP:
            return [entry for entry in entries if entry.file.level > 0]
        case ChangelogProducer.FULL_COMPACTION:
            deepest: Counter[tuple[bytes, int]] = Counter()
            for entry in entries:
                of_bucket = entry.partition, entry.bucket
                deepest[of_bucket] = max(deepest[of_bucket], entry.file.level)
            return [
                entry
                for entry in entries
                if entry.file.level == deepest[entry.partition, entry.bucket] > 0
            ]
        case _:
            return list(entries)
