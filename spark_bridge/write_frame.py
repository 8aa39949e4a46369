"""Writes a Spark frame in one commit: tasks write the files of their buckets, the driver commits.

1. Before any task runs, the driver checks whether the commit was made before and whether the frame
   fits the table, and reads the state of the table.
2. Rows are shuffled to the task that owns their bucket (`placement.py`), which writes files
   (`task.py`).
3. One action collects the outcomes on the driver, which commits them (`job_commit.py`).

There are two ways to run the executor function. By default, Spark shuffles by the number of the
owner, and a task receives its rows unsorted (`repartitionById`, `mapInArrow`); this needs the least
memory in the JVM. With `by="group"`, the JVM sorts rows by partition and bucket, and each call
receives one bucket (`groupBy`, `applyInArrow`); this gives full buffers and few open files if a
task owns thousands of buckets, at the cost of a new writer for each bucket.

NOTE: a Spark shuffle does not keep the row order. If a frame has several rows of one key, the table
needs a `sequence.field` that decides which row is newest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from lakecore import CommitConflict, CommitResult, InvalidRequest, Table
from lakecore.distributed import (
    BATCH_COMMIT_IDENTIFIER,
    Author,
    TableContext,
    author,
    check_flags,
    committed_before,
    hides_level_0,
    spec_values,
)
from spark_bridge.arguments import (
    check_counts,
    check_frame,
    check_schema,
    evolved,
    named_arguments,
    opened,
    warn,
    with_names_of,
    with_types_of,
)
from spark_bridge.bucket_sql import quoted
from spark_bridge.failures import DATA_ERRORS
from spark_bridge.job_commit import (
    Publication,
    check_stageable,
    files_of,
    is_committed,
    parts_of,
    publish,
    remove_files_of_job,
    remove_leftovers,
    stage,
    staged,
    unstage,
)
from spark_bridge.placement import Owner, Routing, assigners_of, owner_of, parallelism
from spark_bridge.settings import GROUPS, rebalanced, require_version, settings, transfer
from spark_bridge.spread import OUTCOME_SCHEMA, SkewedBucket, all_answers, answers, report_skew
from spark_bridge.task import (
    MEMORY_PER_TASK,
    MESSAGES_MAX,
    TaskOutcome,
    WriteTask,
    grouped_function,
    new_task,
    partition_function,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence


_PARSED = re.compile(r"[.`]")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTask:
    """One successful task of a write, or one group of rows in it.

    [(task.rows, task.seconds) for task in spark_bridge.write(df, orders).tasks]
    """

    partition: int
    attempt: int
    rows: int
    files: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The result of a write from Spark.

    - `snapshot_ids`: the committed snapshots; empty if there was nothing to commit;
    - `rows`: the rows of the frame; `rows_stored`: the rows in the files;
    - `leftovers`: the number of removed files of lost attempts;
    - `already_committed`: whether an earlier run has committed, so that no task ran, or the files
      of the tasks were removed;
    - `resumed`: whether the files are those of an earlier run, so that no task ran;
    - `distribution`: how rows were routed to tasks;
    - `skewed`: buckets that got many more rows than the others; one task wrote each of them.

        done = spark_bridge.write(df, orders)
        done.snapshot_ids, done.rows, done.already_committed
    """

    snapshot_ids: tuple[int, ...] = ()
    rows: int = 0
    rows_stored: int = 0
    files: int = 0
    bytes: int = 0
    leftovers: int = 0
    already_committed: bool = False
    resumed: bool = False
    commit_user: str = ""
    identifier: int | None = None
    distribution: str = ""
    tasks: tuple[WrittenTask, ...] = ()
    skewed: tuple[SkewedBucket, ...] = ()

    @property
    def snapshot_id(self) -> int | None:
        """The last committed snapshot; None if nothing was committed."""
        return self.snapshot_ids[-1] if self.snapshot_ids else None


