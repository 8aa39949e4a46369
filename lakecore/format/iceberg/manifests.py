"""Iceberg manifests and manifest lists: records, and their bytes.

Records are dictionaries with the names of the Avro fields. Values of partitions are plain: dates
are days, times and timestamps microseconds, decimals big-endian unscaled numbers.

Rules for statistics, which an Iceberg reader trusts:

- unknown null counts and bounds are left out, and so is a lower bound without an upper one;
- lists, maps and structs have no bounds, and NaN is no bound.
"""

from __future__ import annotations

import io
import json
import re
import struct
from dataclasses import replace
from decimal import Context, Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa

from lakecore.errors import Unsupported
from lakecore.format.avro_container import named_faults, plain_container, write_container
from lakecore.format.iceberg.documents import PARTITION_FIELD_ID, atomic_name
from lakecore.format.index_files import Positions, encode_vectors
from lakecore.format.statistics import stats_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakecore.model.files import DataFile, VectorRange
    from lakecore.model.schema import TableSchema

Record = dict[str, Any]
_ById = dict[int, object]

EXISTING, ADDED, DELETED = 0, 1, 2
DATA, DELETES = 0, 1

_EXACT = Context(prec=76)
_NUMBERS = {
    "boolean": "<?",
    "int": "<i",
    "date": "<i",
    "long": "<q",
    "time": "<q",
    "timestamp": "<q",
    "timestamptz": "<q",
    "float": "<f",
    "double": "<d",
}
_FLOATS = ("float", "double")


# --- values --------------------------------------------------------------------------------------


def plain_values(column: pa.Array, type_name: str) -> list[Any]:
    """The values of a column of that Iceberg type, as records hold them.

    Raises Unsupported for a time that is too late or too early for Iceberg's microseconds.
    """
    if type_name.startswith("decimal"):
        return [None if value is None else _unscaled(value) for value in column.to_pylist()]
    if type_name == "date":
        column = column.cast(pa.int32())
    elif type_name == "time":
        column = column.cast(pa.time64("us")).cast(pa.int64())
    elif type_name.startswith("timestamp"):
        try:
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise Unsupported(
                "Iceberg has no times beyond the year 294246", column=type_name
            ) from error
    values: list[Any] = column.to_pylist()
    return values


def bound(value: Any, type_name: str) -> bytes:
    """The bytes of a bound."""
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else struct.pack(_NUMBERS[type_name], value)


