"""The file formats of manifests: records in Avro containers, or rows in Parquet or ORC files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.format.avro_container import read_container, write_container

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


# --- manifest tables -----------------------------------------------------------------------------
# Converts metadata files (manifests, manifest lists and index manifests) in Parquet or ORC format
# to Arrow tables or records, and back.
#
# The option `manifest.format` sets the format of new files. A reader recognises the format by the
# first bytes of a file, so files written before the option changed stay readable. Columns are found
# by name and cast to the types of the Avro schemas below; times are in milliseconds. Kinds are
# stored as single bytes, because Java reads nothing else.

_ROWS_A_BYTE, _ROWS_LEAST = 1_000, 1 << 20
_PLAIN_BYTES_MAX = (1 << 31) - 1
"""Limits of a decoded manifest: rows per stored byte, rows always allowed, and decoded bytes."""
_TYPES: Mapping[str, pa.DataType] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_MILLIS = pa.timestamp("ms")
_BYTES = frozenset({"_KIND", "_FILE_SOURCE"})
_CODECS: Mapping[str, frozenset[str]] = {
    "parquet": frozenset({"zstd", "lz4", "snappy", "gzip", "none"}),
    "orc": frozenset({"zstd", "lz4", "snappy", "zlib", "none"}),
}


def _parquet(source: pa.BufferReader) -> pa.Table:
    file = pq.ParquetFile(source, page_checksum_verification=True)
    metadata = file.metadata
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    _check_size(
        source.size(),
        sum(group.num_rows for group in groups),
        sum(group.total_byte_size for group in groups),
    )
    return file.read()


def _orc(source: pa.BufferReader) -> pa.Table:
    file = orc.ORCFile(source)
    _check_size(source.size(), file.nrows, 0)
    return file.read()


def _check_size(size_bytes: int, rows: int, plain_bytes: int) -> None:
    """Raise ValueError for a file that states a decoded size too large for a manifest."""
    rows_max = max(_ROWS_LEAST, _ROWS_A_BYTE * size_bytes)
    if not 0 <= rows <= rows_max or not 0 <= plain_bytes <= _PLAIN_BYTES_MAX:
        raise ValueError(f"{size_bytes} bytes cannot hold {rows} rows of {plain_bytes} bytes")


_READERS: Mapping[bytes, Callable[[pa.BufferReader], pa.Table]] = {
    b"PAR1": _parquet,
    b"ORC": _orc,
}


def is_table(data: bytes) -> bool:
    """Whether the bytes start a Parquet or ORC file."""
    return data.startswith(tuple(_READERS))


def read_table(data: bytes, path: str, schema: dict[str, Any]) -> pa.Table:
    """The rows of the file in the columns of `schema`; nullable columns that it lacks are null.

    Raises CorruptTable naming `path` if the bytes are damaged, or do not have this schema.
    """
    (read,) = (reader for magic, reader in _READERS.items() if data.startswith(magic))
    try:
        found = read(pa.BufferReader(data))
        found.validate(full=True)
        columns = [_column(found, field, path) for field in schema["fields"]]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptTable(
            "the manifest is damaged, or has other columns",
            path=path,
            size_bytes=len(data),
            why=error,
        ) from error
    return pa.table(columns, names=[field["name"] for field in schema["fields"]])


def read_records(data: bytes, path: str, schema: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The records of the file, in the form in which `read_container` returns those of Avro."""
    table = read_table(data, path, schema)
    columns = _flat({name: table[name].combine_chunks() for name in table.column_names}, schema)
    for name, (values, required) in columns.items():
        if required and values.null_count:
            raise CorruptTable("a record of the manifest lacks a value", path=path, field=name)
    return zip(*(values.to_pylist() for values, _ in columns.values()), strict=True)


def write_records(
    schema: dict[str, Any], records: Iterable[dict[str, Any]], compression: str, file_format: str
) -> bytes:
    """The records as a Parquet or ORC file."""
    table = pa.Table.from_pylist(list(records), schema=pa.schema(_stored_fields(schema)))
    return _encoded(table, compression, file_format)


def write_table(
    schema: dict[str, Any], table: pa.Table, compression: str, file_format: str
) -> bytes:
    """A table, in the columns of `schema`, as a Parquet or ORC file."""
    return _encoded(table.cast(pa.schema(_stored_fields(schema))), compression, file_format)


def _encoded(table: pa.Table, compression: str, file_format: str) -> bytes:
    codec = compression.strip().lower() or "none"
    if codec not in _CODECS[file_format]:
        raise InvalidRequest(
            "unknown manifest compression",
            value=compression,
            manifest_format=file_format,
            known=sorted(_CODECS[file_format]),
        )
    sink = pa.BufferOutputStream()
    if file_format == "parquet":
        pq.write_table(table, sink, compression=codec)
    else:
        orc.write_table(table, sink, compression="uncompressed" if codec == "none" else codec)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _stored_fields(schema: dict[str, Any]) -> list[pa.Field]:
    """The columns in their stored types, with nullability. `_BYTES` are int8."""
    out: list[pa.Field] = []
    for field in schema["fields"]:
        name, of = field["name"], field["type"]
        if isinstance(of, dict) and of["type"] == "record":
            kind: pa.DataType = pa.struct(_stored_fields(of))
        else:
            kind = pa.int8() if name in _BYTES else _arrow_type(of)
        out.append(pa.field(name, kind, nullable=isinstance(of, list)))
    return out


