"""A consumer: a named reader of a stream, and the snapshot that it reads next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """The recorded progress of a stream (https://paimon.apache.org/docs/master/flink/consumer-id/).

    `next_snapshot` is the id of the first snapshot that is not read yet. Snapshots from this one on
    do not expire. `modified_ms` is when the progress was last recorded, in milliseconds since
    1970; None if the storage keeps no times.
    """

    consumer_id: str
    next_snapshot: int
    modified_ms: int | None = None
