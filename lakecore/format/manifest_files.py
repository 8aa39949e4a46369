"""Converts manifest lists and manifests to values and back, in the forms of `manifest_records.py`.

lakecore writes the newest set of fields, which every engine reads. lakecore reads fields by name: a
field that an older writer lacked is None, and a field that a newer writer added is ignored.
"""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable
from lakecore.format.avro_container import (
    BLOCK_SIZE_BYTES,
    Frame,
    codec_of,
    compress,
    container,
    plain_container,
    read_container,
)
from lakecore.format.manifest_records import (
    DEFAULT_COMPRESSION,
    DEFAULT_FORMAT,
    FILE_FIELDS,
    GLOBAL_INDEX_FIELDS,
    INDEX_FILE_FIELDS,
    INDEX_MANIFEST_SCHEMA,
    MANIFEST_LIST_FIELDS,
    MANIFEST_LIST_SCHEMA,
    MANIFEST_SCHEMA,
    STATS_FIELDS,
    VECTOR_FIELDS,
    RecordField,
    as_tuple,
    check_version,
    decoded,
    encoded,
    is_table,
    read_table,
    write_table,
)
from lakecore.format.varints import encode_zigzags
from lakecore.model.files import (
    EMPTY_ROW,
    NO_STATS,
    DataFile,
    FileSource,
    GlobalIndex,
    IndexFile,
    Stats,
    VectorRange,
)
from lakecore.model.manifest import FileKind, IndexEntry, ManifestEntry, ManifestFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray


MANIFEST_VERSION = 2

_KINDS = {int(kind): kind for kind in FileKind}
_SOURCES = {int(source): source for source in FileSource}


# --- manifest lists -----------------------------------------------------------------------------


def encode_manifest_list(
    manifests: Sequence[ManifestFile],
    compression: str = DEFAULT_COMPRESSION,
    file_format: str = DEFAULT_FORMAT,
) -> bytes:
    """The bytes of a manifest list; an empty list becomes a container without blocks."""
    records = (
        {"_VERSION": MANIFEST_VERSION, **_record(manifest, MANIFEST_LIST_FIELDS)}
        for manifest in manifests
    )
    return encoded(MANIFEST_LIST_SCHEMA, records, compression, file_format)


def decode_manifest_list(data: bytes, path: str) -> list[ManifestFile]:
    """The manifests that a manifest list names, in order."""
    manifests: list[ManifestFile] = []
    names = [field.attribute for field in MANIFEST_LIST_FIELDS]
    at = names.index("partition_stats")
    for version, *values in decoded(data, path, MANIFEST_LIST_SCHEMA):
        check_version(version, MANIFEST_VERSION, path)
        values[at : at + len(STATS_FIELDS)] = [_stats(*values[at : at + len(STATS_FIELDS)])]
        manifests.append(ManifestFile(**dict(zip(names, values, strict=True))))
    return manifests


# --- manifests ----------------------------------------------------------------------------------


def encode_manifest(
    entries: Sequence[ManifestEntry],
    compression: str = DEFAULT_COMPRESSION,
    file_format: str = DEFAULT_FORMAT,
) -> bytes:
    """The bytes of a manifest."""
    records = (
        {
            "_VERSION": MANIFEST_VERSION,
            "_KIND": int(entry.kind),
            "_PARTITION": entry.partition,
            "_BUCKET": entry.bucket,
            "_TOTAL_BUCKETS": entry.total_buckets,
            "_FILE": _record(entry.file, FILE_FIELDS),
        }
        for entry in entries
    )
    return encoded(MANIFEST_SCHEMA, records, compression, file_format)


def joined_manifests(manifests: Sequence[bytes], compression: str) -> bytes:
    """One manifest with the entries of Avro manifests that were encoded with this compression."""
    blocks = [block for data in manifests for block in Frame(data, "a manifest").blocks()]
    return container(MANIFEST_SCHEMA, blocks, compression)


def decode_manifest(data: bytes, path: str) -> list[ManifestEntry]:
    """The entries of a manifest, in order. Equal partitions share one bytes object."""
    return _entries(decoded(data, path, MANIFEST_SCHEMA), path)


def entries_of(frame: pl.DataFrame, path: str) -> list[ManifestEntry]:
    """The entries of a frame (`decode_entries`) as objects."""
    flat = [
        pl.col(name).struct.field(part["name"]).alias(name + part["name"])
        if _is_record(of)
        else pl.col(name)
        for name, of in _COLUMNS.items()
        for part in (of["fields"] if _is_record(of) else [{}])
    ]
    return _entries(frame.select(flat).iter_rows(), path)


