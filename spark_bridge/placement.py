"""Which task owns a row: one task for each (partition, bucket) gets all rows of a key.

| table | owned by one task | shuffle |
|---|---|---|
| fixed buckets | a bucket of a partition | by bucket, and hash of the partition |
| primary key, dynamic buckets | keys of one assigner of a partition | by both |
| primary key, postponed buckets | a bucket, a partition, or keys | by these |
| primary key that lacks partition keys | the table | one task |
| append, no buckets, partitioned | nothing | a large partition is split between tasks |
| append, no buckets | nothing | none |

The task that owns a row is computed by a Spark SQL expression if the types allow it
(`bucket_sql.py`), otherwise by an Arrow function. The result is used for routing only: the task
computes partition and bucket again with lakecore's code, and the driver raises an error for a
bucket that two tasks wrote.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from lakecore.distributed import (
    BUCKETS_MAX,
    HASH_INDEX,
    POSTPONE_BUCKET,
    BucketFunction,
    Field,
    KindRule,
    TableContext,
    TableSchema,
    WriteStart,
    bucket_ids,
    bucket_key_fields,
    conform,
    crosses_partitions,
    hash_rows,
    read_base,
    read_hashes,
)
from spark_bridge.bucket_sql import HASH, bucket_sql, bucket_steps, is_plain, quoted
from spark_bridge.failures import DATA_ERRORS, raised_in_task
from spark_bridge.worker import set_aside

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray


# --- postponed -----------------------------------------------------------------------------------
# Tables with postponed buckets (`bucket = -2`): which task writes which rows.
#
# By default a batch write puts the rows into real buckets at once. If all partitions have the same
# known number of buckets, each task gets whole buckets. Otherwise each task gets whole partitions,
# and decides the number of buckets of a new partition by its rows, as a write in one process does.
# With `postpone.batch-write-fixed-bucket = false`, all rows of a key go to one task, and its files
# wait in the postponed bucket.
#
# INVARIANT: the parameter `base` is the `WriteStart` that the tasks of the job get. Another
# snapshot may have other numbers of buckets, and then two tasks would write one bucket.
#
# See https://paimon.apache.org/docs/master/primary-key-table/data-distribution/#postpone-bucket


def is_postponed(context: TableContext) -> bool:
    """Whether the table has postponed buckets."""
    return context.options.bucket == POSTPONE_BUCKET


def real_buckets(context: TableContext, base: WriteStart, *, overwrite: bool = False) -> int | None:
    """The number of real buckets that a write uses in every partition.

    None if partitions differ or are unknown, or if the rows wait in the postponed bucket.
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


# --- placement -----------------------------------------------------------------------------------

TASKS_PER_CORE = 16
"""More tasks than this add cost without improving the balance."""
_AS_GIVEN = KindRule(
    rowkind_field=None, keyed=True, ignore_delete=False, ignore_update_before=False
)