def _unscaled(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "a stored decimal is finite"
    number = int(value.scaleb(-exponent, _EXACT))
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


# --- data files ----------------------------------------------------------------------------------


def data_records(
    files: Sequence[tuple[DataFile, str, Record]],
    schemas: Callable[[int], TableSchema],
    schema: TableSchema,
) -> list[Record]:
    """The record of each data file, given its path and the values of its partition.

    The bounds are for the columns of `schema`, and have the types of `schema`.
    """
    groups: dict[int, list[int]] = {}
    for place, (file, _, _) in enumerate(files):
        groups.setdefault(file.schema_id, []).append(place)
    records: list[Record] = [{}] * len(files)
    for schema_id, places in groups.items():
        stats = _statistics([files[place][0] for place in places], schemas(schema_id), schema)
        for place, (nulls, lows, highs) in zip(places, stats, strict=True):
            file, path, partition = files[place]
            records[place] = {
                **_BLANK,
                "content": DATA,
                "file_path": path,
                "file_format": file.format,
                "partition": partition,
                "record_count": file.row_count,
                "file_size_in_bytes": file.size_bytes,
                "null_value_counts": _pairs(nulls),
                "lower_bounds": _pairs(lows),
                "upper_bounds": _pairs(highs),
            }
    return records


def _statistics(
    files: Sequence[DataFile], stored: TableSchema, schema: TableSchema
) -> list[tuple[_ById, _ById, _ById]]:
    """For each file, the null counts and the bounds, by field id."""
    shared = [field for field in stored.fields if field.id in schema.by_id]
    frame = stats_frame(files, stored, [field.name for field in shared])
    out: list[tuple[_ById, _ById, _ById]] = [({}, {}, {}) for _ in files]
    for place, field in enumerate(shared):
        for row, count in enumerate(frame.null_counts.column(place).to_pylist()):
            if count is not None:
                out[row][0][field.id] = count
        type_name, now = atomic_name(field.type), atomic_name(schema.by_id[field.id].type)
        if type_name is None or now is None:
            continue
        lows = plain_values(frame.min_values.column(place), type_name)
        highs = plain_values(frame.max_values.column(place), type_name)
        for row, (low, high) in enumerate(zip(lows, highs, strict=True)):
            if low is not None and high is not None:
                out[row][1][field.id] = bound(low, now)
                out[row][2][field.id] = bound(high, now)
    return out


def _pairs(values: Mapping[int, object]) -> list[Record] | None:
    return [{"key": key, "value": value} for key, value in values.items()] or None


_BLANK: Record = {
    "null_value_counts": None,
    "lower_bounds": None,
    "upper_bounds": None,
    "first_row_id": None,
    "referenced_data_file": None,
    "content_offset": None,
    "content_size_in_bytes": None,
}


def vector_record(
    data: Record, *, path: str, size_bytes: int, place: tuple[int, int], cardinality: int
) -> Record:
    """The record of the deletion vector of a data file; `place` is its offset and length."""
    return {
        **_BLANK,
        "content": DELETES,
        "file_path": path,
        "file_format": "puffin",
        "partition": data["partition"],
        "record_count": cardinality,
        "file_size_in_bytes": size_bytes,
        "referenced_data_file": data["file_path"],
        "content_offset": place[0],
        "content_size_in_bytes": place[1],
    }


def entry(record: Record, snapshot_id: int) -> Record:
    """The entry of a file that the snapshot adds."""
    return {
        "status": ADDED,
        "snapshot_id": snapshot_id,
        "sequence_number": snapshot_id,
        "file_sequence_number": snapshot_id,
        "data_file": record,
    }


# --- manifests -----------------------------------------------------------------------------------


def encode_manifest(  # noqa: PLR0913  what the header states
    entries: Iterable[Record],
    schema: Record,
    spec: Record,
    types: Sequence[str],
    *,
    version: int,
    content: int,
    compression: str,
) -> bytes:
    """The bytes of a manifest, with the header that the specification of Iceberg asks for."""
    names = [field["name"] for field in spec["fields"]]
    avro = fastavro.parse_schema(_manifest_schema(names, types, version))
    assert isinstance(avro, dict), "a manifest holds records"
    header = {
        "schema": json.dumps(schema),
        "schema-id": str(schema["schema-id"]),
        "partition-spec": json.dumps(spec["fields"]),
        "partition-spec-id": str(spec["spec-id"]),
        "format-version": str(version),
        "content": "deletes" if content == DELETES else "data",
    }
    return write_container(avro, entries, compression, header)


def manifest_line(
    path: str, size_bytes: int, entries: Sequence[Record], types: Sequence[str], snapshot_id: int
) -> Record:
    """The line of a manifest list for a manifest that the snapshot writes."""
    counts, rows = [0, 0, 0], [0, 0, 0]
    for each in entries:
        counts[each["status"]] += 1
        rows[each["status"]] += each["data_file"]["record_count"]
    return {
        "manifest_path": path,
        "manifest_length": size_bytes,
        "partition_spec_id": 0,
        "content": entries[0]["data_file"]["content"],
        "sequence_number": snapshot_id,
        "min_sequence_number": min(each["sequence_number"] for each in entries),
        "added_snapshot_id": snapshot_id,
        "added_files_count": counts[ADDED],
        "existing_files_count": counts[EXISTING],
        "deleted_files_count": counts[DELETED],
        "added_rows_count": rows[ADDED],
        "existing_rows_count": rows[EXISTING],
        "deleted_rows_count": rows[DELETED],
        "partitions": _partition_summaries([e["data_file"]["partition"] for e in entries], types),
        "first_row_id": None,
    }


def _partition_summaries(partitions: Sequence[Record], types: Sequence[str]) -> list[Record]:
    out = []
    columns = zip(*(partition.values() for partition in partitions), strict=True)
    for type_name, column in zip(types, columns, strict=False):
        values = {value for value in column if value is not None and value == value}  # noqa: PLR0124 - NaN
        signed = type_name.startswith("decimal")
        order = partial(int.from_bytes, byteorder="big", signed=True) if signed else None
        low, high = (min(values, key=order), max(values, key=order)) if values else (None, None)
        if type_name in _FLOATS and values:
            low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
        out.append(
            {
                "contains_null": None in column,
                "contains_nan": any(value != value for value in column),  # noqa: PLR0124 - NaN
                "lower_bound": None if low is None else bound(low, type_name),
                "upper_bound": None if high is None else bound(high, type_name),
            }
        )
    return out


def live_rows(line: Record) -> int:
    """The number of rows in the files that the manifest lists and does not delete."""
    return int(line["added_rows_count"] + line["existing_rows_count"])


def decode_manifest(data: bytes, path: str, first_row_id: int | None = None) -> list[Record]:
    """The entries of a manifest that are live, each with its row ids.

    `first_row_id`: the first row id of the manifest in the manifest list; entries without one
    inherit it.
    """
    live = [each for each in _decoded(data, path) if each["status"] != DELETED]
    for each in live:
        record = each["data_file"] = {**_BLANK, **each["data_file"]}
        if first_row_id is not None and record["first_row_id"] is None:
            record["first_row_id"] = first_row_id
            first_row_id += record["record_count"]
    return live


def encode_list(
    lines: Iterable[Record], snapshot: Record, *, version: int, compression: str, legacy: bool
) -> bytes:
    """The bytes of a manifest list. `legacy`: with the names of fields of Iceberg 1.4."""
    avro = fastavro.parse_schema(_list_schema(version, legacy=legacy))
    assert isinstance(avro, dict), "a manifest list holds records"
    if legacy:
        lines = ({_LEGACY.get(name, name): each for name, each in line.items()} for line in lines)
    header = {
        "snapshot-id": str(snapshot["snapshot-id"]),
        "parent-snapshot-id": str(snapshot.get("parent-snapshot-id", "null")),
        "sequence-number": str(snapshot["sequence-number"]),
        "format-version": str(version),
    }
    return write_container(avro, lines, compression, header)


def decode_list(data: bytes, path: str) -> list[Record]:
    """The lines of a manifest list."""
    return [
        {"first_row_id": None, **{_TODAY.get(name, name): value for name, value in line.items()}}
        for line in _decoded(data, path)
    ]


def _decoded(data: bytes, path: str) -> list[Record]:
    plain, _ = plain_container(data, path)
    with named_faults(data, path):
        return list(fastavro.reader(io.BytesIO(plain)))  # type: ignore[arg-type]


# --- Avro ----------------------------------------------------------------------------------------

_LEGACY = {
    f"{kind}_files_count": f"{kind}_data_files_count" for kind in ("added", "existing", "deleted")
}
_TODAY = {old: today for today, old in _LEGACY.items()}
_AVRO: dict[str, Any] = {
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
}


def _field(number: int, name: str, of: Any) -> Record:
    return {"name": name, "type": of, "field-id": number}


def _optional(number: int, name: str, of: Any) -> Record:
    return {"name": name, "type": ["null", of], "default": None, "field-id": number}


def _map(number: int, name: str, key_id: int, of: str) -> Record:
    """A map with integer keys, which Iceberg writes as a list of pairs."""
    pair = {
        "type": "record",
        "name": f"k{key_id}_v{key_id + 1}",
        "fields": [_field(key_id, "key", "int"), _field(key_id + 1, "value", of)],
    }
    return _optional(number, name, {"type": "array", "items": pair, "logicalType": "map"})


def _manifest_schema(names: Sequence[str], types: Sequence[str], version: int) -> Record:
    partition = [
        _optional(PARTITION_FIELD_ID + place, name, _avro_type(type_name))
        for place, (name, type_name) in enumerate(zip(map(avro_name, names), types, strict=True))
    ]
    row_id = [_optional(142, "first_row_id", "long")] if version > 2 else []
    file = [
        _field(134, "content", "int"),
        _field(100, "file_path", "string"),
        _field(101, "file_format", "string"),
        _field(102, "partition", {"type": "record", "name": "r102", "fields": partition}),
        _field(103, "record_count", "long"),
        _field(104, "file_size_in_bytes", "long"),
        _map(110, "null_value_counts", 121, "long"),
        _map(125, "lower_bounds", 126, "bytes"),
        _map(128, "upper_bounds", 129, "bytes"),
        _optional(143, "referenced_data_file", "string"),
        _optional(144, "content_offset", "long"),
        _optional(145, "content_size_in_bytes", "long"),
        *row_id,
    ]
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _field(0, "status", "int"),
            _optional(1, "snapshot_id", "long"),
            _optional(3, "sequence_number", "long"),
            _optional(4, "file_sequence_number", "long"),
            _field(2, "data_file", {"type": "record", "name": "r2", "fields": file}),
        ],
    }


