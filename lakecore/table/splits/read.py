"""Reads the rows of a split as Arrow batches of the requested columns, with lakecore's own reader.

- The files of a *raw* split are scanned without a merge; rows in deletion vectors are dropped.
- The files of a split may hold columns of the same rows; these files are joined.
- Any other split is one section of overlapping runs, merged window by window.

At the end, references to BLOB values are followed.
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import CorruptTable
from lakecore.format.blob_file import (
    NULL,
    PLACEHOLDER,
    TAIL_BYTES,
    decode_index,
    index_bytes,
    parts_of,
    place_of_value,
    value_of,
)
from lakecore.format.blob_references import BlobDescriptor
from lakecore.memory import Budget, Share
from lakecore.model.blob_rules import in_blob_files
from lakecore.model.rows import TRACKING_FIELDS
from lakecore.model.types import Atomic, Field, Map, arrow_schema, arrow_type
from lakecore.plan.row_ids import BLOB, anchor_of, rows_of
from lakecore.table.file_reader.blob_resolution import followed
from lakecore.table.file_reader.late_casts import late_casts
from lakecore.table.file_reader.split_files import (
    FileRows,
    SplitFiles,
    check_size,
    missing_is_corrupt,
    partition_values,
)
from lakecore.table.sections.merge_runs import LEASE_LEAST_BYTES, merge_runs
from lakecore.table.sections.windows import Windows, batch_size
from lakecore.table.splits.read_planner import Reader, ReadPath, decide

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from lakecore.io.files.data_files import BatchSize
    from lakecore.io.stores.store import Store
    from lakecore.model.files import DataFile, Split
    from lakecore.table.file_reader.read_plan import ReadPlan


_FEW_ROWS = 1_024
"""The least rows of a batch if only the first rows of a table are wanted."""


def read_split(
    split: Split, plan: ReadPlan, store: Store, budget: Budget, path: ReadPath | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a split in batches of the plan's columns. Raw rows come in file order.

    `path` is the decision of `decide`, if lakecore's own reader carries it out.
    """
    rows = _stored(split, plan, store, budget, path)
    yield from followed(rows, plan, store, budget) if plan.followed else rows


def _stored(
    split: Split, plan: ReadPlan, store: Store, budget: Budget, path: ReadPath | None
) -> Iterator[pa.RecordBatch]:
    """The batches of `read_split`, with references in place of BLOB values."""
    if path is None:
        decision = decide([split], plan, budget, Reader.OWN)
        path = None if decision is None else decision.path
    if not isinstance(path, Windows):
        for _, batch in _of_files(split, plan, store, budget):
            yield batch
            del batch
        return
    columns = list(plan.columns)
    for table in merge_runs(split, plan, store, budget, path):
        yield from table.select(columns).to_batches()
        del table


def scan_at(
    split: Split, plan: ReadPlan, store: Store, budget: Budget
) -> Generator[FileRows, None, None]:
    """The rows of the files of a raw split, with the position of each row in its file.

    If the files of the split hold columns of the same rows, a row has the same position in each.
    References to BLOB values are not followed.
    The plan must have no predicate and no row filter: they could drop rows, and the positions of
    the remaining rows would be unknown.
    """
    assert plan.predicate is None, "positions of pruned rows are not known"
    assert plan.row_filter is None, "positions of filtered rows are not known"
    return _of_files(split, plan, store, budget)