def _column(table: pa.Table, field: dict[str, Any], path: str) -> pa.ChunkedArray:
    name, of = field["name"], field["type"]
    if name in table.column_names:
        return table[name].cast(_arrow_type(of))
    if not isinstance(of, list):
        raise CorruptTable("the manifest lacks a field", path=path, field=name)
    return pa.chunked_array([pa.nulls(table.num_rows, _arrow_type(of))])


def _flat(
    columns: Mapping[str, pa.Array], schema: dict[str, Any]
) -> dict[str, tuple[pa.Array, bool]]:
    """Each column by name, and whether it may not be null; records are replaced by their fields.

    A field's name gets the name of its record as a prefix, because two records may have fields of
    the same name (`_KEY_STATS` and `_VALUE_STATS`). Records in a union with null are not replaced.
    """
    out: dict[str, tuple[pa.Array, bool]] = {}
    for field in schema["fields"]:
        values, of = columns[field["name"]], field["type"]
        if isinstance(of, dict) and of["type"] == "record":
            parts = dict(zip(values.type.names, values.flatten(), strict=True))
            inside = _flat(parts, of)
            out |= {field["name"] + name: part for name, part in inside.items()}
        else:
            plain = values.cast(pa.int64()) if values.type == _MILLIS else values
            out[field["name"]] = (plain, not isinstance(of, list))
    return out


def _arrow_type(of: Any) -> pa.DataType:
    if isinstance(of, list):
        (of,) = (part for part in of if part != "null")
    if isinstance(of, str):
        return _TYPES[of]
    match of["type"]:
        case "record":
            return pa.struct(
                [pa.field(field["name"], _arrow_type(field["type"])) for field in of["fields"]]
            )
        case "array":
            return pa.list_(_arrow_type(of["items"]))
        case _:
            return _MILLIS


# --- manifest schemas ----------------------------------------------------------------------------
# The Avro schemas of manifest lists, manifests and index manifests, with the newest fields.
#
# Names and nullability are part of the format, because every engine resolves fields by them. The
# outermost record is named `record`, a nested one `record_` and its field's name, joined by `_` at
# each depth.

_NAMESPACE = "org.apache.paimon.avro.generated"


