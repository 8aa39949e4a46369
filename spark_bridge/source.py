"""The data source `lakecore` of Spark: what `format("lakecore")` names.

Spark runs each method in a separate process next to the driver. Only the options, as strings, reach
that process, and attributes that a method sets on the object reach the next method. The snapshot
whose schema was read is stored in this way, and a frame always reads that snapshot.

INVARIANT: the reader has no `pushFilters`. Spark 4.1 to 4.3 reuses one plan, filters included, for
all scans of a relation. A union of two filters of one frame would return the rows of one filter.

- A condition is passed as the option `where`, so that each condition has its own relation.
- A table that `attach` named takes no options: all scans of a name in a query are one relation,
  with the options of one scan.

A write runs the tasks and then calls `commit`. Spark does not shuffle the rows of a bucket to one
task; use `spark_bridge.prepare`. An unprepared frame raises an error if two of its tasks wrote the
same bucket.

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
from typing import TYPE_CHECKING, ClassVar, cast

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructField, StructType

from lakecore import CommitConflict, InvalidRequest, LakecoreError, Table, Unsupported
from lakecore.distributed import BATCH_COMMIT_IDENTIFIER, Evolution, TableContext, author
from spark_bridge.arguments import check_schema, evolved, overwrites_dynamically
from spark_bridge.failures import DATA_ERRORS, raised_shallow
from spark_bridge.job_commit import (
    Publication,
    parts_of,
    publish,
    remove_files_of_job,
    remove_leftovers,
)
from spark_bridge.options import MARK, PROVIDER, SourceOptions, parse_options
from spark_bridge.placement import assigners_of
from spark_bridge.plan_read import Pinned, pin, plan_read, read_schema
from spark_bridge.read_job import Piece, ReadJob, open_sealed, read_task, seal, to_exchange
from spark_bridge.spread import decoded, encoded
from spark_bridge.stream_commit import QUERY_ID, author_of_batch, compact_in_loop, is_due, loop_of
from spark_bridge.stream_options import StreamOptions, is_stream_option, parse_stream_options
from spark_bridge.stream_source import ChangeReader, stream_columns, stream_schema
from spark_bridge.task import MEMORY_PER_TASK, TaskOutcome, WriteTask, new_task, write_rows
from spark_bridge.types import same_type, spark_arrow_schema, spark_schema, takes_nulls_of, to_spark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakecore.distributed import SystemTable, TableSchema
    from spark_bridge.options import SourceOptions


@raised_shallow
class LakecoreSource(DataSource):
    """Tables by path: `spark.read.format("lakecore").load(path)`, `df.write.format("lakecore")`.

    The class that `attach` creates for a table has the table's path in `LOCATION`.
    """

    LOCATION: ClassVar[str | None] = None
    STORAGE: ClassVar[dict[str, str]] = {}
    KEY: ClassVar[str] = ""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._pinned: Pinned | None = None
        self._streamed: int | None = None

    @classmethod
    def name(cls) -> str:
        return "lakecore"

    def schema(self) -> StructType:
        """The columns of the table or system table; also fixes the snapshot to read."""
        if any(map(is_stream_option, self.options)):
            return self._stream_schema()
        given = self._given()
        given.check_creation(self.KEY)
        table = given.open()
        if given.system is not None:
            return spark_schema(given.system_table(table).schema.fields, nullable=True)
        self._pinned = pin(table.context, given.travel)
        columns = read_schema(table.context.history.schema(self._pinned.schema_id))
        return marked(columns, self.KEY) if self.KEY else columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of the columns of `schema`; each must be a column of the table."""
        for option in filter(is_stream_option, self.options):
            raise InvalidRequest("the option is for a stream: spark.readStream", option=option)
        given = self._given()
        if self.KEY and self.options:
            raise Unsupported(
                "Spark would give the options of one scan to every scan of the table in a query: "
                "make a view, spark_bridge.read(spark, path, ...).createOrReplaceTempView(name)",
                options=sorted(self.options),
                path=given.path,
            )
        table = given.open()
        if given.system is not None:
            return _SystemReader(given.system_table(table), schema, given.where)
        pinned = self._pinned or pin(table.context, given.travel)
        there = table.context.history.schema(pinned.schema_id)
        _check_columns(schema, there, attached=bool(self.KEY))
        return _Reader(table, pinned, schema, given.where)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001  Spark's
        """The writer that appends the rows of a frame of `schema`, or overwrites with them."""
        table, own, _ = self._written(schema, WRITE_OPTIONS)
        return writer(table, own, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> ChangeReader:  # noqa: N802  Spark's
        """The reader of the changes of the table, as a stream of rows of `schema`."""
        if self.KEY:
            raise Unsupported(
                "a stream needs options, which a table name does not take: use "
                'spark_bridge.read_stream(spark, path), or readStream.format("lakecore")',
                path=self.LOCATION,
            )
        options = self._stream_options()
        table = options.source.open()
        _check_columns(schema, stream_columns(table.schema))
        seen = self._streamed if self._pinned is None else self._pinned.schema_id
        fields = table.schema.fields
        if seen is not None and table.context.history.schema(seen).fields != fields:
            raise InvalidRequest(
                "the table has other columns than this streaming frame: make the frame again. "
                "With scan.snapshot-id, set read.changelog, too: the frame then has the newest "
                "columns",
                table=table.context.identifier,
                schema_id=seen,
                new_schema_id=table.schema.id,
            )
        return ChangeReader(table, schema, options, every_column=seen is not None)

    def streamWriter(  # noqa: N802  Spark's
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001  Spark's
    ) -> BatchWriter:
        """The writer of the batches of a query; with `overwrite`, each replaces the table."""
        table, own, given = self._written(schema, STREAM_WRITE_OPTIONS)
        return stream_writer(table, given, own, schema, overwrite=overwrite)

    def _written(
        self, schema: StructType, known: frozenset[str]
    ) -> tuple[Table, dict[str, str], SourceOptions]:
        """The table to write to, the options of the write, and all parsed options."""
        own = {key: text for key, text in self.options.items() if key.lower() in known}
        others = {key.lower(): text for key, text in self.options.items() if key not in own}
        # Spark adds the directory of the checkpoint to the options of a stream.
        others.pop("checkpointlocation", None)
        given = parse_options(others, location=self.LOCATION, storage=self.STORAGE)
        if not self.KEY and given.created_by is not None:
            raise InvalidRequest("Spark keeps this option for its catalog", option=PROVIDER)
        if given.system is not None:
            raise InvalidRequest(
                "a system table takes no rows", table=f"{given.path}${given.system}"
            )
        if given.where is not None or given.stated:
            raise InvalidRequest(
                "rows go into the newest state of a table: leave out what chooses another",
                path=given.path,
            )
        table = given.open()
        if self.KEY and schema.names != list(table.schema.names):
            raise InvalidRequest(
                "rows for this table have other columns; attach again if its schema has changed. "
                "CREATE TABLE ... AS SELECT makes no table of lakecore: make it by lakecore, and "
                "attach it",
                columns=schema.names,
                expected=table.schema.names,
            )
        return table, {key.lower(): text for key, text in own.items()}, given

    def _stream_schema(self) -> StructType:
        options = self._stream_options()
        table = options.source.open()
        self._streamed = table.schema.id
        return stream_schema(table.schema, changelog=bool(options.changelog))

    def _stream_options(self) -> StreamOptions:
        return parse_stream_options(self.options, location=self.LOCATION, storage=self.STORAGE)

    def _given(self) -> SourceOptions:
        return parse_options(self.options, location=self.LOCATION, storage=self.STORAGE)


@raised_shallow
class _Reader(DataSourceReader):
    """Reads the tasks of one plan. An executor gets the job and one task at a time."""

    def __init__(self, table: Table, pinned: Pinned, schema: StructType, where: str | None) -> None:
        planned = plan_read(table.context, pinned, columns=schema.fieldNames(), where=where)
        self._job = seal(planned.job)
        self._exchange = spark_arrow_schema(schema)
        # Spark replaces an empty list by one partition, whose value differs between versions.
        self._tasks = [seal(task) for task in planned.tasks or ((),)]

    def __getstate__(self) -> dict[str, object]:
        """Pickled without the tasks: Spark sends each reader its own."""
        return {**self.__dict__, "_tasks": []}

    def partitions(self) -> list[InputPartition]:
        """One partition per task."""
        return [InputPartition(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        job = cast("ReadJob", open_sealed(self._job))
        task = cast("tuple[Piece, ...]", open_sealed(partition.value))
        for batch in read_task(job, task):
            yield to_exchange(batch, self._exchange)


@raised_shallow
class _SystemReader(DataSourceReader):
    """Returns the rows of a system table, as they were when the read was planned."""

    def __init__(self, table: SystemTable, schema: StructType, where: str | None) -> None:
        _check_columns(schema, table.schema)
        exchange = spark_arrow_schema(schema)
        rows = table.to_arrow(schema.fieldNames(), where)
        self._rows = [to_exchange(batch, exchange) for batch in rows.to_batches()]

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        del partition
        yield from self._rows


def marked(schema: StructType, key: str) -> StructType:
    """The schema, with the data source that made the schema noted in each column."""
    return StructType(
        [
            StructField(
                field.name, field.dataType, field.nullable, {**(field.metadata or {}), MARK: key}
            )
            for field in schema.fields
        ]
    )


def _check_columns(asked: StructType, there: TableSchema, *, attached: bool = False) -> None:
    """Raise InvalidRequest for a column that the table lacks, or has with another type."""
    hint = "; attach again if the schema of the table has changed" if attached else ""
    for field in asked.fields:
        if field.name not in there.names:
            raise InvalidRequest(
                f"unknown column{hint}", column=field.name, columns=list(there.names)
            )
        stored = there.field(field.name).type
        kind = to_spark(stored, column=field.name)
        if not same_type(field.dataType, kind):
            raise InvalidRequest(
                f"the column has another type; cast it in the query{hint}",
                column=field.name,
                asked=field.dataType.simpleString(),
                type=kind.simpleString(),
            )
        if field.nullable < stored.nullable or not takes_nulls_of(kind, field.dataType):
            raise InvalidRequest(
                "the column, or a part of it, may be null: ask for it without NOT NULL",
                column=field.name,
                type=kind.simpleString(),
            )


# --- sink ----------------------------------------------------------------------------------------

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
            written, files = parts_of(outcomes)
            remove_leftovers(context, task.job, written, encoded=files)

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
            written, files = parts_of(outcomes)
            for job in {message.job for message in own}:
                remove_leftovers(context, job, written, encoded=files)
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