def _of_files(
    split: Split, plan: ReadPlan, store: Store, budget: Budget
) -> Generator[FileRows, None, None]:
    """The rows of files that are scanned or joined, with their positions."""
    fields = [plan.schema.field(name) for name in plan.columns]
    files = SplitFiles(split, plan, store)
    with budget.acquire_up_to(Share.BATCHES.of(budget.size_bytes), LEASE_LEAST_BYTES) as lease:
        size = batch_size(fields, lease.size_bytes // 3)
        if plan.first_rows is not None:
            rows = min(size.rows, max(plan.first_rows, _FEW_ROWS))
            size = replace(size, rows=rows, few=True)
        if not split.raw:
            yield from joined_rows(files, fields, size)
            return
        for file in split.files:
            yield from files.rows_at(file, fields, size)


# --- blob column ---------------------------------------------------------------------------------
# Reads the values of a BLOB column for the rows of a group of files.
#
# https://paimon.apache.org/docs/master/append-table/blob/
#
# The value of a row is in the newest file that has the row. If that file has a placeholder there,
# the value is in the next older file, and so on. A value that no file has is null.


class BlobColumn:
    """A reader of a BLOB column, which returns a requested number of values at a time.

    With `blob-as-descriptor`, descriptors are returned, and no value is read.
    """

    def __init__(
        self, files: SplitFiles, field: Field, own: Sequence[DataFile], size: BatchSize
    ) -> None:
        self._store = files.store
        self._name, self._type = field.name, field.type
        self._is_single = isinstance(field.type, Atomic)
        self._as_descriptors = files.plan.options.blob_as_descriptor
        self._opened: dict[str, pa.NativeFile] = {}
        self._size = size
        self._at = 0
        self._paths = [files.path(file) for file in own]
        rows = rows_of(files.split.files)
        count = len(rows)
        self._file = np.full(count, -1, np.int32)
        self._offset = np.zeros(count, np.int64)
        self._length = np.full(count, PLACEHOLDER, np.int64)
        oldest_first = sorted(range(len(own)), key=lambda at: (own[at].sequence_max, own[at].name))
        for number in oldest_first:
            self._add(number, own[number], rows)
        # As in Paimon: a value that no file has is null.
        self._length[self._length == PLACEHOLDER] = NULL

    def _add(self, number: int, file: DataFile, rows: range) -> None:
        path, first = self._paths[number], file.first_row_id or 0
        check_size(self._store, path, file)
        with missing_is_corrupt(path), self._store.open_input(path) as opened:
            tail = opened.read_at(TAIL_BYTES, max(file.size_bytes - TAIL_BYTES, 0))
            length = index_bytes(tail, file.size_bytes, path)
            values_bytes = file.size_bytes - TAIL_BYTES - length
            data = opened.read_at(length, values_bytes)
        index = decode_index(data, values_bytes, file.row_count, path)
        begin, end = max(first, rows.start), min(first + file.row_count, rows.stop)
        theirs, ours = (
            slice(begin - first, end - first),
            slice(begin - rows.start, end - rows.start),
        )
        there = index.lengths[theirs] != PLACEHOLDER
        self._file[ours] = np.where(there, number, self._file[ours])
        self._offset[ours] = np.where(there, index.offsets[theirs], self._offset[ours])
        self._length[ours] = np.where(there, index.lengths[theirs], self._length[ours])

    @property
    def ready(self) -> int:
        """The number of rows that can be taken at once; 0 at the end."""
        left = self._length[self._at : self._at + self._size.rows]
        if (self._as_descriptors and self._is_single) or len(left) <= 1:
            return len(left)
        fits = np.searchsorted(np.cumsum(np.maximum(left, 0)), self._size.size_bytes, "right")
        return max(1, int(fits))

    def take(self, count: int) -> pa.RecordBatch:
        """The next `count` rows. `count` is at most `ready`."""
        rows = range(self._at, self._at + count)
        self._at += count
        values: list[object] = [None] * count
        for begin, end in self._adjacent(rows):
            for row, value in zip(range(begin, end), self._values(begin, end), strict=True):
                values[row - rows.start] = value
        return pa.RecordBatch.from_arrays([pa.array(values, arrow_type(self._type))], [self._name])

    def _adjacent(self, rows: range) -> Iterator[tuple[int, int]]:
        """The rows with a value, in ranges whose entries are adjacent in one file."""
        stored = rows.start + np.flatnonzero(self._length[rows.start : rows.stop] != NULL)
        if not len(stored):
            return
        file, offset = self._file[stored], self._offset[stored]
        follows = (np.diff(stored) == 1) & (np.diff(file) == 0)
        follows &= np.diff(offset) == self._length[stored[:-1]]
        begins = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(stored)]
        for begin, end in pairwise(begins):
            yield int(stored[begin]), int(stored[end - 1]) + 1

    def _values(self, begin: int, end: int) -> Iterator[object]:
        """The values of a range of rows whose entries are adjacent in one file."""
        path = self._paths[self._file[begin]]
        lengths, first = self._length[begin:end].tolist(), int(self._offset[begin])
        if self._as_descriptors and self._is_single:
            for offset, length in zip(self._offset[begin:end].tolist(), lengths, strict=True):
                yield BlobDescriptor(path, *place_of_value(offset, length)).to_bytes()
            return
        with missing_is_corrupt(path):
            if path not in self._opened:
                self._opened[path] = self._store.open_input(path)
            data = self._opened[path].read_at(sum(lengths), first)
        at = 0
        for length in lengths:
            value = value_of(data[at : at + length], path)
            yield value if self._is_single else self._parts(value, path, first + at)
            at += length

    def _parts(self, payload: bytes, path: str, offset: int) -> list[object]:
        """The elements or the pairs of a value whose entry begins at this offset of a file."""
        begin, _ = place_of_value(offset, 0)
        found: list[object] = []
        for part in parts_of(payload, self._type, path):
            blob: bytes | None = None
            if part.end is not None and self._as_descriptors:
                place = (begin + part.begin, part.end - part.begin)
                blob = BlobDescriptor(path, *place).to_bytes()
            elif part.end is not None:
                blob = payload[part.begin : part.end]
            found.append((part.key, blob) if isinstance(self._type, Map) else blob)
        return found

    def close(self) -> None:
        for opened in self._opened.values():
            opened.close()


# --- joined --------------------------------------------------------------------------------------
# Joins files that hold different columns of the same rows, by position.
#
# https://paimon.apache.org/docs/master/append-table/data-evolution/
#
# A column that no file holds is null. In a read of a state, such a column was added after the rows
# were written. In a read of changes, the snapshots did not write the column.
#
# INVARIANT: no row is dropped before the files are joined, because a row has the same position in
# each of them.


