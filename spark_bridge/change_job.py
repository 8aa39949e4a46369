"""Runs the parts of a verb as one Spark job, and commits all changes at once.

1. Splits are put into groups: all splits of a table together if its keys may move between
   partitions; all splits of a bucket together if its rows have a key or an order; otherwise each
   file alone. Small groups share a task.
2. The tasks change their groups, all from one snapshot, at the same statement time and time zone,
   within the memory of the task. An error of the data or the table is an outcome, because another
   attempt of the task would fail in the same way.
3. The driver raises the first failure, or commits all parts at once. The commit raises
   CommitConflict if another commit has changed one of the rows; `attempts` is the number of
   attempts, each from the newest snapshot.
4. Files of lost attempts are removed.

INVARIANT: nothing becomes visible in a task, and no two tasks write one bucket of a table with a
key.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from lakecore import CommitConflict, CommitResult, InvalidRequest, LakecoreError
from lakecore.distributed import (
    POSTPONE_BUCKET,
    SYSTEM,
    Assignment,
    Author,
    Changed,
    Condition,
    MergeRequest,
    Snapshot,
    Split,
    TableContext,
    TableDescriptor,
    TableSource,
    Verb,
    WriteStart,
    as_verbs_read,
    assigned,
    commit_changes,
    committed_before,
    crosses_partitions,
    deleted,
    describe,
    merged,
    of_job,
    read_base,
    read_start,
)
from spark_bridge.failures import DATA_ERRORS, portable, raised_in_task
from spark_bridge.job_commit import JobFiles, remove_files_of_job, remove_leftovers
from spark_bridge.placement import is_postponed
from spark_bridge.spread import answer, answers, map_units, unit_function
from spark_bridge.task import INITIAL_BUCKETS, packed
from spark_bridge.worker import Batches, acknowledge, joined, partition_number, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class Parts(Protocol):
    """Runs a verb once, from the newest snapshot."""

    def __call__(self) -> tuple[Sequence[Changed], JobFiles | None]:
        """The changed parts, and the files of the job; None if the driver wrote them."""


def statement(spark: SparkSession, context: TableContext) -> TableContext:
    """The table as one statement reads it: the session's time zone and a fixed current time."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    return replace(context, zone=zone, statement_ms=SYSTEM.now_ms())


def committed_once(
    context: TableContext, verb: Verb, by: Author, parts: Parts, attempts: int
) -> CommitResult:
    """Run the verb and commit its parts, unless this author has done so before."""
    done = committed_before(context, by)
    if done is not None:
        return done
    for left in reversed(range(attempts)):
        changed, files = parts()
        try:
            result = commit_changes(context, verb, changed, by)
        except CommitConflict:
            _clean(context, files)
            if not left:
                raise
            continue
        except DATA_ERRORS:
            _clean(context, files)
            raise
        if files is not None:
            messages = [message for each in changed for message in each.messages]
            if result.facts.get("already_committed"):
                _clean(context, files)
            else:
                remove_leftovers(context, files.job, messages, lost=files.lost)
        return result
    raise AssertionError("there is at least one attempt")


def _clean(context: TableContext, files: JobFiles | None) -> None:
    if files is not None:
        remove_files_of_job(context, files.job)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeJob:
    """One Spark job that changes groups of splits of a pinned snapshot."""

    spark: SparkSession
    context: TableContext
    verb: Verb
    memory_bytes: int
    assigners: int = 1
    base: WriteStart | None = None
    """The state that the tasks start from; None: `task` reads it."""

    def task(
        self,
        source: TableSource,
        change: Change,
        *,
        inserts: bool = False,
        schema: pa.Schema | None = None,
    ) -> ChangeTask:
        """The part of the task that is the same for all groups; see `ChangeTask`."""
        context = self.context
        base = self.base
        if base is None:
            # Postponed buckets are those of the snapshot whose splits the tasks have.
            postponed = is_postponed(context)
            base = read_start(context, source.snapshot) if postponed else read_base(context)
        # A task compacts what is due in its buckets, as the driver does: rows that a table shows
        # only after a compaction must not depend on who has written them.
        options = {INITIAL_BUCKETS: str(self.assigners)}
        assert context.statement_ms is not None, "a statement has its time"
        return ChangeTask(
            table=describe(context, options),
            base=base,
            snapshot=source.snapshot,
            job=SYSTEM.new_uuid(),
            memory_bytes=self.memory_bytes,
            zone=context.zone,
            statement_ms=context.statement_ms,
            change=change,
            inserts=inserts,
            schema=schema,
        )

    def run(
        self,
        task: ChangeTask,
        rows: Callable[[], DataFrame],
        count: int,
    ) -> tuple[Sequence[ChangeOutcome], JobFiles]:
        """The outcomes of the parts, in order. After a failure, removes all files and raises it.

        For `rows` and `count`, see `answers`.
        """
        name = f"lakecore: {self.verb} {self.context.identifier}, {count} parts"
        try:
            found = answers(self.spark, name, rows, count)
            outcomes = cast("list[ChangeOutcome]", found.outcomes)
            self._refuse(outcomes)
        except BaseException:
            # Nothing is committed yet.
            remove_files_of_job(self.context, task.job)
            raise
        return outcomes, JobFiles(task.job, found.lost)

    def by_group(
        self, task: ChangeTask, groups: Sequence[tuple[Split, ...]], source: pa.Table | None = None
    ) -> tuple[Sequence[ChangeOutcome], JobFiles]:
        """The outcomes of tasks that change one group each; `source` is for a merge."""
        units, function = [pickle.dumps(group) for group in groups], group_function(task, source)
        return self.run(task, lambda: map_units(self.spark, units, function), len(units))

    def _refuse(self, outcomes: Sequence[ChangeOutcome]) -> None:
        """Raise the first failure, or InvalidRequest if two tasks wrote one bucket with a key."""
        for outcome in outcomes:
            if outcome.failure is not None:
                raise outcome.failure
        if not self.context.schema.primary_keys:
            return
        owner: dict[tuple[bytes, int], int] = {}
        for number, outcome in enumerate(outcomes):
            for message in outcome.changed.messages if outcome.changed else ():
                if message.bucket == POSTPONE_BUCKET:
                    # Each task writes its own files in the postponed bucket, and no two tasks have
                    # rows of one key.
                    continue
                if owner.setdefault((message.partition, message.bucket), number) != number:
                    raise InvalidRequest(
                        "two tasks changed one bucket: run the verb with spread=False, and "
                        "report this",
                        table=self.context.identifier,
                        bucket=message.bucket,
                    )


