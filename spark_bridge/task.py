"""One task of a write: writes rows to data files of the buckets it owns, and returns an outcome.

1. The task creates a lakecore writer from a frozen value. The writer never compacts, and keeps its
   buffers within the task's memory budget; the largest buffer is spilled first.
2. All file names begin with the id of the job, which identifies the files of lost attempts.
3. The outcome, with the commit messages, is returned to the driver as one row of bytes. Many
   messages are encoded as a manifest, whose blocks the driver writes as they are.

If a row does not fit, the outcome has a `failure`, which the driver raises: a retry of the task
would fail too.

INVARIANT: nothing becomes visible here. A failed attempt removes its files; a killed attempt leaves
files that no snapshot names, and the driver removes them after its commit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext

from lakecore import CommitMessage, LakecoreError
from lakecore.distributed import (
    SYSTEM,
    EncodedFiles,
    Evolution,
    TableContext,
    TableDescriptor,
    WriteStart,
    at_last_level,
    batch_writer,
    describe,
    encode_files,
    of_job,
    read_base,
)
from spark_bridge.failures import DATA_ERRORS, portable, raised_in_task
from spark_bridge.spread import answer
from spark_bridge.worker import Batches, acknowledge, joined, partition_number, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


MEMORY_PER_TASK = 256 << 20
INITIAL_BUCKETS = "dynamic-bucket.initial-buckets"
MESSAGES_MAX = 10_000
"""About this many messages of a job reach the driver as objects."""
MESSAGES_PER_TASK = 16
"""The same for a task of a job whose number of tasks is unknown."""
WRITE_ONLY = {"write-only": "true"}
"""Tasks never compact, because their duration would depend on the size of the buckets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """The input of a task: the table and its state, the job, and the memory of the task.

    - `buckets`: the number of fixed buckets of a partition, else -1;
    - `columns`: the names of the table's columns, if the frame's names were replaced by numbers
      (otherwise empty), for the last columns of each batch;
    - `assigners`: the number of tasks that share the dynamic buckets of a partition;
    - `messages_max`: a task with more messages encodes them.
    """

    table: TableDescriptor
    base: WriteStart
    job: str
    overwrite: bool
    memory_bytes: int
    buckets: int
    assigners: int = 1
    columns: tuple[str, ...] = ()
    messages_max: int = MESSAGES_PER_TASK


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """The result of a task: row count, times, and the files to commit, or its failure.

    `encoded` has the files of many messages; `messages` is then empty.
    """

    partition: int
    attempt: int
    rows: int
    began_ms: int
    ended_ms: int
    messages: tuple[CommitMessage, ...]
    failure: LakecoreError | None = None
    encoded: EncodedFiles | None = None

    @property
    def files(self) -> int:
        """The number of files."""
        if self.encoded is not None:
            return sum(part.file_count for part in self.encoded.parts)
        return sum(len(each.new_files) + len(each.changelog_files) for each in self.messages)

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        if self.encoded is not None:
            return sum(part.size_bytes for part in self.encoded.parts)
        return sum(
            file.size_bytes
            for message in self.messages
            for file in (*message.new_files, *message.changelog_files)
        )

    @property
    def seconds(self) -> float:
        """The duration of the task, including Spark's work for it."""
        return (self.ended_ms - self.began_ms) / 1000


def new_task(
    context: TableContext,
    *,
    overwrite: bool,
    memory_bytes: int = MEMORY_PER_TASK,
    assigners: int = 1,
    evolution: Evolution | None = None,
) -> WriteTask:
    """The task of a new job on the current table, or on the table before its new schema."""
    return WriteTask(
        table=describe(context, {**WRITE_ONLY, INITIAL_BUCKETS: str(assigners)}),
        base=read_base(context) if evolution is None else evolution.base,
        job=SYSTEM.new_uuid(),
        overwrite=overwrite,
        memory_bytes=memory_bytes,
        buckets=context.options.bucket,
        assigners=assigners,
    )


