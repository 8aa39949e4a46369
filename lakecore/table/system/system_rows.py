"""The rows of each system table, from the metadata of a table."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.forks import require_threads
from lakecore.format.binary_row import decode_rows
from lakecore.format.layout import value_text
from lakecore.format.metadata import column_statistics_text
from lakecore.format.statistics import stats_frame
from lakecore.model.types import BINARIES, Atomic, Field, arrow_type, field_to_json
from lakecore.rows.evolution import ColumnMapping, conform_batch, map_fields
from lakecore.table.context import TableContext, require_table
from lakecore.table.maintenance.branches import branch_times
from lakecore.table.maintenance.consumers import list_consumers
from lakecore.table.reads.fallback import fallback_source
from lakecore.table.reads.time_travel import Travel, resolve
from lakecore.table.reads.told import told_snapshot
from lakecore.table.system.system_columns import system_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from polars.dataframe.group_by import GroupBy

    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot, Tag

    Sums = tuple[int, int, int, datetime | None]
    from collections.abc import Sequence

    from lakecore.model.files import DataFile


# --- cell texts -----------------------------------------------------------------------------------
# Cells of system tables: values, keys, bounds and times as Java shows them.
#
# The values of all files are decoded together, column by column.

_NULL = "null"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Value = str | int | datetime | list[str] | list[dict[str, str | int | None]] | None
Row = tuple[Value, ...]


def json_text(value: object) -> str:
    """A value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def local_time(time_ms: int) -> datetime:
    """The time in the local time zone of this process."""
    return _utc(time_ms).astimezone().replace(tzinfo=None)


def wall_time(time_ms: int | None) -> datetime | None:
    """A local time of the writer, which Paimon stores as if it were UTC."""
    if time_ms is None:
        return None
    return _utc(time_ms).replace(tzinfo=None)


