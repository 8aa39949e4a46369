"""The file formats of manifests: records in Avro containers, or rows in Parquet or ORC files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.format.avro import read_container, write_container

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


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


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": f"{_NAMESPACE}.{name}", "fields": list(fields)}


def _field(name: str, of: Any) -> dict[str, Any]:
    return {"name": name, "type": of}


def _optional(name: str, of: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", of], "default": None}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _stats_schema(name: str) -> dict[str, Any]:
    return _record(
        name,
        _field("_MIN_VALUES", "bytes"),
        _field("_MAX_VALUES", "bytes"),
        _optional("_NULL_COUNTS", _array(["null", "long"])),
    )


MANIFEST_LIST_SCHEMA = _parse(
    _record(
        "record",
        _field("_VERSION", "int"),
        _field("_FILE_NAME", "string"),
        _field("_FILE_SIZE", "long"),
        _field("_NUM_ADDED_FILES", "long"),
        _field("_NUM_DELETED_FILES", "long"),
        _field("_PARTITION_STATS", _stats_schema("record__PARTITION_STATS")),
        _field("_SCHEMA_ID", "long"),
        _optional("_MIN_BUCKET", "int"),
        _optional("_MAX_BUCKET", "int"),
        _optional("_MIN_LEVEL", "int"),
        _optional("_MAX_LEVEL", "int"),
        _optional("_MIN_ROW_ID", "long"),
        _optional("_MAX_ROW_ID", "long"),
    )
)

_FILE_SCHEMA = _record(
    "record__FILE",
    _field("_FILE_NAME", "string"),
    _field("_FILE_SIZE", "long"),
    _field("_ROW_COUNT", "long"),
    _field("_MIN_KEY", "bytes"),
    _field("_MAX_KEY", "bytes"),
    _field("_KEY_STATS", _stats_schema("record__FILE__KEY_STATS")),
    _field("_VALUE_STATS", _stats_schema("record__FILE__VALUE_STATS")),
    _field("_MIN_SEQUENCE_NUMBER", "long"),
    _field("_MAX_SEQUENCE_NUMBER", "long"),
    _field("_SCHEMA_ID", "long"),
    _field("_LEVEL", "int"),
    _field("_EXTRA_FILES", _array("string")),
    _optional("_CREATION_TIME", {"type": "long", "logicalType": "timestamp-millis"}),
    _optional("_DELETE_ROW_COUNT", "long"),
    _optional("_EMBEDDED_FILE_INDEX", "bytes"),
    _optional("_FILE_SOURCE", "int"),
    _optional("_VALUE_STATS_COLS", _array("string")),
    _optional("_EXTERNAL_PATH", "string"),
    _optional("_FIRST_ROW_ID", "long"),
    _optional("_WRITE_COLS", _array("string")),
    _optional("_WRITE_COLS_SEQUENCES", _array("long")),
)

MANIFEST_SCHEMA = _parse(
    _record(
        "record",
        _field("_VERSION", "int"),
        _field("_KIND", "int"),
        _field("_PARTITION", "bytes"),
        _field("_BUCKET", "int"),
        _field("_TOTAL_BUCKETS", "int"),
        _field("_FILE", _FILE_SCHEMA),
    )
)

INDEX_MANIFEST_SCHEMA = _parse(
    _record(
        "record",
        _field("_VERSION", "int"),
        _field("_KIND", "int"),
        _field("_PARTITION", "bytes"),
        _field("_BUCKET", "int"),
        _field("_INDEX_TYPE", "string"),
        _field("_FILE_NAME", "string"),
        _field("_FILE_SIZE", "long"),
        _field("_ROW_COUNT", "long"),
        _optional(
            "_DELETIONS_VECTORS_RANGES",
            _array(
                [
                    "null",
                    _record(
                        "record__DELETIONS_VECTORS_RANGES",
                        _field("f0", "string"),
                        _field("f1", "int"),
                        _field("f2", "int"),
                        _optional("_CARDINALITY", "long"),
                    ),
                ]
            ),
        ),
        _optional("_EXTERNAL_PATH", "string"),
        _optional(
            "_GLOBAL_INDEX",
            _record(
                "record__GLOBAL_INDEX",
                _field("_ROW_RANGE_START", "long"),
                _field("_ROW_RANGE_END", "long"),
                _field("_INDEX_FIELD_ID", "int"),
                _optional("_EXTRA_FIELD_IDS", _array("int")),
                _optional("_INDEX_META", "bytes"),
                _optional("_SOURCE_META", "bytes"),
            ),
        ),
    )
)


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


def listed(values: Sequence[object] | None) -> list[object] | None:
    """The values as a list for fastavro, which would read a tuple in a union as (type, value)."""
    return None if values is None else list(values)


def as_tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    """A list field of a record, as a tuple."""
    return None if values is None else tuple(values)
