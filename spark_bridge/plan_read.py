"""A table and a request -> the plan of a Spark read: schema, tasks, and Parquet files.

The driver plans once, at one snapshot. Spark's own Parquet reader gets the files for which it
returns the same rows and which need no pruning inside: raw files without deletion vectors, written
with the requested columns and types, whose footers have types that Spark reads like lakecore.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakecore import InvalidRequest, Unsupported
from lakecore.distributed.descriptor import anchored
from lakecore.distributed.planning import (
    TableSource,
    Travel,
    as_of,
    changes_of_options,
    check_size,
    parse_condition,
    resolve,
    setting_of,
)
from lakecore.distributed.tables import MemoryStore
from lakecore.distributed.values import Atomic, Root, arrow_type, with_nullable
from spark_bridge.read_job import ReadJob
from spark_bridge.read_tasks import Cutting, make_tasks
from spark_bridge.types import spark_arrow_schema, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import polars as pl
    from pyspark.sql.types import StructType

    from lakecore.distributed.tables import TableContext
    from lakecore.distributed.values import DataFile, Field, Snapshot, Split, TableSchema
    from spark_bridge.read_job import Piece

__all__ = ["Pinned", "PlannedRead", "pin", "plan_read", "read_schema"]

FOOTERS_MAX = 1024
"""More files than that are not looked into, and so not left to Spark."""
_SPARK_READS = frozenset(Root) - {Root.TIME}
_DIGITS_MAX = 6
_MILLISECOND_DIGITS = 3
_NOT_AS_NAMED = re.compile(r"[{}\[\]*?\\]|/[_.][^/]*$|:[^/]*$")
"""Spark takes such a path for a pattern, or the end of a scheme to be in it; or the file for a
hidden one, of which it gives no rows, and no error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A state of a table: a snapshot (None: no rows), and the schema to read it with.

    The snapshot is held whole: a tag keeps its own after the file of that number has expired.
    """

    snapshot: Snapshot | None
    schema_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRead:
    """What is to be read: `tasks` by lakecore, the Parquet files `native` by Spark.

    `rows` counts those of the tasks as stored. The schema is Spark's, and every column in it may
    be null, as with Spark's own files. No condition on the columns `compared_by_spark` may reach
    Spark's Parquet reader.
    """

    schema: StructType
    snapshot_id: int | None
    job: ReadJob
    tasks: tuple[tuple[Piece, ...], ...]
    rows: int
    native: tuple[str, ...]
    compared_by_spark: frozenset[str]


def pin(context: TableContext, travel: Travel) -> Pinned:
    """The state that the request names, or the latest."""
    context.options.require_readable()
    if travel == Travel() and changes_of_options(context) is not None:
        raise Unsupported(
            "Spark reads states of a table, not what changed between two; "
            "Table.changes gives the rows",
            table=context.identifier,
        )
    snapshot, schema = resolve(context, travel)
    return Pinned(snapshot=snapshot, schema_id=schema.id)


def read_schema(schema: TableSchema, columns: Sequence[str] | None = None) -> StructType:
    """The Spark schema of a read. Raises Unsupported for a type that Spark has not."""
    return spark_schema(_fields(schema, columns), nullable=True)


def plan_read(
    context: TableContext,
    pinned: Pinned,
    *,
    columns: Sequence[str] | None = None,
    where: pl.Expr | str | None = None,
    native: bool = False,
    zone: str = "",
) -> PlannedRead:
    """The plan of a read at a pinned state; `native` allows Spark's own Parquet reader.

    `zone` is the time zone of an SQL condition; the empty text is the machine's.
    """
    if isinstance(context.store, MemoryStore):
        raise Unsupported(
            "a table in the memory of one process is out of reach for Spark",
            table=context.identifier,
        )
    source = _source(context, pinned)
    schema = source.table_schema
    spark = read_schema(schema, columns)
    condition = (
        None
        if where is None
        else parse_condition(where, schema, replace(setting_of(context), zone=zone))
    )
    splits = source.plan(None if condition is None else condition.predicate).splits
    names = spark.fieldNames()
    paths: tuple[str, ...] = ()
    if native and condition is None:
        splits, paths = _left_to_spark(splits, source, names)
    plan = source.read_plan(splits, names)
    options = source.context.options
    cutting = Cutting(
        target_bytes=options.source_split_target_size_bytes,
        open_cost_bytes=options.source_split_open_file_cost_bytes,
        schema=schema,
        schemas=plan.schemas,
        layout=plan.layout,
        store=context.store,
    )
    return PlannedRead(
        schema=spark,
        snapshot_id=None if pinned.snapshot is None else pinned.snapshot.id,
        job=ReadJob(
            plan=plan,
            store=context.store,
            where=condition,
            exchange=spark_arrow_schema(spark),
        ),
        tasks=tuple(make_tasks(splits, cutting)),
        rows=sum(split.row_count for split in splits),
        native=paths,
        compared_by_spark=frozenset(name for name in names if _misses_rows(schema.field(name))),
    )


def _source(context: TableContext, pinned: Pinned) -> TableSource:
    history = context.history
    current = pinned.schema_id == context.schema.id
    schema = context.schema if current else history.schema(pinned.schema_id)
    context = replace(context, layout=anchored(context.layout, context.store))
    return TableSource(
        context=as_of(context, schema), snapshot=pinned.snapshot, table_schema=schema
    )


def _fields(schema: TableSchema, columns: Sequence[str] | None) -> list[Field]:
    if columns is None:
        return list(schema.fields)
    names = list(columns)
    if not names or len(set(names)) < len(names):
        raise InvalidRequest("name one column or more, each once", columns=names)
    return [schema.field(name) for name in names]


# --- files for Spark's own reader -----------------------------------------------------------------


def _left_to_spark(
    splits: Sequence[Split], source: TableSource, names: Sequence[str]
) -> tuple[tuple[Split, ...], tuple[str, ...]]:
    """The splits that lakecore is to read, and the files that Spark may read as they are."""
    fields = [source.table_schema.field(name) for name in names]
    lower = {name.lower() for name in names}
    raw = [split for split in splits if split.raw and not split.vectors]
    files = sum(len(split.files) for split in raw)
    # Spark finds columns without regard to case, unless told otherwise.
    if not all(map(_is_alike, fields)) or len(lower) < len(names) or not 0 < files <= FOOTERS_MAX:
        return tuple(splits), ()
    kept: list[Split] = []
    paths: list[str] = []
    for split in splits:
        rest = split.files
        if split.raw and not split.vectors:
            found = {file: _path(file, split, source, fields) for file in split.files}
            paths += [path for path in found.values() if path is not None]
            rest = tuple(file for file, path in found.items() if path is None)
        if len(rest) == len(split.files):
            kept.append(split)
        elif rest:
            kept.append(replace(split, runs=(rest,)))
    return tuple(kept), tuple(paths)


def _is_alike(field: Field) -> bool:
    """Whether Spark reads every value of the column from Parquet as lakecore does."""
    kind = field.type
    if not isinstance(kind, Atomic) or kind.root not in _SPARK_READS:
        return False
    timestamp = kind.root in {Root.TIMESTAMP, Root.TIMESTAMP_LTZ}
    return not (timestamp and (kind.precision or 0) > _DIGITS_MAX)


def _misses_rows(field: Field) -> bool:
    """Whether Spark's Parquet reader passes over row groups that have rows of a condition.

    It does so by statistics that know nothing of NaN, which Spark takes for the largest number, and
    by dictionaries in which -0.0 is not the 0.0 that it equals; and it compares columns of
    milliseconds with what is left of a value that has microseconds.
    """
    kind = field.type
    if not isinstance(kind, Atomic):
        return False
    coarse = kind.root is Root.TIMESTAMP_LTZ and (kind.precision or 0) <= _MILLISECOND_DIGITS
    return coarse or kind.root in {Root.FLOAT, Root.DOUBLE}


def _path(file: DataFile, split: Split, source: TableSource, fields: Iterable[Field]) -> str | None:
    """The URI of a local file of a raw split; None if Spark may not read it."""
    context = source.context
    path = context.layout.data_file(split.partition_path, split.bucket, file)
    local = context.store.local_path(path)
    plain = file.format == "parquet" and file.write_columns is None
    if local is None or not plain or _NOT_AS_NAMED.search(local):
        return None
    stored = context.history.schema(file.schema_id)
    alike = _same_columns(fields, stored) and _is_as_said(file, path, local, source, fields)
    # Without a scheme, Spark would look for it in the file system that is its own by default.
    return f"file://{local}" if alike else None


def _same_columns(fields: Iterable[Field], stored: TableSchema) -> bool:
    """Whether files of a schema hold these columns under the same names and types."""
    return all(
        (twin := stored.by_id.get(field.id)) is not None
        and twin.name == field.name
        and with_nullable(twin.type, nullable=True) == with_nullable(field.type, nullable=True)
        for field in fields
    )


def _is_as_said(
    file: DataFile, path: str, local: str, source: TableSource, fields: Iterable[Field]
) -> bool:
    """Whether the footer names just the types of the schema. CorruptTable for another size."""
    check_size(source.context.store, path, file)
    try:
        stored = pq.read_schema(local)
    except (pa.ArrowInvalid, OSError):
        return False  # lakecore's own reader says what is wrong with it
    types = dict(zip(stored.names, stored.types, strict=True))
    lower = [name.lower() for name in stored.names]
    return len(set(lower)) == len(lower) and all(
        types.get(field.name) == arrow_type(field.type) for field in fields
    )
