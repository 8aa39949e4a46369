"""The facts of the latest snapshot that a writer needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import polars as pl

from lakecore.errors import CorruptTable
from lakecore.format.layout import POSTPONE_BUCKET
from lakecore.model.snapshot import CommitKind, Snapshot
from lakecore.table.commits.commit_change import Seen, was_rolled_back
from lakecore.table.context import TableContext, require_table
from lakecore.table.reads.scan import manifests_of

if TYPE_CHECKING:
    from lakecore.io.live_files import LiveColumns
    from lakecore.table.writes.bucket_buffer import BucketKey


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStart:
    """The facts of the table that a writer needs. Picklable.

    `bucket_counts` is the number of real buckets of each partition, `sequences` the largest
    sequence number of each bucket. `seen` is the look at the table, if it was made for the writer.
    """

    snapshot: Snapshot | None
    bucket_counts: Mapping[bytes, int]
    sequences: Mapping[BucketKey, int]
    seen: Seen | None = None

    @property
    def snapshot_id(self) -> int | None:
        """The id of the snapshot that was read; None for an empty table."""
        return None if self.snapshot is None else self.snapshot.id

    @property
    def snapshot_uuid(self) -> str | None:
        """The uuid of that snapshot: after a rollback, another snapshot may have the same id."""
        return None if self.snapshot is None else self.snapshot.uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstored:
    """A schema that is used to write rows before it is stored.

    `publish` stores it or raises an error; `base` describes the table under the previous schema.
    """

    publish: Callable[[], None]
    base: WriteStart


def read_base(context: TableContext) -> WriteStart:
    """Read what a writer needs from the latest snapshot."""
    at_ms = context.ambient.now_ms()
    snapshot = context.history.latest_snapshot()
    if snapshot is None:
        require_table(context)
    return replace(read_start(context, snapshot), seen=Seen(snapshot=snapshot, at_ms=at_ms))


def read_start(context: TableContext, snapshot: Snapshot | None) -> WriteStart:
    """Read what a writer needs from a snapshot; None is the empty table.

    In a large table, the facts of a partition are read when they are asked for.
    """
    if snapshot is None:
        return WriteStart(snapshot=None, bucket_counts={}, sequences={})
    if not context.history.is_small(snapshot):
        large = _LargeTable(context, snapshot)
        return WriteStart(
            snapshot=snapshot,
            bucket_counts=_Facts(large, large.counts, lambda partition: partition),
            sequences=_Facts(large, large.sequences, lambda bucket: bucket[0]),
        )
    counts: dict[bytes, int] = {}
    sequences: dict[BucketKey, int] = {}
    for entry in context.history.live_entries(snapshot):
        if entry.bucket == POSTPONE_BUCKET:
            continue
        counts[entry.partition] = entry.total_buckets
        key = (entry.partition, entry.bucket)
        sequences[key] = max(sequences.get(key, -1), entry.file.sequence_max)
    return WriteStart(snapshot=snapshot, bucket_counts=counts, sequences=sequences)


def overwritten_since(context: TableContext, base: WriteStart) -> bool:
    """Whether rows may have been removed since a writer read the table: overwrite or rollback."""
    history, snapshot = context.history, base.snapshot
    latest = history.latest_snapshot()
    if snapshot is None or latest is None:
        return latest is not snapshot
    if was_rolled_back(history, (snapshot.id, snapshot.uuid), latest):
        return True
    news = history.commits.after(snapshot.id, latest)
    overwritten = any(each.commit_kind is CommitKind.OVERWRITE for each in news)
    return overwritten or len(news) < latest.id - snapshot.id


# --- large tables --------------------------------------------------------------------------------
# The facts of the partitions that a writer touches. A writer of many partitions reads all at once.

_ONE_BY_ONE_MAX = 16
_K = TypeVar("_K")


class _LargeTable:
    """The facts that were read so far."""

    def __init__(self, context: TableContext, snapshot: Snapshot) -> None:
        self._context = context
        self._snapshot = snapshot
        self._read: set[bytes] = set()
        self._has_all = False
        self.counts: dict[bytes, int] = {}
        self.sequences: dict[BucketKey, int] = {}

    def read(self, partition: bytes) -> None:
        """Read the facts of a partition, unless they are known."""
        if self._has_all or partition in self._read:
            return
        if len(self._read) >= _ONE_BY_ONE_MAX:
            self.read_all()
            return
        self._add(partition)
        self._read.add(partition)

    def read_all(self) -> None:
        """Read the facts of all partitions, unless they are known."""
        if not self._has_all:
            self._add(None)
            self._has_all = True

    def _add(self, partition: bytes | None) -> None:
        try:
            live = self._live(partition)
        except CorruptTable:
            # If the snapshot has expired, the latest one has newer facts: larger sequence numbers,
            # and the bucket count that the commit will find.
            latest = self._context.history.latest_snapshot()
            if latest is None or latest == self._snapshot:
                raise
            self._snapshot = latest
            live = self._live(partition)
        partitions = live.partitions()
        facts = live.facts().filter(pl.col("bucket") != POSTPONE_BUCKET)
        counts = facts.group_by("partition").agg(pl.col("total_buckets").last())
        self.counts |= {partitions[number]: count for number, count in counts.iter_rows()}
        newest = facts.group_by("partition", "bucket").agg(pl.col("sequence_max").max())
        self.sequences |= {
            (partitions[number], bucket): most for number, bucket, most in newest.iter_rows()
        }

    def _live(self, partition: bytes | None) -> LiveColumns:
        history, snapshot = self._context.history, self._snapshot
        if partition is None:
            return history.live_columns(history.manifests(snapshot))
        manifests = manifests_of(history, self._context.partitions, snapshot, [partition])
        return history.live_columns(manifests, {partition: None})


class _Facts(Mapping[_K, int]):
    """The numbers of a large table by partition or bucket, read when they are asked for."""

    def __init__(
        self, table: _LargeTable, known: Mapping[_K, int], partition_of: Callable[[_K], bytes]
    ) -> None:
        """`known`: the numbers that `table` has read so far; the mapping grows."""
        self._table = table
        self._known = known
        self._partition_of = partition_of

    def __getitem__(self, key: _K) -> int:
        self._table.read(self._partition_of(key))
        return self._known[key]

    def __iter__(self) -> Iterator[_K]:
        self._table.read_all()
        return iter(self._known)

    def __len__(self) -> int:
        self._table.read_all()
        return len(self._known)

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)
