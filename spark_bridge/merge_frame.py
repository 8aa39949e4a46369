"""`merge`: a Spark frame merged into a table, by one of three ways.

1. *By buckets*: for a table with a key whose bucket follows from the source row
   (`merge_routing.py`). Source rows are shuffled to the task that owns their bucket, which reads
   that bucket.
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
from typing import TYPE_CHECKING, cast

import numpy as np
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from lakecore.distributed.row_verbs import (
    Match,
    MergeInto,
    MergeRequest,
    Verb,
    inserted,
    merged,
    merging,
    source_plan,
)
from lakecore.distributed.writing import read_start
from spark_bridge.arguments import (
    SPREAD_BYTES,
    check_counts,
    check_frame,
    check_no_column,
    check_spread,
    named_arguments,
    opened,
)
from spark_bridge.assigners import assigners_of
from spark_bridge.change_job import ChangeJob, committed_once, groups_of, size_of, statement
from spark_bridge.change_tasks import group_function, owner_function
from spark_bridge.check import with_types_of
from spark_bridge.merge_routing import equal_columns, is_all_equal, merge_owners
from spark_bridge.placement import parallelism
from spark_bridge.postponed import is_postponed
from spark_bridge.settings import require_version, settings, transfer
from spark_bridge.spread import OUTCOME_SCHEMA
from spark_bridge.task import MEMORY_PER_TASK
from spark_bridge.types import spark_arrow_schema

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lakecore import CommitResult, Table
    from lakecore.distributed.committing import Author
    from lakecore.distributed.row_verbs import Changed, MergePlan, TableSource
    from lakecore.distributed.tables import TableContext
    from lakecore.distributed.values import Split
    from spark_bridge.merge_routing import MergeOwners

__all__ = ["merge"]

SOURCE_BYTES = 64 << 20
"""By Spark's estimate: the driver merges up to that many bytes itself."""
SOURCE_ROWS = 100_000
"""If Spark has no estimate, the driver merges up to that many rows itself."""
_UNKNOWN_BYTES = 1 << 60
"""Spark's estimate of a frame of unknown size is larger."""
_SENT_SHARE = 16
"""A source is sent to every task if it takes at most the memory of a task divided by this."""


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
    """Executes a merge that the builder has described."""

    spark: SparkSession
    attempts: int
    spread: bool | None
    memory_bytes: int

    def __call__(
        self, context: TableContext, source: object, request: MergeRequest, by: Author
    ) -> CommitResult:
        df = with_types_of(cast("DataFrame", source), context)
        context = statement(self.spark, context)

        def parts() -> tuple[Sequence[Changed], str | None]:
            return self._parts(context, df, request)

        return committed_once(context, Verb.MERGE, by, parts, self.attempts)

    def _parts(
        self, context: TableContext, df: DataFrame, asked: MergeRequest
    ) -> tuple[Sequence[Changed], str | None]:
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
    ) -> tuple[Sequence[Changed], str]:
        """Shuffle the source rows to the tasks that own the buckets, and merge there."""
        count = len(groups)
        schema = spark_arrow_schema(df.schema)
        task = job.task(target, request, inserts=True, schema=schema)
        sealed = [pickle.dumps(group) for group in groups]
        # PySpark reads a dot in a name as a struct field.
        numbered = df.toDF(*(str(number) for number in range(len(df.columns))))

        def rows() -> DataFrame:
            number = owners.of_rows(numbered.columns, count)
            routed = numbered.repartitionById(count, number)
            return routed.mapInArrow(owner_function(task, sealed), OUTCOME_SCHEMA)

        def rest(missing: Sequence[int]) -> DataFrame:
            # Clauses for rows that match no source row have work without a source.
            numbers = self.spark.range(0, count, 1, count).where(f.col("id").isin(list(missing)))
            nothing = group_function(task, sealed, schema.empty_table())
            return numbers.mapInArrow(nothing, OUTCOME_SCHEMA)

        with settings(self.spark, transfer(self.spark, df.schema)):
            outcomes = job.run(task, rows, count, rest)
        return [outcome.changed for outcome in outcomes if outcome.changed], task.job

    def _by_split(
        self,
        job: ChangeJob,
        rows: pa.Table,
        target: TableSource,
        request: MergeRequest,
        plan: MergePlan,
    ) -> tuple[Sequence[Changed], str | None]:
        """Send the source to the tasks of all splits; the driver inserts the unmatched rows."""
        context = job.context
        inserts = bool(plan.steps[Match.NOT_MATCHED])
        keyed = bool(context.schema.primary_keys)
        groups = groups_of(context, target.plan().splits, parallelism(self.spark))
        fits = rows.nbytes <= self.memory_bytes // _SENT_SHARE
        if not fits or not groups or (keyed and inserts):
            return [merged(context, target, rows, request).changed], None
        task = job.task(target, request)
        sealed = [pickle.dumps(group) for group in groups]
        count = len(groups)

        def run() -> DataFrame:
            numbers = self.spark.range(0, count, 1, count)
            return numbers.mapInArrow(group_function(task, sealed, rows), OUTCOME_SCHEMA)

        outcomes = job.run(task, run, count)
        changed = [outcome.changed for outcome in outcomes if outcome.changed]
        if inserts:
            flags = [each.found for each in outcomes if each.found is not None]
            assert len(flags) == count, "a source that was sent is merged as one part"
            found = reduce(np.logical_or, flags)
            changed.append(inserted(context, target, rows, request, found))
        return changed, task.job


def _estimate(df: DataFrame) -> int | None:
    """The bytes of the frame, by Spark's estimate; None if Spark has none, as under Connect."""
    try:
        plan = df._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  Spark's only way
        size_bytes = int(plan.stats().sizeInBytes().toString())
    except (PySparkException, AttributeError):
        return None
    return size_bytes if size_bytes < _UNKNOWN_BYTES else None
