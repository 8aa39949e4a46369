"""Which rows of a data file a reader returns: one bit for each row.

Deletion vectors, file indexes and merges all give such a mask. A reader filters by it, an engine
that scans the file gets the bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

_BITS = 8


@dataclass(frozen=True, slots=True)
class RowMask:
    """A bit for each of `row_count` rows: 1 if the row is returned.

    The lowest bit of the first byte of `bits` is the first row.
    """

    bits: bytes
    row_count: int

    @classmethod
    def of(cls, flags: np.ndarray) -> RowMask:
        """The mask of an array of booleans."""
        return cls(np.packbits(flags, bitorder="little").tobytes(), len(flags))

    @classmethod
    def at(cls, positions: np.ndarray, row_count: int, *, returned: bool) -> RowMask:
        """The mask that returns the rows at these positions, or all other rows.

        Positions outside the file are ignored.
        """
        flags = np.full(row_count, not returned)
        flags[positions[positions < row_count]] = returned
        return cls.of(flags)

    def __and__(self, other: RowMask) -> RowMask:
        return RowMask.of(self.flags & other.flags)

    @property
    def count(self) -> int:
        """The number of returned rows."""
        return int.from_bytes(self.bits, "little").bit_count()

    @property
    def array(self) -> pa.BooleanArray:
        """The bits as an Arrow array, without a copy."""
        return pa.BooleanArray.from_buffers(
            pa.bool_(), self.row_count, [None, pa.py_buffer(self.bits)]
        )

    @property
    def flags(self) -> np.ndarray:
        """The bits as an array of booleans."""
        packed = np.frombuffer(self.bits, np.uint8)
        return np.unpackbits(packed, count=self.row_count, bitorder="little").view(bool)

    def has(self, positions: np.ndarray) -> np.ndarray:
        """For each position in the file, whether the row is returned."""
        packed = np.frombuffer(self.bits, np.uint8)
        return np.asarray(packed[positions // _BITS] & 1 << positions % _BITS, bool)

    def has_any(self, start: int, end: int) -> bool:
        """Whether a row from `start` to `end` (exclusive) is returned."""
        return bool(self.array.slice(start, end - start).true_count)

    def rows_with(self, count: int) -> int:
        """How many rows, from the first one on, hold `count` returned ones; at most all rows."""
        if count >= self.count:
            return self.row_count
        counts = np.bitwise_count(np.frombuffer(self.bits, np.uint8)).cumsum(dtype=np.int64)
        return min(_BITS * (int(np.searchsorted(counts, count)) + 1), self.row_count)

    def filter(self, batch: pa.RecordBatch, at: int) -> tuple[np.ndarray | range, pa.RecordBatch]:
        """The returned rows of a batch whose first row is at this position, and their positions."""
        end = at + batch.num_rows
        packed = np.frombuffer(self.bits, np.uint8)[at // _BITS : -(-end // _BITS)]
        flags = np.unpackbits(packed, bitorder="little")[at % _BITS :][: batch.num_rows].view(bool)
        if flags.all():
            return range(at, end), batch
        return at + np.flatnonzero(flags), batch.filter(pa.array(flags))
