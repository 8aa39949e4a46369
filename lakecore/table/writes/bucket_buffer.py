"""The buffer of one bucket: rows are buffered, spilled, merged and written to files.

Rows of a primary-key table get sequence numbers in order of arrival. A full buffer is sorted and
spilled to local disk as one sorted run. At the end, all runs are merged into one level-0 run of
data files, in key order, with each key at most once. Rows of a key that cannot be folded without
its older rows (`merge/fold.py`) go to several such runs. Rows of an append table are written in
order of arrival.

INVARIANT: the files do not depend on when rows are spilled. If the merge function only chooses rows
(`MergeFunction.chooses_rows`), the rows of each spilled run are merged at once, and spilled runs
are merged with each other. Otherwise runs keep all rows, in merge order, and the function merges
them once, at the end. Runs also keep all rows if there is a changelog, which contains all rows.

Spilled runs take at most `write-buffer-spill.max-disk-size` plus one buffer of disk. Beyond that,
the runs are written to data files, and later rows form another run. Large rows are handled in the
same way, because the final merge would hold one row of each spilled run in memory.

`RUNS_MERGED` runs of the same size class are merged into one, so there are few runs. A merge holds
only a few batches of each run and, if the runs keep all rows, all rows of one key.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.frames.incoming import BYTES_MAX
from lakecore.io.freed_memory import release_freed
from lakecore.io.stores.store import discard
from lakecore.memory import Share
from lakecore.merge import MERGE_FUNCTIONS, interim_function
from lakecore.merge.curves import write_ordering
from lakecore.merge.deduplicate import KEEP_ALL
from lakecore.merge.keys import in_one, order_columns
from lakecore.merge.spec import MergeFunction, MergeSpec, Slice, filter_rows
from lakecore.model.rows import LAYER, SEQUENCE_NUMBER, VALUE_KIND
from lakecore.options import POSTPONE_BUCKET, ChangelogProducer
from lakecore.table.run_writer.blobs import StoredBlobs
from lakecore.table.run_writer.file_shape import (
    changelog_shape,
    data_shape,
    new_place,
    postponed_shape,
)
from lakecore.table.run_writer.rolling_writer import RollingWriter
from lakecore.table.sections.external_sort import ExternalSort
from lakecore.table.sections.windows import counted, in_pieces, merge_slices, with_whole_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from lakecore.io.spill import SpillDirectory, SpilledRun
    from lakecore.model.files import DataFile
    from lakecore.table.context import TableContext

RUNS_MERGED = 16
_LARGE_ROW_BYTES = 1 << 20
_PIECE_ROWS = 131_072
_SMALL_BUCKET_BYTES = 8 << 20
_SMALL_CHUNK_BYTES = 1 << 20
_SMALL_CHUNKS_MAX = 32
_NARROW_ROW_BYTES = 60
"""A row counts at least this many bytes plus a quarter of its values' bytes. The memory that the
budget reserves is proportional to the counted bytes. Sorting takes about 110 bytes per row in
addition to the values (sequence number, key code, position, masks). For rows of fewer than about 80
bytes, a count of the values alone would be too small."""
_SORT_LEAST_BYTES = 8 << 20
_OPEN_RUNS_MAX = 8
"""Beyond this many runs for rows of a key that stay apart, a run is closed after each piece."""
_ARRAY_BYTES_MAX = 1 << 31
"""The most bytes of strings in one array."""

BucketKey = tuple[bytes, int]
"""Partition and bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spilled:
    """A run on disk, the number of merges it went through, and the row count of its pieces."""

    run: SpilledRun
    merges: int
    piece_rows: int