class Routing(StrEnum):
    """The ways to compute the number of the owner."""

    NONE = "none"
    REBALANCE = "rebalance"
    SQL = "sql"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The task that owns each row.

    - `tasks`: the number of tasks; 0 leaves the rows in the tasks of the frame;
    - `number`: the owner of a row, below `tasks`; None if any task may write any row;
    - `steps`: SQL expressions that compute the column `HASH`, each from the one before; `number` is
      computed from `HASH`;
    - `groups`: the columns by which a task groups the rows of one owner and bucket;
    - `rebalanced`: columns whose equal values Spark brings together, as far as the sizes of its
      tasks allow.
    """

    tasks: int
    routing: Routing
    number: Column | None = None
    steps: tuple[str, ...] = ()
    groups: tuple[Column, ...] = ()
    rebalanced: tuple[Column, ...] = ()

    def together(self, df: DataFrame) -> DataFrame:
        """The frame, shuffled so that the rows of each owner are in one task."""
        if self.rebalanced:
            return df.hint("rebalance", *((self.tasks,) if self.tasks else ()), *self.rebalanced)
        if self.number is None:
            return df.repartition(self.tasks) if self.tasks else df
        routed = self.hashed(df).repartitionById(self.tasks, self.number)
        return routed.drop(HASH) if self.steps else routed

    def hashed(self, df: DataFrame) -> DataFrame:
        """The frame with the column `HASH`, from which `number` is computed."""
        return reduce(lambda one, step: one.withColumn(HASH, f.expr(step)), self.steps, df)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingKeys:
    """The columns that determine the owner, in a form for executors.

    `buckets` 0: only the partition counts.
    """

    schema: TableSchema
    partition: tuple[str, ...]
    bucket: tuple[str, ...]
    buckets: int
    function: BucketFunction


def owner_of(
    df: DataFrame,
    context: TableContext,
    tasks: int | None = None,
    *,
    base: WriteStart | None = None,
    assigners: int = 1,
    overwrite: bool = False,
) -> Owner:
    """The owners of the rows of a frame; `tasks` overrides the number of tasks.

    `base`: the state that the tasks start from (None: read if needed). `assigners`: the number of
    tasks that assign the dynamic buckets of one partition.
    """
    schema, options = context.schema, context.options
    given = {field.name: field.dataType for field in df.schema.fields}
    partition = schema.partition_fields
    if options.bucket <= 0 and not schema.primary_keys:
        names = [quoted(field.name) for field in partition if field.name in given]
        columns = tuple(f.col(name) for name in names)
        routing = Routing.REBALANCE if columns else Routing.NONE
        return Owner(tasks=tasks or 0, routing=routing, groups=columns, rebalanced=columns)
    if crosses_partitions(context):
        # The task that writes a key must know which partition holds the key.
        return Owner(tasks=1, routing=Routing.SQL, number=f.lit(0), groups=(f.lit(0).alias("__o"),))
    own = options.bucket
    if is_postponed(context):
        own = real_buckets(context, base or read_base(context), overwrite=overwrite) or own
    fields, buckets, function = _bucketing(context, own, assigners)
    fixed = buckets > 1 or own > 0
    count = tasks or task_count(df.sparkSession, buckets, partitioned=bool(partition))
    plain = all(each.name in given and is_plain(each, given[each.name]) for each in partition)
    bucket: str | None = "0"
    stepped: tuple[tuple[str, ...], str] | None = None
    if fixed and all(field.name in given for field in fields):
        types = [given[field.name] for field in fields]
        never_null = frozenset(schema.primary_keys)
        bucket = bucket_sql(fields, types, buckets, function, never_null)
        if HASH.casefold() not in map(str.casefold, given):
            stepped = bucket_steps(fields, types, buckets, function, never_null)
    elif fixed:
        bucket = None
    if plain and bucket is not None:
        names = [quoted(field.name) for field in partition]
        spread = f"hash({', '.join(names)})" if names else "0"
        steps, hashed = stepped or ((), bucket)
        return Owner(
            tasks=count,
            routing=Routing.SQL,
            number=f.expr(f"cast(pmod(cast({spread} as bigint) + {hashed}, {count}L) as int)"),
            steps=steps,
            groups=(*(f.col(name) for name in names), f.expr(bucket).alias("__bucket")),
        )
    keys = routing_keys(schema, partition, fields, buckets if fixed else 0, function)
    number = _arrow_number(df, keys, count)
    return Owner(
        tasks=count, routing=Routing.ARROW, number=number, groups=(number.alias("__owner"),)
    )


def parallelism(spark: SparkSession) -> int:
    """The number of tasks that run at once, according to the settings.

    If the settings do not show the number, returns half of `spark.sql.shuffle.partitions`, which
    users set for large clusters.
    """
    conf = spark.conf
    stated = conf.get("spark.default.parallelism", "")
    if stated:
        return max(1, int(stated))
    master = conf.get("spark.master", "") or ""
    inside = master.partition("[")[2].rstrip("]").split(",")
    if master.startswith("local-cluster"):
        return int(inside[0]) * int(inside[1])
    if inside[0].isdigit():
        return int(inside[0])
    instances = conf.get("spark.executor.instances", "") or "0"
    if int(instances) and conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        return int(instances) * int(conf.get("spark.executor.cores", "") or "1")
    partitions = conf.get("spark.sql.shuffle.partitions", "") or ""
    # Some platforms set it to "auto".
    return max(2, int(partitions if partitions.isdigit() else "4") // 2)


def task_count(spark: SparkSession, buckets: int, *, partitioned: bool) -> int:
    """The number of tasks: one per bucket; with partitions, at least two per core.

    At most `TASKS_PER_CORE` per core.
    """
    cores = parallelism(spark)
    wanted = max(buckets, 2 * cores) if partitioned else buckets
    return max(1, min(wanted, TASKS_PER_CORE * cores))


def routing_of(context: TableContext, assigners: int = 1) -> RoutingKeys | None:
    """The columns that determine the owner of a row; None if any task may write any row."""
    schema, options = context.schema, context.options
    if options.bucket <= 0 and not schema.primary_keys:
        return None
    partition = () if crosses_partitions(context) else schema.partition_fields
    fields, buckets, function = _bucketing(context, options.bucket, assigners)
    fixed = buckets > 1 or options.bucket > 0
    return routing_keys(schema, partition, fields, buckets if fixed else 0, function)


def _bucketing(
    context: TableContext, buckets: int, assigners: int
) -> tuple[tuple[Field, ...], int, BucketFunction]:
    """The columns whose hash gives the bucket or the assigner, their number, and the function.

    The assigner of a key follows from its hash like a fixed bucket.
    """
    schema, options = context.schema, context.options
    if buckets <= 0:
        return schema.key_fields, assigners, BucketFunction.DEFAULT
    return bucket_key_fields(schema, options), buckets, options.bucket_function_type


def routing_keys(
    schema: TableSchema,
    partition: tuple[Field, ...],
    bucket: tuple[Field, ...],
    buckets: int,
    function: BucketFunction,
) -> RoutingKeys:
    """The columns that determine the owner; `buckets` is the number of buckets or assigners."""
    names = dict.fromkeys(field.name for field in (*partition, *bucket))
    own = replace(
        schema, fields=tuple(schema.field(name) for name in names), partition_keys=(), options={}
    )
    return RoutingKeys(
        # Routing accepts nulls in key columns: the task that gets the row decides whether they are
        # allowed.
        schema=replace(own, primary_keys=()),
        partition=tuple(field.name for field in partition),
        bucket=tuple(field.name for field in bucket),
        buckets=buckets,
        function=function,
    )


def _arrow_number(df: DataFrame, keys: RoutingKeys, count: int) -> Column:
    """The number of the owner, computed by a function in Spark's Python workers."""

    def number(rows: pa.Array) -> pa.Array:
        with raised_in_task():
            try:
                numbers = owner_numbers(rows, keys, count)
            except DATA_ERRORS:
                # The task that gets the rows says what is wrong with them.
                numbers = np.zeros(len(rows), dtype=np.int32)
            set_aside("route")
            return pa.array(numbers)

    own = [f.col(quoted(name)) for name in keys.schema.names if name in df.columns]
    if not own:
        return f.lit(0)
    return f.arrow_udf(number, returnType="int")(f.struct(*own))


