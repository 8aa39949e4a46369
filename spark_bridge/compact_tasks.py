"""Compacts planned buckets in one Spark job, and returns their commit messages to the driver.

1. A bucket that would be most of the job is cut into parts with different keys (`in_parts`); their
   files together are one run. Each large item of the plan gets its own task. Small items share
   tasks, so that a task has enough work and every core has a task. Spark starts the tasks in order,
   the largest first.
2. A task compacts its buckets one after another, within its memory budget. All file names begin
   with the id of the job.
3. The outcome of each bucket is one row: the commit message, or the error. A task raises no error
   of the table, because another attempt would fail in the same way.
4. Files of lost attempts are removed from the buckets of the plan.

Nothing becomes visible here: the driver commits the messages.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import polars as pl

from lakecore import CommitMessage, LakecoreError, Uncomputable
from lakecore.distributed import (
    SYSTEM,
    BucketCompaction,
    ColumnSketch,
    Failures,
    RescalePart,
    Split,
    TableContext,
    TableDescriptor,
    TableSource,
    Tally,
    Work,
    describe,
    do_work,
    measured,
    of_job,
    one_by_one,
    rescale_part,
)
from spark_bridge.arguments import SPREAD_BYTES
from spark_bridge.failures import portable
from spark_bridge.job_commit import remove_files_of_job, remove_leftovers
from spark_bridge.plan_read import plan_parts
from spark_bridge.read_job import (
    Cutting,
    Piece,
    ReadJob,
    between_keys,
    open_sealed,
    read_task,
    seal,
)
from spark_bridge.spread import answers, map_units, report_skew, spread, unit_function
from spark_bridge.task import packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import SparkSession

    from spark_bridge.worker import Batches


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
        target_bytes = sum(map(_size, works)) // (self.cores * _PARTS_PER_CORE)
        whole = [in_parts(context, work, max(PART_BYTES, target_bytes)) for work in works]
        parts = [part for own in whole for part in own]
        sizes = {
            "partition": [work.partition for work in works],
            "bucket": [work.bucket for work in works],
            "size_bytes": [_size(work) // len(own) for work, own in zip(works, whole, strict=True)],
        }
        report_skew(context, pl.DataFrame(sizes), "the compaction", complete=True)
        groups = packed([_size(part) for part in parts], self.cores)
        task = CompactTask(table=describe(context), job=job, memory_bytes=self.memory_bytes)
        try:
            found, lost = self._collected(context, task, parts, groups)
        except BaseException:
            remove_files_of_job(context, job)
            raise
        left = iter(found)
        outcomes = [
            _joined(work, [next(left) for _ in own]) for work, own in zip(works, whole, strict=True)
        ]
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
        failing = any(isinstance(outcome, LakecoreError) for outcome in outcomes)
        remove_leftovers(context, job, messages, buckets, lost=lost or failing)
        if failure is not None:
            raise failure
        return failed

    def _collected(
        self,
        context: TableContext,
        task: CompactTask,
        works: Sequence[Work],
        groups: Sequence[Sequence[int]],
    ) -> tuple[Sequence[CommitMessage | LakecoreError], bool]:
        """The outcome of each item, in order, and whether attempts may be lost."""
        sealed = [pickle.dumps([(number, works[number]) for number in group]) for group in groups]
        size_mb = sum(map(_size, works)) >> 20
        name = f"lakecore: compact {context.identifier}, {len(works)} parts, {size_mb} MiB"

        function = compact_function(task)
        found = answers(
            self.spark, name, lambda: map_units(self.spark, sealed, function), len(works)
        )
        return cast("list[CommitMessage | LakecoreError]", found.outcomes), found.lost


PART_BYTES = 64 << 20
"""Parts of a bucket are not smaller than this."""
_PARTS_PER_CORE = 2


def in_parts(context: TableContext, work: Work, target_bytes: int) -> list[Work]:
    """The work in parts of about the target size, which have different keys; or the work alone."""
    if not isinstance(work, BucketCompaction) or not work.can_be_cut(context.options):
        return [work]
    if _size(work) < 2 * target_bytes:
        return [work]
    split = Split(
        partition=work.partition,
        partition_path=context.partitions.path(work.partition),
        bucket=work.bucket,
        total_buckets=work.total_buckets,
        runs=work.runs,
        raw=False,
    )
    cutting = Cutting(
        target_bytes=target_bytes,
        open_cost_bytes=0,
        schema=context.schema,
        schemas={file.schema_id: context.history.schema(file.schema_id) for file in work.files},
        layout=context.layout,
        store=context.store,
    )
    pieces = between_keys(split, cutting)
    parts: list[Work] = []
    for piece in pieces:
        assert piece.keys is not None, "a piece between keys"
        parts.append(work.part(piece.keys, {file.name for file in piece.split.files}))
    return parts or [work]


def _joined(
    work: Work, outcomes: Sequence[CommitMessage | LakecoreError]
) -> CommitMessage | LakecoreError:
    """The outcome of the work; the first failure of a part, if one failed."""
    messages: list[CommitMessage] = []
    for outcome in outcomes:
        if isinstance(outcome, LakecoreError):
            return outcome
        messages.append(outcome)
    if len(messages) == 1 or not isinstance(work, BucketCompaction):
        return messages[0]
    return work.joined(messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactTask:
    """The input that is the same for every task of a job."""

    table: TableDescriptor
    job: str
    memory_bytes: int


def _size(work: Work) -> int:
    return sum(file.size_bytes for file in work.files)


def compact_function(task: CompactTask) -> Callable[[Batches], Batches]:
    """The function for `map_units` over groups of numbered works."""

    def compact(group: int, works: Sequence[tuple[int, Work]]) -> Iterable[tuple[int, object]]:
        del group
        # The ambient gives each file of this attempt a name of its own.
        context = task.table.context(task.memory_bytes, of_job(task.job))
        for number, work in works:
            yield number, _outcome(context, work)

    return unit_function(compact, "compact")


def _outcome(context: TableContext, work: Work) -> CommitMessage | LakecoreError:
    try:
        return do_work(context, work, _uncounted)
    except LakecoreError as error:
        return portable(error)


def _uncounted(rows: int) -> None:
    """Does nothing: the driver counts whole buckets."""


# --- analyze tasks -------------------------------------------------------------------------------
# Reads the columns of a table once, in tasks of a Spark job, for the statistics of `analyze`.
#
# Each task adds the rows of its part to its own sketches; the driver merges them. The merged
# sketches equal one sketch of all rows.


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkMeasure:
    """A `Measure` of `analyze` that reads in Spark tasks. `spread` overrides the choice by size."""

    spark: SparkSession
    spread: bool | None

    def __call__(self, source: TableSource, sketches: Sequence[ColumnSketch]) -> int:
        """Add all values to the sketch of their column. Returns the number of rows."""
        splits = source.plan().splits
        by_size = sum(split.size_bytes for split in splits) > SPREAD_BYTES
        if not splits or not (by_size if self.spread is None else self.spread):
            return measured(source, sketches)
        fields = [each.field for each in sketches]
        job, tasks = plan_parts(source, [each.name for each in fields])
        name = f"lakecore: analyze {source.context.identifier}, {len(tasks)} parts"
        parts = [(seal(task), [ColumnSketch(each) for each in fields]) for task in tasks]
        rows = 0
        answered, _ = spread(self.spark, name, parts, partial(_measured, seal(job)))
        for count, found in answered:
            rows += count
            for sketch, other in zip(sketches, found, strict=True):
                sketch.merge(other)
        return rows


def _measured(
    sealed: bytes, part: tuple[bytes, list[ColumnSketch]]
) -> tuple[int, list[ColumnSketch]]:
    job = cast("ReadJob", open_sealed(sealed))
    task = cast("tuple[Piece, ...]", open_sealed(part[0]))
    rows = 0
    for batch in read_task(job, task):
        rows += batch.num_rows
        for sketch in part[1]:
            sketch.add(batch.column(sketch.field.name))
    return rows, part[1]


# --- rescale tasks -------------------------------------------------------------------------------
# Runs the parts of a rescale as Spark tasks, and returns their commit messages to the driver.
#
# A part is the old buckets of a partition whose rows go to the same new buckets: from 8 to 16
# buckets, each partition has eight parts. A task reads its old buckets where they are stored and
# writes the new ones, so that no row is shuffled. Nothing becomes visible here: the driver commits
# the messages.


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRescale:
    """A `RescaleRunner` that uses tasks of Spark. `spread` overrides the choice by size."""

    spark: SparkSession
    cores: int
    memory_bytes: int
    spread: bool | None

    def __call__(
        self, context: TableContext, parts: Sequence[RescalePart]
    ) -> Sequence[CommitMessage]:
        """The messages of all parts."""
        sizes = [part.size_bytes for part in parts]
        by_size = sum(sizes) > SPREAD_BYTES and len(parts) > 1
        if not parts or not (by_size if self.spread is None else self.spread):
            return one_by_one(context, parts)
        job = SYSTEM.new_uuid()
        groups = [[parts[place] for place in group] for group in packed(sizes, self.cores)]
        name = f"lakecore: rescale {context.identifier}, {len(parts)} parts, {sum(sizes) >> 20} MiB"
        work = partial(_rescaled, describe(context), job, self.memory_bytes)
        try:
            found, lost = spread(self.spark, name, groups, work)
        except BaseException:
            remove_files_of_job(context, job)
            raise
        messages = [message for group in found for message in group]
        remove_leftovers(context, job, messages, lost=lost)
        return messages


def _rescaled(
    table: TableDescriptor, job: str, memory_bytes: int, parts: Sequence[RescalePart]
) -> list[CommitMessage]:
    # The ambient gives each file of this attempt a name of its own.
    context = table.context(memory_bytes, of_job(job))
    return [message for part in parts for message in rescale_part(context, part)]
