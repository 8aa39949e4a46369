"""Tables with postponed buckets (`bucket = -2`): which task writes which rows.

By default a batch write puts the rows into real buckets at once. If all partitions have the same
known number of buckets, each task gets whole buckets. Otherwise each task gets whole partitions,
and decides the number of buckets of a new partition by its rows, as a write in one process does.
With `postpone.batch-write-fixed-bucket = false`, all rows of a key go to one task, and its files
wait in the postponed bucket.

INVARIANT: the parameter `base` is the `WriteStart` that the tasks of the job get. Another snapshot
may have other numbers of buckets, and then two tasks would write one bucket.

See https://paimon.apache.org/docs/master/primary-key-table/data-distribution/#postpone-bucket
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.distributed.values import POSTPONE_BUCKET

if TYPE_CHECKING:
    from lakecore.distributed.tables import TableContext
    from lakecore.distributed.writing import WriteStart

__all__ = ["buckets_of_changes", "is_postponed", "real_buckets"]


def is_postponed(context: TableContext) -> bool:
    """Whether the table has postponed buckets."""
    return context.options.bucket == POSTPONE_BUCKET


def real_buckets(context: TableContext, base: WriteStart, *, overwrite: bool = False) -> int | None:
    """The number of real buckets that a write uses in every partition.

    None if they differ or are not known, or if the rows wait in the postponed bucket.
    """
    options = context.options
    if not is_postponed(context) or not options.postpone_batch_write_fixed_bucket:
        return None
    default = options.postpone_default_bucket_num
    known = {} if overwrite else base.bucket_counts
    if context.schema.partition_keys:
        return default if set(known.values()) <= {default} else None
    return next(iter(known.values()), default)


def buckets_of_changes(context: TableContext, base: WriteStart) -> int | None:
    """The number of real buckets of every partition that a MERGE reads or writes; None: unknown.

    Rows that wait in the postponed bucket are not read, and may come from any task that has all
    rows of their key.
    """
    if context.options.postpone_batch_write_fixed_bucket:
        return real_buckets(context, base)
    counts = set(base.bucket_counts.values())
    return counts.pop() if len(counts) == 1 else None
