"""Opens Parquet files, and reads their footers: columns, row groups, dictionaries."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakecore.errors import CorruptTable
from lakecore.format.parquet_footer import MAGIC, read_trailer, trailer_bytes, with_maps_as_lists
from lakecore.io.files.file_format import RowGroup
from lakecore.io.stores.store import Store, damage_is_corrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np


_BUFFER_BYTES = range(4 << 10, 64 << 10)
_REMOTE_BUFFER_BYTES = range(64 << 10, 1 << 20)
"""The minimum and maximum bytes of a remote column to fetch at once in a streamed row group."""
_SMALL_DICTIONARY_BYTES = 16 << 10
_SMALL_DECODED_BYTES = 64 << 10
"""The most bytes of a small dictionary, compressed and decoded: some thousands of short strings."""
_TINY_DECODED_BYTES = 1 << 10
_SHARE_BYTES = 4
"""A small dictionary has at most this many decoded bytes per row, or is tiny."""
_CODE_BYTES = 2
"""The most bytes of a dictionary code in a page, if the dictionary is small."""
_UNIQUE_WRITERS = ("parquet-cpp-arrow", "parquet-mr")
_NULLABLE_KEYS = "Map keys must be annotated as required"
"""Arrow's error for a file with maps whose keys are declared nullable."""
_FOOTER_END = 8
"""Bytes after the footer: its length, and the magic."""
_TAIL_BYTES = 64 << 10
"""Bytes to read at once from the end of a file; most footers are shorter."""

TEXT = "BYTE_ARRAY"


def parquet_columns(store: Store, path: str) -> tuple[str, ...]:
    """The names of the file's top-level columns, in order."""
    with open_parquet(store, path) as file:
        return tuple(file.schema_arrow.names)


def parquet_row_groups(store: Store, path: str, columns: Sequence[str]) -> tuple[RowGroup, ...]:
    """The row groups, with the bounds of these top-level columns."""
    with open_parquet(store, path) as file:
        metadata = file.metadata
        firsts = first_rows(metadata)
        at = _leaf_of_path(metadata)
        out: list[RowGroup] = []
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            bounds: dict[str, tuple[object, object] | None] = {}
            nulls: dict[str, int | None] = {}
            sizes: dict[str, int] = {}
            for name in columns:
                leaf = at.get(name)
                column = None if leaf is None else group.column(leaf)
                sizes[name] = 0 if column is None else column.total_uncompressed_size
                statistics = None if column is None else column.statistics
                bounds[name] = _bounds(statistics)
                if statistics is not None and statistics.has_null_count:
                    nulls[name] = statistics.null_count
                else:
                    nulls[name] = None
            chunks = [group.column(leaf) for leaf in range(group.num_columns)]
            out.append(
                RowGroup(
                    index=index,
                    first_row=firsts[index],
                    row_count=group.num_rows,
                    size_bytes=sum(chunk.total_compressed_size for chunk in chunks),
                    decoded_bytes=group.total_byte_size,
                    bounds=bounds,
                    null_counts=nulls,
                    column_bytes=sizes,
                    codecs=frozenset(chunk.compression for chunk in chunks),
                )
            )
        return tuple(out)


def _leaf_of_path(metadata: pq.FileMetaData) -> dict[str, int]:
    """The leaf columns by path; ambiguous paths are left out.

    A top-level column named `a.b` has the same path as field b of a column a.
    """
    paths = [metadata.schema.column(leaf).path for leaf in range(metadata.num_columns)]
    times = Counter(paths)
    return {path: leaf for leaf, path in enumerate(paths) if times[path] == 1}