def _entries(records: Iterable[tuple[Any, ...]], path: str) -> list[ManifestEntry]:
    entries: list[ManifestEntry] = []
    partitions: dict[bytes, bytes] = {}
    # The order is that of `MANIFEST_SCHEMA`. One flat loop: planning spends its time here.
    for (
        version,
        kind,
        partition,
        bucket,
        total_buckets,
        name,
        size_bytes,
        row_count,
        key_min,
        key_max,
        key_stats_min,
        key_stats_max,
        key_null_counts,
        value_stats_min,
        value_stats_max,
        value_null_counts,
        sequence_min,
        sequence_max,
        schema_id,
        level,
        extra_files,
        creation_time_ms,
        delete_row_count,
        embedded_index,
        file_source,
        value_stats_columns,
        external_path,
        first_row_id,
        write_columns,
        write_columns_sequences,
    ) in records:
        check_version(version, MANIFEST_VERSION, path)
        file = DataFile(
            name=name,
            size_bytes=size_bytes,
            row_count=row_count,
            key_min=key_min,
            key_max=key_max,
            key_stats=_stats(key_stats_min, key_stats_max, key_null_counts),
            value_stats=_stats(value_stats_min, value_stats_max, value_null_counts),
            sequence_min=sequence_min,
            sequence_max=sequence_max,
            schema_id=schema_id,
            level=level,
            extra_files=tuple(extra_files),
            creation_time_ms=creation_time_ms,
            delete_row_count=delete_row_count,
            embedded_index=embedded_index,
            file_source=_file_source(file_source, path),
            value_stats_columns=as_tuple(value_stats_columns),
            external_path=external_path,
            first_row_id=first_row_id,
            write_columns=as_tuple(write_columns),
            write_columns_sequences=as_tuple(write_columns_sequences),
        )
        entries.append(
            ManifestEntry(
                kind=_kind(kind, path),
                partition=partitions.setdefault(partition, partition),
                bucket=bucket,
                total_buckets=total_buckets,
                file=file,
            )
        )
    return entries


def _record(value: object, fields: Iterable[RecordField]) -> dict[str, Any]:
    """The attributes of a value as a record."""
    record = {}
    for each in fields:
        part = getattr(value, each.attribute)
        plain = _PLAIN.get(type(part))
        record[each.name] = part if plain is None else plain(part)
    return record


_PLAIN: Mapping[type, Callable[[Any], object]] = {
    # fastavro would read a tuple in a union as (type, value)
    tuple: lambda values: [
        _record(each, VECTOR_FIELDS) if isinstance(each, VectorRange) else each for each in values
    ],
    FileSource: int,
    GlobalIndex: lambda index: _record(index, GLOBAL_INDEX_FIELDS),
    Stats: lambda stats: _record(stats, STATS_FIELDS),
}
"""How a record holds values of these types."""


def _kind(number: int, path: str) -> FileKind:
    kind = _KINDS.get(number)
    if kind is None:
        raise CorruptTable("unknown kind of manifest entry", kind=number, path=path)
    return kind


def _file_source(number: int | None, path: str) -> FileSource | None:
    if number is None:
        return None
    source = _SOURCES.get(number)
    if source is None:
        raise CorruptTable("unknown source of a data file", source=number, path=path)
    return source


def _stats(low: bytes, high: bytes, null_counts: list[int | None] | None) -> Stats:
    if null_counts == [] and low == high == EMPTY_ROW:
        return NO_STATS
    counts = None if null_counts is None else tuple(null_counts)
    return Stats(min_values=low, max_values=high, null_counts=counts)


# --- index manifest ------------------------------------------------------------------------------
# Reads and writes index manifests, which list all live index files of a table.
#
# Each index manifest is complete, so it contains no deletions.

INDEX_MANIFEST_VERSION = 1


def encode_index_manifest(
    entries: Sequence[IndexEntry],
    compression: str = DEFAULT_COMPRESSION,
    file_format: str = DEFAULT_FORMAT,
) -> bytes:
    """The bytes of an index manifest; `entries` are all live index files of the table."""
    records = (
        {
            "_VERSION": INDEX_MANIFEST_VERSION,
            "_KIND": int(FileKind.ADD),
            "_PARTITION": entry.partition,
            "_BUCKET": entry.bucket,
            **_record(entry.file, INDEX_FILE_FIELDS),
        }
        for entry in entries
    )
    return encoded(INDEX_MANIFEST_SCHEMA, records, compression, file_format)


