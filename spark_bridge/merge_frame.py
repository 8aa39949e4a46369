"""`merge`: a Spark frame merged into a table, by one of three ways.

1. *By buckets*: for a table with a key whose bucket follows from the source row. Source rows are
   shuffled to the task that owns their bucket, which reads that bucket.
2. *By splits*: for tables without a key, and for merges that insert nothing. A small source is sent
   to every task. The tasks change their own splits and flag the source rows that matched; the
   driver inserts the others.
3. *By the driver*: if source and table are small, because starting tasks would take longer, or if
   neither of the other ways is possible.

The clauses are checked on the driver before any task runs, and every way reads one snapshot and
makes one commit.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from lakecore.distributed import (
    SOURCE,
    TARGET,
    Author,
    BucketFunction,
    Changed,
    Match,
    MergeInto,
    MergePlan,
    MergeRequest,
    Share,
    Split,
    Sql,
    TableContext,
    TableSource,
    Verb,
    WriteStart,
    bucket_key_fields,
    crosses_partitions,
    hash_rows,
    inserted,
    merged,
    merging,
    read_start,
    source_plan,
    with_nullable,
)
from spark_bridge.arguments import (
    SPREAD_BYTES,
    check_counts,
    check_frame,
    check_no_column,
    check_spread,
    named_arguments,
    opened,
    with_types_of,
)
from spark_bridge.change_job import (
    ChangeJob,
    committed_once,
    groups_of,
    owner_function,
    size_of,
    statement,
)
from spark_bridge.failures import DATA_ERRORS, raised_in_task
from spark_bridge.placement import (
    RoutingKeys,
    assigners_of,
    buckets_of_changes,
    is_postponed,
    owner_numbers,
    parallelism,
    routing_keys,
    task_count,
)
from spark_bridge.settings import require_version, settings, transfer
from spark_bridge.spread import OUTCOME_SCHEMA, unit_rows
from spark_bridge.task import MEMORY_PER_TASK
from spark_bridge.types import spark_arrow_schema

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore import CommitResult, Table
    from spark_bridge.job_commit import JobFiles


# --- merge routing -------------------------------------------------------------------------------
# Assigns source rows and splits of the table to tasks, both by the bucket of the key.
#
# A merge is *bucket-local* if all rows that match a source row are in one bucket, known from the
# source row alone:
#
# 1. `on`, or the equalities of an SQL condition, contain the partition keys and the bucket key.
#    Both sides have the same type, so that equal values have equal hashes.
# 2. Every split has the table's number of buckets. If the number of postponed buckets differs or is
#    not known yet, a task owns whole partitions, and only the partition keys matter.
# 3. Insertions take these columns from the same source columns, so that new rows stay in the
#    bucket.
#
# If keys may move between partitions, one task owns the whole table.
#
# INVARIANT: a source row and the rows of the table that it matches have the same owner. A row with
# a null in one of the columns matches nothing, and may have any owner.

Node: TypeAlias = "dict[str, Any]"
"""A node of DuckDB's syntax tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOwners:
    """The owners of a bucket-local merge.

    `places`: for each column of `keys`, the position of its source column.
    """

    keys: RoutingKeys
    places: tuple[int, ...]

    def count(self, spark: SparkSession) -> int:
        if not self.places:
            return 1
        partitioned = bool(self.keys.partition)
        return task_count(spark, max(1, self.keys.buckets), partitioned=partitioned)

    def of_rows(self, columns: Sequence[str], count: int) -> Column:
        """The owner of each source row; `columns`: the names of the frame, by position."""
        own = [f.col(columns[place]) for place in self.places]
        keys = self.keys

        def number(rows: pa.Array) -> pa.Array:
            with raised_in_task():
                return pa.array(_owners(rows, keys, count))

        if not own:
            return f.lit(0)
        return f.arrow_udf(number, returnType="int")(f.struct(*own))

    def of_splits(
        self, context: TableContext, splits: Sequence[Split], count: int
    ) -> list[tuple[Split, ...]]:
        """The splits of each owner."""
        partitions = list({split.partition: None for split in splits})
        hashes = _partition_hashes(context, partitions)
        found: list[list[Split]] = [[] for _ in range(count)]
        buckets = max(self.keys.buckets, 1)
        for split in splits:
            bucket = split.bucket % buckets
            found[(hashes[split.partition] + bucket) % count].append(split)
        return [tuple(each) for each in found]


