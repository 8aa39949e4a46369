"""Parquet files opened, and what their footers say: columns, row groups, dictionaries."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakecore.format.parquet_footer import with_maps_as_lists
from lakecore.io.file_format import RowGroup
from lakecore.io.store import damage_is_corrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakecore.io.store import Store

_BUFFER_BYTES = range(4 << 10, 64 << 10)
_REMOTE_BUFFER_BYTES = range(64 << 10, 1 << 20)
"""Bytes of a column fetched at once where row groups are streamed: the least, and the most."""
_SMALL_DICTIONARY_BYTES = 16 << 10
_SMALL_DECODED_BYTES = 64 << 10
"""At most some thousands of short texts, compressed and not."""
_TINY_DECODED_BYTES = 1 << 10
_SHARE_BYTES = 4
"""What texts may take for a row, if they take more than that."""
_CODE_BYTES = 2
"""What a code takes of a page at most, where these are few."""
_UNIQUE_WRITERS = ("parquet-cpp-arrow", "parquet-mr")
_CHECKING_WRITER = "parquet-mr"
"""Java's, by the name that it gives itself in the footer."""
_NULLABLE_KEYS = "Map keys must be annotated as required"
"""What Arrow says of a file with maps whose keys are declared nullable."""
_FOOTER_END = 8
"""Bytes after the footer: its length, and the magic."""

TEXT = "BYTE_ARRAY"


def parquet_columns(store: Store, path: str) -> tuple[str, ...]:
    """The names of the file's top-level columns, in order."""
    with open_parquet(store, path) as file:
        return tuple(file.schema_arrow.names)


def parquet_row_groups(store: Store, path: str, columns: Sequence[str]) -> tuple[RowGroup, ...]:
    """The row groups, with bounds of these top-level columns."""
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
                    has_checksums=str(metadata.created_by).startswith(_CHECKING_WRITER),
                )
            )
        return tuple(out)


def _leaf_of_path(metadata: pq.FileMetaData) -> dict[str, int]:
    """The leaves by their paths.

    A column named `a.b` has the path of field b of a column a: which is which is not known.
    """
    paths = [metadata.schema.column(leaf).path for leaf in range(metadata.num_columns)]
    times = Counter(paths)
    return {path: leaf for leaf, path in enumerate(paths) if times[path] == 1}


def small_dictionaries(store: Store, path: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Those of these columns of texts that have few texts in each row group; see `read_parquet`.

    NOTE: where a dictionary has a text twice, Arrow gives it without, but for the codes. So it is
    asked only of files of writers that are known to look each text up.
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
def open_parquet(
    store: Store,
    path: str,
    metadata: pq.FileMetaData | None = None,
    leaves: Sequence[int] = (),
    *,
    wide: bool = True,
    coded: frozenset[str] = frozenset(),
) -> Iterator[pq.ParquetFile]:
    """The opened file; what Arrow says of its bytes becomes CorruptTable.

    With `metadata`, which it has, and leaves: to stream these, a piece of each column at a time.
    `wide`: text comes with wide offsets, but that of `coded` columns as it is encoded.
    """
    local = store.local_path(path)
    source = partial(store.open_input, path) if local is None else partial(str, local)
    buffer_bytes = 0
    if metadata is not None and leaves:
        bounds = _REMOTE_BUFFER_BYTES if local is None else _BUFFER_BYTES
        sizes = [
            metadata.row_group(index).column(leaf).total_compressed_size
            for index in range(metadata.num_row_groups)
            for leaf in leaves
        ]
        mean = sum(sizes) // max(1, len(sizes))
        buffer_bytes = min(max(bounds.start, mean), bounds.stop)
    with damage_is_corrupt(path, "Parquet"):
        # Arrow decodes text into wide offsets a quarter faster than into narrow ones. Of many
        # columns with few rows each, to cast them costs more.
        opened = partial(
            pq.ParquetFile,
            buffer_size=buffer_bytes,
            pre_buffer=local is None and not leaves,
            # It would undo codes.
            binary_type=pa.large_binary() if wide and not coded else None,
            read_dictionary=sorted(coded),
            # Java writes checksums of pages.
            page_checksum_verification=True,
        )
        try:
            file = opened(source(), metadata=metadata)
        except pa.ArrowInvalid as error:
            if metadata is not None or _NULLABLE_KEYS not in str(error):
                raise
            file = opened(source(), metadata=metadata_as(store, path, with_maps_as_lists))
        with file:
            yield file


def metadata_as(store: Store, path: str, change: Callable[[memoryview], bytes]) -> pq.FileMetaData:
    """The footer of a file, changed."""
    with store.open_input(path) as file:
        file.seek(file.size() - _FOOTER_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(file.size() - _FOOTER_END - length)
        return pq.read_metadata(pa.BufferReader(change(memoryview(file.read(length)))))


def first_rows(metadata: pq.FileMetaData) -> list[int]:
    """The positions at which the row groups begin."""
    firsts, at = [], 0
    for index in range(metadata.num_row_groups):
        firsts.append(at)
        at += metadata.row_group(index).num_rows
    return firsts


def _bounds(statistics: pq.Statistics | None) -> tuple[object, object] | None:
    if statistics is None or not statistics.has_min_max:
        return None
    try:
        return statistics.min, statistics.max
    except (ValueError, OverflowError, UnicodeDecodeError, pa.ArrowNotImplementedError):
        return None  # Python has no such date, or the bytes are no text
