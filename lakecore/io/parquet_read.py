"""Parquet data files, read as whoever wrote them: any codec, any Arrow layout, by column name.

A row group is decoded whole on Arrow's threads if it is small, else streamed, so that memory
follows the batch: Java writes one row group per file of 128 MB.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakecore.errors import CorruptTable
from lakecore.io.file_format import RowGroup
from lakecore.io.store import plain_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakecore.io.store import Store
    from lakecore.model.types import Field

READ_WHOLE_BYTES_MAX = 64 << 20
"""Decoded bytes up to which a row group is read in one go."""

NARROW_BYTES_MAX = (1 << 31) - 1
"""Bytes that an array of text with 32-bit offsets can hold."""


def parquet_columns(store: Store, path: str) -> tuple[str, ...]:
    """The names of the file's top-level columns, in order."""
    with _open(store, path) as file:
        return tuple(file.schema_arrow.names)


def read_parquet(
    store: Store,
    path: str,
    fields: Sequence[Field],
    batch_rows: int,
    row_groups: Iterable[int] | None,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of these columns as stored, each with the file position of its first row."""
    with _open(store, path) as file:
        # Rows can only be counted along with some column.
        columns = [field.name for field in fields] or file.schema_arrow.names[:1]
        metadata = file.metadata
        firsts = _first_rows(metadata)
        wanted = range(metadata.num_row_groups) if row_groups is None else row_groups
        leaves = _leaf_indexes(metadata, columns)
        for index in wanted:
            group = metadata.row_group(index)
            at = firsts[index]
            size = sum(group.column(leaf).total_uncompressed_size for leaf in leaves)
            if size <= READ_WHOLE_BYTES_MAX:
                table = file.read_row_group(index, columns=columns, use_threads=True)
                # In even parts: a short one at the end costs as many steps as the others.
                parts = max(1, -(-group.num_rows // batch_rows))
                even_rows = max(1, -(-group.num_rows // parts))
                batches: Iterator[pa.RecordBatch] = iter(table.to_batches(max_chunksize=even_rows))
            else:
                batches = file.iter_batches(
                    batch_rows, row_groups=[index], columns=columns, use_threads=True
                )
            for batch in (part for whole in batches for part in _parts(whole)):
                if batch.num_rows:
                    yield at, batch
                at += batch.num_rows


def parquet_row_groups(store: Store, path: str, columns: Sequence[str]) -> tuple[RowGroup, ...]:
    """The row groups, with bounds of these top-level columns."""
    with _open(store, path) as file:
        metadata = file.metadata
        firsts = _first_rows(metadata)
        paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        # A column named `a.b` has the path of field b of a column a: which is which is not known.
        times = Counter(paths)
        at = {path: leaf for leaf, path in enumerate(paths) if times[path] == 1}
        out: list[RowGroup] = []
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            bounds: dict[str, tuple[object, object] | None] = {}
            nulls: dict[str, int | None] = {}
            for name in columns:
                leaf = at.get(name)
                statistics = None if leaf is None else group.column(leaf).statistics
                bounds[name] = _bounds(statistics)
                if statistics is not None and statistics.has_null_count:
                    nulls[name] = statistics.null_count
                else:
                    nulls[name] = None
            size = sum(
                group.column(leaf).total_compressed_size for leaf in range(group.num_columns)
            )
            out.append(
                RowGroup(
                    index=index,
                    first_row=firsts[index],
                    row_count=group.num_rows,
                    size_bytes=size,
                    decoded_bytes=group.total_byte_size,
                    bounds=bounds,
                    null_counts=nulls,
                )
            )
        return tuple(out)


@contextmanager
def _open(store: Store, path: str) -> Iterator[pq.ParquetFile]:
    """The opened file; what Arrow says of its bytes becomes CorruptTable."""
    local = store.local_path(path)
    try:
        with plain_errors(path):
            # Arrow decodes text into wide offsets a quarter faster than into narrow ones.
            file = pq.ParquetFile(
                store.open_input(path) if local is None else local,
                pre_buffer=local is None,
                binary_type=pa.large_binary(),
            )
        with file, plain_errors(path):
            yield file
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptTable(
            "the data file is no readable Parquet", path=path, cause=error
        ) from error


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in parts whose text narrow offsets can count. A repeated value is small on disk."""
    if batch.nbytes <= NARROW_BYTES_MAX or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _parts(batch.slice(0, half))
    yield from _parts(batch.slice(half))


def _leaf_indexes(metadata: pq.FileMetaData, columns: Sequence[str]) -> list[int]:
    wanted = set(columns)
    paths = (metadata.schema.column(index).path for index in range(metadata.num_columns))
    return [i for i, path in enumerate(paths) if path in wanted or path.partition(".")[0] in wanted]


def _first_rows(metadata: pq.FileMetaData) -> list[int]:
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