def merge_owners(
    context: TableContext,
    source: pa.Schema,
    plan: MergePlan,
    splits: Sequence[Split],
    *,
    assigners: int,
    base: WriteStart | None,
) -> MergeOwners | None:
    """The owners of a merge into a table with a key; None if it is not bucket-local.

    `base`: the state that the tasks start from, for a table with postponed buckets.
    """
    schema, options = context.schema, context.options
    if not schema.primary_keys:
        return None
    if crosses_partitions(context):
        # The one task splits a large source into parts, for which it needs columns to merge on.
        keys = routing_keys(schema, (), (), 0, BucketFunction.DEFAULT)
        return MergeOwners(keys=keys, places=()) if plan.on else None
    dynamic = options.bucket == -1
    own: int | None = options.bucket
    if is_postponed(context):
        assert base is not None, "the numbers of buckets are those of a snapshot"
        own = buckets_of_changes(context, base)
    if own is not None and any(split.total_buckets != own for split in splits):
        return None
    fields = schema.key_fields if dynamic else bucket_key_fields(schema, options)
    # Without a common number of buckets, a task owns whole partitions.
    buckets = assigners if dynamic else own or 1
    function = BucketFunction.DEFAULT if dynamic else options.bucket_function_type
    hashed = buckets > 1
    keys = routing_keys(
        schema, schema.partition_fields, fields if hashed else (), hashed * buckets, function
    )
    pairs = {name: name for name in plan.on} or equal_columns(plan, source, schema.arrow)
    wanted = [field.name for field in keys.schema.fields]
    if not all(name in pairs for name in wanted) or not _stay_there(plan, pairs, wanted):
        return None
    nullable = tuple(
        replace(each, type=with_nullable(each.type, nullable=True), default_value=None)
        for each in keys.schema.fields
    )
    return MergeOwners(
        keys=replace(keys, schema=replace(keys.schema, fields=nullable)),
        places=tuple(source.get_field_index(pairs[name]) for name in wanted),
    )


def equal_columns(plan: MergePlan, source: pa.Schema, target: pa.Schema) -> dict[str, str]:
    """Columns of the table that an SQL condition requires to equal source columns of their type."""
    condition = plan.condition
    if not isinstance(condition, Sql):
        return {}
    columns = {side: plan.sides.of_side([condition], side) for side in (SOURCE, TARGET)}
    found: dict[str, str] = {}
    for names in _equalities(condition.tree):
        both = [condition.columns[int(name.removeprefix("_lakecore_column_"))] for name in names]
        mine = [columns[TARGET][name] for name in both if name in columns[TARGET]]
        other = [columns[SOURCE][name] for name in both if name in columns[SOURCE]]
        if len(mine) != 1 or len(other) != 1:
            continue
        kind = target.field(mine[0]).type
        if source.field(other[0]).type == kind and not pa.types.is_floating(kind):
            found.setdefault(mine[0], other[0])
    return found


def is_all_equal(plan: MergePlan, pairs: Mapping[str, str]) -> bool:
    """Whether an SQL condition consists only of equalities `target.x = source.x`."""
    condition = plan.condition
    if not isinstance(condition, Sql) or any(mine != other for mine, other in pairs.items()):
        return False
    parts = list(_conjuncts(condition.tree))
    return bool(pairs) and len(parts) == len(pairs) == len(list(_equalities(condition.tree)))


def _conjuncts(tree: Node) -> Iterator[Node]:
    if tree.get("type") != "CONJUNCTION_AND":
        yield tree
        return
    for child in tree["children"]:
        yield from _conjuncts(child)


def _equalities(tree: Node) -> Iterator[tuple[str, str]]:
    """The pairs of plain columns that one condition of the conjunction compares for equality."""
    for part in _conjuncts(tree):
        if part.get("type") != "COMPARE_EQUAL":
            continue
        sides = [part["left"], part["right"]]
        names = [side.get("column_names", ()) for side in sides]
        if all(len(each) == 1 for each in names):
            yield names[0][0], names[1][0]


def _stay_there(plan: MergePlan, pairs: Mapping[str, str], wanted: Sequence[str]) -> bool:
    """Whether inserted rows take the bucket's columns from source columns that `on` compares."""
    for step in plan.steps[Match.NOT_MATCHED]:
        names = step.sides.of_side(step.values.values(), SOURCE)
        for name in wanted:
            value = step.values.get(name)
            if isinstance(value, pl.Expr):
                roots = value.meta.root_names()
                plain = len(roots) == 1 and value.meta.eq(pl.col(roots[0]))
            elif isinstance(value, Sql):
                roots = list(value.columns)
                plain = len(roots) == 1 and value.tree.get("class") == "COLUMN_REF"
            else:
                return False
            if not plain or names.get(roots[0]) != pairs[name]:
                return False
    return True


