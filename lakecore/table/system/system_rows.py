"""The rows of each system table, from what a table's metadata says.

`rows_of` is the table of them: name -> function of the table's context. Values are made into text
as Java does it; a loop over files or partitions costs little, since each column of their values is
decoded at once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.forks import require_threads
from lakecore.format.binary_row import decode_rows
from lakecore.format.partition_path import value_text
from lakecore.format.statistics import stats_frame
from lakecore.model.types import BINARIES, Atomic, arrow_type, field_to_json
from lakecore.rows.evolution import conform_batch, map_fields
from lakecore.table.context import require_table
from lakecore.table.reads.travel import Travel, resolve
from lakecore.table.system.system_columns import system_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakecore.model.files import DataFile
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot, Tag
    from lakecore.model.types import Field
    from lakecore.rows.mapping import ColumnMapping
    from lakecore.table.context import TableContext

__all__ = ["system_rows"]

_NULL = "null"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_Value = str | int | datetime | list[str] | None
_Row = tuple[_Value, ...]


def system_rows(context: TableContext, name: str) -> pa.Table:
    """The current rows of a system table, in its Arrow schema."""
    require_threads()
    rows: Iterable[_Row]
    if name in _ROWS_OF_TABLE:
        require_table(context)
        rows = _ROWS_OF_TABLE[name](context)
    else:
        snapshot, travelled = resolve(context, Travel())
        then = replace(context, schema=travelled)
        rows = () if snapshot is None else _ROWS_OF_SNAPSHOT[name](then, snapshot)
    schema = system_schema(name).arrow
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


# --- what does not hang on a snapshot -------------------------------------------------------------


def _snapshot_rows(context: TableContext) -> Iterable[_Row]:
    history = context.history
    return (_snapshot_row(history.snapshot(found)) for found in history.snapshot_ids())


def _snapshot_row(snapshot: Snapshot) -> _Row:
    return (
        snapshot.id,
        snapshot.schema_id,
        snapshot.commit_user,
        snapshot.commit_identifier,
        str(snapshot.commit_kind),
        _local_time(snapshot.time_ms),
        snapshot.base_manifest_list,
        snapshot.delta_manifest_list,
        snapshot.changelog_manifest_list,
        snapshot.total_record_count,
        snapshot.delta_record_count,
        snapshot.changelog_record_count,
        snapshot.watermark,
        snapshot.next_row_id,
    )


def _schema_rows(context: TableContext) -> Iterable[_Row]:
    history = context.history
    return (_schema_row(history.schema(found)) for found in history.schema_ids())


def _schema_row(schema: TableSchema) -> _Row:
    return (
        schema.id,
        _json([field_to_json(field) for field in schema.fields]),
        _json(schema.partition_keys),
        _json(schema.primary_keys),
        _json(dict(schema.options)),
        schema.comment,
        _local_time(schema.time_ms),
    )


def _option_rows(context: TableContext) -> Iterable[_Row]:
    return context.schema.options.items()


def _tag_rows(context: TableContext) -> Iterable[_Row]:
    return (_tag_row(context.history.tag(name)) for name in context.history.tag_names())


def _tag_row(tag: Tag) -> _Row:
    created: datetime | None = None
    if tag.create_time is not None:
        year, month, day, hour, minute, second, nanos = tag.create_time
        created = datetime(year, month, day, hour, minute, second, nanos // 1_000_000 * 1000)
    return (
        tag.name,
        tag.snapshot.id,
        tag.snapshot.schema_id,
        _local_time(tag.snapshot.time_ms),
        tag.snapshot.total_record_count,
        created,
        None if tag.retained_seconds is None else _duration(tag.retained_seconds),
    )


_ROWS_OF_TABLE: Mapping[str, Callable[[TableContext], Iterable[_Row]]] = {
    "snapshots": _snapshot_rows,
    "schemas": _schema_rows,
    "options": _option_rows,
    "tags": _tag_rows,
}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _local_time(time_ms: int) -> datetime:
    """The time in the local time zone of this process."""
    return _utc(time_ms).astimezone().replace(tzinfo=None)


def _wall_time(time_ms: int | None) -> datetime | None:
    """A local time of the writer, which Paimon stores as if it were UTC."""
    if time_ms is None:
        return None
    return _utc(time_ms).replace(tzinfo=None)


def _utc(time_ms: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError as error:
        raise CorruptTable("the metadata holds a time beyond any", time_ms=time_ms) from error


def _duration(seconds: float) -> str:
    """A duration as Java formats it: the hours, minutes and seconds that are not zero."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = ((f"{hours:.0f}", "H"), (f"{minutes:.0f}", "M"), (f"{rest:.9f}".rstrip("0."), "S"))
    text = "".join(f"{number}{unit}" for number, unit in parts if number.strip("0"))
    return f"PT{text or '0S'}"


