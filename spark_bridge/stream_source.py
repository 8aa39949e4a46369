"""The reader behind `spark.readStream.format("lakecore")`.

Spark makes one reader next to the driver, which goes from offset to offset for the whole query, and
another one whose pickled form reads the partitions on executors. Spark 4.1 asks for the latest
offset without a start and without a limit; later versions give both.

INVARIANT: executors receive no table. A partition has all values that reading it needs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakecore import InvalidRequest, Unsupported
from lakecore.distributed import (
    KIND_COLUMN,
    ROW_KIND,
    Atomic,
    Field,
    MemoryStore,
    Root,
    parse_condition,
    setting_of,
    unguarded,
    with_nullable,
)
from spark_bridge.failures import raised_shallow
from spark_bridge.plan_read import read_schema
from spark_bridge.read_job import open_sealed, seal
from spark_bridge.stream_options import Limits, Offset, parse_offset
from spark_bridge.stream_plan import ChangePlanner
from spark_bridge.stream_read import SNAPSHOT_ID, ChangeJob, ChangeUnit, read_changes
from spark_bridge.types import spark_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lakecore import Table
    from lakecore.distributed import TableSchema
    from spark_bridge.stream_options import StreamOptions

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.1
    ReadLimit = ReadAllAvailable = ReadMaxFiles = None
    SupportsTriggerAvailableNow = object

_SNAPSHOT_COLUMN = Field(
    id=KIND_COLUMN.id - 1, name=SNAPSHOT_ID, type=Atomic(root=Root.BIGINT, nullable=False)
)
ONE_SNAPSHOT = Limits(snapshots=1)
"""The limit of a table with a primary key, unless another one is stated: Spark promises no order
between the tasks of a batch, and several snapshots may change the same key."""


def stream_schema(schema: TableSchema, *, changelog: bool) -> StructType:
    """The columns of a stream: those of the table, after the kind and the snapshot of a row."""
    columns = read_schema(schema)
    if not changelog:
        return columns
    if SNAPSHOT_ID in schema.by_name:
        raise Unsupported(
            "changes of a table with a column of this name are not supported; "
            "read.changelog=false reads rows without it",
            column=SNAPSHOT_ID,
        )
    kinds = [StructField(ROW_KIND, StringType()), StructField(SNAPSHOT_ID, LongType())]
    return StructType([*kinds, *columns.fields])


def stream_columns(schema: TableSchema) -> TableSchema:
    """The schema with the columns that a stream adds, unless the table has one of that name."""
    added = [f for f in (KIND_COLUMN, _SNAPSHOT_COLUMN) if f.name not in schema.by_name]
    added = [replace(f, type=with_nullable(f.type, nullable=True)) for f in added]
    return replace(schema, fields=(*added, *schema.fields))


def _has_kinds(table: Table, schema: StructType, options: StreamOptions) -> bool:
    """Whether the stream has row kinds. Raises InvalidRequest if it would hide deletions."""
    named = {ROW_KIND, SNAPSHOT_ID} & set(schema.fieldNames())
    if options.changelog is False and named:
        raise InvalidRequest(
            "read.changelog=false has no such columns: leave the option or the columns out",
            columns=sorted(named),
        )
    if options.changelog is None and table.schema.primary_keys and ROW_KIND not in named:
        raise InvalidRequest(
            "changes of a table with a primary key have kinds: set read.changelog to true for the "
            "columns _row_kind and _snapshot_id, or to false for the rows +I and +U alone",
            table=table.context.identifier,
        )
    return bool(options.changelog or named)


@raised_shallow
class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of a table, batch by batch."""

    def __init__(
        self, table: Table, schema: StructType, options: StreamOptions, *, every_column: bool
    ) -> None:
        """`schema`: the columns to read. `every_column`: whether these are all columns."""
        context = table.context
        if isinstance(unguarded(context.store), MemoryStore):
            raise Unsupported(
                "Spark cannot read a table in the memory of one process",
                table=context.identifier,
            )
        kinds = _has_kinds(table, schema, options)
        own = stream_columns(context.schema) if kinds else context.schema
        where = options.source.where
        condition = None if where is None else parse_condition(where, own, setting_of(context))
        columns = tuple(schema.fieldNames())
        self._job = seal(
            ChangeJob(
                schema=own.arrow,
                own=context.schema.names,
                columns=columns,
                kinds=kinds,
                store=context.store,
                where=condition,
                exchange=spark_arrow_schema(schema),
            )
        )
        keyed = bool(context.schema.primary_keys)
        stated = options.limits
        self._limits = stated if stated.any or not keyed else ONE_SNAPSHOT
        self._stated = stated.any
        read = {*columns, *(() if condition is None else condition.columns)}
        self._planner: ChangePlanner | None = ChangePlanner(
            context,
            options.request,
            options.start,
            columns=None if every_column else [n for n in context.schema.names if n in read],
            where=condition,
        )
        self._last: Offset | None = None

    def __getstate__(self) -> dict[str, object]:
        """The state to pickle, without the table, which only the driver needs."""
        return {**self.__dict__, "_planner": None}

    # --- next to the driver ----------------------------------------------------------------------

    def initialOffset(self) -> dict[str, object]:  # noqa: N802  Spark's
        """Where a new query begins."""
        self._last = self._plan.begin()
        return self._last.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's
        """A Spark limit that stands for all of lakecore's limits.

        Spark passes it to `latestOffset`.
        """
        return ReadMaxFiles(self._limits.snapshots or 1) if self._limits.any else ReadAllAvailable()

    def latestOffset(  # noqa: N802  Spark's
        self, start: dict[str, object] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, object]:
        """The end of the next batch."""
        if start is None:
            return self._latest_without_start()
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self._limits
        # Spark asks for the next batch only after it has noted that all batches before `start` are
        # done. At the end of a run it calls nothing else.
        self.commit(start)
        self._last = self._plan.latest(parse_offset(start), limits)
        return self._last.to_json()

    def _latest_without_start(self) -> dict[str, object]:
        if self._stated:
            raise Unsupported("limits of a batch need Spark 4.2 or newer; leave them out")
        if self._last is None:
            # After a restart, Spark does not pass the start.
            newest = self._plan.newest()
            self._last = self._plan.after(newest) if newest else self._plan.begin()
        else:
            self._last = self._plan.latest(self._last, Limits())
        return self._last.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's
        """Read up to the snapshot that is the latest now, and end."""
        self._plan.stop_at_latest()

    def reportLatestOffset(self) -> dict[str, object]:  # noqa: N802  Spark's
        """The latest snapshot, for the progress of the query."""
        return {"snapshot": self._plan.newest()}

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """The tasks of a batch."""
        first, last = parse_offset(start), parse_offset(end)
        self._last = last
        tasks = self._plan.tasks(first, last)
        return [InputPartition(seal(task)) for task in tasks or ((),)]

    def commit(self, end: dict[str, object]) -> None:
        """Called when the batch is done: records it in the consumer, if there is one."""
        done = parse_offset(end)
        if done.snapshot and (done.state is None or done.state.complete):
            self._plan.record(done.snapshot + 1)

    @property
    def _plan(self) -> ChangePlanner:
        assert self._planner is not None, "this reader is on an executor"
        return self._planner

    # --- on executors ----------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        job = cast("ChangeJob", open_sealed(self._job))
        units = cast("tuple[ChangeUnit, ...]", open_sealed(partition.value))
        yield from read_changes(job, units)