def small_dictionaries(store: Store, path: str, columns: Sequence[str]) -> tuple[str, ...]:
    """The given string columns that have a small dictionary in each row group; see `read_parquet`.

    NOTE: if a dictionary contains a string twice, Arrow removes the duplicate but does not adjust
    the indices. Only files of writers that never write duplicates are therefore considered.
    """
    with open_parquet(store, path) as file:
        metadata = file.metadata
        if not str(metadata.created_by).startswith(_UNIQUE_WRITERS):
            return ()
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        leaves = _leaf_of_path(metadata)
        return tuple(
            name
            for name in columns
            if groups
            and name in leaves
            and all(_has_small_dictionary(group.column(leaves[name])) for group in groups)
        )


def _has_small_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    if not chunk.has_dictionary_page or chunk.physical_type != TEXT:
        return False
    size_bytes: int = chunk.data_page_offset - chunk.dictionary_page_offset
    decoded_bytes: int = chunk.total_uncompressed_size - _CODE_BYTES * chunk.num_values
    few_bytes = max(_TINY_DECODED_BYTES, _SHARE_BYTES * chunk.num_values)
    is_small: bool = decoded_bytes <= min(few_bytes, _SMALL_DECODED_BYTES)
    return is_small and 0 < size_bytes <= _SMALL_DICTIONARY_BYTES


@contextmanager
def open_parquet(  # noqa: PLR0913  the file, and how its values come
    store: Store,
    path: str,
    metadata: pq.FileMetaData | None = None,
    leaves: Sequence[int] = (),
    *,
    wide: bool = True,
    coded: frozenset[str] = frozenset(),
    pages: bool = True,
    source: pa.NativeFile | None = None,
    buffer_bytes: int | None = None,
) -> Iterator[pq.ParquetFile]:
    """The opened file; Arrow's errors about its bytes become CorruptTable.

    - `metadata` and `leaves`: the footer of the file, and the leaf columns to stream a piece at a
      time.
    - `wide`: strings have 64-bit offsets, except `coded` columns, which stay dictionary-encoded.
    - `pages`: Arrow verifies the checksums of pages.
    - `source`: the file, if it is open; it stays open.
    - `buffer_bytes`: how much of a streamed column to fetch at once, if the default is too much.
    """
    local = store.local_path(path)
    with damage_is_corrupt(path, "Parquet"), ExitStack() as opening:
        # Opening a remote file costs a request each time.
        if source is None:
            source = opening.enter_context(store.open_input(path))
        footer = metadata or _read_footer(source, path)
        if local is not None:
            pages = pages and checksums_of(source, path, footer) is None
        opened = partial(
            pq.ParquetFile,
            source if local is None else str(local),
            buffer_size=buffer_bytes or _buffer_bytes(footer, leaves, is_local=local is not None),
            pre_buffer=local is None and not leaves,
            # This type would decode dictionaries.
            binary_type=pa.large_binary() if wide and not coded else None,
            read_dictionary=sorted(coded),
            # `check_chunks` has already verified these pages.
            page_checksum_verification=pages,
        )
        with opened(metadata=footer) as file:
            if local is not None:
                source.close()
            yield file


def _buffer_bytes(metadata: pq.FileMetaData, leaves: Sequence[int], *, is_local: bool) -> int:
    """The bytes of a column to fetch at once; 0 if whole row groups are decoded."""
    if not leaves:
        return 0
    bounds = _BUFFER_BYTES if is_local else _REMOTE_BUFFER_BYTES
    sizes = [
        metadata.row_group(index).column(leaf).total_compressed_size
        for index in range(metadata.num_row_groups)
        for leaf in leaves
    ]
    mean: int = sum(sizes) // max(1, len(sizes))
    return min(max(bounds.start, mean), bounds.stop)


def metadata_as(store: Store, path: str, change: Callable[[memoryview], bytes]) -> pq.FileMetaData:
    """The footer of a file, decoded after `change` was applied to its bytes."""
    with store.open_input(path) as file:
        footer = _Tail(file, path).footer
    return _changed(memoryview(footer), path, change)


def _changed(
    footer: memoryview, path: str, change: Callable[[memoryview], bytes]
) -> pq.FileMetaData:
    try:
        changed = change(footer)
    except (AssertionError, LookupError, StopIteration, ValueError) as error:
        raise CorruptTable("the footer of a Parquet file is damaged", path=path) from error
    return pq.read_metadata(pa.BufferReader(changed))