def decode_index_manifest(data: bytes, path: str) -> list[IndexEntry]:
    """The live index files of a table."""
    entries: list[IndexEntry] = []
    names = [field.attribute for field in INDEX_FILE_FIELDS]
    for version, kind, partition, bucket, *values in decoded(data, path, INDEX_MANIFEST_SCHEMA):
        check_version(version, INDEX_MANIFEST_VERSION, path)
        parts = dict(zip(names, values, strict=True))
        if kind != FileKind.ADD:
            raise CorruptTable(
                "an index manifest adds files, and nothing else",
                kind=kind,
                file=parts["name"],
                path=path,
            )
        parts["vectors"] = _vectors(parts["vectors"])
        parts["global_index"] = _global_index(parts["global_index"])
        entries.append(IndexEntry(partition=partition, bucket=bucket, file=IndexFile(**parts)))
    return entries


def _vectors(records: list[dict[str, Any] | None] | None) -> tuple[VectorRange, ...] | None:
    if records is None:
        return None
    return tuple(
        VectorRange(
            data_file=record["f0"],
            offset=record["f1"],
            length=record["f2"],
            cardinality=record.get("_CARDINALITY"),
        )
        for record in records
        if record is not None
    )


def _global_index(record: dict[str, Any] | None) -> GlobalIndex | None:
    if record is None:
        return None
    parts: dict[str, Any] = {
        # A field that may be null may be missing.
        each.attribute: record.get(each.name) if isinstance(each.type, list) else record[each.name]
        for each in GLOBAL_INDEX_FIELDS
    }
    return GlobalIndex(**{**parts, "extra_field_ids": as_tuple(parts["extra_field_ids"])})


# --- manifest columns ----------------------------------------------------------------------------
# Converts manifests to columns of entries and back, without a Python object for each entry.
#
# A frame of entries has a row for each entry and a column for each field, in the order of
# `MANIFEST_SCHEMA`; the record `_FILE` is replaced by its fields. Fields that an older writer did
# not know are null. Manifests are merged in this form, because the cost of a merge grows with the
# table:
#
# 1. decoding: the blocks are decompressed, and Polars reads a container of the decompressed blocks.
#    A container that Polars cannot read (a writer declared a record as a union with null) is read
#    record by record. A Parquet or ORC file has columns already (`manifest_records.py`);
# 2. encoding: each column becomes the Avro bytes of its values. The bytes of a row are joined, rows
#    are gathered into blocks, and blocks into manifests of the requested size. Parquet and ORC
#    manifests of a frame have equal numbers of entries.

_POLARS: Mapping[str, Any] = {
    "int": pl.Int32,
    "long": pl.Int64,
    "string": pl.String,
    "bytes": pl.Binary,
}
_FILE = "_FILE"
_IDENTITY = (
    "_PARTITION",
    "_BUCKET",
    "_LEVEL",
    "_FILE_NAME",
    "_EXTRA_FILES",
    "_EMBEDDED_FILE_INDEX",
    "_EXTERNAL_PATH",
)


def _bare(of: Any) -> Any:
    """The type inside a union with null, without its logical type."""
    if isinstance(of, list):
        (of,) = (part for part in of if part != "null")
    if isinstance(of, dict) and of["type"] not in {"record", "array"}:
        return of["type"]
    return of


def _fields(schema: Any) -> dict[str, Any]:
    """The Avro type of each column of a frame of manifest entries, by column name."""
    out: dict[str, Any] = {}
    for part in schema["fields"]:
        out |= _fields(part["type"]) if part["name"] == _FILE else {part["name"]: part["type"]}
    return out


def _polars_type(of: Any) -> Any:
    bare = _bare(of)
    if isinstance(bare, str):
        return _POLARS[bare]
    if bare["type"] == "array":
        return pl.List(_polars_type(bare["items"]))
    return pl.Struct({field["name"]: _polars_type(field["type"]) for field in bare["fields"]})


_COLUMNS = _fields(MANIFEST_SCHEMA)
ENTRY_SCHEMA = pl.Schema({name: _polars_type(of) for name, of in _COLUMNS.items()})


def decode_entries(data: bytes, path: str) -> pl.DataFrame:
    """The entries of a manifest, in order. Raises CorruptTable naming `path`."""
    frame = _from_table(data, path) if is_table(data) else _from_container(data, path)
    (versions,) = frame.select(pl.col("_VERSION").unique().sort().implode()).row(0)
    for version in versions:
        check_version(version, MANIFEST_VERSION, path)
    missing = [
        name
        for name, of in _COLUMNS.items()
        if not isinstance(of, list) and frame[name].null_count()
    ]
    if missing:
        raise CorruptTable("an entry of the manifest lacks a value", path=path, fields=missing)
    return frame


