"""Runs the parts of a verb as one Spark job, and commits all changes at once.

1. Splits are put into groups: all splits of a table together if its keys may move between
   partitions; all splits of a bucket together if its rows have a key or an order; otherwise each
   file alone. Small groups share a task.
2. The tasks change their groups (`change_tasks.py`), all from one snapshot.
3. The driver raises the first failure, or commits all parts at once. The commit raises
   CommitConflict if another commit has changed one of the rows; `attempts` is the number of
   attempts, each from the newest snapshot.
4. Files of lost attempts are removed.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, cast

from lakecore import CommitConflict, CommitResult, InvalidRequest
from lakecore.distributed import (
    POSTPONE_BUCKET,
    SYSTEM,
    Author,
    Changed,
    Split,
    TableContext,
    TableSource,
    Verb,
    WriteStart,
    commit_changes,
    committed_before,
    crosses_partitions,
    describe,
    read_base,
    read_start,
)
from spark_bridge.change_tasks import Change, ChangeOutcome, ChangeTask, group_function
from spark_bridge.failures import DATA_ERRORS
from spark_bridge.job_commit import JobFiles, remove_files_of_job, remove_leftovers
from spark_bridge.placement import is_postponed
from spark_bridge.spread import answers, map_units
from spark_bridge.task import INITIAL_BUCKETS, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