# --- what a snapshot holds ------------------------------------------------------------------------


def _file_rows(context: TableContext, snapshot: Snapshot) -> Iterable[_Row]:
    entries = sorted(
        context.history.live_entries(snapshot), key=lambda entry: (entry.partition, entry.bucket)
    )
    texts = _file_texts([entry.file for entry in entries], context)
    partitions = _partition_texts([entry.partition for entry in entries], context)
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
            _wall_time(file.creation_time_ms),
            file.delete_row_count,
            None if file.file_source is None else file.file_source.name,
            file.first_row_id,
            None if file.write_columns is None else list(file.write_columns),
        )


def _manifest_rows(context: TableContext, snapshot: Snapshot) -> Iterable[_Row]:
    history = context.history
    changelog = history.manifest_list(snapshot.changelog_manifest_list)
    manifests = (*history.manifests(snapshot), *changelog)
    low = _partition_texts([m.partition_stats.min_values for m in manifests], context)
    high = _partition_texts([m.partition_stats.max_values for m in manifests], context)
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


def _partition_rows(context: TableContext, snapshot: Snapshot) -> Iterable[_Row]:
    groups: dict[bytes, list[DataFile]] = defaultdict(list)
    for entry in context.history.live_entries(snapshot):
        groups[entry.partition].append(entry.file)
    rows: list[tuple[str, _Row]] = []
    for partition, files in groups.items():
        texts = context.partitions.texts(partition)
        name = "/".join(f"{column}={text}" for column, text in texts.items())
        rows.append((name, (*_sums(files), None, None, None, None)))
    return ((name, *row) for name, row in sorted(rows, key=lambda pair: pair[0]))


def _bucket_rows(context: TableContext, snapshot: Snapshot) -> Iterable[_Row]:
    groups: dict[tuple[bytes, int], list[DataFile]] = defaultdict(list)
    for entry in context.history.live_entries(snapshot):
        groups[entry.partition, entry.bucket].append(entry.file)
    names = _partition_texts([partition for partition, _ in groups], context)
    rows = [
        (name, bucket, *_sums(files))
        for name, ((_, bucket), files) in zip(names, groups.items(), strict=True)
    ]
    return sorted(rows, key=lambda row: row[:2])


_ROWS_OF_SNAPSHOT: Mapping[str, Callable[[TableContext, Snapshot], Iterable[_Row]]] = {
    "files": _file_rows,
    "manifests": _manifest_rows,
    "partitions": _partition_rows,
    "buckets": _bucket_rows,
}


def _sums(files: Sequence[DataFile]) -> tuple[int, int, int, datetime | None]:
    """Row count, bytes and number of some files, and the creation time of the newest."""
    times = [file.creation_time_ms for file in files if file.creation_time_ms is not None]
    return (
        sum(file.row_count for file in files),
        sum(file.size_bytes for file in files),
        len(files),
        _wall_time(max(times, default=None)),
    )


# --- values as text -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _FileTexts:
    """Keys, null counts and bounds of one file, as strings."""

    key_min: str | None
    key_max: str | None
    null_counts: str
    value_min: str
    value_max: str


def _file_texts(files: Sequence[DataFile], context: TableContext) -> list[_FileTexts]:
    """The texts of each file, in order; decoded together for all files of a schema."""
    by_schema: dict[int, list[int]] = defaultdict(list)
    for index, file in enumerate(files):
        by_schema[file.schema_id].append(index)
    texts: dict[int, _FileTexts] = {}
    for schema_id, inside in by_schema.items():
        own = [files[index] for index in inside]
        schema = context.history.schema(schema_id)
        key_min = _key_texts([file.key_min for file in own], schema)
        key_max = _key_texts([file.key_max for file in own], schema)
        stats = _stats_texts(own, schema, context.schema)
        for index, *parts in zip(inside, key_min, key_max, *stats, strict=True):
            texts[index] = _FileTexts(*parts)
    return [texts[index] for index in range(len(files))]


def _key_texts(keys: Sequence[bytes], schema: TableSchema) -> Sequence[str | None]:
    fields = schema.key_fields
    if not fields:
        return [None] * len(keys)
    columns = _texts(decode_rows(keys, fields), fields, legacy=True)
    return [f"[{', '.join(row)}]" for row in zip(*columns, strict=True)]


def _partition_texts(partitions: Sequence[bytes], context: TableContext) -> list[str]:
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
    """Bounds in the table's types; null if truncation makes a bound invalid for its type."""
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
    """The values as strings, one list for each column."""
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
