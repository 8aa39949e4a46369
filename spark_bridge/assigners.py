"""The number of tasks that assign the dynamic buckets of one partition.

The hash h of a key belongs to assigner |h| % n, which fills the buckets b where b % n is its number
(`plan/bucketing.py`). Each assigner is a separate task, so n tasks load one partition
concurrently. As in Paimon, n is `dynamic-bucket.initial-buckets`, or else the parallelism of the
job.

INVARIANT: every key of a table is in a bucket of its assigner. A key never changes its bucket. If a
table was filled with another number of assigners, a number that fits its hash index is used. If
none fits, one task assigns all keys of a partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakecore.distributed import (
    BUCKETS_MAX,
    HASH_INDEX,
    POSTPONE_BUCKET,
    crosses_partitions,
    read_hashes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from lakecore.distributed import TableContext

__all__ = ["assigners_of", "fitting"]

HASHES_MAX = 1 << 26
"""The driver reads up to 256 MiB of hash index; beyond that, a partition has one assigner."""


def assigners_of(context: TableContext, parallelism: int = 1, *, overwrite: bool = False) -> int:
    """The number of assigners: at most `parallelism`, or the number in the table's options.

    A partitioned table has one assigner for each partition unless its options state more, because
    its partitions are written concurrently. An overwrite starts with an empty index. Rows for the
    postponed bucket need no index; it is enough that the rows of a key are in one task.
    """
    options, schema = context.options, context.schema
    if options.bucket == POSTPONE_BUCKET and not options.postpone_batch_write_fixed_bucket:
        return max(parallelism, 1)
    if options.bucket != -1 or not schema.primary_keys or crosses_partitions(context):
        return 1
    stated = options.dynamic_bucket_initial_buckets
    wanted = stated or (1 if schema.partition_keys else parallelism)
    bound = options.dynamic_bucket_max_buckets
    most = min(wanted, BUCKETS_MAX if bound < 0 else bound)
    if most <= 1 or overwrite:
        return max(most, 1)
    snapshot = context.history.latest_snapshot()
    found = [
        entry
        for entry in context.history.index_entries(snapshot)
        if entry.file.index_type == HASH_INDEX
    ]
    if sum(entry.file.row_count for entry in found) > HASHES_MAX:
        return 1
    return fitting(((entry.bucket, read_hashes(context, entry)) for entry in found), most)


def fitting(index: Iterable[tuple[int, NDArray[np.int32]]], most: int) -> int:
    """The largest number of assigners, up to `most`, for which the hash index is valid.

    The index is valid if each hash is in a bucket of its assigner.
    """
    fits = list(range(most, 1, -1))
    for bucket, hashes in index:
        sizes = np.abs(hashes.astype(np.int64))
        fits = [each for each in fits if not np.any(sizes % each != bucket % each)]
        if not fits:
            return 1
    return fits[0] if fits else 1