def _list_schema(version: int, *, legacy: bool) -> Record:
    summary = [
        _field(509, "contains_null", "boolean"),
        _optional(518, "contains_nan", "boolean"),
        _optional(510, "lower_bound", "bytes"),
        _optional(511, "upper_bound", "bytes"),
    ]
    partitions = {
        "type": "array",
        "items": {"type": "record", "name": "r508", "fields": summary},
        "element-id": 508,
    }
    fields = [
        _field(500, "manifest_path", "string"),
        _field(501, "manifest_length", "long"),
        _field(502, "partition_spec_id", "int"),
        _field(517, "content", "int"),
        _field(515, "sequence_number", "long"),
        _field(516, "min_sequence_number", "long"),
        _optional(503, "added_snapshot_id", "long"),
        _field(504, "added_files_count", "int"),
        _field(505, "existing_files_count", "int"),
        _field(506, "deleted_files_count", "int"),
        _field(512, "added_rows_count", "long"),
        _field(513, "existing_rows_count", "long"),
        _field(514, "deleted_rows_count", "long"),
        _optional(507, "partitions", partitions),
    ]
    if version > 2:
        fields.append(_optional(520, "first_row_id", "long"))
    if legacy:
        fields = [{**field, "name": _LEGACY.get(field["name"], field["name"])} for field in fields]
    return {"type": "record", "name": "manifest_file", "fields": fields}


