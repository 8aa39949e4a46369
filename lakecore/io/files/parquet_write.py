"""Writes Parquet data files like Paimon: version 1 pages with checksums, no Arrow schema.

1. Rows are collected until they fill a row group.
2. Each row group is encoded as a separate Parquet file in memory, by a thread pool shared by all
   writers of the process. Arrow's encoder releases the GIL.
3. Row groups are appended in order, and their footers are joined (`format/parquet_footer.py`). A
   column that copies another column is not encoded again. Bounds of strings come from the footer,
   or from the dictionary of a dictionary-encoded column, which is not decoded.

If all writers together have as many row groups in progress as there are threads, a writer waits for
one of its own. A writer with no row group in progress never waits.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakecore.errors import InvalidRequest
from lakecore.format.parquet_footer import MAGIC, Copy, FooterJoin, TextStatistics
from lakecore.format.statistics import cut_texts
from lakecore.io.files.file_format import ROW_GROUP_BYTES, WriteFormat, abandon
from lakecore.io.files.parquet_types import int96_paths, leaf_paths, physical_schema, to_physical
from lakecore.io.freed_memory import encoding_pool, release_freed
from lakecore.memory import process_budget
from lakecore.model.arrow_arrays import (
    CODED,
    CodedColumn,
    one_dictionary,
    retype_chunked,
    size_of,
    text_bytes,
)
from lakecore.model.types import Atomic, Field, Root, arrow_schema, is_in_milliseconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.io.stores.store import Store


# --- parquet encoding ----------------------------------------------------------------------------
# How the columns of a Parquet file are encoded, decided by a sample of its first row group.
#
# A column is dictionary-encoded if the sample has repeated values. For distinct values, building a
# dictionary costs more than the rest of the encoding. Numbers that compress poorly in the sample
# are not compressed, because reading them would take four times as long. Values of megabytes that
# compress poorly are not compressed either, and are never dictionary-encoded.

_SAMPLE_ROWS = 16_384
_SAMPLE_ROWS_MIN = 2_048
_DICTIONARY_SHARE_MAX = 0.5
_COMPRESSED_SHARE_MAX = 7 / 8
_NUMBER_BITS = (32, 64)
_LONG_DIGITS = 18
_LARGE_VALUE_BYTES = 1 << 20
_LARGE_SAMPLE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How the columns of a file are encoded, by their paths.

    `codecs` has every column that is compressed, `bounded` those with statistics.
    """

    dictionaries: list[str]
    codecs: dict[str, str]
    bounded: list[str]