def _utc(time_ms: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError as error:
        raise CorruptTable("the metadata holds a time beyond any", time_ms=time_ms) from error


def duration_text(seconds: float) -> str:
    """A duration as Java formats it: the hours, minutes and seconds that are not zero."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    seconds_text = f"{rest:.9f}".rstrip("0").rstrip(".")
    parts = ((f"{hours:.0f}", "H"), (f"{minutes:.0f}", "M"), (seconds_text, "S"))
    text = "".join(f"{number}{unit}" for number, unit in parts if number.strip("0"))
    return f"PT{text or '0S'}"


@dataclass(frozen=True, slots=True)
class FileTexts:
    """Keys, null counts and bounds of one file, as strings."""

    key_min: str | None
    key_max: str | None
    null_counts: str
    value_min: str
    value_max: str


def file_texts(files: Sequence[DataFile], context: TableContext) -> list[FileTexts]:
    """The texts of each file, in order; decoded together for all files of a schema."""
    by_schema: dict[int, list[int]] = defaultdict(list)
    for index, file in enumerate(files):
        by_schema[file.schema_id].append(index)
    texts: dict[int, FileTexts] = {}
    for schema_id, inside in by_schema.items():
        own = [files[index] for index in inside]
        schema = context.history.schema(schema_id)
        key_min = key_texts([file.key_min for file in own], schema)
        key_max = key_texts([file.key_max for file in own], schema)
        stats = _stats_texts(own, schema, context.schema)
        for index, *parts in zip(inside, key_min, key_max, *stats, strict=True):
            texts[index] = FileTexts(*parts)
    return [texts[index] for index in range(len(files))]


def key_texts(keys: Sequence[bytes], schema: TableSchema) -> Sequence[str | None]:
    """The keys as strings of the form [a, b]; None for a table without a primary key."""
    fields = schema.key_fields
    if not fields:
        return [None] * len(keys)
    columns = _texts(decode_rows(keys, fields), fields, legacy=True)
    return [f"[{', '.join(row)}]" for row in zip(*columns, strict=True)]


def partition_texts(partitions: Sequence[bytes], context: TableContext) -> list[str]:
    """The partitions as strings of the form {a, b}."""
    fields = context.schema.partition_fields
    if not fields:
        return ["{}"] * len(partitions)
    distinct = list(dict.fromkeys(partitions))
    columns = _texts(context.partitions.values(distinct), fields, legacy=False)
    rows = [f"{{{', '.join(row)}}}" for row in zip(*columns, strict=True)]
    by_partition = dict(zip(distinct, rows, strict=True))
    return [by_partition[partition] for partition in partitions]


def _stats_texts(
    files: Sequence[DataFile], file_schema: TableSchema, schema: TableSchema
) -> tuple[list[str], list[str], list[str]]:
    """Null counts, minima and maxima of the table's columns, as {a=1, b=null}."""
    known = [field for field in schema.fields if field.id in file_schema.by_id]
    twins = [file_schema.by_id[field.id] for field in known]
    low, high, nulls = stats_frame(files, file_schema, [field.name for field in twins])
    mappings = map_fields(known, file_schema.fields)
    bounds = [
        {
            field.name: texts
            for field, texts in zip(
                known, _texts(_bounds(batch, mappings), known, legacy=True), strict=True
            )
        }
        for batch in (low, high)
    ]
    counts = {
        field.name: [_NULL if count is None else str(count) for count in column.to_pylist()]
        for field, column in zip(known, nulls.columns, strict=True)
    }
    absent = [name for name in schema.names if name not in counts]
    for name in absent:
        counts[name] = [str(file.row_count) for file in files]
        for bound in bounds:
            bound[name] = [_NULL] * len(files)
    return _maps(counts, len(files)), _maps(bounds[0], len(files)), _maps(bounds[1], len(files))


def _bounds(batch: pa.RecordBatch, mappings: Sequence[ColumnMapping]) -> pa.RecordBatch:
    """Bounds cast to the table's types.

    Null where truncation makes a bound invalid for its type.
    """
    try:
        return conform_batch(batch, mappings)
    except InvalidRequest:
        if len(mappings) == batch.num_rows == 1:
            field = mappings[0].read
            return pa.RecordBatch.from_arrays([pa.nulls(1, arrow_type(field.type))], [field.name])
    if len(mappings) > 1:
        columns = [_bounds(batch, [mapping]).column(0) for mapping in mappings]
    else:
        rows = [_bounds(batch.slice(row, 1), mappings) for row in range(batch.num_rows)]
        columns = [pa.concat_arrays([row.column(0) for row in rows])]
    return pa.RecordBatch.from_arrays(columns, [mapping.read.name for mapping in mappings])


def _maps(columns: Mapping[str, Sequence[str]], rows: int) -> list[str]:
    """One string {a=1, b=2} for each row, columns sorted by name."""
    names = sorted(columns)
    cells = zip(*(columns[name] for name in names), strict=True) if names else [()] * rows
    return [
        "{" + ", ".join(f"{name}={text}" for name, text in zip(names, row, strict=True)) + "}"
        for row in cells
    ]


def _texts(values: pa.RecordBatch, fields: Sequence[Field], *, legacy: bool) -> list[Sequence[str]]:
    return [
        [_value_text(scalar, field, legacy=legacy) for scalar in column]
        for column, field in zip(values.columns, fields, strict=True)
    ]


def _value_text(scalar: pa.Scalar, field: Field, *, legacy: bool) -> str:
    if not scalar.is_valid:
        return _NULL
    if legacy and isinstance(field.type, Atomic) and field.type.root in BINARIES:
        return bytes(scalar.as_py()).hex()
    return value_text(scalar, field, legacy=legacy)


# --- snapshot rows -------------------------------------------------------------------------------
# The rows of system tables that show one snapshot: its files, partitions, indexes, statistics.


def _file_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    entries = sorted(
        context.history.live_entries(snapshot), key=lambda entry: (entry.partition, entry.bucket)
    )
    texts = file_texts([entry.file for entry in entries], context)
    partitions = partition_texts([entry.partition for entry in entries], context)
    for entry, text, partition in zip(entries, texts, partitions, strict=True):
        file = entry.file
        path = context.layout.data_file(
            context.partitions.path(entry.partition), entry.bucket, file
        )
        yield (
            partition,
            entry.bucket,
            path,
            file.format,
            file.schema_id,
            file.level,
            file.row_count,
            file.size_bytes,
            text.key_min,
            text.key_max,
            text.null_counts,
            text.value_min,
            text.value_max,
            file.sequence_min,
            file.sequence_max,
            wall_time(file.creation_time_ms),
            file.delete_row_count,
            None if file.file_source is None else file.file_source.name,
            file.first_row_id,
            None if file.write_columns is None else list(file.write_columns),
        )


def _manifest_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    history = context.history
    changelog = history.manifest_list(snapshot.changelog_manifest_list)
    manifests = (*history.manifests(snapshot), *changelog)
    low = partition_texts([m.partition_stats.min_values for m in manifests], context)
    high = partition_texts([m.partition_stats.max_values for m in manifests], context)
    for manifest, least, greatest in zip(manifests, low, high, strict=True):
        yield (
            manifest.name,
            manifest.size_bytes,
            manifest.added_count,
            manifest.deleted_count,
            manifest.schema_id,
            least,
            greatest,
            manifest.row_id_min,
            manifest.row_id_max,
        )


def partition_sums(context: TableContext, snapshot: Snapshot) -> Mapping[bytes, Sums]:
    """Row count, bytes and number of the files of each partition, and the newest creation time."""
    partitions, facts = context.history.live_facts(snapshot)
    sums = _sums(facts.group_by("partition", maintain_order=True))
    return {partitions[number]: own for (number,), own in sums}


def _partition_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    rows: list[tuple[str, Row]] = []
    for partition, sums in partition_sums(context, snapshot).items():
        texts = context.partitions.texts(partition)
        name = "/".join(f"{column}={text}" for column, text in texts.items())
        rows.append((name, (*sums, None, None, None, None)))
    return ((name, *row) for name, row in sorted(rows, key=lambda pair: pair[0]))


def _bucket_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    partitions, facts = context.history.live_facts(snapshot)
    names = partition_texts(partitions, context)
    sums = _sums(facts.group_by("partition", "bucket", maintain_order=True))
    rows = [(names[number], bucket, *own) for (number, bucket), own in sums]
    return sorted(rows, key=lambda row: row[:2])


def _sums(groups: GroupBy) -> Iterator[tuple[tuple[int, ...], Sums]]:
    """For each group of files: row count, bytes, number, and the creation time of the newest."""
    found = groups.agg(
        pl.col("row_count", "size_bytes").sum(),
        count=pl.len(),
        newest_ms=pl.col("creation_time_ms").max(),
    )
    for *group, rows, size_bytes, count, newest_ms in found.iter_rows():
        yield tuple(group), (rows, size_bytes, count, wall_time(newest_ms))


_KEY_RANGE_CELLS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 18)
"""The cells of a row of `files` that `file_key_ranges` shows."""