def _avro_type(type_name: str) -> Any:
    if type_name.startswith("decimal"):
        precision, scale = map(int, re.findall(r"\d+", type_name))
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return _AVRO.get(type_name, type_name)


def avro_name(name: str) -> str:
    """The name of a column as Avro allows it: other characters become `_x` and their code."""
    plain = re.sub(r"\W", lambda found: f"_x{ord(found[0]):X}", name, flags=re.ASCII)
    return f"_{plain}" if plain[:1].isdigit() else plain


# --- Puffin files ---------------------------------------------------------------------------------
# A Puffin file of deletion vectors (https://iceberg.apache.org/puffin-spec/).
#
#   magic | blob of each data file | magic | footer (JSON) | int size of the footer | flags | magic
#
# A blob is a deletion vector in Paimon's 64-bit form (`format/index_files.py`), which is Iceberg's.

_MAGIC = b"PFA1"
_POSITION_FIELD_ID = 2_147_483_645


def encode_puffin(
    vectors: Mapping[str, Positions], created_by: str
) -> tuple[bytes, tuple[VectorRange, ...]]:
    """The bytes of the file, and the range of each vector in it.

    `vectors`: the deleted positions by path of the data file. The snapshot and the sequence number
    of each blob are -1: both are inherited from the manifest.
    """
    index_file, stored = encode_vectors(vectors, bitmap64=True)
    # The blobs follow one byte in an index file, and the magic bytes here.
    shift = len(_MAGIC) - 1
    ranges = tuple(replace(each, offset=each.offset + shift) for each in stored)
    blobs = [
        {
            "type": "deletion-vector-v1",
            "fields": [_POSITION_FIELD_ID],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": each.offset,
            "length": each.length,
            "properties": {
                "referenced-data-file": each.data_file,
                "cardinality": str(each.cardinality),
            },
        }
        for each in ranges
    ]
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": created_by}}).encode()
    flags = bytes(4)
    data = b"".join(
        (_MAGIC, index_file[1:], _MAGIC, footer, struct.pack("<i", len(footer)), flags, _MAGIC)
    )
    return data, ranges
