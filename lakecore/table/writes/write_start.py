"""The facts of the latest snapshot that a writer needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.table.context import require_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext
    from lakecore.table.writes.bucket_buffer import BucketKey


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStart:
    """The facts of the table that a writer needs. Picklable.

    `bucket_counts` is the bucket count of each partition, `sequences` the largest sequence number
    of each bucket.
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
    """A schema that rows are written under before it is stored.

    `publish` stores it or raises an error; `base` describes the table under the previous schema.
    """

    publish: Callable[[], None]
    base: WriteStart


def read_base(context: TableContext) -> WriteStart:
    """Read what a writer needs from the latest snapshot."""
    snapshot = context.history.latest_snapshot()
    counts: dict[bytes, int] = {}
    sequences: dict[BucketKey, int] = {}
    if snapshot is None:
        require_table(context)
    else:
        for entry in context.history.live_entries(snapshot):
            counts[entry.partition] = entry.total_buckets
            key = (entry.partition, entry.bucket)
            sequences[key] = max(sequences.get(key, -1), entry.file.sequence_max)
    return WriteStart(snapshot=snapshot, bucket_counts=counts, sequences=sequences)