def owner_numbers(rows: pa.StructArray, keys: RoutingKeys, count: int) -> np.ndarray:
    """The owner of each row, by the hash of its partition and its bucket."""
    batch = pa.RecordBatch.from_arrays(rows.flatten(), names=[each.name for each in rows.type])
    fitted = conform(batch, keys.schema, first_row=0, kinds=_AS_GIVEN).rows
    owners = np.zeros(len(rows), dtype=np.int64)
    if keys.buckets:
        columns = [fitted.column(name) for name in keys.bucket]
        types = [keys.schema.field(name).type for name in keys.bucket]
        owners += bucket_ids(columns, types, keys.buckets, keys.function)
    if keys.partition:
        columns = [fitted.column(name) for name in keys.partition]
        owners += hash_rows(columns, [keys.schema.field(name).type for name in keys.partition])
    return (owners % count).astype(np.int32)


# --- assigners -----------------------------------------------------------------------------------
# The number of tasks that assign the dynamic buckets of one partition.
#
# The hash h of a key belongs to assigner |h| % n, which fills the buckets b where b % n is its
# number (`plan/bucketing.py`). Each assigner is a separate task, so n tasks load one partition
# concurrently. As in Paimon, n is `dynamic-bucket.initial-buckets`, or else the parallelism of the
# job.
#
# INVARIANT: every key of a table is in a bucket of its assigner. A key never changes its bucket. If
# a table was filled with another number of assigners, a number that fits its hash index is used. If
# none fits, one task assigns all keys of a partition.

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