@named_arguments
def write(  # noqa: PLR0913  the public verb
    df: DataFrame,
    table: Table | str | os.PathLike[str],
    mode: Literal["append", "overwrite"] = "append",
    partition: Mapping[str, object] | None = None,
    *,
    dynamic: bool | None = None,
    evolve_schema: bool | None = None,
    commit_user: str | None = None,
    identifier: int = BATCH_COMMIT_IDENTIFIER,
    resume: bool = False,
    by: Literal["task", "group"] = "task",
    tasks: int | None = None,
    memory_per_task: int = MEMORY_PER_TASK,
) -> WriteResult:
    """Write a Spark frame to a table, or to the table at a path, in one commit.

    - `mode`, `partition` and `dynamic`: as in `Table.write` and `Table.overwrite`. A column
      `_row_kind` holds +I, -U, +U or -D. Columns are matched by name; case matters only with
      `spark.sql.caseSensitive`.
    - `evolve_schema`: as in `Table.write`. The new schema is stored after all tasks have written
      their rows, before the commit.
    - `commit_user` and `identifier`: the commit is idempotent. If this user has committed this or a
      higher identifier before, no task runs.
    - `resume`: if a run of this user and identifier died after its tasks and before its commit, its
      files are committed, and no task runs.
    - `tasks`: the number of tasks that the buckets are distributed to.
    - `memory_per_task`: the most bytes of rows and files that a task holds, in addition to the
      memory of Python itself.

    Tasks do not compact. If reads skip rows that are not compacted (`first-row`), a UserWarning
    says so.

    Raises InvalidRequest before any task runs if the columns do not fit. Raises InvalidRequest,
    naming column, value and task, if a row does not fit; then nothing is committed.

        spark_bridge.write(df, "/data/shop/orders")
    """
    if by not in {"task", "group"}:
        raise InvalidRequest("unknown way to bring rows together", by=by, known=["task", "group"])
    check_frame(df)
    table = opened(table)
    written_by = author(table.context, commit_user, identifier)
    check_flags(resume=resume)
    how = replace(publication(table, mode, partition, dynamic, written_by), staged=resume)
    return write_as(
        df,
        table,
        how,
        evolve_schema=evolve_schema,
        by=by,
        tasks=tasks,
        memory_per_task=memory_per_task,
    )


