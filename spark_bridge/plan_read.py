"""Plans a Spark read: its schema, its tasks, and the Parquet files that Spark reads itself.

The driver plans once, at one snapshot. Spark's own Parquet reader gets the files for which it
returns the same rows and which need no pruning of row groups: raw files without deletion vectors,
written with the requested columns and types, whose footers have types that Spark reads like
lakecore.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakecore import InvalidRequest, Unsupported
from lakecore.distributed import (
    Atomic,
    DataFile,
    Field,
    MemoryStore,
    ReadPlan,
    Root,
    Snapshot,
    Split,
    TableContext,
    TableSchema,
    TableSource,
    Travel,
    anchored,
    arrow_type,
    as_of,
    changes_of_options,
    check_size,
    parse_condition,
    resolve,
    setting_of,
    unguarded,
    with_nullable,
)
from spark_bridge.read_job import Cutting, Piece, ReadJob, make_tasks
from spark_bridge.types import spark_arrow_schema, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import polars as pl
    from pyspark.sql.types import StructType


FOOTERS_MAX = 1024
"""With more files, footers are not read, and Spark's own reader is not used."""
ROWS_OF_ONE_TASK = 65_536
"""In a read with a limit of up to this many rows, one task reads all of them."""
_SPARK_READS = frozenset(Root) - {Root.TIME, Root.BLOB}
_DIGITS_MAX = 6
_MILLISECOND_DIGITS = 3
_NOT_AS_NAMED = re.compile(r"[{}\[\]*?\\]|/[_.][^/]*$|:[^/]*$")
"""Paths that Spark would read as a glob, as a URI with a scheme, or skip as hidden files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A state of a table: a snapshot (None: no rows), and the schema to read it with.

    The state holds the whole snapshot, because a tag keeps a snapshot whose file has expired.
    """

    snapshot: Snapshot | None
    schema_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRead:
    """The plan of a read: `tasks` for lakecore, Parquet files `native` for Spark's own reader.

    `rows`: the number of stored rows of the tasks. `schema`: Spark's types, with nullable columns
    only, as for Spark's own files. Conditions on the columns `compared_by_spark` must not reach
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
    """The state that the request names; by default the latest."""
    context.options.require_readable()
    if context.falls_back:
        raise Unsupported(
            "Spark reads one branch of a table; remove scan.fallback-branch",
            option="scan.fallback-branch",
            table=context.identifier,
        )
    if travel == Travel() and changes_of_options(context) is not None:
        raise Unsupported(
            "Spark reads states of a table, not what changed between two; "
            "Table.changes gives the rows",
            table=context.identifier,
        )
    snapshot, schema = resolve(context, travel)
    return Pinned(snapshot=snapshot, schema_id=schema.id)


def read_schema(schema: TableSchema, columns: Sequence[str] | None = None) -> StructType:
    """The Spark schema of a read. Raises Unsupported for a type that Spark does not have."""
    return spark_schema(_fields(schema, columns), nullable=True)


def plan_read(  # noqa: PLR0913  what a read names
    context: TableContext,
    pinned: Pinned,
    *,
    columns: Sequence[str] | None = None,
    where: pl.Expr | str | None = None,
    native: bool = False,
    zone: str = "",
    limit: int | None = None,
) -> PlannedRead:
    """The plan of a read at a pinned state; `native` allows Spark's own Parquet reader.

    `zone` is the time zone of an SQL condition; an empty string means the machine's zone. With a
    `limit`, no task returns more rows. A small limit without a condition makes a single task.
    """
    if isinstance(unguarded(context.store), MemoryStore):
        raise Unsupported(
            "Spark cannot read a table in the memory of one process", table=context.identifier
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
    tasks = tuple(make_tasks(splits, _cutting(source, plan)))
    rows = sum(split.row_count for split in splits)
    if limit is not None:
        rows = min(rows, limit)
        if condition is None and limit <= ROWS_OF_ONE_TASK and tasks:
            tasks = (tuple(piece for task in tasks for piece in task),)
    return PlannedRead(
        schema=spark,
        snapshot_id=None if pinned.snapshot is None else pinned.snapshot.id,
        job=ReadJob(
            plan=plan,
            store=context.store,
            where=condition,
            exchange=spark_arrow_schema(spark),
            limit=limit,
        ),
        tasks=tasks,
        rows=rows,
        native=paths,
        compared_by_spark=frozenset(name for name in names if _misses_rows(schema.field(name))),
    )


def plan_parts(
    source: TableSource, columns: Sequence[str]
) -> tuple[ReadJob, tuple[tuple[Piece, ...], ...]]:
    """A read of all rows in the table's own Arrow types, and its tasks."""
    layout = anchored(source.context.layout, source.context.store)
    source = replace(source, context=replace(source.context, layout=layout))
    splits = source.plan().splits
    plan = source.read_plan(splits, columns)
    arrow = source.table_schema.arrow
    exchange = pa.schema([arrow.field(name) for name in columns])
    job = ReadJob(plan=plan, store=source.context.store, where=None, exchange=exchange)
    return job, tuple(make_tasks(splits, _cutting(source, plan)))


