"""Reads Parquet data files of any writer: any codec, any Arrow layout, by column name.

A row group that fits into a batch is decoded completely on Arrow's threads. A larger one is
streamed, so that memory depends on the batch and not on the row group (Java's row groups are as
large as the file). The footer states how much memory a row takes, except for dictionary-encoded
strings, which are small on disk: a few of these rows are decoded first. If a batch is too large,
the next batches are smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property, partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakecore.errors import CorruptTable
from lakecore.format.parquet_footer import with_times_as_bytes
from lakecore.io.files.checks import Checks
from lakecore.io.files.file_format import ROW_GROUP_ROWS
from lakecore.io.files.parquet_checks import check_buffer, check_chunks
from lakecore.io.files.parquet_open import TEXT, first_rows, leaf_indexes, metadata_as, open_parquet
from lakecore.io.files.parquet_times import check_times, columns_of_times
from lakecore.io.files.parquet_types import shredded_columns, with_whole_variants
from lakecore.io.freed_memory import release_freed
from lakecore.io.stores.guarded import unguarded
from lakecore.io.stores.store import MemoryStore
from lakecore.memory import process_budget
from lakecore.model.arrow_arrays import size_of
from lakecore.model.coded_texts import fits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from lakecore.io.files.file_format import BatchSize
    from lakecore.io.stores.store import Store
    from lakecore.model.types import Field

_PROBE_ROWS = 1_024
_PROBED_ROWS_MIN = 4 * _PROBE_ROWS
"""A row group with at most this many rows is small, even if its strings are larger than stored."""
_LARGE_BYTES = 32 << 20
"""After a larger batch, the memory of decoding is released before the next batch."""
_MANY_COLUMNS = 256
_WHOLE_COLUMN_BYTES = 32 << 10
"""A column chunk up to this size is decoded completely: streaming it would take as much memory."""

_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
"""Sizes of values of Parquet's fixed-width types."""

NARROW_BYTES_MAX = (1 << 31) - 1
"""Bytes that an array of text with 32-bit offsets can hold."""


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
    with open_parquet(store, path, pages=pages) as whole:
        stored, shredded = shredded_columns(whole.schema_arrow, fields, path)
        there = set(stored)
        # Rows can only be counted if some column is read.
        columns = [field.name for field in fields if field.name in there] or stored[:1]
        metadata = whole.metadata
        firsts = first_rows(metadata)
        leaves = leaf_indexes(metadata, columns)
        coded &= set(columns)
        sizes = _RowSizes(metadata, leaves, whole.schema_arrow, columns, coded)
        with ExitStack() as opened:
            decoders = _Decoders(store, path, whole, leaves, coded, opened, pages=pages)
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
                if rows * row_bytes <= whole_bytes:
                    table = decoders.whole(groups, columns)
                    batches: Iterator[pa.RecordBatch] = iter(table.to_batches(even_rows))
                else:
                    batches = decoders.streaming.iter_batches(
                        even_rows, row_groups=groups, columns=columns
                    )
                at, end = firsts[index], firsts[index] + rows
                table = None
                while (decoded := next(batches, None)) is not None:
                    if at + decoded.num_rows >= end:
                        # Free what the decoder holds before the last rows are returned.
                        batches = iter(())
                    for part in _narrow_parts(decoded):
                        rows = part.num_rows
                        if rows:
                            sizes.see(part)
                            yield at, with_whole_variants(part, shredded, path)
                        at += rows
                        # A row may be large: free this one before the next one is read.
                        decoded = None
                        del part
                        if rows * sizes.of(index) >= _LARGE_BYTES:
                            release_freed(process_budget().size_bytes)


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
    ) -> None:
        self.coded = coded
        self._path = path
        self._whole = file
        self._open = partial(open_parquet, store, path, file.metadata, pages=pages)
        self._leaves = leaves
        self._opened = opened
        if len(leaves) >= _MANY_COLUMNS:
            self._whole = opened.enter_context(self._open(wide=False))
        if coded:
            self._codes = opened.enter_context(self._open(coded=coded))

    @cached_property
    def streaming(self) -> pq.ParquetFile:
        """The file, opened so that one piece of each column is in memory at a time."""
        return self._opened.enter_context(self._open(self._leaves))

    def whole(self, groups: list[int], columns: Sequence[str]) -> pa.Table:
        """These columns of whole row groups.

        Raises CorruptTable for an invalid dictionary index.
        """
        plain = [name for name in columns if name not in self.coded]
        table = self._whole.read_row_groups(groups, columns=plain, use_threads=True)
        if not self.coded:
            return table
        names = sorted(self.coded)
        texts = self._codes.read_row_groups(groups, columns=names, use_threads=True)
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
        """Update the estimate from rows that were decoded."""
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

    This saves work that is done for each batch, here and by the consumer. A row group whose footer
    does not show the size of its rows is read alone, because the next one may be larger. If
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