def encoding_of(table: pa.Table, fields: Sequence[Field], write_format: WriteFormat) -> Encoding:
    """The encoding of these columns, chosen by a sample of their rows."""
    start = max(0, (table.num_rows - _SAMPLE_ROWS) // 2)
    sample = table.slice(start, _SAMPLE_ROWS)
    bare = _milliseconds(fields) if write_format.bare_milliseconds else frozenset[str]()
    dictionaries = [path for path in _dictionary_columns(sample, fields) if path not in bare]
    large = {field.name for field in fields if _is_large(sample.column(field.name))}
    # No bounds of large values: they are never stored, and computing them takes six copies of each.
    bounded = [path for path, _ in leaf_paths(fields) if path not in large | bare]
    codec = write_format.codec
    if codec == "none":
        return Encoding(dictionaries=dictionaries, codecs={}, bounded=bounded)
    level = write_format.zstd_level if codec == "zstd" else None
    trial = pa.Codec(codec, compression_level=level)
    plain = {
        field.name
        for field in fields
        if field.name not in dictionaries
        and sample.num_rows >= _SAMPLE_ROWS_MIN
        and _hardly_shrinks(sample.column(field.name), trial)
    }
    plain |= {name for name in large if _large_hardly_shrinks(sample.column(name), trial)}
    codecs = {path: codec for path, _ in leaf_paths(fields) if path not in plain}
    return Encoding(dictionaries=dictionaries, codecs=codecs, bounded=bounded)


def _hardly_shrinks(column: pa.ChunkedArray, codec: pa.Codec) -> bool:
    """Whether a column has numbers, dates or times that the codec hardly compresses."""
    if not pa.types.is_primitive(column.type) or column.type.bit_width not in _NUMBER_BITS:
        return False
    width = column.type.bit_width // 8
    chunks = [chunk for chunk in column.drop_null().chunks if len(chunk)]
    data = b"".join(
        chunk.buffers()[1].slice(chunk.offset * width, len(chunk) * width) for chunk in chunks
    )
    size_bytes: int = codec.compress(data).size
    return size_bytes > _COMPRESSED_SHARE_MAX * len(data)


def _is_large(column: pa.ChunkedArray) -> bool:
    """Whether a column has strings or binaries that are large on average."""
    kind = column.type
    large: bool = (
        pa.types.is_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
    ) and column.nbytes >= _LARGE_VALUE_BYTES * max(1, len(column))
    return large


def _large_hardly_shrinks(column: pa.ChunkedArray, codec: pa.Codec) -> bool:
    """Whether the codec hardly compresses the first value. Skipping compression saves a copy."""
    chunk = next(chunk for chunk in column.chunks if len(chunk) > chunk.null_count)
    value = chunk.drop_null()[0].as_buffer()
    data = value[:_LARGE_SAMPLE_BYTES]
    shrunk: bool = codec.compress(data).size <= _COMPRESSED_SHARE_MAX * data.size
    return not shrunk


def _dictionary_columns(sample: pa.Table, fields: Sequence[Field]) -> list[str]:
    """The paths of the columns to encode with a dictionary: those with repeated values.

    NOTE: decimals of 19 digits and more are excluded. Java 1.4.2 searches the dictionary with fewer
    bytes than the column's values have, finds nothing, and skips the row group.
    """
    chosen: list[str] = []
    for field in fields:
        if _is_wide_decimal(field) or _is_large(sample.column(field.name)):
            continue
        if sample.column(field.name).type == CODED:
            chosen.append(field.name)
        elif isinstance(field.type, Atomic) and sample.num_rows >= _SAMPLE_ROWS_MIN:
            distinct = pl.Series(sample.column(field.name)).n_unique()
            if distinct <= _DICTIONARY_SHARE_MAX * sample.num_rows:
                chosen.append(field.name)
        else:
            chosen.extend(path for path, _ in leaf_paths([field]))
    return chosen


def _milliseconds(fields: Sequence[Field]) -> frozenset[str]:
    """The paths of the times that are stored in milliseconds.

    Iceberg's Java library takes the bounds and the dictionary of such a column for microseconds,
    and skips row groups that have matching rows.
    """
    return frozenset(path for path, leaf in leaf_paths(fields) if is_in_milliseconds(leaf))


def _is_wide_decimal(field: Field) -> bool:
    return (
        isinstance(field.type, Atomic)
        and field.type.root is Root.DECIMAL
        and field.type.digits > _LONG_DIGITS
    )


# --- parquet write -------------------------------------------------------------------------------

MESSAGE_NAME = "paimon_schema"
_ENCODED_SHARE_GUESS = 0.5
_ROOM_LEAST_BYTES = 1 << 20
_ROOM_A_COLUMN_BYTES = 1 << 10
_BOUND_BYTES_MAX = 4096
"""Arrow writes no bounds longer than this."""
_SMALL_BYTES, _SMALL_MOST = 64 << 10, 8
"""Row groups up to this size, and so many pieces of them, are written by one call."""
_UNDER_WAY_BYTES = ROW_GROUP_BYTES * 3 // 2
"""The largest size of row groups in progress, per encoding thread."""


class ParquetWriter:
    """A Parquet file being written; see the module for the steps."""

    def __init__(
        self, store: Store, path: str, fields: Sequence[Field], write_format: WriteFormat
    ) -> None:
        self._store = store
        self._path = path
        copies = dict(write_format.copies)
        ids = {field.name: field.id for field in fields}
        self._columns = [field.name for field in fields]
        assert self._columns[: len(copies)] == [*copies], "copies come first"
        self._fields = tuple(fields)[len(copies) :]
        self._schema = physical_schema(self._fields)
        self._format = write_format
        self._codec = write_format.codec
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._under_way: deque[tuple[int, Future[_Part]]] = deque()
        self._encoding: Encoding | None = None
        self._leaves = _first_leaves(self._fields)
        self._texts = _texts_of(self._leaves, dict(write_format.text_bounds))
        self._text_bounds: dict[str, tuple[str, str]] = {}
        self._encoded_share = _ENCODED_SHARE_GUESS
        self._footer = FooterJoin(
            MESSAGE_NAME,
            int96_paths(fields),
            {name: Copy(source, ids[name]) for name, source in copies.items()},
        )
        with ExitStack() as opening:
            self._out = opening.enter_context(store.open_output(path))
            self._small = [MAGIC]
            self._closing = opening.pop_all()

    def holds(self, size_bytes: int) -> bool:
        while self._under_way and self._estimate() >= size_bytes:
            self._append_next()
        if self._waiting_rows and self._estimate() >= size_bytes:
            self.flush()
        return self._footer.size_bytes >= size_bytes

    def _estimate(self) -> float:
        raw = self._waiting_bytes + sum(size for size, _ in self._under_way)
        return self._footer.size_bytes + raw * self._encoded_share

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        if rows.num_rows == 0:
            return
        table = pa.table(rows) if isinstance(rows, pa.RecordBatch) else rows
        if table.column_names != self._columns:
            raise InvalidRequest(
                "the rows do not have the columns of the file",
                path=self._path,
                columns=self._columns,
                given=table.column_names,
            )
        table = table.select(self._schema.names)
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        self._waiting_bytes += _decoded_size(table)
        group_rows = self._group_rows()
        if self._waiting_rows >= group_rows:
            self._start_groups(group_rows)

    def flush(self) -> None:
        if self._waiting_rows:
            self._start(self._take_waiting())
        while self._under_way:
            self._append_next()

    def close(self) -> tuple[int, int]:
        try:
            if self._under_way or self._footer.row_count:
                if self._waiting_rows:
                    self._start(self._take_waiting())
            else:
                table = self._take_waiting()
                self._append(_decoded_size(table), self._encode(table))
            while self._under_way:
                self._append_next()
            tail = self._footer.finish()
            self._out.write(b"".join([*self._small, tail]))
            self._closing.close()
        except BaseException:
            self.abort()
            raise
        return self._footer.size_bytes + len(tail), self._footer.row_count

    @property
    def text_bounds(self) -> Mapping[str, tuple[str, str]]:
        return self._text_bounds

    def abort(self) -> None:
        while self._under_way:
            raw_bytes, part = self._under_way.popleft()
            part.cancel()
            _UNDER_WAY.add(-1, -raw_bytes)
        self._waiting.clear()
        abandon(self._closing, self._store, self._path)

    def _group_rows(self) -> int:
        row_bytes = max(1, self._waiting_bytes // self._waiting_rows)
        return max(1, min(self._format.row_group_rows, self._format.row_group_bytes // row_bytes))

    def _start_groups(self, group_rows: int) -> None:
        table = self._take_waiting()
        start = 0
        while table.num_rows - start >= group_rows:
            self._start(table.slice(start, group_rows))
            start += group_rows
        if start < table.num_rows:
            rest = table.slice(start)
            self._waiting = [rest]
            self._waiting_rows, self._waiting_bytes = rest.num_rows, _decoded_size(rest)

    def _take_waiting(self) -> pa.Table:
        tables, self._waiting = self._waiting, []
        self._waiting_rows = self._waiting_bytes = 0
        if any(table.schema != tables[0].schema for table in tables):
            tables = [self._uniform(table) for table in tables]
        return pa.concat_tables(tables or [self._schema.empty_table()])

    def _uniform(self, table: pa.Table) -> pa.Table:
        schema = arrow_schema(self._fields)
        columns = [
            retype_chunked(column, node.type)
            for column, node in zip(table.columns, schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    def _start(self, table: pa.Table) -> None:
        if self._encoding is None:
            self._encoding = encoding_of(table, self._fields, self._format)
        raw_bytes = _decoded_size(table)
        while self._under_way and not _UNDER_WAY.may_begin(raw_bytes):
            self._append_next()
        _UNDER_WAY.add(1, raw_bytes)
        self._under_way.append((raw_bytes, _encoders().submit(self._encode_apart, table)))
        if raw_bytes > _UNDER_WAY.room_bytes:
            # A large row: free it before the next one is made.
            del table
            self._append_next()

    def _append_next(self) -> None:
        raw_bytes, part = self._under_way.popleft()
        try:
            self._append(raw_bytes, part.result())
        finally:
            _UNDER_WAY.add(-1, -raw_bytes)

    def _append(self, raw_bytes: int, part: _Part) -> None:
        pieces = self._footer.add(memoryview(part.data), part.texts)
        if raw_bytes <= _SMALL_BYTES and len(self._small) < _SMALL_MOST:
            self._small += map(bytes, pieces)
        else:
            for data in (*self._small, *pieces):
                self._out.write(data)
            self._small.clear()
        self._encoded_share = min(1.0, part.data.size / max(1, raw_bytes))
        for name, (low, high) in part.text_bounds.items():
            least, greatest = self._text_bounds.get(name, (low, high))
            self._text_bounds[name] = min(least, low), max(greatest, high)

    def _encode_apart(self, table: pa.Table) -> _Part:
        part = self._encode(table)
        del table
        # Without this, the allocator would keep the memory of encoding for this thread.
        release_freed(process_budget().size_bytes)
        return part

    def _encode(self, table: pa.Table) -> _Part:
        table, coded = _with_one_dictionary(table)
        data = self._encoded(table)
        bounds = _text_bounds(data, table, self._texts, coded)
        return _Part(
            data, bounds, {self._leaves[name]: _text_statistics(coded[name]) for name in coded}
        )

    def _encoded(self, table: pa.Table) -> pa.Buffer:
        encoding = self._encoding or encoding_of(table, self._fields, self._format)
        try:
            physical = to_physical(table, self._schema)
            # A large enough buffer is never moved to grow, and its unused pages cost no memory.
            least = _ROOM_LEAST_BYTES + _ROOM_A_COLUMN_BYTES * physical.num_columns
            room = pa.allocate_buffer(least + _decoded_size(table), memory_pool=encoding_pool())
            fixed = pa.FixedSizeBufferWriter(room)
            try:
                self._write_group(physical, fixed, encoding)
                return room.slice(0, fixed.tell())
            except OSError:
                del room, fixed
                grows = pa.BufferOutputStream(encoding_pool())
                self._write_group(physical, grows, encoding)
                return grows.getvalue()
        except pa.ArrowInvalid as error:
            raise InvalidRequest(
                "the rows do not fit the columns of the file", path=self._path, cause=error
            ) from error

    def _write_group(self, physical: pa.Table, out: pa.NativeFile, encoding: Encoding) -> None:
        zstd = self._codec == "zstd"
        # Arrow would decode dictionary-encoded columns to find their bounds.
        coded = {node.name for node in physical.schema if node.type == CODED}
        pq.write_table(
            physical,
            out,
            row_group_size=max(1, physical.num_rows),
            version="2.6",
            data_page_version="1.0",
            compression=encoding.codecs or "none",
            compression_level=(
                dict.fromkeys(encoding.codecs, self._format.zstd_level) if zstd else None
            ),
            use_dictionary=encoding.dictionaries,
            write_statistics=[path for path in encoding.bounded if path not in coded],
            store_schema=False,
            store_decimal_as_integer=True,
            write_page_checksum=True,
            memory_pool=encoding_pool(),
        )


class _Part(NamedTuple):
    """An encoded row group, the bounds of its strings, and statistics it lacks, by leaf column."""

    data: pa.Buffer
    text_bounds: Mapping[str, tuple[str, str]]
    texts: Mapping[int, TextStatistics]


class _Texts(NamedTuple):
    """A string column with a minimum and maximum, cut to `length` characters (None: whole)."""

    name: str
    leaf: int
    length: int | None


def _texts_of(leaves: Mapping[str, int], lengths: Mapping[str, int | None]) -> tuple[_Texts, ...]:
    return tuple(
        _Texts(name, leaf, lengths[name]) for name, leaf in leaves.items() if name in lengths
    )


def _first_leaves(fields: Sequence[Field]) -> dict[str, int]:
    """The first leaf column of each column."""
    first: dict[str, int] = {}
    for leaf, name in enumerate(field.name for field in fields for _ in leaf_paths([field])):
        first.setdefault(name, leaf)
    return first


def _decoded_size(rows: pa.Table) -> int:
    """The bytes of the rows with decoded dictionaries: a reader may decode them."""
    return size_of(rows) + text_bytes(rows)


def _with_one_dictionary(table: pa.Table) -> tuple[pa.Table, dict[str, CodedColumn]]:
    """The rows with one dictionary for each encoded column, and these columns by name."""
    coded: dict[str, CodedColumn] = {}
    for at, node in enumerate(table.schema):
        if node.type != CODED:
            continue
        column = table.column(at)
        if any(chunk.dictionary.null_count for chunk in column.chunks):
            plain = retype_chunked(column, pa.string())
            table = table.set_column(at, node.with_type(pa.string()), plain)
        else:
            coded[node.name] = one_dictionary(column)
            table = table.set_column(at, node, coded[node.name].texts)
    return table, coded


def _text_statistics(column: CodedColumn) -> TextStatistics:
    return TextStatistics(column.texts.null_count, _kept(column.low), _kept(column.high))


def _kept(bound: str | None) -> bytes | None:
    """The bound as the footer stores it; None if it is too long for the footer."""
    data = b"" if bound is None else bound.encode()
    return None if bound is None or len(data) > _BOUND_BYTES_MAX else data


def _text_bounds(
    part: pa.Buffer, table: pa.Table, texts: Sequence[_Texts], coded: Mapping[str, CodedColumn]
) -> dict[str, tuple[str, str]]:
    """The minimum and maximum of each string column, from the footer.

    Arrow writes no bounds of several KiB: such bounds are computed here.
    """
    bounds: dict[str, tuple[str, str]] = {}
    if not texts or not table.num_rows:
        return bounds
    group = pq.read_metadata(pa.BufferReader(part)).row_group(0)
    assert group.num_rows == table.num_rows, "a part has one row group"
    for name, leaf, length in texts:
        column, known = table.column(name), group.column(leaf).statistics
        if name in coded:
            low, high = coded[name].low, coded[name].high
            if low is not None and high is not None:
                bounds[name] = low, high
        elif known is not None and known.has_min_max:
            bounds[name] = known.min, known.max
        elif column.null_count < len(column):
            found = pc.min_max(cut_texts(column, length))
            bounds[name] = found["min"].as_py(), found["max"].as_py()
    return bounds


def encoder_count() -> int:
    """The number of row groups that this process encodes at once."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


class _Count:
    """Counts the row groups in progress, and their bytes, over all writers of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._size_bytes = 0

    @property
    def room_bytes(self) -> int:
        """The maximum total size of all row groups in progress."""
        return encoder_count() * _UNDER_WAY_BYTES

    def may_begin(self, size_bytes: int) -> bool:
        """Whether a thread and memory are free for a row group of this size."""
        free_bytes = self.room_bytes - self._size_bytes
        return self._count < encoder_count() and size_bytes <= free_bytes

    def add(self, count: int, size_bytes: int) -> None:
        """Count row groups that start, or with negative numbers those that end."""
        with self._lock:
            self._count += count
            self._size_bytes += size_bytes


_UNDER_WAY = _Count()


@cache
def _encoders() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(encoder_count(), thread_name_prefix="lakecore-encode")