def _partition_hashes(context: TableContext, partitions: Sequence[bytes]) -> dict[bytes, int]:
    if not context.schema.partition_keys or not partitions:
        return dict.fromkeys(partitions, 0)
    values = context.partitions.values(partitions)
    types = [field.type for field in context.schema.partition_fields]
    hashes = hash_rows(values.columns, types).astype(np.int64)
    return dict(zip(partitions, hashes.tolist(), strict=True))


def _owners(rows: pa.StructArray, keys: RoutingKeys, count: int) -> np.ndarray:
    """The owner of each row; 0 for a row with a null, and for rows that do not fit the table."""
    columns = rows.flatten()
    absent = np.zeros(len(rows), bool)
    for column in columns:
        absent |= column.is_null().to_numpy(zero_copy_only=False)
    names = [field.name for field in keys.schema.fields]
    whole = pc.filter(pa.StructArray.from_arrays(columns, names=names), pa.array(~absent))
    owners = np.zeros(len(rows), np.int32)
    try:
        owners[~absent] = owner_numbers(whole, keys, count)
    except DATA_ERRORS:
        # The task that gets the rows says what is wrong with them, and fails the merge.
        return np.zeros(len(rows), np.int32)
    return owners


# --- merge frame ---------------------------------------------------------------------------------

SOURCE_BYTES = 64 << 20
"""By Spark's estimate: the driver merges up to that many bytes itself."""
SOURCE_ROWS = 100_000
"""If Spark has no estimate, the driver merges up to that many rows itself."""
_UNKNOWN_BYTES = 1 << 60
"""Spark's estimate is larger than this for a frame of unknown size."""