def _cutting(source: TableSource, plan: ReadPlan) -> Cutting:
    options = source.context.options
    return Cutting(
        target_bytes=options.source_split_target_size_bytes,
        open_cost_bytes=options.source_split_open_file_cost_bytes,
        schema=source.table_schema,
        schemas=plan.schemas,
        layout=plan.layout,
        store=source.context.store,
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
    """The splits for lakecore, and the files that Spark's own reader may read."""
    fields = [source.table_schema.field(name) for name in names]
    lower = {name.lower() for name in names}
    raw = [split for split in splits if split.raw and not split.vectors]
    files = sum(len(split.files) for split in raw)
    # By default, Spark matches column names case-insensitively.
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
    """Whether Spark reads all values of the column from Parquet like lakecore."""
    kind = field.type
    if not isinstance(kind, Atomic) or kind.root not in _SPARK_READS:
        return False
    timestamp = kind.root in {Root.TIMESTAMP, Root.TIMESTAMP_LTZ}
    return not (timestamp and (kind.precision or 0) > _DIGITS_MAX)


def _misses_rows(field: Field) -> bool:
    """Whether Spark's Parquet reader may skip row groups that contain matching rows.

    There are three cases: statistics do not cover NaN, Spark's largest number; a dictionary without
    0.0 may contain -0.0, which equals 0.0; and a value with microseconds is truncated for a
    comparison with a column of milliseconds.
    """
    kind = field.type
    if not isinstance(kind, Atomic):
        return False
    coarse = kind.root is Root.TIMESTAMP_LTZ and (kind.precision or 0) <= _MILLISECOND_DIGITS
    return coarse or kind.root in {Root.FLOAT, Root.DOUBLE}


def _path(file: DataFile, split: Split, source: TableSource, fields: Iterable[Field]) -> str | None:
    """The URI of a local file of a raw split; None if Spark must not read it."""
    context = source.context
    path = context.layout.data_file(split.partition_path, split.bucket, file)
    local = context.store.local_path(path)
    plain = file.format == "parquet" and file.write_columns is None
    if local is None or not plain or _NOT_AS_NAMED.search(local):
        return None
    stored = context.history.schema(file.schema_id)
    alike = _same_columns(fields, stored) and _is_as_said(file, path, local, source, fields)
    # Without a scheme, Spark would look for the path in its default file system.
    return f"file://{local}" if alike else None


def _same_columns(fields: Iterable[Field], stored: TableSchema) -> bool:
    """Whether files of a schema have these columns with the same names and types."""
    return all(
        (twin := stored.by_id.get(field.id)) is not None
        and twin.name == field.name
        and with_nullable(twin.type, nullable=True) == with_nullable(field.type, nullable=True)
        for field in fields
    )


def _is_as_said(
    file: DataFile, path: str, local: str, source: TableSource, fields: Iterable[Field]
) -> bool:
    """Whether the footer of the file has exactly the types of the schema.

    Raises CorruptTable for a wrong file size.
    """
    check_size(source.context.store, path, file)
    try:
        stored = pq.read_schema(local)
    except (pa.ArrowInvalid, OSError):
        return False  # lakecore's own reader reports the cause
    types = dict(zip(stored.names, stored.types, strict=True))
    lower = [name.lower() for name in stored.names]
    return len(set(lower)) == len(lower) and all(
        types.get(field.name) == arrow_type(field.type) for field in fields
    )