def partition_function(task: WriteTask) -> Callable[[Batches], Batches]:
    """The function for `mapInArrow`: one call for each partition of Spark."""

    def write_partition(batches: Batches) -> Batches:
        with raised_in_task():
            yield answer(partition_number(), write_rows(task, batches))

    return write_partition


def grouped_function(task: WriteTask) -> Callable[[Batches], Batches]:
    """The function for `applyInArrow`: one call for each partition and bucket."""

    def write_group(batches: Batches) -> Batches:
        with raised_in_task():
            yield answer(partition_number(), write_rows(task, batches))

    return write_group


def write_rows(task: WriteTask, batches: Batches) -> TaskOutcome:
    """Write the rows of one attempt of a task. An error names the task."""
    acknowledge()

    def write() -> tuple[tuple[CommitMessage, ...], int]:
        context = task.table.context(task.memory_bytes, of_job(task.job))
        with batch_writer(context, overwrite=task.overwrite, base=task.base) as writer:
            writer.write(joined(_named(batches, task.columns)))
            return tuple(writer.prepare_commit()), writer.row_count

    outcome = answered(task, write)
    set_aside("write")
    return outcome


def answered(
    task: WriteTask, write: Callable[[], tuple[tuple[CommitMessage, ...], int]]
) -> TaskOutcome:
    """The outcome of this attempt of a task; the files of many messages are encoded."""
    outcome = attempted(write)
    messages = outcome.messages
    if len(messages) <= task.messages_max:
        return outcome
    context = task.table.context(task.memory_bytes)
    if task.overwrite:
        # No other task has files of these buckets.
        messages = tuple(at_last_level(context, messages))
    encoded = encode_files(context, messages, task.job)
    return outcome if encoded is None else replace(outcome, messages=(), encoded=encoded)


def attempted(write: Callable[[], tuple[tuple[CommitMessage, ...], int]]) -> TaskOutcome:
    """The outcome of this attempt of a task: messages and rows, or why the data do not fit."""
    spark = TaskContext.get()
    partition = partition_number()
    began_ms = SYSTEM.now_ms()
    messages: tuple[CommitMessage, ...] = ()
    rows, failure = 0, None
    try:
        messages, rows = write()
    except DATA_ERRORS as error:
        failure = portable(error, task=partition)
    except LakecoreError as error:
        raise portable(error, task=partition) from error
    return TaskOutcome(
        partition=partition,
        attempt=spark.attemptNumber() if spark else 0,
        rows=rows,
        began_ms=began_ms,
        ended_ms=SYSTEM.now_ms(),
        messages=messages,
        failure=failure,
    )


def _named(batches: Batches, columns: tuple[str, ...]) -> Batches:
    """The rows with the last columns renamed to `columns`; unchanged if `columns` is empty."""
    for batch in batches:
        own = range(batch.num_columns - len(columns), batch.num_columns)
        yield batch.select(own).rename_columns(list(columns)) if columns else batch


# --- packing -------------------------------------------------------------------------------------
# Packs work items of very different sizes into groups, one for each task.

PACK_BYTES = 64 << 20
"""Items of fewer bytes share a task."""
_TASKS_PER_CORE = 3


def packed(sizes: Sequence[int], cores: int) -> list[list[int]]:
    """The indexes of the items in groups, the largest group first; items are in order of size.

    An item of at least the size limit is alone. The others fill groups up to the limit. The limit
    is lower if there would otherwise be fewer groups than cores.
    """
    limit = min(PACK_BYTES, sum(sizes) // (cores * _TASKS_PER_CORE))
    groups: list[list[int]] = []
    held = limit + 1
    for position in sorted(range(len(sizes)), key=lambda each: (-sizes[each], each)):
        if held + sizes[position] > limit:
            groups.append([])
            held = 0
        groups[-1].append(position)
        held += sizes[position]
    return sorted(groups, key=lambda group: -sum(sizes[position] for position in group))
