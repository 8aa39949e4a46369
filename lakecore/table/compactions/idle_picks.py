"""How often a long-running job found nothing to compact in a bucket.

With `lookup-compact` = `gentle`, level 0 is compacted only if the number of runs requires it, or
after `lookup-compact.max-interval` picks that found nothing. A job counts such picks over its
rounds, even for a bucket without new files, so that the bucket's rows become visible eventually.
In Java Paimon, a round is a checkpoint.
"""

from __future__ import annotations

Bucket = tuple[bytes, int]
"""Partition and bucket."""


class IdlePicks:
    """The counts of one job, by bucket."""

    def __init__(self) -> None:
        self._counts: dict[Bucket, int] = {}
        self._counted: set[Bucket] = set()

    def begin_round(self) -> None:
        """Start a round. A bucket counts once in a round, however often it is planned."""
        self._counted = set()

    def count(self, bucket: Bucket) -> int:
        """The picks that found nothing since level 0 was last compacted, without this round."""
        return self._counts.get(bucket, 0) - (bucket in self._counted)

    def found_nothing(self, bucket: Bucket) -> None:
        """Count that a plan found nothing to compact in the bucket; at most once per round."""
        if bucket not in self._counted:
            self._counts[bucket] = self._counts.get(bucket, 0) + 1
            self._counted.add(bucket)

    def took_level_0(self, bucket: Bucket) -> None:
        """Restart the count, because level 0 is compacted."""
        self._counts.pop(bucket, None)
        self._counted.discard(bucket)
