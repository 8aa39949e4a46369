"""`df.write.format("lakecore")` and INSERT INTO: Spark runs the tasks and then calls `commit`.

For a data source, Spark does not shuffle the rows of a bucket to one task; use
`spark_bridge.prepare`. An unprepared frame raises an error if two of its tasks wrote the same
bucket.

| option | is |
|---|---|
| `write.commit-user`, `write.identifier` | as for `spark_bridge.write` |
| `write.memory-per-task` | bytes; as for `spark_bridge.write` |
| `dynamic-partition-overwrite` | `true`: an overwrite replaces the partitions it has rows in |

As in Spark, an overwrite replaces the whole table, unless `dynamic-partition-overwrite` is set for
the table or the write.

INVARIANT: `abort` never removes a file that may be in a snapshot. Spark calls `abort` when a task
failed, and also when `commit` raised an error, whether the snapshot was published or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from lakecore import CommitConflict, InvalidRequest, LakecoreError, Table
from lakecore.distributed import BATCH_COMMIT_IDENTIFIER, Evolution, TableContext, author
from spark_bridge.arguments import overwrites_dynamically
from spark_bridge.check import check_schema, evolved
from spark_bridge.failures import DATA_ERRORS, raised_shallow
from spark_bridge.job_commit import Publication, publish, remove_files_of_job, remove_leftovers
from spark_bridge.placement import assigners_of
from spark_bridge.spread import decoded, encoded
from spark_bridge.stream_commit import QUERY_ID, author_of_batch, compact_in_loop, is_due, loop_of
from spark_bridge.task import MEMORY_PER_TASK, TaskOutcome, WriteTask, new_task, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from spark_bridge.options import SourceOptions

_USER, _MEMORY = "write.commit-user", "write.memory-per-task"
_IDENTIFIER, _COMPACT = "write.identifier", "compact.every"
WRITE_OPTIONS = frozenset({_USER, _IDENTIFIER, _MEMORY})
"""The options that are neither the table's nor the storage's."""


def writer(
    table: Table, options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> LakecoreWriter:
    """Spark's writer for rows of `schema`; `options`: values of `WRITE_OPTIONS`.

    Raises InvalidRequest if the columns do not fit.
    """
    context, task, assigners, evolution = _task(table, options, schema, overwrite=overwrite)
    identifier = _whole(options, _IDENTIFIER, 0)
    how = Publication(
        by=author(
            context,
            options.get(_USER),
            BATCH_COMMIT_IDENTIFIER if identifier is None else identifier,
        ),
        assigners=assigners,
        evolution=evolution,
        overwrite=overwrite,
        dynamic=overwrites_dynamically(context),
    )
    return LakecoreWriter(task, how)


def _task(
    table: Table, options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> tuple[TableContext, WriteTask, int, Evolution | None]:
    """The table with the columns to add, the task that writes, and what the commit needs of both.

    Raises InvalidRequest if the columns do not fit.
    """
    context, evolution = evolved(table.context, schema)
    check_schema(context, schema, overwrite=overwrite)
    assigners = assigners_of(context, overwrite=overwrite)
    task = new_task(
        context,
        overwrite=overwrite,
        memory_bytes=_whole(options, _MEMORY, 1) or MEMORY_PER_TASK,
        assigners=assigners,
        evolution=evolution,
    )
    return context, task, assigners, evolution


@dataclass
class _Message(WriterCommitMessage):
    """The encoded outcome of a task, as an instance of the class that Spark requires."""

    content: bytes


@raised_shallow
class LakecoreWriter(DataSourceArrowWriter):
    """One write by Spark: `write` runs on executors, `commit` or `abort` near the driver."""

    def __init__(self, task: WriteTask, how: Publication) -> None:
        self._task = task
        self._how = how

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the files of one task."""
        return _Message(encoded(write_rows(self._task, iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the files of the tasks in one snapshot."""
        task, context = self._task, self._context()
        outcomes = _outcomes([each for each in messages if isinstance(each, _Message)])
        try:
            result = publish(context, outcomes, self._how)
        except (CommitConflict, *DATA_ERRORS):
            # Only these errors prove that nothing became visible.
            remove_files_of_job(context, task.job)
            raise
        if result.facts.get("already_committed"):
            remove_files_of_job(context, task.job)
        else:
            written = [message for outcome in outcomes for message in outcome.messages]
            remove_leftovers(context, task.job, written)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the files of the tasks, if it is certain that no snapshot contains them.

        A failed task is None in `messages`. If no task failed, `commit` was called, and has removed
        the files itself if that was safe.
        """
        context = self._context()
        if None in messages and not self._may_be_committed(context):
            remove_files_of_job(context, self._task.job)

    def _context(self) -> TableContext:
        return self._task.table.context(self._task.memory_bytes)

    def _may_be_committed(self, context: TableContext) -> bool:
        """Whether this user may have committed since the base snapshot; True if that is unknown."""
        base = self._task.base.snapshot_id or 0
        try:
            latest = context.history.latest_snapshot()
            since = range(base + 1, 1 + (0 if latest is None else latest.id))
            return any(
                context.history.snapshot(each).commit_user == self._how.by.user for each in since
            )
        except (LakecoreError, OSError):
            return True


# --- stream sink ---------------------------------------------------------------------------------
# `df.writeStream.format("lakecore")`: each batch becomes one commit, exactly once.
#
# As for `df.write`, Spark does not bring the rows of a bucket to one task: `spark_bridge.prepare`
# does, also for a streaming frame. `spark_bridge.foreach_batch` prepares each batch by itself.
#
# | option | is |
# |---|---|
# | `write.commit-user` | in place of `spark` in the commit user `spark-QUERYID` |
# | `write.memory-per-task` | bytes; as for `spark_bridge.write` |
# | `compact.every` | batches between two compactions, 0: none; see `stream_commit.py` |
#
# 1. For each batch, Spark makes a writer, whose copies run in the tasks, and another writer for the
#    commit. The messages therefore state the job and the query.
# 2. `commit` makes one snapshot. If the batch was committed before, the files of the repetition are
#    removed. A batch without rows makes no snapshot.
# 3. Every few batches, `commit` compacts what is due.
#
# INVARIANT: `abort` removes files only if a task failed, so that `commit` was not called. Spark
# also calls `abort` after an error in `commit`, whose snapshot may be published.

STREAM_WRITE_OPTIONS = frozenset({_USER, _MEMORY, _COMPACT})
"""The options that are neither the table's nor the storage's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    """How all batches of a query are committed."""

    source: SourceOptions
    prefix: str | None
    overwrite: bool
    assigners: int
    compact_every: int | None


@dataclass
class _StreamMessage(WriterCommitMessage):
    """The encoded outcome of a task, with its job, its query, and the schema to store."""

    content: bytes
    job: str
    query: str | None
    evolution: Evolution | None


def stream_writer(
    table: Table,
    source: SourceOptions,
    options: Mapping[str, str],
    schema: StructType,
    *,
    overwrite: bool,
) -> BatchWriter:
    """Spark's writer of batches of `schema`; `options`: values of `STREAM_WRITE_OPTIONS`.

    Raises InvalidRequest if the columns do not fit.
    """
    context, task, assigners, evolution = _task(table, options, schema, overwrite=overwrite)
    loop = _Loop(
        source=source,
        prefix=options.get(_USER),
        overwrite=overwrite,
        assigners=assigners,
        compact_every=loop_of(context, _whole(options, _COMPACT, 0)),
    )
    return BatchWriter(task, loop, evolution)


@raised_shallow
class BatchWriter(DataSourceStreamArrowWriter):
    """The batches of a query: `write` runs on executors, `commit` or `abort` near the driver."""

    def __init__(self, task: WriteTask, loop: _Loop, evolution: Evolution | None) -> None:
        self._task = task
        self._loop = loop
        self._evolution = evolution

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the files of one task."""
        content = encoded(write_rows(self._task, iterator))
        spark = TaskContext.get()
        query = None if spark is None else spark.getLocalProperty(QUERY_ID)
        return _StreamMessage(
            content=content, job=self._task.job, query=query, evolution=self._evolution
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the files of the tasks in one snapshot, unless the batch is committed."""
        own = [message for message in messages if isinstance(message, _StreamMessage)]
        if not own:
            return
        context, loop, outcomes = self._context(), self._loop, _outcomes(own)
        try:
            by = author_of_batch(context, own[0].query, batchId, loop.prefix)
            how = Publication(
                by=by,
                overwrite=loop.overwrite,
                assigners=loop.assigners,
                skip_empty=True,
                evolution=own[0].evolution,
            )
            result = publish(context, outcomes, how)
        except (CommitConflict, *DATA_ERRORS):
            # Only these errors prove that nothing became visible.
            self._remove(context, own)
            raise
        if result.facts.get("already_committed"):
            self._remove(context, own)
        else:
            written = [message for outcome in outcomes for message in outcome.messages]
            for job in {message.job for message in own}:
                remove_leftovers(context, job, written)
        if is_due(batchId, loop.compact_every):
            compact_in_loop(loop.source.open())

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the files of the tasks if one of them failed: then nothing was committed."""
        del batchId
        if None in messages:
            own = [message for message in messages if isinstance(message, _StreamMessage)]
            self._remove(self._context(), own)

    def _remove(self, context: TableContext, messages: Sequence[_StreamMessage]) -> None:
        for job in {message.job for message in messages}:
            remove_files_of_job(context, job)

    def _context(self) -> TableContext:
        return self._task.table.context(self._task.memory_bytes)


def _outcomes(messages: Sequence[_Message | _StreamMessage]) -> list[TaskOutcome]:
    return [cast("TaskOutcome", decoded(message.content)) for message in messages]


def _whole(options: Mapping[str, str], name: str, least: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise InvalidRequest(
            f"the option is a whole number, {least} or more", option=name, value=text
        )
    return int(text)
