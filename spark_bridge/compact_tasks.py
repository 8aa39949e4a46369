"""Compacts planned buckets in one Spark job, and returns their commit messages to the driver.

1. Each large item of the plan gets its own task. Small items share tasks, so that a task has enough
   work and every core has a task. Spark starts the tasks in order, the largest first.
2. A task compacts its buckets one after another, within its memory budget. All file names begin
   with the id of the job.
3. One row comes back for each bucket: its message, or the error. An error of the table is not
   raised in the task, because another attempt would fail in the same way.
4. Files of lost attempts are removed from the buckets of the plan.

Nothing becomes visible here: the driver commits the messages.
"""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lakecore import LakecoreError, Uncomputable
from lakecore.distributed.descriptor import describe
from lakecore.distributed.tables import SYSTEM, of_job
from lakecore.distributed.verb_tasks import do_work
from spark_bridge.failures import portable, raised_in_task
from spark_bridge.job_files import remove_files_of_job, remove_leftovers
from spark_bridge.packing import packed
from spark_bridge.skew import report_skew
from spark_bridge.spread import OUTCOME_SCHEMA, answer, answers
from spark_bridge.worker import acknowledge, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakecore import CommitMessage
    from lakecore.distributed.descriptor import TableDescriptor
    from lakecore.distributed.tables import TableContext
    from lakecore.distributed.verb_tasks import Work
    from lakecore.distributed.verbs import Failures, Tally
    from spark_bridge.worker import Batches

__all__ = ["CompactTask", "SparkRunner", "compact_function"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRunner:
    """Compacts the buckets of a step as tasks of one Spark job; a `Runner` of `compact_table`."""

    spark: SparkSession
    cores: int
    memory_bytes: int

    def __call__(
        self,
        context: TableContext,
        works: Sequence[Work],
        tally: Tally,
        messages: list[CommitMessage],
    ) -> Failures:
        """Append the message of each item. Returns the failures that are `Uncomputable`, by bucket.

        Raises the first other failure.
        """
        if not works:
            return {}
        job = SYSTEM.new_uuid()
        sizes: Counter[tuple[bytes, int]] = Counter()
        for work in works:
            sizes[work.partition, work.bucket] += _size(work)
        report_skew(context, sizes, "the compaction", complete=True)
        groups = packed([_size(work) for work in works], self.cores)
        task = CompactTask(table=describe(context), job=job, memory_bytes=self.memory_bytes)
        try:
            outcomes = self._collected(context, task, works, groups)
        except BaseException:
            remove_files_of_job(context, job)
            raise
        failed: Failures = {}
        failure: LakecoreError | None = None
        for work, outcome in zip(works, outcomes, strict=True):
            if isinstance(outcome, Uncomputable):
                failed[work.partition, work.bucket] = outcome
            elif isinstance(outcome, LakecoreError):
                failure = failure or outcome
            else:
                messages.append(outcome)
            tally.rows(work.row_count)
            tally.bucket()
        buckets = [(work.partition, work.bucket) for work in works]
        remove_leftovers(context, job, messages, buckets)
        if failure is not None:
            raise failure
        return failed

    def _collected(
        self,
        context: TableContext,
        task: CompactTask,
        works: Sequence[Work],
        groups: Sequence[Sequence[int]],
    ) -> Sequence[CommitMessage | LakecoreError]:
        """The outcome of each item, in order."""
        sealed = [pickle.dumps([(number, works[number]) for number in group]) for group in groups]
        size_mb = sum(map(_size, works)) >> 20
        name = f"lakecore: compact {context.identifier}, {len(works)} buckets, {size_mb} MiB"

        def rows() -> DataFrame:
            numbers = self.spark.range(0, len(groups), 1, len(groups))
            return numbers.mapInArrow(compact_function(task, sealed), OUTCOME_SCHEMA)

        found = answers(self.spark, name, rows, len(works))
        return cast("list[CommitMessage | LakecoreError]", found)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactTask:
    """The input that is the same for every task of a job."""

    table: TableDescriptor
    job: str
    memory_bytes: int


def _size(work: Work) -> int:
    return sum(file.size_bytes for file in work.files)


def compact_function(task: CompactTask, sealed: Sequence[bytes]) -> Callable[[Batches], Batches]:
    """The function for `mapInArrow`; each input row is the number of a group."""

    def compact(batches: Batches) -> Batches:
        acknowledge()
        with raised_in_task():
            # The ambient gives each file of this attempt a name of its own.
            context = task.table.context(task.memory_bytes, of_job(task.job))
            for batch in batches:
                for group in batch.column(0).to_pylist():
                    for number, work in pickle.loads(sealed[group]):  # noqa: S301  of our driver
                        yield answer(number, _outcome(context, work))
        set_aside("compact")

    return compact


def _outcome(context: TableContext, work: Work) -> CommitMessage | LakecoreError:
    try:
        return do_work(context, work, _uncounted)
    except LakecoreError as error:
        return portable(error)


def _uncounted(rows: int) -> None:
    """Does nothing: the driver counts whole buckets."""
