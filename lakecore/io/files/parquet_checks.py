"""Verifies the checksums of Parquet files before an engine decodes them.

Engines that read files directly verify no checksums. So the column chunks of a read are verified
first: each chunk once in a process, and again if the file has changed (inode, size or time).
lakecore's checksums (`format/parquet_checksums.py`) cover a whole chunk. Files without them, such
as Java's, may have a CRC in each page, which is verified instead.

Files that are not on a local disk are not verified first, because their bytes would be fetched
twice. Only Arrow decodes them, and verifies the CRC of each page.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from lakecore.errors import CorruptTable
from lakecore.format.parquet_pages import page_at
from lakecore.io.files.checks import Checks
from lakecore.io.files.parquet_open import checksums_of
from lakecore.io.stores.store import plain_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow.parquet as pq

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
    with plain_errors(local), pa.OSFile(local, "r") as file:
        descriptor = file.fileno()
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
    """The key that identifies an unchanged file."""
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
