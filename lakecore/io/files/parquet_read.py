"""Reads Parquet data files of any writer: any codec, any Arrow layout, by column name.

A row group that fits into a batch is decoded completely on Arrow's threads. A larger one is
streamed, so that memory depends on the batch and not on the row group (Java's row groups are as
large as the file). The footer states how much memory a row takes, except for dictionary-encoded
strings, which are small on disk: a few of these rows are decoded first. If a batch is too large,
the next batches are smaller.
"""

from __future__ import annotations

import math
import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakecore.errors import CorruptTable, Unsupported
from lakecore.format.parquet_footer import INT96_BYTES, page_at, with_times_as_bytes
from lakecore.io.files.file_format import ROW_GROUP_ROWS, BatchSize, Checks
from lakecore.io.files.parquet_open import (
    TEXT,
    checksums_of,
    first_rows,
    leaf_indexes,
    metadata_as,
    open_parquet,
)
from lakecore.io.files.parquet_types import shredded_columns, with_whole_variants
from lakecore.io.freed_memory import release_freed
from lakecore.io.stores.guarded import unguarded
from lakecore.io.stores.store import MemoryStore, Store, damage_is_corrupt, plain_errors
from lakecore.memory import process_budget
from lakecore.model.arrow_arrays import fits, size_of
from lakecore.model.types import Field, has_variant

# --- parquet checks ------------------------------------------------------------------------------
# Verifies the checksums of Parquet files before an engine decodes them.
#
# Engines that read files directly verify no checksums. Therefore the column chunks of a read are
# verified first: each chunk once in a process, and again if the file has changed (inode, size or
# time). lakecore's checksums (`format/parquet_footer.py`) cover a whole chunk. Files without them,
# such as Java's, may have a CRC in each page, which is verified instead.
#
# Files that are not on a local disk are not verified first, because their bytes would be fetched
# twice. Only Arrow decodes them, and verifies the CRC of each page.

_PIECE_BYTES = 1 << 20
_HEADER_BYTES = 8 << 10
"""Bytes of a page header that are read first; statistics make some headers longer."""
_HEADER_BYTES_MAX = 16 << 20
_KNOWN_CHUNKS_MAX = 4 << 20
"""The largest number of column chunks that are remembered as checked; each takes one byte."""


class _Chunk(NamedTuple):
    """The position of a column chunk, and the facts that its footer states."""

    start: int
    size_bytes: int
    group: int
    column: str


@dataclass(slots=True)
class _Checked:
    """The verified parts of a file: `chunks` by row group and leaf column, and whole `columns`."""

    chunks: np.ndarray
    columns: frozenset[str] = frozenset()