class BucketBuffer:
    """The buffered rows of one bucket, and the files written from them.

    `size_bytes` is the memory of the buffered rows, `blob_bytes` that of open files of BLOB values,
    `next_sequence` the sequence number of the next row.
    """

    def __init__(  # noqa: PLR0913 - one argument for each fact of the bucket
        self,
        context: TableContext,
        spec: MergeSpec,
        spills: SpillDirectory,
        key: BucketKey,
        *,
        next_sequence: int,
        keeps_changelog: bool,
        streaming: bool = False,
    ) -> None:
        schema, options = context.schema, context.options
        self.key = key
        self.next_sequence = next_sequence
        self.size_bytes = self.blob_bytes = 0
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
        self._sort = None if streaming else _clustering_sort(context)
        partition, number = key
        self._place = new_place(context, context.partitions.path(partition), number)
        self._blobs = StoredBlobs(self._place, schema, options)
        self._data = RollingWriter(self._place, data_shape(schema, options))
        self._newer: list[RollingWriter] = []
        self._changelog: RollingWriter | None = None
        if keeps_changelog:
            self._changelog = RollingWriter(self._place, changelog_shape(schema, options))

    @property
    def is_small(self) -> bool:
        """Whether the files of this bucket can be written with little memory."""
        spilled = self._spilled or (self._sort is not None and self._sort.has_spilled)
        return not spilled and self.size_bytes < _SMALL_BUCKET_BYTES

    @property
    def _writers(self) -> list[RollingWriter]:
        return [self._data, *self._newer, *([self._changelog] if self._changelog else [])]

    def add(self, rows: pa.Table) -> pa.Table:
        """Add rows, in order of arrival. Returns the rows as they are held, with descriptors."""
        rows = self._blobs.stored(rows)
        self.blob_bytes = self._blobs.held_bytes
        self._chunks.append(rows)
        narrow_bytes = rows.nbytes // 4 + _NARROW_ROW_BYTES * rows.num_rows if self._keyed else 0
        self.size_bytes += max(rows.nbytes, narrow_bytes)
        self.next_sequence += rows.num_rows
        newest = self._chunks[-_SMALL_CHUNKS_MAX:]
        if (
            len(newest) == _SMALL_CHUNKS_MAX
            and max(chunk.nbytes for chunk in newest) < _SMALL_CHUNK_BYTES
        ):
            # Each chunk may keep the whole batch it was sliced from in memory.
            self._chunks[-_SMALL_CHUNKS_MAX:] = [pa.concat_tables(newest).combine_chunks()]
        return rows

    def empty(self, *, spill: bool) -> None:
        """Write the buffered rows to a sorted run on local disk (`spill`), or to data files.

        Large rows, rows beyond the disk limit and rows of append tables always go to data files,
        unless the write sorts the rows.
        """
        if self._sort is not None:
            self._sort_held(self._sort)
            self._sort.spill()
            return
        if not self._keyed:
            self._write_appended()
            # Open row groups hold memory without a lease, which adds up over many partitions.
            self._data.flush()
            return
        rows = self._take()
        large = self._context.budget.is_large(rows.nbytes / max(1, rows.num_rows))
        if spill and not large and self._has_room_on_disk():
            release_freed(self._context.budget.size_bytes)
            self._spill(rows)
            # Return the memory of the sort to the system before the next buffer fills.
            del rows
            release_freed(self._context.budget.size_bytes)
            self._merge_spilled()
        else:
            self._write_run(rows)
            # The next flush is a separate run, because it may contain the same keys.
            for writer in self._writers:
                writer.close()

    def end_blobs(self) -> None:
        """End the open files of BLOB values."""
        self._blobs.close()
        self.blob_bytes = 0

    def finish(self) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
        """Write everything. Returns the data files and the changelog files."""
        self.end_blobs()
        if self._sort is not None:
            self._write_sorted(self._sort)
        elif not self._keyed:
            self._write_appended()
        elif self._chunks or self._spilled:
            self._write_run(self._take())
        runs = (self._data, *self._newer)
        files = tuple(file for run in runs for file in run.close())
        return files, self._changelog.close() if self._changelog else ()

    def abort(self) -> None:
        """Remove all files that were written."""
        self._chunks = []
        if self._sort is not None:
            self._sort.close()
        for writer in self._writers:
            writer.abort()
        self._blobs.abort()
        for path in self.index_paths:
            discard(self._context.store, path)

    def _take(self) -> pa.Table:
        """The buffered rows with sequence numbers; empties the buffer."""
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
        """These rows, merged by `merge` and in key order."""
        if rows.num_rows:
            yield from merge([self._slice(rows, self._numbers_of(rows), unique=False)], self._spec)

    def _numbers_of(self, rows: pa.Table) -> tuple[int, int]:
        """The first and last sequence number of rows just taken from the buffer."""
        return self.next_sequence - rows.num_rows, self.next_sequence - 1

    def _slice(self, rows: pa.Table, numbers: tuple[int, int], *, unique: bool) -> Slice:
        low, high = numbers
        keys = order_columns([rows.column(name) for name in self._spec.key])
        return Slice(rows=rows, keys=keys, sequence_min=low, sequence_max=high, unique=unique)

    def _slices(self, pieces: Iterable[pa.Table], numbers: tuple[int, int]) -> Iterator[Slice]:
        """The pieces of a sorted run as slices, for a merge with other runs."""
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
        piece_bytes = Share.PIECE.of(self._context.budget.size_bytes)
        row_bytes = max(1, rows.nbytes // rows.num_rows)
        piece_rows = max(1, min(_PIECE_ROWS, piece_bytes // row_bytes))
        low, high = self._numbers_of(rows)
        pieces = in_pieces(self._merged(rows, self._interim), piece_rows)
        run = self._spills.write(rows.schema, pieces, low, high)
        self._spilled.append(_Spilled(run=run, merges=0, piece_rows=piece_rows))

    def _merge_spilled(self) -> None:
        """While the newest `RUNS_MERGED` runs are of one size class, merge them into one run."""
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

    def _sort_held(self, sort: ExternalSort) -> None:
        chunks, self._chunks = self._chunks, []
        self.size_bytes = 0
        for rows in chunks:
            sort.add(rows)

    def _write_sorted(self, sort: ExternalSort) -> None:
        self._sort_held(sort)
        with sort:
            for rows in sort.sorted():
                self._data.write(rows, self._first_sequence)
                self._first_sequence += rows.num_rows

    def _write_run(self, rows: pa.Table) -> None:
        """Write these rows and all spilled rows as one run."""
        if self._spilled:
            self._write_spilled(rows)
            return
        if self._changelog is not None:
            for piece in self._merged(rows, KEEP_ALL):
                self._changelog.write(piece)
        with self._context.budget.acquire_up_to(rows.nbytes, 0) as lease:
            # Copying large rows would gain nothing.
            large = rows.nbytes > _LARGE_ROW_BYTES * rows.num_rows
            if lease.size_bytes == rows.nbytes and not large:
                rows = _in_one_piece(rows)
            for piece in self._merged(rows, self._merge):
                self._write_merged(piece)

    def _write_spilled(self, rows: pa.Table) -> None:
        runs = [spilled.run for spilled in self._spilled]
        streams = [self._spilled_slices(run) for run in runs]
        streams.append(self._slices(self._merged(rows, self._interim), self._numbers_of(rows)))
        merge = self._merge if self._changelog is None else KEEP_ALL
        with closing(merge_slices(streams, merge, self._spec, self._context.budget)) as merged:
            for piece in self._folded(merged, runs[0].sequence_min):
                self._write_merged(piece)
        for run in runs:
            self._spills.remove(run)
        self._spilled = []
        release_freed(self._context.budget.size_bytes)

    def _write_merged(self, rows: pa.Table) -> None:
        """Write merged rows. The rows of a key that stay apart go to one run each, oldest first."""
        if LAYER not in rows.schema.names:
            self._data.write(rows)
            return
        layers, rows = rows.column(LAYER).to_numpy(), rows.drop_columns([LAYER])
        for layer in range(int(layers.max()) + 1):
            if layer > len(self._newer):
                shape = data_shape(self._context.schema, self._context.options)
                self._newer.append(RollingWriter(self._place, shape))
            run = self._newer[layer - 1] if layer else self._data
            run.write(filter_rows(rows, layers == layer))
            if layer >= _OPEN_RUNS_MAX:
                run.close()

    def _folded(self, pieces: Iterator[pa.Table], sequence_min: int) -> Iterator[pa.Table]:
        """The merged rows for the data files. Writes all rows to the changelog, if there is one."""
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


def _clustering_sort(context: TableContext) -> ExternalSort | None:
    """The sort of the rows of a batch write; None if they are not sorted."""
    options = context.options
    ordering = None if context.schema.primary_keys else write_ordering(options)
    if ordering is None:
        return None
    room_bytes = max(Share.SORT.of(context.budget.size_bytes), _SORT_LEAST_BYTES)
    return ExternalSort(
        ordering, context.budget, room_bytes, options.local_sort_max_num_file_handles
    )


def _in_one_piece(rows: pa.Table) -> pa.Table:
    """The rows with one chunk per column: sorting them then takes half the time."""
    for at, field in enumerate(rows.schema):
        column = rows.column(at)
        if column.num_chunks > 1 and column.nbytes < _ARRAY_BYTES_MAX:
            rows = rows.set_column(at, field, in_one(column))
    return rows


# --- postponed buffer ----------------------------------------------------------------------------
# The buffer of the postponed bucket of a partition: rows are stored in order of arrival.
#
# A later compaction moves these rows to real buckets (`verbs/compaction.py`). Until then, no
# batch read shows them. Rows are neither sorted nor merged, and have no sequence numbers: all are
# -1.
#
# The name of a file begins with `PREFIX-u-USER-s-NUMBER-w-`, as in Paimon: the files of one writer
# have the same beginning, and a compaction reads them in order of their creation times.
#
# INVARIANT: of two files of one writer, the later one has the later creation time.

_NO_SEQUENCE = -1
_PLAIN_USER = re.compile(r"[A-Za-z0-9_.]{1,64}")
_NUMBERS = 1 << 31


def postponed_prefix(context: TableContext, user: str | None) -> str:
    """The beginning of the names of the files of one new writer.

    The user is left out if its name has characters other than letters, digits, `_` and `.`, because
    Paimon splits these file names at `-`.
    """
    drawn = context.ambient.new_uuid().replace("-", "")
    stated = user is not None and _PLAIN_USER.fullmatch(user) is not None
    number = int(drawn, 16) % _NUMBERS
    prefix = context.options.data_file_prefix
    return f"{prefix}-u-{user if stated else drawn}-s-{number}-w-"


class PostponedBuffer:
    """The rows of one partition on their way to the postponed bucket.

    The class has the methods of `BucketBuffer`.
    """

    def __init__(self, context: TableContext, key: BucketKey, prefix: str) -> None:
        partition, bucket = key
        assert bucket == POSTPONE_BUCKET
        self.key = key
        self.next_sequence = 0
        self.size_bytes = self.blob_bytes = 0
        self.index_paths: list[str] = []
        self._chunks: list[pa.Table] = []
        place = new_place(context, context.partitions.path(partition), bucket)
        shape = postponed_shape(context.schema, context.options, prefix)
        self._blobs = StoredBlobs(place, context.schema, context.options)
        self._data = RollingWriter(place, shape)

    @property
    def is_small(self) -> bool:
        """Whether writing the files takes little memory: rows are neither sorted nor merged."""
        return True

    def add(self, rows: pa.Table) -> pa.Table:
        rows = self._blobs.stored(rows)
        self.blob_bytes = self._blobs.held_bytes
        self._chunks.append(rows)
        self.size_bytes += rows.nbytes
        return rows

    def empty(self, *, spill: bool) -> None:
        """Write the buffered rows to the open data file."""
        del spill
        self._write()
        self._data.flush()

    def end_blobs(self) -> None:
        self._blobs.close()
        self.blob_bytes = 0

    def finish(self) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
        """Write everything. Returns the data files; there are no changelog files."""
        self.end_blobs()
        self._write()
        return tuple(_in_order(self._data.close())), ()

    def abort(self) -> None:
        self._chunks = []
        self._data.abort()
        self._blobs.abort()

    def _write(self) -> None:
        chunks, self._chunks = self._chunks, []
        self.size_bytes = 0
        for rows in chunks:
            for piece in in_pieces([rows], _PIECE_ROWS):
                numbers = pa.array(np.full(piece.num_rows, _NO_SEQUENCE, np.int64))
                self._data.write(piece.append_column(SEQUENCE_NUMBER, numbers))


def _in_order(files: tuple[DataFile, ...]) -> list[DataFile]:
    """The files, with creation times changed so that each is later than the one before."""
    ordered: list[DataFile] = []
    for file in files:
        own = file.creation_time_ms or 0
        if ordered:
            own = max(own, (ordered[-1].creation_time_ms or 0) + 1)
        ordered.append(replace(file, creation_time_ms=own))
    return ordered


# --- buffer limits -------------------------------------------------------------------------------
# How much of the memory budget the buffers of a writer and a batch of rows may take.

_LIBRARIES_BYTES = 128 << 20
"""Memory that the libraries take, which matters only if the budget is small."""
UNLEASED_BYTES = 1 << 20
"""Bytes that a writer may buffer without a lease."""
_BLOB_BYTES_MAX = 512 << 20
"""The most memory of open files of BLOB values, under any budget: such files are few."""


def batch_limit(budget_bytes: int) -> int:
    """The largest size of a batch in bytes.

    If several rows share the bytes of a value, the bytes count for each row.
    """
    return max(UNLEASED_BYTES, min(BYTES_MAX, Share.BATCH.of(budget_bytes)))


def buffer_limit(budget_bytes: int) -> int:
    """The most bytes that all buffers of a writer may hold."""
    available_bytes = Share.BUFFERS_FREE.of(budget_bytes - _LIBRARIES_BYTES)
    least = Share.BUFFERS_LEAST.of(budget_bytes)
    return max(least, min(Share.BUFFERS.of(budget_bytes), available_bytes))


def held_bytes(buffer: BucketBuffer | PostponedBuffer) -> int:
    """The memory in bytes that a buffer takes."""
    return buffer.size_bytes + buffer.blob_bytes


def limit_open_files(buffers: Collection[BucketBuffer | PostponedBuffer]) -> None:
    """End the largest open files of BLOB values until the others take little memory."""
    while sum(each.blob_bytes for each in buffers) > _BLOB_BYTES_MAX:
        max(buffers, key=lambda each: each.blob_bytes).end_blobs()
