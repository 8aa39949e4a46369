"""A table in numbers: its snapshots, buckets and files, its growth, and what would expire.

The numbers are read once, from metadata. `lakecore inspect` shows them in a terminal or as a web
page.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore.errors import LakecoreError
from lakecore.model.manifest import FileKind, ManifestEntry
from lakecore.table.maintenance.consumers import list_consumers
from lakecore.table.maintenance.expire_snapshots import expire_snapshots, retention_of
from lakecore.table.maintenance.reachable import branch_names, tags_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.model.files import DataFile
    from lakecore.model.retention import ExpiredSnapshots
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

SNAPSHOTS_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFacts:
    """A snapshot, with the number and the bytes of its live files (None: unknown)."""

    id: int
    kind: str
    time_ms: int
    rows: int | None
    files: int | None = None
    bytes: int | None = None
    tags: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A data file: its stored rows, and how many of them are tombstones (None: unknown)."""

    name: str
    level: int
    bytes: int
    rows: int
    deletions: int | None
    overlaps: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFiles:
    """The live files of a bucket, by level and key."""

    partition: str
    bucket: int
    files: tuple[FileFacts, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The overview of a table at one moment.

    `snapshots` are the newest of `snapshot_count`. `expiry`: what the options of the table would
    expire now, by a dry run; None if the dry run fails.
    """

    table: str
    path: str
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: Mapping[str, str]
    snapshots: tuple[SnapshotFacts, ...]
    snapshot_count: int
    buckets: tuple[BucketFiles, ...]
    tags: Mapping[str, int]
    branches: tuple[str, ...]
    consumers: Mapping[str, int]
    expiry: ExpiredSnapshots | None = field(default=None)

    @property
    def files(self) -> int:
        return sum(len(bucket.files) for bucket in self.buckets)

    @property
    def bytes(self) -> int:
        return sum(bucket.bytes for bucket in self.buckets)


def overview_of(context: TableContext) -> Overview:
    """The overview of a table. Raises CorruptTable if its latest snapshot cannot be read."""
    # The overview shows the names of partitions and the row counts of files.
    context.options.require_all_rows()
    history = context.history
    ids = history.snapshot_ids()
    found = [history.snapshot_if_there(number) for number in ids[-SNAPSHOTS_SHOWN:]]
    snapshots = [snapshot for snapshot in found if snapshot is not None]
    entries = history.live_entries(snapshots[-1]) if snapshots else ()
    tags = {tag.name: tag.snapshot.id for tag in tags_of(history)}
    consumers = {each.consumer_id: each.next_snapshot for each in list_consumers(context)}
    return Overview(
        table=context.identifier,
        path=context.layout.root,
        primary_keys=context.schema.primary_keys,
        partition_keys=context.schema.partition_keys,
        options=dict(sorted(context.schema.stated_options.items())),
        snapshots=_with_growth(context, snapshots, entries, tags, consumers),
        snapshot_count=len(ids),
        buckets=bucket_files(context, entries),
        tags=tags,
        branches=branch_names(context),
        consumers=consumers,
        expiry=_expiry(context),
    )


def _expiry(context: TableContext) -> ExpiredSnapshots | None:
    try:
        return expire_snapshots(context, retention_of(context), dry_run=True)
    except LakecoreError:  # an overview must also work for a damaged table
        return None


def _with_growth(
    context: TableContext,
    snapshots: Sequence[Snapshot],
    entries: Sequence[ManifestEntry],
    tags: Mapping[str, int],
    consumers: Mapping[str, int],
) -> tuple[SnapshotFacts, ...]:
    """The facts of the snapshots. Files and bytes are counted backwards from the latest one."""
    of_tags, of_consumers = _by_number(tags), _by_number(consumers)
    files: int | None = len(entries)
    size_bytes: int | None = sum(entry.file.size_bytes for entry in entries)
    facts: list[SnapshotFacts] = []
    for snapshot in reversed(snapshots):
        facts.append(
            SnapshotFacts(
                id=snapshot.id,
                kind=str(snapshot.commit_kind),
                time_ms=snapshot.time_ms,
                rows=snapshot.total_record_count,
                files=files,
                bytes=size_bytes,
                tags=of_tags[snapshot.id],
                consumers=of_consumers[snapshot.id],
            )
        )
        if files is None or size_bytes is None:
            continue
        try:
            delta = context.history.entries(context.history.delta_manifests(snapshot))
        except LakecoreError:
            files = size_bytes = None
            continue
        for entry in delta:
            sign = 1 if entry.kind is FileKind.ADD else -1
            files -= sign
            size_bytes -= sign * entry.file.size_bytes
    return tuple(reversed(facts))


def _by_number(named: Mapping[str, int]) -> Mapping[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = defaultdict(tuple)
    for name, number in named.items():
        found[number] += (name,)
    return found


def bucket_files(
    context: TableContext, entries: Sequence[ManifestEntry]
) -> tuple[BucketFiles, ...]:
    """The files of the entries by partition and bucket, sorted."""
    groups: dict[tuple[str, int], list[DataFile]] = defaultdict(list)
    for entry in entries:
        groups[context.partitions.path(entry.partition), entry.bucket].append(entry.file)
    return tuple(
        BucketFiles(partition=partition, bucket=bucket, files=_files(files))
        for (partition, bucket), files in sorted(groups.items())
    )


def _files(files: Sequence[DataFile]) -> tuple[FileFacts, ...]:
    """The files of a bucket.

    In a table with a key, files of several levels, or of level 0, may overlap.
    """
    lowest = max((file.level for file in files), default=0)
    levels = {file.level for file in files}
    ordered = sorted(files, key=lambda file: (file.level, file.sequence_min, file.name))
    return tuple(
        FileFacts(
            name=file.name,
            level=file.level,
            bytes=file.size_bytes,
            rows=file.row_count,
            deletions=file.delete_row_count,
            overlaps=len(levels) > 1 or (lowest == 0 and len(files) > 1 and bool(file.key_max)),
        )
        for file in ordered
    )