def _key_range_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    for row in _file_rows(context, snapshot):
        yield tuple(row[cell] for cell in _KEY_RANGE_CELLS)


def _index_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    entries = context.history.index_entries(snapshot)
    partitions = partition_texts([entry.partition for entry in entries], context)
    for entry, partition in zip(entries, partitions, strict=True):
        file = entry.file
        vectors = file.vectors
        yield (
            partition,
            entry.bucket,
            file.index_type,
            file.name,
            file.size_bytes,
            file.row_count,
            None
            if vectors is None
            else [
                {
                    "f0": vector.data_file,
                    "f1": vector.offset,
                    "f2": vector.length,
                    "_CARDINALITY": vector.cardinality,
                }
                for vector in vectors
            ],
        )


def _statistics_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    statistics = context.history.statistics(snapshot)
    if statistics is not None:
        yield (
            statistics.snapshot_id,
            statistics.schema_id,
            statistics.merged_record_count,
            statistics.merged_record_size_bytes,
            column_statistics_text(statistics),
        )


ROWS_OF_SNAPSHOT: Mapping[str, Callable[[TableContext, Snapshot], Iterable[Row]]] = {
    "files": _file_rows,
    "manifests": _manifest_rows,
    "partitions": _partition_rows,
    "buckets": _bucket_rows,
    "file_key_ranges": _key_range_rows,
    "table_indexes": _index_rows,
    "statistics": _statistics_rows,
}


# --- table rows ----------------------------------------------------------------------------------
# The rows of system tables that do not depend on a snapshot.


def _snapshot_rows(context: TableContext) -> Iterable[Row]:
    history = context.history
    return (
        _snapshot_row(told_snapshot(history.snapshot(found), context))
        for found in history.snapshot_ids()
    )


def _snapshot_row(snapshot: Snapshot) -> Row:
    return (
        snapshot.id,
        snapshot.schema_id,
        snapshot.commit_user,
        snapshot.commit_identifier,
        str(snapshot.commit_kind),
        local_time(snapshot.time_ms),
        snapshot.base_manifest_list,
        snapshot.delta_manifest_list,
        snapshot.changelog_manifest_list,
        snapshot.total_record_count,
        snapshot.delta_record_count,
        snapshot.changelog_record_count,
        snapshot.watermark,
        snapshot.next_row_id,
    )


def _schema_rows(context: TableContext) -> Iterable[Row]:
    history = context.history
    return (_schema_row(history.schema(found)) for found in history.schema_ids())


