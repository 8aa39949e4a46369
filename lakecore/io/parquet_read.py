"""Parquet data files, read as whoever wrote them: any codec, any Arrow layout, by column name.

Row groups that fit into a batch are decoded whole on Arrow's threads. Another is streamed, its
bytes as its rows, so that memory follows the batch and not the row group, which Java makes as large
as the file. How much a row takes in memory is known from the footer, but for texts that share a
dictionary, which makes them small on disk: of these a few are looked at first. A batch that came
out too large makes those after it smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakecore.format.parquet_footer import with_maps_as_lists, with_times_as_bytes
from lakecore.io.file_format import ROW_GROUP_ROWS, RowGroup
from lakecore.io.freed_memory import release_freed
from lakecore.io.parquet_times import check_times, columns_of_times
from lakecore.io.store import damage_is_corrupt
from lakecore.memory import process_budget
from lakecore.model.arrow_arrays import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakecore.io.file_format import BatchSize
    from lakecore.io.store import Store
    from lakecore.model.types import Field

_PROBE_ROWS = 1_024
_PROBED_ROWS_MIN = 4 * _PROBE_ROWS
"""Rows of a row group up to which it is small, whatever its footer hides."""
_BUFFER_BYTES = range(4 << 10, 64 << 10)
_REMOTE_BUFFER_BYTES = range(64 << 10, 1 << 20)
"""Bytes of a column fetched at once where row groups are streamed: the least, and the most."""
_LARGE_BYTES = 32 << 20
"""Of a batch, past which what decoding it took is given back before the next."""
_MANY_COLUMNS = 256
_WHOLE_COLUMN_BYTES = 32 << 10
"""Of a row group, up to which a column is decoded whole: to stream it would hold as much."""

_TEXT = "BYTE_ARRAY"
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
"""Of values of Parquet's types; those of the others differ."""

