"""Finds buckets that are much larger than the others: a job waits for its largest bucket."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.distributed import TableContext

log = logging.getLogger("lakecore.spark")

BYTES_MIN = 64 << 20
"""A bucket smaller than this is never reported."""
TIMES_MIN = 4.0
"""A bucket is reported if it is this many times as large as the average of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewedBucket:
    """A bucket that is much larger than the other buckets of a job.

    `times`: its size, divided by the average size of the others; infinite if they are empty.
    """

    partition: Mapping[str, str]
    bucket: int
    bytes: int
    times: float


def report_skew(
    context: TableContext,
    sizes: Mapping[tuple[bytes, int], int],
    verb: str,
    *,
    complete: bool = False,
) -> tuple[SkewedBucket, ...]:
    """The buckets that are much larger than the others, the largest first; logs a warning.

    `sizes` has the bytes of each partition and bucket of the job. A bucket that it does not name
    counts as empty; with `complete`, only the named buckets are compared. Only a table with fixed
    buckets has skewed ones.
    """
    found = _skewed(context, sizes, complete=complete)
    if found:
        log.warning(
            "%s of %s: %s much larger than the others, and one task does the work of a bucket. "
            "If few values of the bucket key have most rows, choose another bucket-key; otherwise "
            "give the table more buckets",
            verb,
            context.identifier,
            _named(found),
        )
    return found


def _skewed(
    context: TableContext, sizes: Mapping[tuple[bytes, int], int], *, complete: bool
) -> tuple[SkewedBucket, ...]:
    buckets = context.options.bucket
    count = len(sizes) if complete else buckets * len({partition for partition, _ in sizes})
    total = sum(sizes.values())
    if buckets < 1 or count < 2:
        return ()
    found: list[SkewedBucket] = []
    for (partition, bucket), size in sorted(sizes.items(), key=lambda each: -each[1]):
        others = (total - size) / (count - 1)
        times = size / others if others else float("inf")
        if size < BYTES_MIN or times < TIMES_MIN:
            continue
        texts = dict(context.partitions.texts(partition))
        found.append(SkewedBucket(partition=texts, bucket=bucket, bytes=size, times=times))
    return tuple(found)


def _named(found: Sequence[SkewedBucket]) -> str:
    first = found[0]
    keys = "".join(f", {key}={value}" for key, value in first.partition.items())
    name = f"bucket {first.bucket}{keys} ({first.bytes >> 20} MiB)"
    return f"{name} is" if len(found) == 1 else f"{name} and {len(found) - 1} more are"
