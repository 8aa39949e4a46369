"""Cells of system tables: values, keys, bounds and times as Java shows them.

The values of all files are decoded together, column by column.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.format.binary_row import decode_rows
from lakecore.format.layout import value_text
from lakecore.format.statistics import stats_frame
from lakecore.model.types import BINARIES, Atomic, arrow_type
from lakecore.rows.evolution import conform_batch, map_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.model.files import DataFile
    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field
    from lakecore.rows.evolution import ColumnMapping
    from lakecore.table.context import TableContext

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
    parts = ((f"{hours:.0f}", "H"), (f"{minutes:.0f}", "M"), (f"{rest:.9f}".rstrip("0."), "S"))
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