def _schema_row(schema: TableSchema) -> Row:
    return (
        schema.id,
        json_text([field_to_json(field) for field in schema.fields]),
        json_text(schema.partition_keys),
        json_text(schema.primary_keys),
        json_text(dict(schema.options)),
        schema.comment,
        local_time(schema.time_ms),
    )


def _option_rows(context: TableContext) -> Iterable[Row]:
    return context.schema.options.items()


def _tag_rows(context: TableContext) -> Iterable[Row]:
    return (
        _tag_row(tag, told_snapshot(tag.snapshot, context))
        for tag in map(context.history.tag, context.history.tag_names())
    )


def _tag_row(tag: Tag, snapshot: Snapshot) -> Row:
    created: datetime | None = None
    if tag.create_time is not None:
        year, month, day, hour, minute, second, nanos = tag.create_time
        created = datetime(year, month, day, hour, minute, second, nanos // 1_000_000 * 1000)
    return (
        tag.name,
        snapshot.id,
        snapshot.schema_id,
        local_time(snapshot.time_ms),
        snapshot.total_record_count,
        created,
        None if tag.retained_seconds is None else duration_text(tag.retained_seconds),
    )


def _consumer_rows(context: TableContext) -> Iterable[Row]:
    return ((each.consumer_id, each.next_snapshot) for each in list_consumers(context))


def _branch_rows(context: TableContext) -> Iterable[Row]:
    return ((name, local_time(made_ms)) for name, made_ms in branch_times(context))


def _aggregation_rows(context: TableContext) -> Iterable[Row]:
    """The columns of the newest schema, each with its options `fields.NAME...`."""
    schema = context.history.latest_schema() or context.schema
    keys: dict[str, list[str]] = defaultdict(list)
    values: dict[str, list[str]] = defaultdict(list)
    for key, value in schema.options.items():
        parts = key.split(".")
        if len(parts) > 2 and parts[0] == "fields":
            keys[parts[1]].append(key)
            values[parts[1]].append(value)
    for field in schema.fields:
        yield (
            field.name,
            str(field.type),
            f"[{', '.join(values[field.name])}]",
            f"[{', '.join(keys[field.name])}]",
            field.description,
        )


ROWS_OF_TABLE: Mapping[str, Callable[[TableContext], Iterable[Row]]] = {
    "snapshots": _snapshot_rows,
    "schemas": _schema_rows,
    "options": _option_rows,
    "tags": _tag_rows,
    "branches": _branch_rows,
    "consumers": _consumer_rows,
    "aggregation_fields": _aggregation_rows,
}


# --- system rows ---------------------------------------------------------------------------------


def check_shown(context: TableContext, name: str) -> None:
    """Raise Unsupported for a system table that would show values of rows hidden from the reader.

    Statistics, key ranges and partitions contain values of rows.
    """
    if name in ROWS_OF_SNAPSHOT:
        context.options.require_all_rows()


def system_rows(context: TableContext, name: str) -> pa.Table:
    """The current rows of a system table, in its Arrow schema."""
    require_threads()
    check_shown(context, name)
    rows: Iterable[Row]
    if name in ROWS_OF_TABLE:
        require_table(context)
        rows = ROWS_OF_TABLE[name](context)
    else:
        snapshot, travelled = resolve(context, Travel())
        then = replace(context, schema=travelled)
        rows = () if snapshot is None else ROWS_OF_SNAPSHOT[name](then, snapshot)
        if name == "partitions" and context.falls_back:
            rows = _with_fallback_partitions(context, rows)
    return table_of(rows, system_schema(name))


def _with_fallback_partitions(context: TableContext, rows: Iterable[Row]) -> Iterable[Row]:
    """The partitions of the table and of its fallback branch, as in Java.

    The other system tables show only one branch.
    """
    rest = fallback_source(context, Travel())
    found = {row[0]: row for row in rows}
    if rest.snapshot is not None:
        for row in ROWS_OF_SNAPSHOT["partitions"](rest.context, rest.snapshot):
            found.setdefault(row[0], row)
    return [found[name] for name in sorted(found, key=str)]


def table_of(rows: Iterable[Row], schema: TableSchema) -> pa.Table:
    """The rows as an Arrow table with these columns."""
    arrow = schema.arrow
    columns = list(zip(*rows, strict=True)) or [()] * len(arrow)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, arrow, strict=True)]
    return pa.Table.from_arrays(arrays, schema=arrow)