def entry_identities(frame: pl.DataFrame) -> pl.Series:
    """The identity of each entry's file as bytes; equal for an ADD and its DELETE."""
    columns = [_encode(_arrow(frame[name]), _COLUMNS[name]) for name in _IDENTITY]
    return pl.Series("identity", _joined(columns))


@dataclass(frozen=True, slots=True)
class EncodedManifest:
    """A manifest as bytes; it contains `count` entries of the frame, from row `first` on."""

    data: bytes
    first: int
    count: int


def encode_entries(
    frame: pl.DataFrame,
    compression: str,
    target_size_bytes: int,
    file_format: str = DEFAULT_FORMAT,
) -> Iterator[EncodedManifest]:
    """The manifests of a frame, in order. If there are several, each has at least the target size.

    A smaller manifest would be due for a merge, and each commit would rewrite it.
    """
    encode = _containers if file_format == DEFAULT_FORMAT else partial(_tables, file_format)
    yield from encode(frame, compression, target_size_bytes)


def _containers(
    frame: pl.DataFrame, compression: str, target_size_bytes: int
) -> Iterator[EncodedManifest]:
    codec = codec_of(compression)
    block_size = max(1, min(BLOCK_SIZE_BYTES, target_size_bytes))
    full: _Blocks | None = None
    filling = _Blocks(0)
    for rows, block in _blocks(frame, block_size):
        filling.add(rows, compress(block, codec))
        if filling.size_bytes >= target_size_bytes:
            if full is not None:
                yield full.manifest(compression)
            full, filling = filling, _Blocks(filling.end)
    if full is None:
        full = filling
    else:
        for rows, block in filling.blocks:
            full.add(rows, block)
    if full.blocks:
        yield full.manifest(compression)