def joined_rows(files: SplitFiles, fields: Sequence[Field], size: BatchSize) -> Iterator[FileRows]:
    """The rows of a split whose files hold columns of the same rows, the newest file first.

    Each batch has the positions of its rows, unless the plan has a row filter. Rows that a deletion
    vector marks are dropped, and then values are cast. Raises CorruptTable if no file has a column
    that is NOT NULL.
    """
    group = files.split.files
    late = late_casts(group, fields, files.plan.schemas)
    late = replace(late, row_filter=files.plan.row_filter)
    files, fields = replace(files, late=late), (*fields, *late.fields)
    sources = _sources(files, fields)
    partition = partition_values(files.split, files.plan.schema, fields)
    mask = files.mask(anchor_of(group)) if files.split.vectors else None
    schema, position = arrow_schema(fields), 0
    with ExitStack() as open_files:
        readers: dict[str, _Reader | BlobColumn] = {}
        for file in (each for each in group if each.format != BLOB):
            own = [field for field in fields if sources.get(field.name) == file.name]
            if own or (not sources and not readers):
                rows = files.stored_rows(file, own, size, row_groups=None)
                readers[file.name] = _Reader(open_files.enter_context(closing(rows)))
        for field in fields:
            if field.name in sources and _has_blob_files(files, field):
                blobs = [f for f in group if f.format == BLOB and field.id in _ids(files.plan, f)]
                column = BlobColumn(files, field, blobs, size)
                readers[field.name] = open_files.enter_context(closing(column))
        if not readers:
            readers[""] = _Reader(_without_columns(len(rows_of(group)), size))
        while (count := min(reader.ready for reader in readers.values())) > 0:
            parts = {name: reader.take(count) for name, reader in readers.items()}
            columns = [
                parts[sources[field.name]].column(field.name)
                if field.name in sources
                else _repeated(partition.get(field.name), count, field)
                for field in fields
            ]
            batch = (
                pa.RecordBatch.from_arrays(columns, schema=schema)
                if columns
                else next(iter(parts.values())).select([])
            )
            places: np.ndarray | range = range(position, position + count)
            if mask is not None:
                places, batch = mask.filter(batch, position)
            position += count
            if late:
                batch = late.cast_batch(batch)
            yield places[: batch.num_rows], batch
            del batch, parts, columns
        if position != len(rows_of(group)):
            raise CorruptTable(
                "files that hold the same rows end at different rows", files=list(readers)
            )


def _repeated(value: pa.Scalar | None, count: int, field: Field) -> pa.Array:
    kind = arrow_type(field.type)
    return pa.nulls(count, kind) if value is None else pa.repeat(value, count).cast(kind)


def _sources(files: SplitFiles, fields: Sequence[Field]) -> dict[str, str]:
    """For each column, the name of the reader that provides it: a file, or a BLOB column.

    Columns without a reader are null.
    """
    held = [(file, _ids(files.plan, file)) for file in files.split.files]
    found: dict[str, str] = {}
    for field in fields:
        holder = next((file for file, ids in held if field.id in ids), None)
        if holder is not None:
            found[field.name] = field.name if _has_blob_files(files, field) else holder.name
        elif not field.nullable and field.name not in files.plan.schema.partition_keys:
            raise CorruptTable(
                "no file holds a column that is NOT NULL",
                column=field.name,
                files=[file.name for file, _ in held],
            )
    return found


def _has_blob_files(files: SplitFiles, field: Field) -> bool:
    return in_blob_files(field, files.plan.schema, files.plan.options)


def _ids(plan: ReadPlan, file: DataFile) -> frozenset[int]:
    """The ids of the columns that a file provides.

    Any file provides row ids and sequence numbers.
    """
    stored = file.columns_of(plan.schemas[file.schema_id])
    return frozenset(field.id for field in (*stored, *TRACKING_FIELDS))


def _without_columns(count: int, size: BatchSize) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of `count` rows without columns, with the position of their first row."""
    for at in range(0, count, size.rows):
        nothing = pa.nulls(min(size.rows, count - at))
        yield at, pa.RecordBatch.from_arrays([nothing], ["_"]).select([])


class _Reader:
    """A reader of a file, which returns a requested number of rows at a time."""

    def __init__(self, batches: Iterator[tuple[int, pa.RecordBatch]]) -> None:
        self._batches = batches
        self._waiting: deque[pa.RecordBatch] = deque()

    @property
    def ready(self) -> int:
        """The number of rows that can be taken at once; 0 at the end of the file."""
        while not self._waiting:
            _, batch = next(self._batches, (0, None))
            if batch is None:
                return 0
            if batch.num_rows:
                self._waiting.append(batch)
        return int(self._waiting[0].num_rows)

    def take(self, count: int) -> pa.RecordBatch:
        """The next `count` rows; the caller has read `ready`, which is at least `count`."""
        batch = self._waiting.popleft()
        if batch.num_rows > count:
            self._waiting.appendleft(batch.slice(count))
        return batch.slice(0, count)
