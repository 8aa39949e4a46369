"""Data files in Avro, a row format.

fastavro decodes and encodes record by record; this module works on columns. The schema is Paimon's:

- nullable types are unions with null first;
- TIMESTAMP is `timestamp-*`, and TIMESTAMP_LTZ is `local-timestamp-*` (the reverse of Avro's
  specification);
- a map with non-string keys is an array of key-value records;
- a nested record is named after its path.

INVARIANT: logical types are only labels. Values are read and written as the underlying numbers.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, TypeAlias

import fastavro
import numpy as np
import pyarrow as pa

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.format.avro_container import (
    block_counts,
    container_columns,
    read_batches,
    write_container,
)
from lakecore.io.files.file_format import BatchSize, OutputFile, RowFile, WriteFormat
from lakecore.io.stores.store import Store, plain_errors
from lakecore.model.arrow_arrays import retype, retype_chunked, rows_only
from lakecore.model.types import (
    STRINGS,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Root,
    Row,
    arrow_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


Json: TypeAlias = "str | int | Mapping[str, Json] | Sequence[Json] | None"

RECORD_NAME = "org.apache.paimon.avro.generated.record"
_CODECS = {"none": "null", "zstd": "zstandard", "gzip": "deflate", "snappy": "snappy"}
_CHUNK_ROWS = 16_384
_BUFFER_BYTES = 256 << 10
DECIMAL_BYTES = 16
_PRIMITIVES = {
    Root.BOOLEAN: "boolean",
    Root.TINYINT: "int",
    Root.SMALLINT: "int",
    Root.INT: "int",
    Root.BIGINT: "long",
    Root.FLOAT: "float",
    Root.DOUBLE: "double",
    Root.CHAR: "string",
    Root.VARCHAR: "string",
    Root.BINARY: "bytes",
    Root.VARBINARY: "bytes",
    Root.BLOB: "bytes",
}


class AvroWriter(RowFile):
    """An Avro file being written, chunk by chunk; the blocks of all chunks share one header."""

    def __init__(
        self, store: Store, path: str, fields: Sequence[Field], write_format: WriteFormat
    ) -> None:
        codec = _CODECS.get(write_format.codec)
        if codec is None:
            raise Unsupported(
                "Avro has no such codec",
                codec=write_format.codec,
                known=[*_CODECS],
                path=path,
                way_out="set file.compression to a known codec; the postponed bucket "
                "(bucket = -2) holds Avro, whatever file.format says",
            )
        self._path = path
        self._fields = tuple(fields)
        parsed = fastavro.parse_schema(avro_schema(fields))
        assert isinstance(parsed, dict)
        self._schema = parsed
        self._codec = codec
        header = write_container(self._schema, [], codec)
        self._header_bytes = len(header)
        super().__init__(OutputFile(store, path, head=header))

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        names = [field.name for field in self._fields]
        if rows.schema.names != names:
            raise InvalidRequest(
                "the rows do not have the columns of the file",
                path=self._path,
                columns=names,
                given=rows.schema.names,
            )
        table = pa.table(rows) if isinstance(rows, pa.RecordBatch) else rows
        for start in range(0, table.num_rows, _CHUNK_ROWS):
            self._write(table.slice(start, _CHUNK_ROWS))

    def _write(self, table: pa.Table) -> None:
        names = [field.name for field in self._fields]
        try:
            columns = [
                retype_chunked(column, _encoded_type(field.type)).to_pylist(
                    maps_as_pydicts="strict"
                )
                for column, field in zip(table.columns, self._fields, strict=True)
            ]
            records = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
            blocks = write_container(self._schema, records, self._codec)[self._header_bytes :]
        except (pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
            raise InvalidRequest(
                "the rows do not fit the columns of the file", path=self._path, cause=error
            ) from error
        self._file.write(blocks)
        self._row_count += table.num_rows


def avro_schema(fields: Sequence[Field]) -> dict[str, Json]:
    """The Avro schema of a file with these columns."""
    return _record(fields, RECORD_NAME)


def avro_columns(store: Store, path: str) -> tuple[str, ...]:
    """The names of the file's top-level columns, in order."""
    with _opened(store, path) as source:
        return container_columns(source, path)


