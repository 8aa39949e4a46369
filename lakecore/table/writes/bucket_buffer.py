"""The rows of one bucket on their way to files: buffered, spilled, merged, written.

Rows of a primary-key table are numbered in order of arrival. A full buffer is sorted and spilled to
local disk as one sorted run; at the end all runs are merged to one level-0 run of data files, in
key order, with a key at most once. Rows of an append table go to files as they come.

INVARIANT: when rows spill changes nothing in the files. A run is merged early, by itself and with
its neighbours in age, if the engine allows it (`MergeFunction.chooses_rows`). Otherwise runs keep
all rows, in the order in which they merge, and the engine sees them once, at the end. So they do
where a changelog is kept: it has all rows of the buffer in that order.

What is spilled takes no more disk than `write-buffer-spill.max-disk-size` and a buffer: past that,
the run is written, and rows that come later make another one. So it is with large rows, of which
one of each spilled run would be in memory at the end.

Fewer than `RUNS_MERGED` of a size stand side by side: however much is written, merging holds a few
batches of a few runs, and all rows of a key where those were kept.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.io.freed_memory import release_freed
from lakecore.merge import MERGE_FUNCTIONS, interim_function
from lakecore.merge.groups import in_one
from lakecore.merge.keep_all import KEEP_ALL
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import MergeSpec, Slice
from lakecore.model.rows import SEQUENCE_NUMBER, VALUE_KIND
from lakecore.options import ChangelogProducer
from lakecore.table.runs.bucket_files import (
    BucketPlace,
    FileNames,
    RollingWriter,
    changelog_shape,
    data_shape,
)
from lakecore.table.runs.large_rows import is_large
from lakecore.table.runs.windows import counted, in_pieces, merge_slices, with_whole_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakecore.io.spill import SpillDirectory, SpilledRun
    from lakecore.merge.spec import MergeFunction
    from lakecore.model.files import DataFile
    from lakecore.table.context import TableContext

RUNS_MERGED = 16
_SPILL_PIECE_SHARE = 256
"""A piece of a spilled run is this part of the budget: of each run a merge holds three or four."""
_LARGE_ROW_BYTES = 1 << 20
_PIECE_ROWS = 131_072
_SMALL_BUCKET_BYTES = 8 << 20
_SMALL_CHUNK_BYTES = 1 << 20
_SMALL_CHUNKS_MAX = 32
_NARROW_ROW_BYTES = 60
"""What a narrow row counts for beside a part of its values. To put a row in order takes some 110
bytes beside these: its number, the code of its key, its place, masks. What the budget leaves for
that is in proportion to the values, and enough from about 80 bytes a row on."""
_ARRAY_BYTES_MAX = 1 << 31
"""Texts of more bytes do not fit into one array."""

BucketKey = tuple[bytes, int]
"""Partition and bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spilled:
    """A run on disk: how often it was merged with others, and the rows of its pieces."""

    run: SpilledRun
    merges: int
    piece_rows: int


