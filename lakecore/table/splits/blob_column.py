"""Reads the values of a BLOB column for the rows of a group of files.

https://paimon.apache.org/docs/master/append-table/blob/

The value of a row is in the newest file that has the row. If that file has a placeholder there, the
value is in the next older file, and so on. A value that no file has is null.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.format.blob_file import (
    NULL,
    PLACEHOLDER,
    TAIL_BYTES,
    decode_index,
    index_bytes,
    place_of_value,
    value_of,
)
from lakecore.format.blob_references import BlobDescriptor
from lakecore.format.blob_values import parts_of
from lakecore.model.types import Atomic, Map, arrow_type
from lakecore.plan.row_ids import rows_of
from lakecore.table.stored_rows.split_files import check_size, missing_is_corrupt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.io.files.data_files import BatchSize
    from lakecore.model.files import DataFile
    from lakecore.model.types import Field
    from lakecore.table.stored_rows.split_files import SplitFiles


class BlobColumn:
    """A reader of a BLOB column, which returns a requested number of values at a time.

    With `blob-as-descriptor`, descriptors are returned, and no value is read.
    """

    def __init__(
        self,
        files: SplitFiles,
        field: Field,
        own: Sequence[DataFile],
        size: BatchSize,
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
        """Close the files."""
        for opened in self._opened.values():
            opened.close()