def checksums_of(file: pa.NativeFile, path: str, metadata: pq.FileMetaData) -> np.ndarray | None:
    """The checksums of the column chunks, by row group and leaf column; None if the file has none.

    Raises CorruptTable if the checksums are damaged.
    """
    shape = metadata.num_row_groups, metadata.num_columns
    size_bytes = trailer_bytes(shape[0] * shape[1])
    end = file.size() - _FOOTER_END - metadata.serialized_size
    start = max(0, end - size_bytes)
    file.seek(start)
    found = read_trailer(file.read(max(0, end - start)), shape[0] * shape[1], path, None)
    return None if found is None else found.reshape(shape)


def _read_footer(file: pa.NativeFile, path: str) -> pq.FileMetaData:
    """The footer of a file. Raises CorruptTable if its checksum does not match.

    Maps with keys declared nullable, which Arrow refuses, become lists.
    """
    tail = _Tail(file, path)
    footer = tail.footer
    whole = b"".join([MAGIC, footer, len(footer).to_bytes(4, "little"), MAGIC])
    try:
        metadata = pq.read_metadata(pa.BufferReader(whole))
    except pa.ArrowInvalid as error:
        if _NULLABLE_KEYS not in str(error):
            raise
        metadata = _changed(memoryview(footer), path, with_maps_as_lists)
    chunks = metadata.num_row_groups * metadata.num_columns
    read_trailer(tail.before(trailer_bytes(chunks)), chunks, path, footer)
    return metadata


class _Tail:
    """The end of a file, read in one piece."""

    def __init__(self, file: pa.NativeFile, path: str) -> None:
        self._file = file
        self._size_bytes = file.size()
        self._start = max(0, self._size_bytes - _TAIL_BYTES)
        file.seek(self._start)
        self._data: bytes = file.read(_TAIL_BYTES)
        length = int.from_bytes(self._data[-_FOOTER_END:-4], "little")
        self._end = self._size_bytes - _FOOTER_END
        self._footer_start = self._end - length
        if self._data[-4:] != MAGIC or self._footer_start < len(MAGIC):
            raise CorruptTable(
                "the data file is not readable as Parquet: it does not end with a footer",
                path=path,
                size_bytes=self._size_bytes,
            )

    @property
    def footer(self) -> bytes:
        return self._bytes(self._footer_start, self._end)

    def before(self, size_bytes: int) -> bytes:
        """That many bytes before the footer, or fewer at the start of the file."""
        return self._bytes(max(0, self._footer_start - size_bytes), self._footer_start)

    def _bytes(self, start: int, end: int) -> bytes:
        if start >= self._start:
            return self._data[start - self._start : end - self._start]
        self._file.seek(start)
        data: bytes = self._file.read(end - start)
        return data


def first_rows(metadata: pq.FileMetaData) -> list[int]:
    """The position of the first row of each row group."""
    firsts, at = [], 0
    for index in range(metadata.num_row_groups):
        firsts.append(at)
        at += metadata.row_group(index).num_rows
    return firsts


def leaf_indexes(metadata: pq.FileMetaData, columns: Sequence[str]) -> list[int]:
    """The leaf columns of these top-level columns, in order."""
    wanted = set(columns)
    paths = (metadata.schema.column(index).path for index in range(metadata.num_columns))
    return [i for i, path in enumerate(paths) if path in wanted or path.partition(".")[0] in wanted]


def _bounds(statistics: pq.Statistics | None) -> tuple[object, object] | None:
    if statistics is None or not statistics.has_min_max:
        return None
    try:
        return statistics.min, statistics.max
    except (ValueError, OverflowError, UnicodeDecodeError, pa.ArrowNotImplementedError):
        return None  # Python has no such date, or the bytes are not UTF-8
