"""The number of real buckets of a partition, for tables with postponed buckets.

A partition that has real buckets keeps their number. For a new partition,
`postpone.default-bucket-num` states the number. Without this option, the number is computed from
the rows or bytes and the target size of a bucket
(https://paimon.apache.org/docs/master/primary-key-table/data-distribution/#postpone-bucket).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakecore.options import TableOptions

__all__ = ["batch_count", "compaction_count", "rescaled_count"]


def compaction_count(rows: int, size_bytes: int, options: TableOptions) -> int:
    """The number of buckets of a new partition, by the rows and bytes in its postponed bucket."""
    return options.postpone_default_bucket_num or _needed(rows, size_bytes, options)


def batch_count(rows: int, size_bytes: int, options: TableOptions) -> int:
    """The number of buckets of a new partition, by the rows and bytes that a batch writes to it.

    An estimate is rounded up to a power of two, up to the largest number allowed.
    """
    stated = options.postpone_default_bucket_num
    return stated or _rounded(_needed(rows, size_bytes, options), options)


def rescaled_count(rows: int, size_bytes: int, buckets: int, options: TableOptions) -> int | None:
    """The wanted number of buckets, if a batch is too large for the `buckets` of its partition."""
    needed = _needed(rows, size_bytes, options)
    factor = options.postpone_batch_write_fixed_bucket_rescale_load_factor
    wanted = _rounded(needed, options)
    return wanted if needed > buckets * factor and wanted > buckets else None


def _needed(rows: int, size_bytes: int, options: TableOptions) -> int:
    target_rows = options.postpone_target_row_num_per_bucket
    if target_rows is not None:
        return max(1, -(-rows // target_rows))
    return max(1, -(-size_bytes // max(1, options.postpone_target_size_per_bucket_bytes)))


def _rounded(needed: int, options: TableOptions) -> int:
    most = options.postpone_batch_write_fixed_bucket_max_parallelism
    capped = min(needed, most)
    return min(1 << (capped - 1).bit_length(), most)
