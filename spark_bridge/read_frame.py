"""A table as a Spark DataFrame: the driver plans the read, and executors read.

The snapshot is chosen when `read` is called, and the frame keeps it. Spark's own Parquet reader
reads the files that need no merge, if it returns the same rows. lakecore reads the rest, in tasks.
The plan contains an estimate of the row count, so that Spark does not broadcast a large table.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import (
    DatetimeType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakecore import InvalidRequest, Table, open_table
from lakecore.distributed import (
    ROW_KIND,
    SystemTable,
    TableContext,
    TableSchema,
    Time,
    Travel,
    changes_between,
    checked_limit,
    is_time_text,
    reader,
    wall_time,
)
from spark_bridge.arguments import check_no_column, named_arguments, opened
from spark_bridge.bucket_sql import quoted
from spark_bridge.options import refuse_state, split_system
from spark_bridge.plan_read import Pinned, PlannedRead, pin, plan_read, read_schema
from spark_bridge.read_job import Piece, ReadJob, open_sealed, read_task, seal, to_exchange
from spark_bridge.settings import require_version
from spark_bridge.spread import map_units
from spark_bridge.types import spark_arrow_schema, spark_schema
from spark_bridge.worker import Batches, acknowledge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from spark_bridge.pushdown import Need

# Spark's reader returns the values as stored: it rebases no calendar, skips no file, and takes no
# partition column from a path.
_PARQUET_OPTIONS = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "mergeSchema": "false",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "recursiveFileLookup": "true",
    "parquet.page.verify-checksum.enabled": "true",
}


@named_arguments
def read(  # noqa: PLR0913  the public verb
    spark: SparkSession,
    table: Table | SystemTable | str | os.PathLike[str],
    *,
    columns: Sequence[str] | str | None = None,
    where: pl.Expr | str | None = None,
    snapshot_id: int | None = None,
    tag: str | None = None,
    timestamp: Time | None = None,
    limit: int | None = None,
    raw_by_spark: bool = True,
) -> DataFrame:
    """The rows of a table, or of a system table, as a Spark DataFrame. The row order is undefined.

    - `table`: a lakecore table, or its path; `path$files` is a system table.
    - `columns`: the columns that the query needs. Name them, because Spark does not push column
      pruning down to lakecore. Names are case-insensitive unless `spark.sql.caseSensitive` is set;
      the frame has the table's names.
    - `where`: a Polars expression or an SQL condition as a string. Files and row groups that cannot
      match are pruned; the frame holds matching rows only.
    - `snapshot_id`, `tag` or `timestamp`: the state to read; by default the latest snapshot. A
      `timestamp` without a zone, or a time in an SQL condition, is in the session's time zone
      (`spark.sql.session.timeZone`).
    - `limit`: the most rows to read; any rows may be chosen. A task ends by itself at this number,
      so its Python worker stays for the next job; `df.limit(n)` and `df.show()` end the worker.
    - `raw_by_spark`: if False, lakecore reads every file.

    All columns of the frame are nullable. Raises NotFound if the table or the state does not exist,
    and Unsupported for a type that Spark lacks.

        spark_bridge.read(spark, orders, columns=["id"], where="price > 10")
    """
    require_version(spark)
    check_no_column(where=where)
    if isinstance(table, str | os.PathLike):
        path, system = split_system(os.fspath(table))
        at_path = open_table(path)
        table = at_path if system is None else at_path.inspect.system_table(system)
    travel = Travel(
        snapshot_id=snapshot_id, tag=tag, timestamp=in_zone_of_session(spark, timestamp)
    )
    limit = checked_limit(limit)
    if isinstance(table, SystemTable):
        if travel != Travel():
            refuse_state(table.identifier)
        return _system(spark, table, resolved(spark, table.schema, columns), where, limit)
    context = opened(table).context
    pinned = pin(context, travel)
    names = resolved(spark, context.history.schema(pinned.schema_id), columns)
    zone = str(spark.conf.get("spark.sql.session.timeZone")) if isinstance(where, str) else ""
    planned = plan_read(
        context,
        pinned,
        columns=names,
        where=where,
        native=raw_by_spark and limit is None,
        zone=zone,
        limit=limit,
    )
    return _framed(spark, planned, limit)


def read_needed(
    spark: SparkSession, context: TableContext, pinned: Pinned, need: Need
) -> DataFrame:
    """A state of a table with all of its columns, for a query that needs a part of it.

    Columns that the query does not need are null.
    """
    every = read_schema(context.history.schema(pinned.schema_id))
    kept = set(range(len(every.fields))) if need.columns is None else need.columns or {0}
    names = [field.name for place, field in enumerate(every.fields) if place in kept]
    native = need.where is None
    planned = plan_read(context, pinned, columns=names, where=need.where, native=native)
    rows = _framed(spark, planned, None)
    if len(names) == len(every.fields):
        return rows
    return rows.select(
        [
            f.col(quoted(each.name))
            if place in kept
            else f.lit(None).cast(each.dataType).alias(each.name)
            for place, each in enumerate(every.fields)
        ]
    )


def _framed(spark: SparkSession, planned: PlannedRead, limit: int | None) -> DataFrame:
    frames = [
        frame for frame in (_native(spark, planned), _merged(spark, planned)) if frame is not None
    ]
    if not frames or limit == 0:
        return spark.createDataFrame([], planned.schema)
    rows = frames[0] if len(frames) == 1 else frames[0].union(frames[1])
    return rows if limit is None or len(planned.tasks) == 1 else rows.limit(limit)


def resolved(
    spark: SparkSession, schema: TableSchema, columns: str | Sequence[str] | None
) -> list[str] | None:
    """The table's spelling of these column names; unknown names are returned unchanged."""
    if columns is None:
        return None
    asked = [columns] if isinstance(columns, str) else list(columns)
    if spark.conf.get("spark.sql.caseSensitive", "false") == "true":
        return asked
    found: list[str] = []
    for name in asked:
        alike = [each for each in schema.names if each.lower() == str(name).lower()]
        if name not in alike and len(alike) > 1:
            raise InvalidRequest(
                "several columns have this name in another case: write one of them exactly",
                column=name,
                columns=alike,
            )
        found.append(name if name in alike or not alike else alike[0])
    return found


