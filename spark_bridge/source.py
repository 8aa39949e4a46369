"""The data source `lakecore` of Spark: what `format("lakecore")` names.

Spark runs each method in a separate process next to the driver. Only the options, as strings, reach
that process, and attributes that a method sets on the object reach the next method. The snapshot
whose schema was read is stored in this way, and a frame always reads that snapshot.

INVARIANT: the reader has no `pushFilters`. Spark 4.1 to 4.3 reuses one plan, filters included, for
all scans of a relation. A union of two filters of one frame would return the rows of one filter.

- A condition is passed as the option `where`, so that each condition has its own relation.
- A table that `attach` named takes no options: all scans of a name in a query are one relation,
  with the options of one scan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition
from pyspark.sql.types import StructField, StructType

from lakecore import InvalidRequest, Table, Unsupported
from spark_bridge.failures import raised_shallow
from spark_bridge.options import MARK, PROVIDER, SourceOptions, parse_options
from spark_bridge.plan_read import Pinned, pin, plan_read, read_schema
from spark_bridge.read_job import Piece, ReadJob, open_sealed, read_task, seal, to_exchange
from spark_bridge.sink import (
    STREAM_WRITE_OPTIONS,
    WRITE_OPTIONS,
    BatchWriter,
    stream_writer,
    writer,
)
from spark_bridge.stream_options import StreamOptions, is_stream_option, parse_stream_options
from spark_bridge.stream_source import ChangeReader, stream_columns, stream_schema
from spark_bridge.types import same_type, spark_arrow_schema, spark_schema, takes_nulls_of, to_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lakecore.distributed import SystemTable, TableSchema


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