class BucketBuffer:
    """The rows handed in for one bucket, and the files made of them.

    `size_bytes` is what it takes in memory, `next_sequence` the number of the next row.
    """

    def __init__(
        self,
        context: TableContext,
        spec: MergeSpec,
        spills: SpillDirectory,
        key: BucketKey,
        *,
        next_sequence: int,
        keeps_changelog: bool,
    ) -> None:
        schema, options = context.schema, context.options
        self.key = key
        self.next_sequence = next_sequence
        self.size_bytes = 0
        self.index_paths: list[str] = []
        self._keyed = bool(schema.primary_keys)
        self._context = context
        self._spec = spec
        self._merge = MERGE_FUNCTIONS[options.merge_engine]
        keeps_changelog = keeps_changelog and options.changelog_producer is ChangelogProducer.INPUT
        self._interim = KEEP_ALL if keeps_changelog else interim_function(self._merge)
        self._spills = spills
        self._chunks: list[pa.Table] = []
        self._first_sequence = next_sequence
        self._spilled: list[_Spilled] = []
        partition, number = key
        self._place = BucketPlace(
            store=context.store,
            layout=context.layout,
            ambient=context.ambient,
            partition_path=context.partitions.path(partition),
            bucket=number,
            names=FileNames(context.ambient.new_uuid()),
        )
        self._data = RollingWriter(self._place, data_shape(schema, options))
        self._changelog: RollingWriter | None = None
        if keeps_changelog:
            self._changelog = RollingWriter(self._place, changelog_shape(schema, options))

    @property
    def is_small(self) -> bool:
        """Whether to finish it takes little memory."""
        return not self._spilled and self.size_bytes < _SMALL_BUCKET_BYTES

    def add(self, rows: pa.Table) -> None:
        """Take in rows, in order of arrival."""
        self._chunks.append(rows)
        narrow_bytes = rows.nbytes // 4 + _NARROW_ROW_BYTES * rows.num_rows if self._keyed else 0
        self.size_bytes += max(rows.nbytes, narrow_bytes)
        self.next_sequence += rows.num_rows
        newest = self._chunks[-_SMALL_CHUNKS_MAX:]
        if (
            len(newest) == _SMALL_CHUNKS_MAX
            and max(chunk.nbytes for chunk in newest) < _SMALL_CHUNK_BYTES
        ):
            # Each may hold on to the memory of the batch that it was cut from.
            self._chunks[-_SMALL_CHUNKS_MAX:] = [pa.concat_tables(newest).combine_chunks()]

    def empty(self, *, spill: bool) -> None:
        """Give back the memory of the buffer: to a sorted run on disk, or to data files."""
        if not self._keyed:
            self._write_appended()
            # Of many partitions, what each file has begun would add up, under no lease.
            self._data.flush()
            return
        rows = self._take()
        large = is_large(rows.nbytes, rows.num_rows, self._context.budget)
        if spill and not large and self._has_room_on_disk():
            release_freed(self._context.budget.size_bytes)
            self._spill(rows)
            # The allocator would keep what sorting took, and the next buffer fills beside it.
            del rows
            release_freed(self._context.budget.size_bytes)
            self._merge_spilled()
        else:
            self._write_run(rows)
            # The next flush is a run of its own: keys may come again in it.
            self._data.close()
            if self._changelog is not None:
                self._changelog.close()

    def finish(self) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
        """Write out everything: data files and changelog files."""
        if not self._keyed:
            self._write_appended()
        elif self._chunks or self._spilled:
            self._write_run(self._take())
        return self._data.close(), self._changelog.close() if self._changelog else ()

    def abort(self) -> None:
        """Remove what was written."""
        self._chunks = []
        self._data.abort()
        if self._changelog is not None:
            self._changelog.abort()
        for path in self.index_paths:
            self._context.store.delete(path)

    def _take(self) -> pa.Table:
        """The buffered rows, numbered; the buffer is empty after."""
        chunks, self._chunks = self._chunks, []
        self.size_bytes = 0
        if chunks:
            rows = pa.concat_tables(chunks)
        else:
            schema = self._context.schema.arrow.append(pa.field(VALUE_KIND, pa.int8()))
            rows = schema.empty_table()
        first, self._first_sequence = self._first_sequence, self.next_sequence
        numbers = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
        return rows.append_column(SEQUENCE_NUMBER, numbers)

    def _merged(self, rows: pa.Table, merge: MergeFunction) -> Iterator[pa.Table]:
        """Buffered rows as a run, sorted by key."""
        if rows.num_rows:
            yield from merge([self._slice(rows, self._numbers_of(rows), unique=False)], self._spec)

    def _numbers_of(self, rows: pa.Table) -> tuple[int, int]:
        """The first and last sequence number of rows that were just taken from the buffer."""
        return self.next_sequence - rows.num_rows, self.next_sequence - 1

    def _slice(self, rows: pa.Table, numbers: tuple[int, int], *, unique: bool) -> Slice:
        low, high = numbers
        keys = order_columns([rows.column(name) for name in self._spec.key])
        return Slice(rows=rows, keys=keys, sequence_min=low, sequence_max=high, unique=unique)

    def _slices(self, pieces: Iterable[pa.Table], numbers: tuple[int, int]) -> Iterator[Slice]:
        """A run that was sorted before, as slices for a merge with others."""
        unique = self._interim is not KEEP_ALL
        if not unique:
            pieces = with_whole_keys(pieces, self._spec.key, self._context.budget)
        for piece in pieces:
            yield self._slice(piece, numbers, unique=unique)

    # --- spilling --------------------------------------------------------------------------------

    def _has_room_on_disk(self) -> bool:
        limit = self._context.options.write_buffer_spill_max_disk_size_bytes
        return limit is None or sum(each.run.size_bytes for each in self._spilled) < limit

    def _spill(self, rows: pa.Table) -> None:
        piece_bytes = self._context.budget.size_bytes // _SPILL_PIECE_SHARE
        row_bytes = max(1, rows.nbytes // rows.num_rows)
        piece_rows = max(1, min(_PIECE_ROWS, piece_bytes // row_bytes))
        low, high = self._numbers_of(rows)
        pieces = in_pieces(self._merged(rows, self._interim), piece_rows)
        run = self._spills.write(rows.schema, pieces, low, high)
        self._spilled.append(_Spilled(run=run, merges=0, piece_rows=piece_rows))

    def _merge_spilled(self) -> None:
        """Make one run of the newest ones of a size, while there are too many of it."""
        while len(self._spilled) >= RUNS_MERGED:
            newest = self._spilled[-RUNS_MERGED:]
            if newest[0].merges != newest[-1].merges:
                return
            runs = [spilled.run for spilled in newest]
            piece_rows = min(spilled.piece_rows for spilled in newest)
            streams = [self._spilled_slices(run) for run in runs]
            with closing(
                merge_slices(streams, self._interim, self._spec, self._context.budget)
            ) as merged:
                run = self._spills.write(
                    self._spills.schema(runs[0]),
                    in_pieces(merged, piece_rows),
                    runs[0].sequence_min,
                    runs[-1].sequence_max,
                )
            self._spilled[-RUNS_MERGED:] = [
                _Spilled(run=run, merges=newest[0].merges + 1, piece_rows=piece_rows)
            ]
            for merged_run in runs:
                self._spills.remove(merged_run)

    def _spilled_slices(self, run: SpilledRun) -> Iterator[Slice]:
        batches = (pa.Table.from_batches([batch]) for batch in self._spills.read(run))
        slices = self._slices(batches, (run.sequence_min, run.sequence_max))
        return counted(slices, run.row_count)

    # --- writing ---------------------------------------------------------------------------------

    def _write_appended(self) -> None:
        chunks, self._chunks = self._chunks, []
        self.size_bytes = 0
        for rows in chunks:
            for piece in in_pieces([rows], _PIECE_ROWS):
                self._data.write(piece, self._first_sequence)
                self._first_sequence += piece.num_rows

    def _write_run(self, rows: pa.Table) -> None:
        """Write these rows, and what was spilled before them, as one run."""
        if self._spilled:
            self._write_spilled(rows)
            return
        if self._changelog is not None:
            for piece in self._merged(rows, KEEP_ALL):
                self._changelog.write(piece)
        with self._context.budget.acquire_up_to(rows.nbytes, 0) as lease:
            # Large rows would be copied for nothing.
            large = rows.nbytes > _LARGE_ROW_BYTES * rows.num_rows
            if lease.size_bytes == rows.nbytes and not large:
                rows = _in_one_piece(rows)
            for piece in self._merged(rows, self._merge):
                self._data.write(piece)

    def _write_spilled(self, rows: pa.Table) -> None:
        runs = [spilled.run for spilled in self._spilled]
        streams = [self._spilled_slices(run) for run in runs]
        streams.append(self._slices(self._merged(rows, self._interim), self._numbers_of(rows)))
        merge = self._merge if self._changelog is None else KEEP_ALL
        with closing(merge_slices(streams, merge, self._spec, self._context.budget)) as merged:
            for piece in self._folded(merged, runs[0].sequence_min):
                self._data.write(piece)
        for run in runs:
            self._spills.remove(run)
        self._spilled = []
        release_freed(self._context.budget.size_bytes)

    def _folded(self, pieces: Iterator[pa.Table], sequence_min: int) -> Iterator[pa.Table]:
        """What goes to the data files; the changelog, if there is one, gets all rows."""
        changelog = self._changelog
        if changelog is None:
            yield from pieces
            return

        def logged() -> Iterator[pa.Table]:
            for piece in pieces:
                changelog.write(piece)
                yield piece

        numbers = (sequence_min, self.next_sequence - 1)
        for rows in with_whole_keys(logged(), self._spec.key, self._context.budget):
            yield from self._merge([self._slice(rows, numbers, unique=False)], self._spec)


def _in_one_piece(rows: pa.Table) -> pa.Table:
    """The rows, each column in one array: then it costs half as much to put them in order."""
    for at, field in enumerate(rows.schema):
        column = rows.column(at)
        if column.num_chunks > 1 and column.nbytes < _ARRAY_BYTES_MAX:
            rows = rows.set_column(at, field, in_one(column))
    return rows