def check_avro(store: Store, path: str, row_count: int, columns: Sequence[str]) -> None:
    """Raise CorruptTable unless the file has these columns and rows, in complete blocks.

    Only the values of the first block are decoded.
    """
    rows = 0
    with _opened(store, path) as source:
        for count in block_counts(source, path):
            rows += count
    if rows != row_count:
        raise CorruptTable(
            "a data file has other rows than the manifest says",
            path=path, rows=rows, expected=row_count,
        )  # fmt: skip
    names = avro_columns(store, path)
    for name in columns:
        if name not in names:
            raise CorruptTable(
                "the data file lacks a column", path=path, column=name, columns=names
            )
    with _opened(store, path) as source, closing(read_batches(source, path, 1, 1)) as batches:
        next(batches, None)


def read_avro(
    store: Store,
    path: str,
    fields: Sequence[Field],
    batch: BatchSize,
    row_groups: Iterable[int] | None,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of these columns, each with the position of its first row in the file (from 0)."""
    if row_groups is not None:
        raise Unsupported("row groups are chosen in Parquet files only", path=path)
    at = 0
    with _opened(store, path) as source:
        for records in read_batches(source, path, batch.rows, batch.size_bytes):
            count = len(records)
            columns: dict[str, pa.Array] = {}
            for field in fields:
                if field.name in records[0]:
                    values = [record[field.name] for record in records]
                    columns[field.name] = _decoded(values, field, path)
                    del values
            # Free the records now: a row may be large.
            del records
            rows = pa.RecordBatch.from_pydict(columns) if columns else rows_only(count)
            del columns
            yield at, rows
            del rows
            at += count


@contextmanager
def _opened(store: Store, path: str) -> Iterator[bytes | pa.NativeFile]:
    """Open a file for reading forwards.

    A remote file is fetched at once, because each call is slow.
    """
    if store.local_path(path) is None:
        yield store.read(path)
        return
    with plain_errors(path), store.open_input(path) as file:
        yield pa.BufferedInputStream(file, _BUFFER_BYTES)


def _decoded(values: list[object], field: Field, path: str) -> pa.Array:
    wanted = arrow_type(field.type)
    try:
        return retype(pa.array(values, _decoded_type(wanted)), wanted, _decode_leaf)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise CorruptTable(
            "a column of the data file is of another type than its schema says",
            path=path,
            column=field.name,
            wanted=wanted,
        ) from error


def _decode_leaf(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Decimals from big-endian two's complement bytes. A value may have up to sixteen bytes."""
    assert pa.types.is_decimal(target)
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
    sizes = np.diff(offsets)
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    if sizes.max(initial=0) > DECIMAL_BYTES:
        raise pa.ArrowInvalid("a decimal of more than sixteen bytes")
    out = np.zeros((len(array), DECIMAL_BYTES), np.uint8)
    some = sizes > 0
    out[some] = np.where(data[offsets[:-1][some]] >= 0x80, 0xFF, 0)[:, None]
    rows = np.repeat(np.arange(len(array)), sizes)
    places = offsets[1:].repeat(sizes) - 1 - np.arange(offsets[0], offsets[-1])
    out[rows, places] = data[offsets[0] : offsets[-1]]
    validity = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(target, len(array), [validity, pa.py_buffer(out)])


def _mapped(arrow: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with each atomic type in it replaced by `leaf(type)`."""
    t = pa.types
    if t.is_list(arrow):
        return pa.list_(arrow.value_field.with_type(_mapped(arrow.value_type, leaf)))
    if t.is_map(arrow):
        return pa.map_(
            arrow.key_field.with_type(_mapped(arrow.key_type, leaf)),
            arrow.item_field.with_type(_mapped(arrow.item_type, leaf)),
        )
    if t.is_struct(arrow):
        return pa.struct([part.with_type(_mapped(part.type, leaf)) for part in arrow])
    return leaf(arrow)


def _decoded_type(arrow: pa.DataType) -> pa.DataType:
    return _mapped(arrow, lambda leaf: pa.binary() if pa.types.is_decimal(leaf) else leaf)


def _plain_leaf(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(arrow):
        return pa.int64()
    return pa.int32() if pa.types.is_date(arrow) or pa.types.is_time(arrow) else arrow


def _encoded_type(data_type: DataType) -> pa.DataType:
    """The Arrow type whose Python values fastavro accepts: numbers, dicts, lists of records."""
    match data_type:
        case Atomic():
            return _plain_leaf(arrow_type(data_type))
        case Array():
            return pa.list_(_encoded_type(data_type.element))
        case Row():
            return pa.struct([(part.name, _encoded_type(part.type)) for part in data_type.fields])
        case Map() | Multiset():
            key, value = _entry(data_type)
            if _is_string(key):
                return pa.map_(pa.string(), _encoded_type(value))
            entry = [
                pa.field("key", _encoded_type(key), nullable=False),
                pa.field("value", _encoded_type(value)),
            ]
            return pa.list_(pa.struct(entry))


def _entry(data_type: Map | Multiset) -> tuple[DataType, DataType]:
    if isinstance(data_type, Map):
        return data_type.key, data_type.value
    return data_type.element, Atomic(root=Root.INT, nullable=False)


def _is_string(data_type: DataType) -> bool:
    return isinstance(data_type, Atomic) and data_type.root in STRINGS


def _schema_of(data_type: DataType, name: str) -> Json:
    bare: Json
    match data_type:
        case Atomic():
            bare = _atomic(data_type, name)
        case Array():
            bare = {"type": "array", "items": _schema_of(data_type.element, name)}
        case Row():
            bare = _record(data_type.fields, name)
        case Map() | Multiset():
            key, value = _entry(data_type)
            if _is_string(key):
                bare = {"type": "map", "values": _schema_of(value, name)}
            else:
                entry: dict[str, Json] = {
                    "type": "record",
                    "name": name,
                    "fields": [
                        {"name": "key", "type": _schema_of(key, f"{name}_key")},
                        _field("value", value, f"{name}_value"),
                    ],
                }
                bare = {"type": "array", "items": entry, "logicalType": "map"}
    return ["null", bare] if data_type.nullable else bare


def _record(fields: Sequence[Field], name: str) -> dict[str, Json]:
    parts = [_field(field.name, field.type, f"{name}_{field.name}") for field in fields]
    return {"type": "record", "name": name, "fields": parts}


def _field(name: str, data_type: DataType, path: str) -> Json:
    field: dict[str, Json] = {"name": name, "type": _schema_of(data_type, path)}
    return {**field, "default": None} if data_type.nullable else field


def _atomic(data_type: Atomic, name: str) -> Json:
    precision = data_type.digits
    match data_type.root:
        case Root.DECIMAL:
            scale = data_type.scale
            labels: dict[str, Json] = {"precision": precision, "scale": scale}
            return {"type": "bytes", "logicalType": "decimal", **labels}
        case Root.DATE:
            return {"type": "int", "logicalType": "date"}
        case Root.TIME:
            if precision > 3:
                raise Unsupported("Avro has TIME up to precision 3", column=name, type=data_type)
            return {"type": "int", "logicalType": "time-millis"}
        case Root.TIMESTAMP | Root.TIMESTAMP_LTZ as root:
            if precision > 6:
                raise Unsupported(
                    "Avro has TIMESTAMP up to precision 6", column=name, type=data_type
                )
            prefix = "local-" if root is Root.TIMESTAMP_LTZ else ""
            unit = "millis" if precision <= 3 else "micros"
            return {"type": "long", "logicalType": f"{prefix}timestamp-{unit}"}
        case root:
            return _PRIMITIVES[root]