def groups_of(
    context: TableContext, splits: Sequence[Split], cores: int
) -> list[tuple[Split, ...]]:
    """The splits in groups that different tasks may change; the largest group comes first."""
    options = context.options
    if crosses_partitions(context):
        # The task that writes a key must know which partition holds the key.
        return [tuple(splits)] if splits else []
    # The deletion vectors of a bucket share index files.
    together = (
        bool(context.schema.primary_keys) or options.bucket > 0 or options.deletion_vectors_enabled
    )
    alone: dict[object, list[Split]] = defaultdict(list)
    for split in splits:
        if together:
            alone[split.partition, split.bucket].append(split)
        elif not split.raw:
            # The files of the split hold columns of the same rows.
            alone[split.partition, split.files[0].name].append(split)
        else:
            for file in split.files:
                alone[split.partition, file.name].append(replace(split, runs=((file,),)))
    parts = list(alone.values())
    sizes = [sum(split.size_bytes for split in part) for part in parts]
    return [
        tuple(split for position in group for split in parts[position])
        for group in packed(sizes, cores)
    ]


def size_of(splits: Sequence[Split]) -> int:
    """The bytes of the files."""
    return sum(split.size_bytes for split in splits)


# --- tasks ---------------------------------------------------------------------------------------

Change: TypeAlias = Condition | Assignment | MergeRequest
"""The rows to delete, the values to set, or the clauses to apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTask:
    """The input that is the same for every task of a job.

    `inserts`: whether a merge inserts the task's source rows that match nothing. `schema`: the
    columns of the source, for a task without source rows.
    """

    table: TableDescriptor
    base: WriteStart
    snapshot: Snapshot | None
    job: str
    memory_bytes: int
    zone: str
    statement_ms: int
    change: Change
    inserts: bool = False
    schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOutcome:
    """The result of a task, or its failure. `found` flags the source rows that matched."""

    changed: Changed | None = None
    found: np.ndarray | None = None
    failure: LakecoreError | None = None


def group_function(
    task: ChangeTask, source: pa.Table | None = None
) -> Callable[[Batches], Batches]:
    """The function for `map_units` over groups of splits; `source` is for a merge."""

    def change(number: int, splits: tuple[Split, ...]) -> Iterable[tuple[int, object]]:
        yield number, _outcome(task, number, [splits], source)

    return unit_function(change, "change")


def owner_function(task: ChangeTask) -> Callable[[Batches], Batches]:
    """The function for `mapInArrow` over source rows, whose last column is the unit.

    One row of each task has a unit, the group of splits that the task changes, and is no source
    row.
    """

    def change(batches: Batches) -> Batches:
        acknowledge()
        number, units = partition_number(), list[tuple[Split, ...]]()
        source = _rows(task, batches, units)
        with raised_in_task():
            yield answer(number, _outcome(task, number, units, source))
        set_aside("change")

    return change


def _rows(task: ChangeTask, batches: Batches, units: list[tuple[Split, ...]]) -> Batches:
    """The source rows of a task under their own names; the unit among them goes to `units`."""
    assert task.schema is not None, "a merge has a source"
    columns = range(len(task.schema))
    for batch in joined(batches):
        unit = batch.column(-1)
        rows = batch.select(columns).rename_columns(task.schema.names)
        if unit.null_count < len(unit):
            units += [pickle.loads(each) for each in unit.drop_null().to_pylist()]  # noqa: S301  of our driver
            rows = rows.filter(unit.is_null())
        yield rows


def _outcome(
    task: ChangeTask,
    number: int,
    units: Sequence[tuple[Split, ...]],
    source: pa.Table | Iterable[pa.RecordBatch] | None,
) -> ChangeOutcome:
    """The outcome of the one unit, which may be known only once the source is read."""

    def target() -> TableSource:
        (splits,) = units
        return as_verbs_read(context, task.snapshot, splits)

    try:
        context = task.table.context(task.memory_bytes, of_job(task.job))
        context = replace(context, zone=task.zone, statement_ms=task.statement_ms)
        match task.change:
            case Condition() as condition:
                changed = deleted(context, target(), condition, task.base)
            case Assignment() as assignment:
                changed = assigned(context, target(), assignment, task.base)
            case MergeRequest() as request:
                done = merged(
                    context, target, source, request, base=task.base, inserts=task.inserts
                )
                return ChangeOutcome(changed=done.changed, found=done.found)
    except LakecoreError as error:
        return ChangeOutcome(failure=portable(error, task=number))
    return ChangeOutcome(changed=changed)