class _Known:
    """The files that were checked, by a key that changes when the file changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[object, ...], _Checked] = OrderedDict()
        self._count = 0

    def find(self, key: tuple[object, ...]) -> _Checked | None:
        with self._lock:
            return self._files.get(key)

    def of(self, key: tuple[object, ...], shape: tuple[int, int]) -> _Checked:
        with self._lock:
            found = self._files.get(key)
            if found is None:
                found = self._files[key] = _Checked(np.zeros(shape, bool))
                self._count += found.chunks.size + 1
                while self._count > _KNOWN_CHUNKS_MAX and len(self._files) > 1:
                    _, gone = self._files.popitem(last=False)
                    self._count -= gone.chunks.size + 1
            self._files.move_to_end(key)
            return found


_KNOWN = _Known()


def are_checked(local: str, columns: Iterable[str]) -> bool:
    """Whether this process has verified these columns of a local file (see `remember`)."""
    with plain_errors(local):
        known = _KNOWN.find(_key(local, os.stat(local)))
    return known is not None and known.columns.issuperset(columns)


def file_key(local: str) -> tuple[object, ...]:
    """A value that changes if a local file changes: its path, inode, size and time."""
    with plain_errors(local):
        return _key(local, os.stat(local))


def remember(local: str, metadata: pq.FileMetaData, columns: Iterable[str]) -> None:
    """Record that all chunks of these columns match their checksums."""
    with plain_errors(local):
        key = _key(local, os.stat(local))
    known = _KNOWN.of(key, (metadata.num_row_groups, metadata.num_columns))
    known.columns |= {*columns}


def check_chunks(
    local: str,
    metadata: pq.FileMetaData,
    groups: Sequence[int],
    leaves: Sequence[int],
    checks: Checks,
    *,
    pages: bool = False,
) -> None:
    """Verify the checksums of these column chunks of a local file, as often as `checks` says.

    With `pages`, the checksums of pages are verified if the file has no checksums of chunks. Raises
    CorruptTable, naming path, row group and column.
    """
    if checks is Checks.NEVER or not groups or not leaves:
        return
    # Arrow's own file does not tell its descriptor in each version of Arrow.
    with plain_errors(local), open(local, "rb") as opened, pa.PythonFile(opened) as file:
        descriptor = opened.fileno()
        key = _key(local, os.fstat(descriptor))
        known = _KNOWN.of(key, (metadata.num_row_groups, metadata.num_columns)).chunks
        if checks is Checks.ONCE and known[np.ix_(groups, leaves)].all():
            return
        expected = checksums_of(file, local, metadata)
        if expected is None and not pages:
            return
        for group, leaf in product(groups, leaves):
            if checks is Checks.ONCE and known[group, leaf]:
                continue
            chunk = _chunk(metadata, group, leaf)
            if chunk.start < 0 or chunk.size_bytes < 0:
                raise _damaged(local, chunk, "its place")
            if expected is None:
                _check_pages(descriptor, local, chunk)
            elif _crc(descriptor, local, chunk) != expected[group, leaf]:
                raise _damaged(local, chunk, "its checksum")
            known[group, leaf] = True


def check_buffer(
    file: pa.BufferReader,
    path: str,
    metadata: pq.FileMetaData,
    groups: Sequence[int],
    leaves: Sequence[int],
) -> None:
    """Like `check_chunks`, for a file in memory. Checksums of pages are not verified."""
    expected = checksums_of(file, path, metadata)
    if expected is None:
        return
    for group, leaf in product(groups, leaves):
        chunk = _chunk(metadata, group, leaf)
        file.seek(max(0, chunk.start))
        if zlib.crc32(file.read_buffer(max(0, chunk.size_bytes))) != expected[group, leaf]:
            raise _damaged(path, chunk, "its checksum")


def _key(local: str, status: os.stat_result) -> tuple[object, ...]:
    return local, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _chunk(metadata: pq.FileMetaData, group: int, leaf: int) -> _Chunk:
    column = metadata.row_group(group).column(leaf)
    offsets = [column.data_page_offset, column.dictionary_page_offset]
    # An offset of 0 means that there is no such page.
    start = min((offset for offset in offsets if offset), default=0)
    return _Chunk(start, column.total_compressed_size, group, column.path_in_schema)


def _crc(descriptor: int, path: str, chunk: _Chunk) -> int:
    crc, at, end = 0, chunk.start, chunk.start + chunk.size_bytes
    while at < end:
        piece = _read(descriptor, path, chunk, at, min(end - at, _PIECE_BYTES))
        crc = zlib.crc32(piece, crc)
        at += len(piece)
    return crc


def _check_pages(descriptor: int, path: str, chunk: _Chunk) -> None:
    """Verify the CRC of each page of a chunk that has one. Raises CorruptTable for damage."""
    at, end = chunk.start, chunk.start + chunk.size_bytes
    while at < end:
        wanted = _HEADER_BYTES
        while (page := page_at(_read(descriptor, path, chunk, at, min(wanted, end - at)))) is None:
            if wanted >= min(_HEADER_BYTES_MAX, end - at):
                raise _damaged(path, chunk, "the header of a page")
            wanted *= 4
        body = at + page.header_bytes
        at = body + page.body_bytes
        if at > end:
            raise _damaged(path, chunk, "the length of a page")
        if page.crc is None:
            continue
        piece = _Chunk(body, page.body_bytes, chunk.group, chunk.column)
        if _crc(descriptor, path, piece) != page.crc:
            raise _damaged(path, chunk, "the checksum of a page")


def _read(descriptor: int, path: str, chunk: _Chunk, at: int, size_bytes: int) -> bytes:
    data = os.pread(descriptor, size_bytes, at)
    if not data:
        raise _damaged(path, chunk, "its length")
    return data


def _damaged(path: str, chunk: _Chunk, what: str) -> CorruptTable:
    return CorruptTable(
        f"a Parquet file is damaged: {what} does not match",
        path=path,
        row_group=chunk.group,
        column=chunk.column,
    )


# --- parquet times -------------------------------------------------------------------------------
# Timestamps finer than microseconds in Parquet: INT96, which Arrow reads as 64-bit nanoseconds.
#
# 64-bit nanoseconds cover the years 1677 to 2262. Arrow silently changes a time outside this range
# into another one. Therefore the days of such columns are checked first, in their binary form.
# Files written by lakecore need no check, because their values were 64-bit nanoseconds in memory.

_INT96 = np.dtype([("nanos", "<i8"), ("day", "<i4")])
_JULIAN_DAY_OF_EPOCH = 2_440_588
_DAY_SECONDS = 86_400
_SECOND_NANOS = 1_000_000_000
_FIRST = divmod(-(1 << 63), _SECOND_NANOS)
_LAST = divmod((1 << 63) - 1, _SECOND_NANOS)
"""The first and the last time in 64-bit nanoseconds: seconds, and nanoseconds of the second."""
_ENCODER, _ROOT = "parquet-cpp-arrow", " paimon_schema {"
_HEAD_CHARACTERS = 200


def columns_of_times(metadata: pq.FileMetaData, leaves: Sequence[int]) -> list[str]:
    """The top-level columns of these leaves that may hold times outside the nanosecond range."""
    found = [metadata.schema.column(leaf) for leaf in leaves]
    names = [each.path for each in found if each.physical_type == "INT96"]
    if not names or _is_ours(metadata):
        return []
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def check_times(batches: Iterable[pa.RecordBatch], path: str) -> None:
    """Raise Unsupported if an INT96 time, read as twelve bytes, is outside the nanosecond range."""
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if any(map(_any_far, _times_in(column))):
                raise Unsupported(
                    "timestamps of nanoseconds outside the years 1677 to 2262 cannot be read",
                    column=name,
                    path=path,
                )


def _is_ours(metadata: pq.FileMetaData) -> bool:
    """Whether lakecore wrote the file: its root is named as in Java, but Arrow encoded it."""
    encoder = str(metadata.created_by or "")
    return encoder.startswith(_ENCODER) and _ROOT in str(metadata.schema)[:_HEAD_CHARACTERS]


def _times_in(array: pa.Array) -> Iterator[pa.Array]:
    """The INT96 times in an array at any depth, as arrays of twelve bytes each."""
    kind = array.type
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == INT96_BYTES:
        yield array
    elif pa.types.is_struct(kind):
        # `flatten` makes the children of null values null; `field` would return arbitrary bytes.
        for child in array.flatten():
            yield from _times_in(child)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _times_in(array.flatten())


def _any_far(times: pa.Array) -> bool:
    data = times.buffers()[1]
    if data is None or times.null_count == len(times):
        return False
    found = np.frombuffer(data, _INT96, len(times), INT96_BYTES * times.offset)
    days = found["day"].astype(np.int64) - _JULIAN_DAY_OF_EPOCH
    # Java counts backwards within a day before 1970: its nanoseconds are negative.
    seconds = days * _DAY_SECONDS + found["nanos"] // _SECOND_NANOS
    nanos = found["nanos"] % _SECOND_NANOS
    early = (seconds < _FIRST[0]) | ((seconds == _FIRST[0]) & (nanos < _FIRST[1]))
    late = (seconds > _LAST[0]) | ((seconds == _LAST[0]) & (nanos > _LAST[1]))
    valid = times.is_valid().to_numpy(zero_copy_only=False)
    return bool(((early | late) & valid).any())


# --- parquet read --------------------------------------------------------------------------------

_PROBE_ROWS = 1_024
_PROBED_ROWS_MIN = 4 * _PROBE_ROWS
"""A row group with at most this many rows is small, even if its strings are larger than stored."""
_LARGE_BYTES = 32 << 20
"""After a larger batch, the memory of decoding is released before the next batch."""
_FEW_BYTES = 256 << 10
"""So few bytes are decoded in one thread: handing them to others would take longer."""
_MANY_COLUMNS = 256
_WHOLE_COLUMN_BYTES = 32 << 10
"""A column chunk up to this size is decoded completely: streaming it would take as much memory."""

_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}

NARROW_BYTES_MAX = (1 << 31) - 1
"""Bytes that an array of text with 32-bit offsets can hold."""


def _shredded(stored: pa.Schema, fields: Sequence[Field], path: str) -> frozenset[str]:
    variants = [field for field in fields if has_variant(field.type)]
    return shredded_columns(stored, variants, path) if variants else frozenset()


def read_parquet(  # noqa: PLR0913, PLR0917  what is read, how much at once, and how
    store: Store,
    path: str,
    fields: Sequence[Field],
    batch: BatchSize,
    row_groups: Iterable[int] | None,
    coded: frozenset[str] = frozenset(),
    checks: Checks = Checks.ONCE,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of these columns as stored, each with the file position of its first row.

    Columns `coded` are returned dictionary-encoded, until a row group does not fit into a batch.
    `checks` says how often the bytes of a local file are compared with their checksums.
    """
    pages = checks is not Checks.NEVER
    with ExitStack() as opening:
        source = None
        if store.local_path(path) is None:
            with damage_is_corrupt(path, "Parquet"):
                source = opening.enter_context(store.open_input(path))
        whole = opening.enter_context(open_parquet(store, path, pages=pages, source=source))
        stored = dict.fromkeys(whole.schema_arrow.names)
        shreds = _shredded(whole.schema_arrow, fields, path)
        # Rows can only be counted if some column is read.
        columns = [field.name for field in fields if field.name in stored] or [*stored][:1]
        metadata = whole.metadata
        firsts = first_rows(metadata)
        leaves = leaf_indexes(metadata, columns)
        coded &= set(columns)
        sizes = _RowSizes(metadata, leaves, whole.schema_arrow, columns, coded)
        with ExitStack() as opened:
            decoders = _Decoders(
                store, path, whole, leaves, coded, opened, pages=pages, source=source
            )
            times = columns_of_times(metadata, leaves)
            if times:
                undecoded = opened.enter_context(_with_times_as_bytes(store, path, pages=pages))
            wanted = range(metadata.num_row_groups) if row_groups is None else row_groups
            check = partial(_check, store, path, metadata, leaves, checks)
            for groups in _together(wanted, metadata, sizes, batch):
                check(groups)
                if times:
                    check_times(
                        undecoded.iter_batches(ROW_GROUP_ROWS, row_groups=groups, columns=times),
                        path,
                    )
                index, rows = groups[0], _rows_of(metadata, groups)
                whole_bytes = max(batch.size_bytes, _WHOLE_COLUMN_BYTES * len(leaves))
                if decoders.coded and rows * max(map(sizes.of, groups)) > whole_bytes:
                    # Rows are streamed now, so the size of decoded strings must be known.
                    decoders.coded = sizes.coded = frozenset()
                if rows > _PROBED_ROWS_MIN and (hidden := sizes.hidden(index)):
                    probe = decoders.streaming.iter_batches(
                        _PROBE_ROWS, row_groups=[index], columns=hidden
                    )
                    sizes.see_hidden(next(probe))
                row_bytes = max(map(sizes.of, groups))
                # Parts of equal size: a short last part would cost as many steps as the others.
                parts = -(-rows // max(1, min(batch.rows, int(batch.size_bytes / row_bytes))))
                even_rows = max(1, -(-rows // max(1, parts)))
                batches = decoders.batches(
                    groups,
                    columns,
                    even_rows,
                    whole=rows * row_bytes <= whole_bytes,
                    few=batch.few,
                    threads=rows * row_bytes > _FEW_BYTES,
                )
                at, end = firsts[index], firsts[index] + rows
                while (decoded := next(batches, None)) is not None:
                    if at + decoded.num_rows >= end:
                        # Free what the decoder holds before the last rows are returned.
                        batches = iter(())
                    for part in _narrow_parts(decoded):
                        rows = part.num_rows
                        if rows:
                            sizes.see(part)
                            yield at, with_whole_variants(part, shreds, path) if shreds else part
                        at += rows
                        # A row may be large: free this one before the next one is read.
                        decoded = None
                        del part
                        if rows * sizes.of(index) >= _LARGE_BYTES:
                            release_freed(process_budget().size_bytes)


_PAGE_ROWS = 20_000
"""Rows of a page, as Arrow and Parquet's Java library write them by default."""
_SURPLUS = 1.05
_PIECE_MIN = 64 << 10
_REQUEST_BYTES = 256 << 10
"""How much a request must save: the transfer of some hundred kilobytes takes as long."""


class _Pieces:
    """A file, some pieces of which are in memory."""

    def __init__(self, source: pa.NativeFile, pieces: Iterable[tuple[int, int]]) -> None:
        """`pieces` are the positions and sizes of the pieces."""
        self._source = source
        self._size_bytes: int = source.size()
        self._held = [(start, source.read_at(size, start)) for start, size in pieces]
        self._at = 0
        self.closed = False

    def read(self, size_bytes: int = -1) -> bytes:
        left = self._size_bytes - self._at
        wanted = left if size_bytes < 0 else min(size_bytes, left)
        data = b""
        for start, held in self._held:
            if start <= self._at < start + len(held):
                data = held[self._at - start : self._at - start + wanted]
                break
        if len(data) < wanted:
            data += self._source.read_at(wanted - len(data), self._at + len(data))
        self._at += len(data)
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        self._at = position + (0, self._at, self._size_bytes)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self.closed = True


def _with_times_as_bytes(
    store: Store, path: str, *, pages: bool
) -> AbstractContextManager[pq.ParquetFile]:
    as_bytes = metadata_as(store, path, with_times_as_bytes)
    return open_parquet(store, path, as_bytes, wide=False, pages=pages)


def _check(
    store: Store,
    path: str,
    metadata: pq.FileMetaData,
    leaves: Sequence[int],
    checks: Checks,
    groups: Sequence[int],
) -> None:
    """Verify the checksums of row groups, unless their bytes would be fetched only for that."""
    local = store.local_path(path)
    if local is not None:
        check_chunks(local, metadata, groups, leaves, checks)
        return
    if checks is not Checks.NEVER and isinstance(unguarded(store), MemoryStore):
        with store.open_input(path) as file:
            check_buffer(file, path, metadata, groups, leaves)


class _Decoders:
    """The open file, once for each way in which its row groups are decoded.

    `coded` columns stay dictionary-encoded if a row group is decoded completely.
    """

    def __init__(  # noqa: PLR0913  the file, and how it is opened again
        self,
        store: Store,
        path: str,
        file: pq.ParquetFile,
        leaves: Sequence[int],
        coded: frozenset[str],
        opened: ExitStack,
        *,
        pages: bool,
        source: pa.NativeFile | None,
    ) -> None:
        self.coded = coded
        self._path = path
        self._whole = file
        self._open = partial(open_parquet, store, path, file.metadata, pages=pages, source=source)
        self._leaves = leaves
        self._opened = opened
        self._source = source
        if len(leaves) >= _MANY_COLUMNS:
            self._whole = opened.enter_context(self._open(wide=False))
        if coded:
            self._codes = opened.enter_context(self._open(coded=coded))

    @cached_property
    def streaming(self) -> pq.ParquetFile:
        """The file, opened so that one piece of each column is in memory at a time."""
        return self._opened.enter_context(self._open(self._leaves))

    def batches(
        self,
        groups: list[int],
        columns: Sequence[str],
        rows: int,
        *,
        whole: bool,
        few: bool,
        threads: bool,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of row groups in batches of `rows`; with `few`, only the first may be wanted."""
        file = self._first_pieces(groups[0], rows) if few else None
        if file is None and whole:
            return iter(self.whole(groups, columns, threads=threads).to_batches(rows))
        file = file or self.streaming
        batches: Iterator[pa.RecordBatch] = file.iter_batches(
            rows, row_groups=groups, columns=columns
        )
        return batches

    def _first_pieces(self, group: int, rows: int) -> pq.ParquetFile | None:
        """The file, with the first rows of a row group fetched; None if the whole costs as much."""
        if self._source is None:
            return None
        chunks = [_chunk(self._whole.metadata, group, leaf) for leaf in self._leaves]
        share = min(1.0, max(rows, _PAGE_ROWS) / self._whole.metadata.row_group(group).num_rows)
        pieces = [
            (chunk.start, max(_PIECE_MIN, math.ceil(_SURPLUS * share * chunk.size_bytes)))
            for chunk in chunks
        ]
        saved = sum(chunk.size_bytes for chunk in chunks) - sum(size for _, size in pieces)
        if saved <= _REQUEST_BYTES * len(pieces):
            return None
        source = pa.PythonFile(_Pieces(self._source, pieces), mode="r")
        opened = self._open(self._leaves, source=source, buffer_bytes=_PIECE_MIN)
        return self._opened.enter_context(opened)

    def whole(self, groups: list[int], columns: Sequence[str], *, threads: bool) -> pa.Table:
        """These columns of whole row groups.

        Raises CorruptTable for an invalid dictionary index.
        """
        plain = [name for name in columns if name not in self.coded]
        table = self._whole.read_row_groups(groups, columns=plain, use_threads=threads)
        if not self.coded:
            return table
        names = sorted(self.coded)
        texts = self._codes.read_row_groups(groups, columns=names, use_threads=threads)
        for name in names:
            if not fits(texts.column(name)):
                raise CorruptTable("a text is not in its dictionary", path=self._path, column=name)
            table = table.append_column(name, texts.column(name).combine_chunks())
        return table.select(columns)


class _RowSizes:
    """Estimates of the bytes in memory that a row takes."""

    def __init__(
        self,
        metadata: pq.FileMetaData,
        leaves: Sequence[int],
        schema: pa.Schema,
        columns: Sequence[str],
        coded: frozenset[str],
    ) -> None:
        self.coded = coded
        self._metadata = metadata
        kinds = [schema.field(name).type for name in columns]
        self._width = sum(kind.bit_width if pa.types.is_primitive(kind) else 32 for kind in kinds)
        stored = {leaf: metadata.schema.column(leaf) for leaf in leaves}
        self._texts = {
            leaf: column.path if column.path in columns else column.path.partition(".")[0]
            for leaf, column in stored.items()
            if column.physical_type == TEXT
        }
        self._repeated = {
            leaf: _VALUE_BYTES.get(column.physical_type, column.length)
            for leaf, column in stored.items()
            if column.max_repetition_level and column.physical_type != TEXT
        }
        self._leaves = [leaf for leaf in leaves if leaf not in self._repeated]
        self._hidden: dict[str, float] = {}
        self._seen = 0.0

    def of(self, index: int) -> float:
        """The estimated bytes in memory of a row of this row group."""
        group = self._metadata.row_group(index)
        stored_bytes = sum(group.column(leaf).total_uncompressed_size for leaf in self._leaves)
        stored_bytes += sum(
            group.column(leaf).num_values * width for leaf, width in self._repeated.items()
        )
        mean: float = stored_bytes / max(1, group.num_rows) + sum(self._hidden.values())
        return max(1.0, self._width / 8, self._seen, mean)

    def hidden(self, index: int) -> list[str]:
        """The columns of a row group that may be larger than the footer says, not yet measured."""
        return [name for name in self.sharing(index) if name not in self._hidden]

    def sharing(self, *indexes: int) -> list[str]:
        """The string columns with dictionaries in these row groups, except those kept encoded."""
        groups = [self._metadata.row_group(index) for index in indexes]
        shared = [
            name
            for leaf, name in self._texts.items()
            if name not in self.coded
            and any(group.column(leaf).has_dictionary_page for group in groups)
        ]
        return list(dict.fromkeys(shared))

    def see_hidden(self, rows: pa.RecordBatch) -> None:
        """Measure the columns that `hidden` returned, on some of their rows."""
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            self._hidden[name] = column.nbytes / max(1, rows.num_rows)

    def see(self, rows: pa.RecordBatch) -> None:
        self._seen = size_of(rows) / max(1, rows.num_rows)


def _narrow_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in parts whose strings fit 32-bit offsets.

    Repeated strings are small on disk, but each takes its full size when it is decoded.
    """
    if size_of(batch) <= NARROW_BYTES_MAX or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _narrow_parts(batch.slice(0, half))
    yield from _narrow_parts(batch.slice(half))


def _together(
    wanted: Iterable[int], metadata: pq.FileMetaData, sizes: _RowSizes, batch: BatchSize
) -> Iterator[list[int]]:
    """The row groups, in lists to read together: neighbours that fit into one batch.

    Fewer batches save work that is done for each batch, here and by the consumer. A row group whose
    footer does not show the size of its rows is read alone, because the next one may be larger. If
    `wanted` is an iterator, row groups are read alone, because it may need the rows of one to
    determine the next.
    """
    if isinstance(wanted, Iterator):
        yield from ([index] for index in wanted)
        return
    groups: list[int] = []
    rows, row_bytes = 0, 0.0
    for index in wanted:
        own_rows, own_bytes = metadata.row_group(index).num_rows, sizes.of(index)
        both, mean = rows + own_rows, max(row_bytes, own_bytes)
        fits = both <= batch.rows and both * mean <= batch.size_bytes
        follows = bool(groups) and groups[-1] + 1 == index
        if groups and not (fits and follows and not sizes.sharing(groups[-1], index)):
            yield groups
            groups, both, mean = [], own_rows, own_bytes
        groups.append(index)
        rows, row_bytes = both, mean
    if groups:
        yield groups


def _rows_of(metadata: pq.FileMetaData, groups: Iterable[int]) -> int:
    return sum(metadata.row_group(index).num_rows for index in groups)
