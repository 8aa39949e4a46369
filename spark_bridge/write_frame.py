"""A Spark frame -> one commit: tasks write the files of their buckets, the driver commits once.

1. The driver looks whether the commit was made before, whether the frame fits the table, and what
   the table holds; no task has run so far.
2. Rows go to the task that owns their bucket (`placement.py`), which writes files (`task.py`).
3. The outcomes come to the driver in one action, which commits them (`finish.py`).

Two ways lead to the same executor function. By default the shuffle goes by the number of the owner
and a task takes its rows as they come (`repartitionById`, `mapInArrow`): least memory in the JVM.
With `by="group"` the JVM sorts rows by partition and bucket and a call takes one of them
(`groupBy`, `applyInArrow`): full buffers and few open files where a task owns thousands, for a
writer each.

NOTE: Spark keeps no order through a shuffle. Where a frame has several rows of one key, the table
needs a `sequence.field` to say which of them is newest.
"""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as f

from lakecore import CommitConflict, InvalidRequest, open_table
from lakecore.distributed.committing import CommitRequest, committed, spec_values
from lakecore.distributed.planning import hides_level_0
from lakecore.distributed.values import BATCH_COMMIT_IDENTIFIER, check_flags
from spark_bridge.assigners import assigners_of
from spark_bridge.bucket_sql import quoted
from spark_bridge.check import check_schema, with_types_of
from spark_bridge.failures import DATA_ERRORS, raised_as_own
from spark_bridge.finish import (
    Publication,
    author_of,
    publish,
    remove_files_of_job,
    remove_leftovers,
)
from spark_bridge.placement import Owner, Routing, owner_of, parallelism
from spark_bridge.settings import GROUPS, described, rebalanced, require_version, settings, transfer
from spark_bridge.task import (
    MEMORY_PER_TASK,
    OUTCOME_SCHEMA,
    TaskOutcome,
    WriteTask,
    grouped_function,
    new_task,
    partition_function,
    unpickled,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from lakecore import CommitResult, Table
    from lakecore.distributed.committing import Author
    from lakecore.distributed.tables import TableContext

__all__ = ["WriteResult", "WrittenTask", "prepare", "write"]


_PARSED = re.compile(r"[.`]")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTask:
    """One task of a write that counted, or one group of it."""

    partition: int
    attempt: int
    rows: int
    files: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What a write from Spark did. `snapshot_ids` is empty when there was nothing to commit.

    `rows` were handed in, `rows_stored` are in the files. `leftovers` counts the files of lost
    attempts that were removed. `already_committed`: an earlier run had done it, no task ran or
    nothing of theirs was kept. `distribution` says how rows came to their tasks.
    """

    snapshot_ids: tuple[int, ...] = ()
    rows: int = 0
    rows_stored: int = 0
    files: int = 0
    bytes: int = 0
    leftovers: int = 0
    already_committed: bool = False
    commit_user: str = ""
    identifier: int | None = None
    distribution: str = ""
    tasks: tuple[WrittenTask, ...] = ()

    @property
    def snapshot_id(self) -> int | None:
        """The last snapshot it made."""
        return self.snapshot_ids[-1] if self.snapshot_ids else None


def write(  # noqa: PLR0913  the public verb
    df: DataFrame,
    table: Table | str | os.PathLike[str],
    mode: Literal["append", "overwrite"] = "append",
    partition: Mapping[str, object] | None = None,
    *,
    dynamic: bool | None = None,
    commit_user: str | None = None,
    identifier: int = BATCH_COMMIT_IDENTIFIER,
    by: Literal["task", "group"] = "task",
    tasks: int | None = None,
    memory_per_task: int = MEMORY_PER_TASK,
) -> WriteResult:
    """Write a Spark frame to a table, or that at a path, in one commit; what was written.

    `mode`, `partition` and `dynamic` are those of `Table.write` and `Table.overwrite`. A column
    `_row_kind` holds +I, -U, +U or -D. The same user's same or lower `identifier` is committed
    once: again, no task runs. `tasks` is into how many tasks the buckets go; each holds at most
    `memory_per_task` bytes of rows and files at once, beside what Python itself takes.

    Tasks do not compact. Where reads leave out what was not compacted (`first-row`), a UserWarning
    says so.

    Raises InvalidRequest before any task runs if the columns do not fit, and naming column, value
    and task if a row does not: then nothing is written.
    """
    if by not in {"task", "group"}:
        raise InvalidRequest("unknown way to bring rows together", by=by, known=["task", "group"])
    require_version(df.sparkSession)
    table = _opened(table)
    context = table.context
    how = _publication(table, mode, partition, dynamic, author_of(context, commit_user, identifier))
    done = _done_before(context, how.by)
    if done is not None:
        return done
    df = with_types_of(df, context)
    check_schema(context, df.schema, overwrite=how.overwrite)
    _check_counts(tasks=tasks, memory_per_task=memory_per_task)
    cores = parallelism(df.sparkSession)
    how = replace(how, assigners=assigners_of(context, tasks or cores, overwrite=how.overwrite))
    if by == "group" and tasks is not None:
        raise InvalidRequest(
            "groups go into as many tasks as spark.sql.shuffle.partitions says: leave tasks out, "
            "or by='group'",
            tasks=tasks,
        )
    task = new_task(
        context, overwrite=how.overwrite, memory_bytes=memory_per_task, assigners=how.assigners
    )
    owner = owner_of(df, context, tasks, assigners=how.assigners)
    by_group = by == "group" and owner.routing is not Routing.NONE
    try:
        outcomes = _run(df, task, owner, by_group=by_group)
    except BaseException:
        # No message of it has reached the driver, so nothing of it can be in a snapshot.
        remove_files_of_job(context, task.job)
        raise
    try:
        result = publish(context, outcomes, how)
    except (CommitConflict, *DATA_ERRORS):
        # Only these prove that nothing became visible.
        remove_files_of_job(context, task.job)
        raise
    if result.facts.get("already_committed"):
        leftovers = remove_files_of_job(context, task.job)
    else:
        messages = [message for outcome in outcomes for message in outcome.messages]
        leftovers = remove_leftovers(context, task.job, messages)
    if not how.overwrite and result.rows and hides_level_0(context.schema, context.options):
        warnings.warn(
            f"reads of {context.identifier} leave out the rows until they are compacted: "
            "table.compact() shows them",
            stacklevel=2,
        )
    distribution = owner.routing.value + (", by group" if by_group else "")
    return _result(result, outcomes, leftovers, distribution)


def prepare(
    df: DataFrame, table: Table | str | os.PathLike[str], *, tasks: int | None = None
) -> DataFrame:
    """The frame with the rows of each bucket in one task, for `df.write` and INSERT INTO.

    `spark_bridge.write` does this itself. Raises InvalidRequest if the columns do not fit.
    """
    require_version(df.sparkSession)
    context = _opened(table).context
    _check_counts(tasks=tasks)
    df = with_types_of(df, context)
    check_schema(context, df.schema)
    return owner_of(df, context, tasks, assigners=assigners_of(context)).together(df)


def _opened(table: Table | str | os.PathLike[str]) -> Table:
    return open_table(table) if isinstance(table, str | os.PathLike) else table


def _check_counts(**counts: object) -> None:
    """Raise InvalidRequest, naming it, for what is given and no whole number from one on."""
    for name, count in counts.items():
        if count is None:
            continue
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InvalidRequest(f"{name} is a whole number from one on", **{name: count})


def _publication(
    table: Table,
    mode: str,
    partition: Mapping[str, object] | None,
    dynamic: bool | None,  # noqa: FBT001  passed through
    by: Author,
) -> Publication:
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
    if by.identifier == BATCH_COMMIT_IDENTIFIER:
        return None
    request = CommitRequest(messages=(), user=by.user, identifier=by.identifier)
    found = committed(context, request, context.history.latest_snapshot())
    return None if found is None else _result(found)


def _run(
    df: DataFrame, task: WriteTask, owner: Owner, *, by_group: bool
) -> tuple[TaskOutcome, ...]:
    """The one action: what each task did."""
    spark = df.sparkSession
    wanted = {**transfer(spark, df.schema), **(GROUPS if by_group else {})}
    if owner.routing is Routing.REBALANCE and not by_group:
        wanted |= rebalanced(df, parallelism(spark))
    name = f"lakecore: write {task.table.identifier}"
    with raised_as_own(), described(spark, name), settings(spark, wanted):
        numbered = replace(task, columns=tuple(df.columns))
        if by_group:
            groups = [each.alias(f"group{number}") for number, each in enumerate(owner.groups)]
            rows = df.select(*groups, *_numbers(df))
            together = rows.groupBy(*rows.columns[: len(groups)])
            outcomes = together.applyInArrow(grouped_function(numbered), OUTCOME_SCHEMA)
        elif any(_PARSED.search(name) for name in df.columns):
            rows = owner.together(df).select(*_numbers(df))
            outcomes = rows.mapInArrow(partition_function(numbered), OUTCOME_SCHEMA)
        else:
            outcomes = owner.together(df).mapInArrow(partition_function(task), OUTCOME_SCHEMA)
        return tuple(unpickled(row.outcome) for row in outcomes.collect())


def _numbers(df: DataFrame) -> list[Column]:
    """The columns under numbers for names: PySpark reads a dot in a name as a part of a struct."""
    return [f.col(quoted(name)).alias(str(number)) for number, name in enumerate(df.columns)]


def _result(
    result: CommitResult,
    outcomes: tuple[TaskOutcome, ...] = (),
    leftovers: int = 0,
    distribution: str = "",
) -> WriteResult:
    tasks = tuple(
        WrittenTask(
            partition=outcome.partition,
            attempt=outcome.attempt,
            rows=outcome.rows,
            files=sum(len(m.new_files) + len(m.changelog_files) for m in outcome.messages),
            bytes=sum(
                file.size_bytes
                for message in outcome.messages
                for file in (*message.new_files, *message.changelog_files)
            ),
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