def _parse(schema: dict[str, Any]) -> dict[str, Any]:
    parsed = fastavro.parse_schema(schema)
    assert isinstance(parsed, dict)
    return parsed


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field of a record: its name, its type, and the attribute of the value that it holds.

    A field without an attribute is not a part of the value.
    """

    name: str
    type: Any
    attribute: str = ""


def _record(name: str, *fields: RecordField) -> dict[str, Any]:
    """The record of that name. A type that is a union with null has null as its default."""
    return {
        "type": "record",
        "name": f"{_NAMESPACE}.{name}",
        "fields": [
            {"name": field.name, "type": field.type, "default": None}
            if isinstance(field.type, list)
            else {"name": field.name, "type": field.type}
            for field in fields
        ],
    }


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _or_null(of: Any) -> list[Any]:
    return ["null", of]


STATS_FIELDS = (
    RecordField("_MIN_VALUES", "bytes", "min_values"),
    RecordField("_MAX_VALUES", "bytes", "max_values"),
    RecordField("_NULL_COUNTS", _or_null(_array(["null", "long"])), "null_counts"),
)

MANIFEST_LIST_FIELDS = (
    RecordField("_FILE_NAME", "string", "name"),
    RecordField("_FILE_SIZE", "long", "size_bytes"),
    RecordField("_NUM_ADDED_FILES", "long", "added_count"),
    RecordField("_NUM_DELETED_FILES", "long", "deleted_count"),
    RecordField(
        "_PARTITION_STATS", _record("record__PARTITION_STATS", *STATS_FIELDS), "partition_stats"
    ),
    RecordField("_SCHEMA_ID", "long", "schema_id"),
    RecordField("_MIN_BUCKET", _or_null("int"), "bucket_min"),
    RecordField("_MAX_BUCKET", _or_null("int"), "bucket_max"),
    RecordField("_MIN_LEVEL", _or_null("int"), "level_min"),
    RecordField("_MAX_LEVEL", _or_null("int"), "level_max"),
    RecordField("_MIN_ROW_ID", _or_null("long"), "row_id_min"),
    RecordField("_MAX_ROW_ID", _or_null("long"), "row_id_max"),
)
_VERSION = RecordField("_VERSION", "int")
MANIFEST_LIST_SCHEMA = _parse(_record("record", _VERSION, *MANIFEST_LIST_FIELDS))

_MILLIS_TYPE = {"type": "long", "logicalType": "timestamp-millis"}
FILE_FIELDS = (
    RecordField("_FILE_NAME", "string", "name"),
    RecordField("_FILE_SIZE", "long", "size_bytes"),
    RecordField("_ROW_COUNT", "long", "row_count"),
    RecordField("_MIN_KEY", "bytes", "key_min"),
    RecordField("_MAX_KEY", "bytes", "key_max"),
    RecordField("_KEY_STATS", _record("record__FILE__KEY_STATS", *STATS_FIELDS), "key_stats"),
    RecordField("_VALUE_STATS", _record("record__FILE__VALUE_STATS", *STATS_FIELDS), "value_stats"),
    RecordField("_MIN_SEQUENCE_NUMBER", "long", "sequence_min"),
    RecordField("_MAX_SEQUENCE_NUMBER", "long", "sequence_max"),
    RecordField("_SCHEMA_ID", "long", "schema_id"),
    RecordField("_LEVEL", "int", "level"),
    RecordField("_EXTRA_FILES", _array("string"), "extra_files"),
    RecordField("_CREATION_TIME", _or_null(_MILLIS_TYPE), "creation_time_ms"),
    RecordField("_DELETE_ROW_COUNT", _or_null("long"), "delete_row_count"),
    RecordField("_EMBEDDED_FILE_INDEX", _or_null("bytes"), "embedded_index"),
    RecordField("_FILE_SOURCE", _or_null("int"), "file_source"),
    RecordField("_VALUE_STATS_COLS", _or_null(_array("string")), "value_stats_columns"),
    RecordField("_EXTERNAL_PATH", _or_null("string"), "external_path"),
    RecordField("_FIRST_ROW_ID", _or_null("long"), "first_row_id"),
    RecordField("_WRITE_COLS", _or_null(_array("string")), "write_columns"),
    RecordField("_WRITE_COLS_SEQUENCES", _or_null(_array("long")), "write_columns_sequences"),
)
_OF_BUCKET = (
    _VERSION,
    RecordField("_KIND", "int"),
    RecordField("_PARTITION", "bytes"),
    RecordField("_BUCKET", "int"),
)
MANIFEST_SCHEMA = _parse(
    _record(
        "record",
        *_OF_BUCKET,
        RecordField("_TOTAL_BUCKETS", "int"),
        RecordField("_FILE", _record("record__FILE", *FILE_FIELDS)),
    )
)

VECTOR_FIELDS = (
    RecordField("f0", "string", "data_file"),
    RecordField("f1", "int", "offset"),
    RecordField("f2", "int", "length"),
    RecordField("_CARDINALITY", _or_null("long"), "cardinality"),
)
_VECTORS = _array(_or_null(_record("record__DELETIONS_VECTORS_RANGES", *VECTOR_FIELDS)))
GLOBAL_INDEX_FIELDS = (
    RecordField("_ROW_RANGE_START", "long", "row_range_start"),
    RecordField("_ROW_RANGE_END", "long", "row_range_end"),
    RecordField("_INDEX_FIELD_ID", "int", "index_field_id"),
    RecordField("_EXTRA_FIELD_IDS", _or_null(_array("int")), "extra_field_ids"),
    RecordField("_INDEX_META", _or_null("bytes"), "index_meta"),
    RecordField("_SOURCE_META", _or_null("bytes"), "source_meta"),
)
_GLOBAL_INDEX = _record("record__GLOBAL_INDEX", *GLOBAL_INDEX_FIELDS)
INDEX_FILE_FIELDS = (
    RecordField("_INDEX_TYPE", "string", "index_type"),
    RecordField("_FILE_NAME", "string", "name"),
    RecordField("_FILE_SIZE", "long", "size_bytes"),
    RecordField("_ROW_COUNT", "long", "row_count"),
    RecordField("_DELETIONS_VECTORS_RANGES", _or_null(_VECTORS), "vectors"),
    RecordField("_EXTERNAL_PATH", _or_null("string"), "external_path"),
    RecordField("_GLOBAL_INDEX", _or_null(_GLOBAL_INDEX), "global_index"),
)
INDEX_MANIFEST_SCHEMA = _parse(_record("record", *_OF_BUCKET, *INDEX_FILE_FIELDS))


# --- manifest records ----------------------------------------------------------------------------

DEFAULT_COMPRESSION = "zstd"
DEFAULT_FORMAT = "avro"


def decoded(data: bytes, path: str, schema: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The records of a file. Each is a tuple of its values, in the order of the schema."""
    read = read_records if is_table(data) else read_container
    return read(data, path, schema)


def encoded(
    schema: dict[str, Any], records: Iterable[dict[str, Any]], compression: str, file_format: str
) -> bytes:
    """The records as a file of that format."""
    if file_format == DEFAULT_FORMAT:
        return write_container(schema, records, compression)
    return write_records(schema, records, compression, file_format)


def check_version(version: int, known: int, path: str) -> None:
    """Raise Unsupported if the version of a file is not the known one."""
    if version != known:
        raise Unsupported(
            "the file was written by another format", version=version, known=known, path=path
        )


def as_tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    """A list field of a record, as a tuple."""
    return None if values is None else tuple(values)