@named_arguments
def merge(  # noqa: PLR0913  the public verb
    spark: SparkSession,
    table: Table | str | os.PathLike[str],
    source: DataFrame,
    on: Sequence[str] | pl.Expr | str,
    *,
    attempts: int = 1,
    spread: bool | None = None,
    memory_per_task: int = MEMORY_PER_TASK,
) -> MergeInto:
    """A MERGE of a Spark frame: add clauses as to `Table.merge`, then call `execute`.

    `on` is a list of columns that must be equal, or a condition on `source.x` and `target.y`. In
    SQL, times without a zone are in the zone of the session.

    - `attempts`: how often to start again from the new snapshot if another commit has changed one
      of the rows meanwhile; after the last attempt, CommitConflict is raised. Each attempt computes
      the frame again.
    - `spread`: whether tasks do the work (True) or the driver (False); by default the sizes of
      source and table decide.
    - `memory_per_task`: the most bytes of rows and files that a task holds.

    `execute` raises the errors of `Table.merge`: for wrong clauses, before any task runs; for
    several source rows that match one row of the table; CommitConflict.

        merge = spark_bridge.merge(spark, "/data/shop/orders", changes, on=["id"])
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    """
    require_version(spark)
    check_counts(attempts=attempts, memory_per_task=memory_per_task)
    check_spread(spread)
    check_frame(source)
    check_no_column(on=on)
    run = _SparkMerge(spark=spark, attempts=attempts, spread=spread, memory_bytes=memory_per_task)
    return MergeInto(context=opened(table).context, source=source, on=on, run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SparkMerge:
    spark: SparkSession
    attempts: int
    spread: bool | None
    memory_bytes: int

    def __call__(
        self, context: TableContext, source: object, request: MergeRequest, by: Author
    ) -> CommitResult:
        df = with_types_of(cast("DataFrame", source), context)
        context = statement(self.spark, context)

        def parts() -> tuple[Sequence[Changed], JobFiles | None]:
            return self._parts(context, df, request)

        return committed_once(context, Verb.MERGE, by, parts, self.attempts)

    def _parts(
        self, context: TableContext, df: DataFrame, asked: MergeRequest
    ) -> tuple[Sequence[Changed], JobFiles | None]:
        schema = spark_arrow_schema(df.schema)
        target, request = merging(context, asked)
        plan = source_plan(context, schema.empty_table(), request)
        pairs = equal_columns(plan, schema, context.schema.arrow)
        if is_all_equal(plan, pairs):
            # The values of a list of columns can prune files of the table; a condition cannot.
            request = replace(request, on=tuple(pairs))
            plan = source_plan(context, schema.empty_table(), request)
        splits = target.plan().splits
        rows = self._few(df, splits)
        if rows is not None:
            return [merged(context, target, rows, request).changed], None
        cores = parallelism(self.spark)
        assigners = assigners_of(context, cores)
        base = read_start(context, target.snapshot) if is_postponed(context) else None
        owners = merge_owners(context, schema, plan, splits, assigners=assigners, base=base)
        job = ChangeJob(
            spark=self.spark,
            context=context,
            verb=Verb.MERGE,
            memory_bytes=self.memory_bytes,
            assigners=assigners,
            base=base,
        )
        if owners is not None:
            groups = owners.of_splits(context, splits, owners.count(self.spark))
            return self._by_owner(job, df, target, request, owners, groups)
        return self._by_split(job, df.toArrow(), target, request, plan)

    def _few(self, df: DataFrame, splits: Sequence[Split]) -> pa.Table | None:
        """The source rows, if they are few enough for the driver to merge; else None."""
        if self.spread is not None:
            return None if self.spread else df.toArrow()
        if size_of(splits) > SPREAD_BYTES:
            return None
        size_bytes = _estimate(df)
        if size_bytes is None:
            rows = df.limit(SOURCE_ROWS + 1).toArrow()
            return rows if rows.num_rows <= SOURCE_ROWS else None
        return df.toArrow() if size_bytes <= SOURCE_BYTES else None

    def _by_owner(
        self,
        job: ChangeJob,
        df: DataFrame,
        target: TableSource,
        request: MergeRequest,
        owners: MergeOwners,
        groups: Sequence[tuple[Split, ...]],
    ) -> tuple[Sequence[Changed], JobFiles]:
        """Shuffle the source rows to the tasks that own the buckets, and merge there."""
        count = len(groups)
        schema = spark_arrow_schema(df.schema)
        task = job.task(target, request, inserts=True, schema=schema)
        sealed = [pickle.dumps(group) for group in groups]
        # PySpark reads a dot in a name as a struct field.
        numbered = df.toDF(*(str(number) for number in range(len(df.columns))))

        def rows() -> DataFrame:
            # The splits of an owner are a row as well.
            own = owners.of_rows(numbered.columns, count).alias("number")
            source = numbered.select("*", own, f.lit(None).cast("binary").alias("unit"))
            absent = [f.lit(None).cast(each.dataType) for each in numbered.schema]
            units = unit_rows(self.spark, sealed).select(*absent, "number", "unit")
            routed = source.unionAll(units).repartitionById(count, "number").drop("number")
            return routed.mapInArrow(owner_function(task), OUTCOME_SCHEMA)

        with settings(self.spark, transfer(self.spark, df.schema)):
            outcomes, files = job.run(task, rows, count)
        return [outcome.changed for outcome in outcomes if outcome.changed], files

    def _by_split(
        self,
        job: ChangeJob,
        rows: pa.Table,
        target: TableSource,
        request: MergeRequest,
        plan: MergePlan,
    ) -> tuple[Sequence[Changed], JobFiles | None]:
        """Send the source to the tasks of all splits; the driver inserts the unmatched rows."""
        context = job.context
        inserts = bool(plan.steps[Match.NOT_MATCHED])
        keyed = bool(context.schema.primary_keys)
        groups = groups_of(context, target.plan().splits, parallelism(self.spark))
        fits = rows.nbytes <= Share.SENT.of(self.memory_bytes)
        if not fits or not groups or (keyed and inserts):
            return [merged(context, target, rows, request).changed], None
        task = job.task(target, request)
        outcomes, files = job.by_group(task, groups, rows)
        changed = [outcome.changed for outcome in outcomes if outcome.changed]
        if inserts:
            flags = [each.found for each in outcomes if each.found is not None]
            assert len(flags) == len(groups), "a source that was sent is merged as one part"
            found = reduce(np.logical_or, flags)
            changed.append(inserted(context, target, rows, request, found))
        return changed, files


def _estimate(df: DataFrame) -> int | None:
    """The bytes of the frame, by Spark's estimate; None if Spark has none, as under Connect."""
    try:
        plan = df._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  Spark's only way
        size_bytes = int(plan.stats().sizeInBytes().toString())
    except (PySparkException, AttributeError):
        return None
    return size_bytes if size_bytes < _UNKNOWN_BYTES else None