def write_as(  # noqa: PLR0913  what `write` takes
    df: DataFrame,
    table: Table,
    how: Publication,
    *,
    evolve_schema: bool | None = None,
    by: Literal["task", "group"] = "task",
    tasks: int | None = None,
    memory_per_task: int = MEMORY_PER_TASK,
) -> WriteResult:
    """Write a frame and commit it as `how` says; see `write`."""
    require_version(df.sparkSession)
    context = table.context
    if how.staged:
        check_stageable(context, how.by)
    done = _done_before(context, how.by)
    if done is not None:
        if how.staged:
            unstage(context, how)
        return done
    df = with_names_of(df, context)
    context, evolution = evolved(context, df.schema, evolve_schema=evolve_schema)
    df = with_types_of(df, context)
    check_schema(context, df.schema, overwrite=how.overwrite)
    check_counts(tasks=tasks, memory_per_task=memory_per_task)
    cores = parallelism(df.sparkSession)
    assigners = assigners_of(context, tasks or cores, overwrite=how.overwrite)
    how = replace(how, assigners=assigners, evolution=evolution)
    if by == "group" and tasks is not None:
        raise InvalidRequest(
            "groups go into as many tasks as spark.sql.shuffle.partitions says: leave tasks out, "
            "or by='group'",
            tasks=tasks,
        )
    found = staged(context, how) if how.staged else None
    if found is not None:
        job, outcomes = found
        lost, distribution = True, ""
    else:
        task = new_task(
            context,
            overwrite=how.overwrite,
            memory_bytes=memory_per_task,
            assigners=assigners,
            evolution=evolution,
        )
        owner = owner_of(
            df, context, tasks, base=task.base, assigners=how.assigners, overwrite=how.overwrite
        )
        if owner.tasks:
            task = replace(task, messages_max=MESSAGES_MAX // owner.tasks)
        by_group = by == "group" and owner.routing is not Routing.NONE
        distribution = owner.routing.value + (", by group" if by_group else "")
        job = task.job
        try:
            outcomes, lost = _run(df, task, owner, by_group=by_group)
        except BaseException:
            # No message has reached the driver, so no snapshot can contain files of this job.
            remove_files_of_job(context, job)
            raise
    result, leftovers = _commit(context, job, outcomes, how, lost=lost, is_staged=found is not None)
    if not how.overwrite and result.rows and hides_level_0(context.schema, context.options):
        warn(
            f"reads of {context.identifier} leave out the rows until they are compacted: "
            "table.compact() shows them"
        )
    written = _result(result, outcomes, leftovers, distribution)
    skewed = report_skew(context, files_of(outcomes), "the write")
    return replace(written, skewed=skewed, resumed=found is not None)


def _commit(
    context: TableContext,
    job: str,
    outcomes: Sequence[TaskOutcome],
    how: Publication,
    *,
    lost: bool,
    is_staged: bool,
) -> tuple[CommitResult, int]:
    """Commit the outcomes of a job. Returns the result, and the number of removed leftovers."""
    try:
        if how.staged and not is_staged and not any(each.failure for each in outcomes):
            stage(context, job, outcomes, how)
            is_staged = True
        result = publish(context, outcomes, how)
    except (CommitConflict, *DATA_ERRORS):
        # Only these errors prove that nothing became visible.
        if is_staged:
            unstage(context, how)
        else:
            remove_files_of_job(context, job)
        raise
    if not result.facts.get("already_committed"):
        messages, encoded = parts_of(outcomes)
        leftovers = remove_leftovers(context, job, messages, encoded=encoded, lost=lost)
    elif is_staged and is_committed(context, result, job):
        leftovers = 0
    else:
        leftovers = remove_files_of_job(context, job)
    if is_staged:
        unstage(context, how)
    return result, leftovers


@named_arguments
def prepare(
    df: DataFrame,
    table: Table | str | os.PathLike[str],
    *,
    evolve_schema: bool | None = None,
    tasks: int | None = None,
) -> DataFrame:
    """The frame, shuffled so that the rows of each bucket are in one task.

    Use `prepare` before `df.write.format("lakecore")` and INSERT INTO; `spark_bridge.write` needs
    no preparation. With `evolve_schema`, the frame may have columns that the table lacks: set
    `write.merge-schema` for the write that follows. Raises InvalidRequest if the columns do not
    fit.

        ready = spark_bridge.prepare(df, orders)
        ready.write.format("lakecore").mode("append").save(orders.path)
    """
    check_frame(df)
    require_version(df.sparkSession)
    context = opened(table).context
    df = with_names_of(df, context)
    context, _ = evolved(context, df.schema, evolve_schema=evolve_schema)
    check_counts(tasks=tasks)
    df = with_types_of(df, context)
    check_schema(context, df.schema)
    return owner_of(df, context, tasks, assigners=assigners_of(context)).together(df)


def publication(
    table: Table,
    mode: str,
    partition: Mapping[str, object] | None,
    dynamic: bool | None,  # noqa: FBT001  passed through
    by: Author,
) -> Publication:
    """How a write is committed. Raises InvalidRequest for arguments that contradict each other."""
    if mode not in {"append", "overwrite"}:
        raise InvalidRequest("unknown mode", mode=mode, known=["append", "overwrite"])
    if mode == "append" and (partition is not None or dynamic is not None):
        raise InvalidRequest("partition and dynamic are for mode='overwrite'", mode=mode)
    if dynamic is not None:
        check_flags(dynamic=dynamic)
    if partition is not None:
        spec_values(table.context, partition)
        if partition and dynamic:
            raise InvalidRequest(
                "a partition that is named is overwritten whole: leave dynamic out, or partition",
                partition=dict(partition),
            )
    if dynamic is None:
        dynamic = table.options.dynamic_partition_overwrite
    return Publication(
        by=by, overwrite=mode == "overwrite", partition=partition or {}, dynamic=dynamic
    )


def _done_before(context: TableContext, by: Author) -> WriteResult | None:
    """The result of an earlier run under the same user and identifier."""
    found = committed_before(context, by)
    return None if found is None else _result(found)


def _run(
    df: DataFrame, task: WriteTask, owner: Owner, *, by_group: bool
) -> tuple[tuple[TaskOutcome, ...], bool]:
    """Run the Spark action. Returns the outcome of each task, and whether attempts may be lost."""
    spark = df.sparkSession
    wanted = {**transfer(spark, df.schema), **(GROUPS if by_group else {})}
    if owner.routing is Routing.REBALANCE and not by_group:
        wanted |= rebalanced(df, parallelism(spark))
    name = f"lakecore: write {task.table.identifier}"
    numbered = replace(task, columns=tuple(df.columns))

    def outcomes() -> DataFrame:
        if by_group:
            groups = [each.alias(f"group{number}") for number, each in enumerate(owner.groups)]
            rows = df.select(*groups, *_numbers(df))
            together = rows.groupBy(*rows.columns[: len(groups)])
            return together.applyInArrow(grouped_function(numbered), OUTCOME_SCHEMA)
        if any(_PARSED.search(name) for name in df.columns):
            rows = owner.together(df).select(*_numbers(df))
            return rows.mapInArrow(partition_function(numbered), OUTCOME_SCHEMA)
        return owner.together(df).mapInArrow(partition_function(task), OUTCOME_SCHEMA)

    with settings(spark, wanted):
        if by_group or owner.number is None:
            # Spark decides how many tasks there are.
            found = all_answers(spark, name, outcomes)
        else:
            found = answers(spark, name, outcomes, owner.tasks, or_none=True)
    return tuple(cast("list[TaskOutcome]", found.outcomes)), found.lost


def _numbers(df: DataFrame) -> list[Column]:
    """The columns renamed to numbers, because PySpark reads a dot in a name as a struct field."""
    return [f.col(quoted(name)).alias(str(number)) for number, name in enumerate(df.columns)]


def _result(
    result: CommitResult,
    outcomes: Sequence[TaskOutcome] = (),
    leftovers: int = 0,
    distribution: str = "",
) -> WriteResult:
    tasks = tuple(
        WrittenTask(
            partition=outcome.partition,
            attempt=outcome.attempt,
            rows=outcome.rows,
            files=outcome.files,
            bytes=outcome.size_bytes,
            seconds=outcome.seconds,
        )
        for outcome in outcomes
        if outcome.rows
    )
    return WriteResult(
        snapshot_ids=result.snapshot_ids,
        rows=sum(task.rows for task in tasks),
        rows_stored=result.rows,
        files=result.files_added,
        bytes=result.bytes_added,
        leftovers=leftovers,
        already_committed=bool(result.facts.get("already_committed")),
        commit_user=result.commit_user,
        identifier=result.identifier,
        distribution=distribution,
        tasks=tasks,
    )
