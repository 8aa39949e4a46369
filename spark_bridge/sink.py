"""`df.write.format("lakecore")` and INSERT INTO: Spark runs the tasks and then calls `commit`.

For a data source, Spark does not shuffle the rows of a bucket to one task; use
`spark_bridge.prepare`. A frame that was not prepared is refused if two of its tasks wrote the same
bucket.

| option | is |
|---|---|
| `write.commit-user`, `write.identifier` | as for `spark_bridge.write` |
| `write.memory-per-task` | bytes; as for `spark_bridge.write` |
| `dynamic-partition-overwrite` | `true`: an overwrite replaces the partitions it has rows in |

As Spark defines it, an overwrite replaces the whole table, unless that option of the table or of
the write says otherwise.

INVARIANT: `abort` never removes a file that may be in a snapshot. Spark calls it when a task
failed, and also when `commit` raised an error, whether its snapshot was published or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lakecore import CommitConflict, InvalidRequest, LakecoreError
from lakecore.distributed.committing import author
from lakecore.distributed.values import BATCH_COMMIT_IDENTIFIER
from spark_bridge.arguments import overwrites_dynamically
from spark_bridge.assigners import assigners_of
from spark_bridge.check import check_schema
from spark_bridge.evolve import evolved
from spark_bridge.failures import DATA_ERRORS, raised_shallow
from spark_bridge.job_commit import Publication, publish
from spark_bridge.job_files import remove_files_of_job, remove_leftovers
from spark_bridge.task import MEMORY_PER_TASK, TaskOutcome, WriteTask, new_task, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lakecore import Table
    from lakecore.distributed.tables import TableContext

__all__ = ["WRITE_OPTIONS", "LakecoreWriter", "writer"]

_USER, _IDENTIFIER, _MEMORY = "write.commit-user", "write.identifier", "write.memory-per-task"
WRITE_OPTIONS = frozenset({_USER, _IDENTIFIER, _MEMORY})
"""The options that are neither the table's nor the storage's."""


def writer(
    table: Table, options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> LakecoreWriter:
    """Spark's writer for rows of `schema`; `options` are those of `WRITE_OPTIONS`.

    Raises InvalidRequest if the columns do not fit.
    """
    context, evolution = evolved(table.context, schema)
    check_schema(context, schema, overwrite=overwrite)
    identifier = _whole(options, _IDENTIFIER, BATCH_COMMIT_IDENTIFIER)
    assigners = assigners_of(context, overwrite=overwrite)
    how = Publication(
        by=author(context, options.get(_USER), identifier),
        assigners=assigners,
        evolution=evolution,
        overwrite=overwrite,
        dynamic=overwrites_dynamically(context),
    )
    memory_bytes = _whole(options, _MEMORY, MEMORY_PER_TASK)
    if memory_bytes < 1:
        raise InvalidRequest("the option is positive", option=_MEMORY, value=memory_bytes)
    task = new_task(
        context,
        overwrite=overwrite,
        memory_bytes=memory_bytes,
        assigners=assigners,
        evolution=evolution,
    )
    return LakecoreWriter(task, how)


@dataclass
class _Message(WriterCommitMessage):
    """The outcome of a task, as an instance of the class that Spark requires."""

    outcome: TaskOutcome


@raised_shallow
class LakecoreWriter(DataSourceArrowWriter):
    """One write by Spark: `write` runs on executors, `commit` or `abort` near the driver."""

    def __init__(self, task: WriteTask, how: Publication) -> None:
        self._task = task
        self._how = how

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the files of one task."""
        return _Message(write_rows(self._task, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the files of the tasks in one snapshot."""
        task, context = self._task, self._context()
        outcomes = [message.outcome for message in messages if isinstance(message, _Message)]
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


def _whole(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequest("the option is a whole number", option=name, value=text)
    return int(text)