def in_zone_of_session(spark: SparkSession, timestamp: Time | None) -> Time | None:
    """A time without a zone, interpreted in the session's time zone by Spark."""
    local = wall_time(timestamp)
    if local is None:
        return timestamp
    query = "SELECT unix_millis(cast(cast(:local AS TIMESTAMP_NTZ) AS TIMESTAMP))"
    return cast("int", spark.sql(query, {"local": local.isoformat()}).collect()[0][0])


def _point(spark: SparkSession, context: TableContext, given: Time | None) -> Time | None:
    """A point of `changes`; a time without a zone gets the zone of the session."""
    if isinstance(given, str):
        is_tag = given in context.history.tag_names()
        if is_tag or not is_time_text(given):
            return given
    moment = in_zone_of_session(spark, given)
    if moment is given or not isinstance(moment, int):
        return given
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=moment)


def _system(
    spark: SparkSession,
    table: SystemTable,
    columns: Sequence[str] | None,
    where: pl.Expr | str | None,
    limit: int | None,
) -> DataFrame:
    fields = table.schema.fields
    if columns is not None:
        fields = tuple(table.schema.field(name) for name in columns)
    schema = spark_schema(fields, nullable=True)
    exchange = spark_arrow_schema(schema)
    rows = table.to_arrow([field.name for field in fields], where, limit=limit)
    batches = [to_exchange(batch, exchange) for batch in rows.to_batches()]
    return spark.createDataFrame(pa.Table.from_batches(batches, exchange), schema)


def _native(spark: SparkSession, planned: PlannedRead) -> DataFrame | None:
    if not planned.native:
        return None
    reader = spark.read.schema(planned.schema).options(**_PARQUET_OPTIONS)
    rows = reader.parquet(*planned.native)
    apart = planned.compared_by_spark
    if not apart:
        return rows
    return rows.select(
        [
            _computed(each) if each.name in apart else f.col(quoted(each.name))
            for each in planned.schema
        ]
    )


def _computed(field: StructField) -> Column:
    """The same values as an expression, so that Spark pushes no condition on them to Parquet."""
    column = f.col(quoted(field.name))
    if isinstance(field.dataType, TimestampType):
        same = f.timestamp_micros(f.unix_micros(column))
    else:
        same = column * f.lit(1.0).cast(field.dataType)
    return same.alias(field.name, metadata=field.metadata or {})


def _merged(spark: SparkSession, planned: PlannedRead) -> DataFrame | None:
    if not planned.tasks:
        return None
    size_bytes = planned.rows * _words(planned.schema) * 8
    run = _runner(seal(planned.job))
    return map_units(spark, [seal(task) for task in planned.tasks], run, planned.schema, size_bytes)


def _words(schema: StructType) -> int:
    """The approximate size of a row, in words of 8 bytes."""
    return sum(
        1 if isinstance(each.dataType, NumericType | DatetimeType) else 3 for each in schema.fields
    )


def _runner(job: bytes) -> Callable[[Batches], Batches]:
    """The function for `map_units` over sealed tasks."""

    def run(batches: Batches) -> Batches:
        acknowledge()
        opened = cast("ReadJob", open_sealed(job))
        for batch in batches:
            for sealed in batch.column("unit").to_pylist():
                yield from read_task(opened, cast("tuple[Piece, ...]", open_sealed(sealed)))

    return run


# --- changes frame -------------------------------------------------------------------------------
# The changes between two states of a table, as a Spark frame.
#
# The rows pass through the driver, so they must fit in its memory; `read_stream` reads many changes
# by tasks. Values have the types of `read`: a TIMESTAMP stays a time without a zone.


@named_arguments
def changes(
    spark: SparkSession,
    table: Table | str | os.PathLike[str],
    start: Time | None = None,
    end: Time | None = None,
) -> DataFrame:
    """The changes after `start` up to and including `end`, as a Spark DataFrame.

    The frame has the columns of the table and `_row_kind` (+I, -U, +U, -D). `start` and `end`, as
    for `Table.changes`: snapshot ids, tags or times; a time without a zone is in the zone of the
    session. By default, all changes. All columns are nullable. The rows are read now, into the
    memory of the driver.

    Raises NotFound, naming the earliest snapshot left, if the changes have expired.

        spark_bridge.changes(spark, "/data/shop/orders", 7).where("_row_kind <> '-U'")
    """
    require_version(spark)
    context = opened(table).context
    context.options.require_readable()
    points = [_point(spark, context, given) for given in (start, end)]
    source = changes_between(context, *points)
    names = [*context.schema.names, ROW_KIND]
    kind = StructField(ROW_KIND, StringType(), nullable=True)
    schema = StructType([*read_schema(context.schema).fields, kind])
    exchange = spark_arrow_schema(schema)
    batches = [to_exchange(batch, exchange) for batch in reader(source, names, None)]
    if not batches:
        return spark.createDataFrame([], schema)
    return spark.createDataFrame(pa.Table.from_batches(batches, exchange), schema)