_CHECKING_WRITER = "parquet-mr"
"""Java's, by the name that it gives itself in the footer."""
_NULLABLE_KEYS = "Map keys must be annotated as required"
"""What Arrow says of a file with maps whose keys are declared nullable."""
_FOOTER_END = 8
"""Bytes after the footer: its length, and the magic."""

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
    batch: BatchSize,
    row_groups: Iterable[int] | None,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of these columns as stored, each with the file position of its first row."""
    with _open(store, path) as whole:
        stored = whole.schema_arrow.names
        there = set(stored)
        # Rows can only be counted along with some column.
        columns = [field.name for field in fields if field.name in there] or stored[:1]
        metadata = whole.metadata
        firsts = _first_rows(metadata)
        leaves = _leaf_indexes(metadata, columns)
        sizes = _RowSizes(metadata, leaves, whole.schema_arrow, columns)
        decoder, streamed = whole, None
        with ExitStack() as opened:
            if len(leaves) >= _MANY_COLUMNS:
                decoder = opened.enter_context(_open(store, path, metadata, wide=False))
            times = columns_of_times(metadata, leaves)
            if times:
                as_bytes = _metadata_as(store, path, with_times_as_bytes)
                undecoded = opened.enter_context(_open(store, path, as_bytes, wide=False))
            wanted = range(metadata.num_row_groups) if row_groups is None else row_groups
            for groups in _together(wanted, metadata, sizes, batch):
                if times:
                    check_times(
                        undecoded.iter_batches(ROW_GROUP_ROWS, row_groups=groups, columns=times),
                        path,
                    )
                index, rows = groups[0], _rows_of(metadata, groups)
                if rows > _PROBED_ROWS_MIN and (hidden := sizes.hidden(index)):
                    streamed = streamed or opened.enter_context(
                        _open(store, path, metadata, leaves)
                    )
                    probe = streamed.iter_batches(_PROBE_ROWS, row_groups=[index], columns=hidden)
                    sizes.see_hidden(next(probe))
                row_bytes = max(map(sizes.of, groups))
                # In even parts: a short one at the end costs as many steps as the others.
                parts = -(-rows // max(1, min(batch.rows, int(batch.size_bytes / row_bytes))))
                even_rows = max(1, -(-rows // max(1, parts)))
                whole_bytes = max(batch.size_bytes, _WHOLE_COLUMN_BYTES * len(leaves))
                if rows * row_bytes <= whole_bytes:
                    table = decoder.read_row_groups(groups, columns=columns, use_threads=True)
                    batches: Iterator[pa.RecordBatch] = iter(table.to_batches(even_rows))
                else:
                    streamed = streamed or opened.enter_context(
                        _open(store, path, metadata, leaves)
                    )
                    batches = streamed.iter_batches(even_rows, row_groups=groups, columns=columns)
                at, end = firsts[index], firsts[index] + rows
                table = None
                while (decoded := next(batches, None)) is not None:
                    if at + decoded.num_rows >= end:
                        # What decoding holds of the row group goes before its last rows are given.
                        batches = iter(())
                    for part in _narrow_parts(decoded):
                        rows = part.num_rows
                        if rows:
                            sizes.see(part)
                            yield at, part
                        at += rows
                        # A row may be large: what comes next is read without this beside it.
                        decoded = None
                        del part
                        if rows * sizes.of(index) >= _LARGE_BYTES:
                            release_freed(process_budget().size_bytes)


class _RowSizes:
    """The bytes of a row in memory, as far as they are known."""

    def __init__(
        self,
        metadata: pq.FileMetaData,
        leaves: Sequence[int],
        schema: pa.Schema,
        columns: Sequence[str],
    ) -> None:
        self._metadata = metadata
        kinds = [schema.field(name).type for name in columns]
        self._width = sum(kind.bit_width if pa.types.is_primitive(kind) else 32 for kind in kinds)
        stored = {leaf: metadata.schema.column(leaf) for leaf in leaves}
        self._texts = {
            leaf: column.path if column.path in columns else column.path.partition(".")[0]
            for leaf, column in stored.items()
            if column.physical_type == _TEXT
        }
        self._repeated = {
            leaf: _VALUE_BYTES.get(column.physical_type, column.length)
            for leaf, column in stored.items()
            if column.max_repetition_level and column.physical_type != _TEXT
        }
        self._leaves = [leaf for leaf in leaves if leaf not in self._repeated]
        self._hidden: dict[str, float] = {}
        self._seen = 0.0

    def of(self, index: int) -> float:
        """The bytes of a row of a row group."""
        group = self._metadata.row_group(index)
        told = sum(group.column(leaf).total_uncompressed_size for leaf in self._leaves)
        told += sum(group.column(leaf).num_values * width for leaf, width in self._repeated.items())
        mean: float = told / max(1, group.num_rows) + sum(self._hidden.values())
        return max(1.0, self._width / 8, self._seen, mean)

    def hidden(self, index: int) -> list[str]:
        """Columns of a row group that may be larger than its footer says, and were not seen."""
        return [name for name in self.sharing(index) if name not in self._hidden]

    def sharing(self, *indexes: int) -> list[str]:
        """Columns whose texts share a dictionary in one of these row groups."""
        groups = [self._metadata.row_group(index) for index in indexes]
        shared = [
            name
            for leaf, name in self._texts.items()
            if any(group.column(leaf).has_dictionary_page for group in groups)
        ]
        return list(dict.fromkeys(shared))

    def see_hidden(self, rows: pa.RecordBatch) -> None:
        """Learn from some rows of such columns."""
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            self._hidden[name] = column.nbytes / max(1, rows.num_rows)

    def see(self, rows: pa.RecordBatch) -> None:
        """Learn from rows that were decoded."""
        self._seen = size_of(rows) / max(1, rows.num_rows)


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


@contextmanager
def _open(
    store: Store,
    path: str,
    metadata: pq.FileMetaData | None = None,
    leaves: Sequence[int] = (),
    *,
    wide: bool = True,
) -> Iterator[pq.ParquetFile]:
    """The opened file; what Arrow says of its bytes becomes CorruptTable.

    With `metadata`, which it has, and leaves: to stream these, a piece of each column at a time.
    `wide`: text comes with wide offsets.
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
            binary_type=pa.large_binary() if wide else None,
            # Java writes checksums of pages.
            page_checksum_verification=True,
        )
        try:
            file = opened(source(), metadata=metadata)
        except pa.ArrowInvalid as error:
            if metadata is not None or _NULLABLE_KEYS not in str(error):
                raise
            file = opened(source(), metadata=_metadata_as(store, path, with_maps_as_lists))
        with file:
            yield file


def _metadata_as(store: Store, path: str, change: Callable[[memoryview], bytes]) -> pq.FileMetaData:
    """The footer of a file, changed."""
    with store.open_input(path) as file:
        file.seek(file.size() - _FOOTER_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(file.size() - _FOOTER_END - length)
        return pq.read_metadata(pa.BufferReader(change(memoryview(file.read(length)))))


def _narrow_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in parts whose text narrow offsets can count. A repeated value is small on disk."""
    if size_of(batch) <= NARROW_BYTES_MAX or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _narrow_parts(batch.slice(0, half))
    yield from _narrow_parts(batch.slice(half))


def _leaf_indexes(metadata: pq.FileMetaData, columns: Sequence[str]) -> list[int]:
    wanted = set(columns)
    paths = (metadata.schema.column(index).path for index in range(metadata.num_columns))
    return [i for i, path in enumerate(paths) if path in wanted or path.partition(".")[0] in wanted]


def _together(
    wanted: Iterable[int], metadata: pq.FileMetaData, sizes: _RowSizes, batch: BatchSize
) -> Iterator[list[int]]:
    """The row groups, neighbours together as long as they are one batch.

    What is done once a batch, here and by who takes it, is then done less often. One whose footer
    does not tell what its rows take stays alone, for the next may be another. An iterator may not
    know its next before it has seen rows of the last: its row groups come one by one.
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
