"""The facts of the latest snapshot that a writer needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.format.layout import POSTPONE_BUCKET
from lakecore.model.snapshot import CommitKind
from lakecore.table.commits.commit_change import was_rolled_back
from lakecore.table.context import require_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext
    from lakecore.table.writes.bucket_buffer import BucketKey


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStart:
    """The facts of the table that a writer needs. Picklable.

    `bucket_counts` is the number of real buckets of each partition, `sequences` the largest
    sequence number of each bucket.
    """

    snapshot: Snapshot | None
    bucket_counts: Mapping[bytes, int]
    sequences: Mapping[BucketKey, int]

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
    snapshot = context.history.latest_snapshot()
    if snapshot is None:
        require_table(context)
    return read_start(context, snapshot)


def read_start(context: TableContext, snapshot: Snapshot | None) -> WriteStart:
    """Read what a writer needs from a snapshot; None is the empty table."""
    counts: dict[bytes, int] = {}
    sequences: dict[BucketKey, int] = {}
    for entry in () if snapshot is None else context.history.live_entries(snapshot):
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