def _tables(
    file_format: str, frame: pl.DataFrame, compression: str, target_size_bytes: int
) -> Iterator[EncodedManifest]:
    """The manifest of a frame, as one Parquet or ORC file.

    If the file would be too large, returns several files with equal numbers of entries.
    """
    file_columns = [part["name"] for part in MANIFEST_SCHEMA["fields"][-1]["type"]["fields"]]
    nested = frame.with_columns(pl.col("_CREATION_TIME").cast(pl.Datetime("ms"))).select(
        pl.exclude(file_columns), pl.struct(file_columns).alias(_FILE)
    )

    def encoded(first: int, count: int) -> EncodedManifest:
        rows = nested[first : first + count].to_arrow()
        data = write_table(MANIFEST_SCHEMA, rows, compression, file_format)
        return EncodedManifest(data, first, count)

    if frame.is_empty():
        return
    whole = encoded(0, frame.height)
    parts = min(frame.height, len(whole.data) // (2 * max(1, target_size_bytes)))
    if parts <= 1:
        yield whole
        return
    bounds = [frame.height * part // parts for part in range(parts + 1)]
    for first, end in itertools.pairwise(bounds):
        yield encoded(first, end - first)


@dataclass(slots=True)
class _Blocks:
    """The compressed blocks of one manifest, and the number of rows in them."""

    first: int
    end: int = field(init=False)
    size_bytes: int = 0
    blocks: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.end = self.first

    def add(self, rows: int, block: bytes) -> None:
        self.blocks.append((rows, block))
        self.end += rows
        self.size_bytes += len(block)

    def manifest(self, compression: str) -> EncodedManifest:
        data = container(MANIFEST_SCHEMA, self.blocks, compression)
        return EncodedManifest(data, self.first, self.end - self.first)


# --- decoding -----------------------------------------------------------------------------------


def _from_table(data: bytes, path: str) -> pl.DataFrame:
    frame = pl.DataFrame(read_table(data, path, MANIFEST_SCHEMA)).unnest(_FILE)
    return frame.select(pl.col(name).cast(of) for name, of in ENTRY_SCHEMA.items())


def _from_container(data: bytes, path: str) -> pl.DataFrame:
    plain, rows = plain_container(data, path)
    frame = _read(plain, rows) if rows else ENTRY_SCHEMA.to_frame()
    # If the file is damaged, reading it record by record raises an error that says what is wrong.
    return _read_records(data, path) if frame is None else frame


def _read(plain: bytes, rows: int) -> pl.DataFrame | None:
    try:
        found = pl.read_avro(io.BytesIO(plain))
        if _FILE not in found.columns or found.height != rows:
            return None
        found = found.unnest(_FILE)
        missing = [name for name in ENTRY_SCHEMA if name not in found.columns]
        if any(not isinstance(_COLUMNS[name], list) for name in missing):
            return None
        return found.select(
            (pl.lit(None) if name in missing else pl.col(name)).cast(of).alias(name)
            for name, of in ENTRY_SCHEMA.items()
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError):
        return None


def _read_records(data: bytes, path: str) -> pl.DataFrame:
    # NOTE: `read_container` flattens all records inside an entry, also those of statistics.
    names = [name for column, of in _COLUMNS.items() for name in _flat_names(column, of)]
    records = zip(*read_container(data, path, MANIFEST_SCHEMA), strict=True)
    flat = dict(zip(names, map(list, records), strict=True))
    columns: dict[str, list[Any]] = {}
    for column, of in _COLUMNS.items():
        if _is_record(of):
            parts = [part["name"] for part in of["fields"]]
            rows = zip(*(flat[name] for name in _flat_names(column, of)), strict=True)
            columns[column] = [dict(zip(parts, row, strict=True)) for row in rows]
        else:
            columns[column] = flat[column]
    return pl.DataFrame(columns, schema=ENTRY_SCHEMA)


def _flat_names(column: str, of: Any) -> list[str]:
    return [column + part["name"] for part in of["fields"]] if _is_record(of) else [column]


def _is_record(of: Any) -> bool:
    return isinstance(of, dict) and of["type"] == "record"


# --- encoding -----------------------------------------------------------------------------------

_ROWS_AT_ONCE = 16_384


@cache
def _bytes(value: bytes) -> pa.Scalar:
    """The bytes as an Arrow scalar. NOTE: the first scalar makes pyarrow import pandas (0.5 s)."""
    return pa.scalar(value, pa.large_binary())


def _blocks(frame: pl.DataFrame, block_size_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The blocks of a frame: for each, its number of rows and its uncompressed Avro bytes."""
    for part in frame.iter_slices(_ROWS_AT_ONCE):
        rows = _joined([_encode(_arrow(part[name]), of) for name, of in _COLUMNS.items()])
        _, offsets_buffer, data = rows.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int64, len(rows) + 1, rows.offset * 8)
        view = memoryview(data)
        at = 0
        while at < len(rows):
            end = int(np.searchsorted(offsets, offsets[at] + block_size_bytes, "left"))
            end = min(max(end, at + 1), len(rows))
            yield end - at, bytes(view[int(offsets[at]) : int(offsets[end])])
            at = end


def _arrow(series: pl.Series) -> pa.Array:
    found = series.to_arrow()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _encode(values: pa.Array, of: Any) -> pa.Array:
    """The Avro bytes of each value of a column."""
    if isinstance(of, list):
        assert of[0] == "null"
        if values.null_count == len(values):
            return _constant(b"\x00", values)
        some = _encode(values, of[1])
        return pc.if_else(
            values.is_null(), _bytes(b"\x00"), _joined([_constant(b"\x02", values), some])
        )
    bare = _bare(of)
    if bare in ("int", "long"):
        return _varints(pc.fill_null(values, 0).to_numpy().astype(np.int64))
    if bare in ("bytes", "string"):
        content = values.cast(pa.large_binary())
        content = pc.fill_null(content, _bytes(b""))
        sizes = pc.binary_length(content).to_numpy().astype(np.int64)
        return _joined([_varints(sizes), content])
    if bare["type"] == "record":
        return _joined(
            [
                _encode(pc.struct_field(values, field["name"]), field["type"])
                for field in bare["fields"]
            ]
        )
    return _encode_lists(values, bare["items"])


def _encode_lists(values: pa.Array, items: Any) -> pa.Array:
    """Arrays in Avro form: the number of items, the items, and a zero.

    An empty array is a single zero.
    """
    sizes = pc.fill_null(pc.list_value_length(values), 0)
    counts = sizes.to_numpy().astype(np.int64)
    if not counts.any():
        return _constant(b"\x00", values)
    encoded = _encode(values.flatten(), items)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int64())
    joined = pc.binary_join(pa.LargeListArray.from_arrays(offsets, encoded), _bytes(b""))
    full = _joined([_varints(counts), joined, _constant(b"\x00", values)])
    return pc.if_else(pc.equal(sizes, 0), _bytes(b"\x00"), full)


def _joined(columns: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*columns, _bytes(b""))


def _constant(value: bytes, other: pa.Array) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.large_binary()), len(other))


def _varints(values: NDArray[np.int64]) -> pa.Array:
    """Numbers in Avro's zigzag varint form, lowest digits first."""
    content, sizes = encode_zigzags(values)
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    )
