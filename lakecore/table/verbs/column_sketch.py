"""The statistics of one column, computed batch by batch and merged over parts of a table.

The number of distinct values is exact up to `_HASHES_MAX`; larger numbers are estimated from the
smallest hashes (error about 1/256). One batch and these hashes are in memory, whatever the size of
the table.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.format.partition_path import value_text
from lakecore.model.statistics import ColumnStatistics
from lakecore.model.types import BINARIES, STRINGS, TIMESTAMPS, Atomic, Field, Root, arrow_type

_HASHES_MAX = 1 << 16
_HASH_RANGE = float(1 << 64)
_LENGTHS = {
    Root.BOOLEAN: 1,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 4,
    Root.BIGINT: 8,
    Root.FLOAT: 4,
    Root.DOUBLE: 8,
    Root.DATE: 4,
    Root.TIME: 4,
    Root.TIMESTAMP: 8,
    Root.TIMESTAMP_LTZ: 8,
}
"""Bytes of a value of each type, as in Spark's statistics."""
_SHORT_DECIMAL, _SHORT_LENGTH, _LONG_LENGTH = 18, 8, 16
_STRING_LENGTH, _BINARY_LENGTH = 20, 100
"""The lengths in Spark's statistics of a column without values."""


def length_of(column: Field) -> int | None:
    """The length of a value in Spark's statistics; None for a type without statistics."""
    kind = column.type
    if not isinstance(kind, Atomic):
        return None
    if kind.root in STRINGS:
        return _STRING_LENGTH
    if kind.root in BINARIES:
        return _BINARY_LENGTH
    if kind.root is Root.DECIMAL:
        return _SHORT_LENGTH if (kind.precision or 0) <= _SHORT_DECIMAL else _LONG_LENGTH
    return _LENGTHS[kind.root]


class ColumnSketch:
    """Computes the statistics of a column, batch by batch. Picklable."""

    def __init__(self, column: Field) -> None:
        assert isinstance(column.type, Atomic)
        self.field = column
        self._root = column.type.root
        self._varies = self._root in STRINGS or self._root in BINARIES
        self._values = self._nulls = self._length_sum = 0
        self._length_max = 0
        self._has_nan = False
        self._bounds: pa.Array | None = None
        self._hashes = np.empty(0, np.uint64)

    def add(self, values: pa.Array) -> None:
        """Add the values of a batch."""
        self._nulls += values.null_count
        values = values.drop_null()
        if not len(values):
            return
        self._values += len(values)
        series = pl.from_arrow(values)
        assert isinstance(series, pl.Series)
        self._hashes = np.union1d(self._hashes, series.hash(0).to_numpy())[:_HASHES_MAX]
        if self._varies:
            count = pc.utf8_length if self._root in STRINGS else pc.binary_length
            lengths = count(values)
            self._length_sum += pc.sum(lengths).as_py()
            self._length_max = max(self._length_max, pc.max(lengths).as_py())
        else:
            self._add_bounds(values)

    def merge(self, other: ColumnSketch) -> None:
        """Merge another sketch of the same column into this one."""
        self._values += other._values
        self._nulls += other._nulls
        self._length_sum += other._length_sum
        self._length_max = max(self._length_max, other._length_max)
        self._has_nan |= other._has_nan
        self._hashes = np.union1d(self._hashes, other._hashes)[:_HASHES_MAX]
        if other._bounds is not None:
            self._add_bounds(other._bounds)

    def _add_bounds(self, values: pa.Array) -> None:
        if pa.types.is_floating(values.type):
            is_nan = pc.is_nan(values)
            self._has_nan |= pc.any(is_nan).as_py()
            values = values.filter(pc.invert(is_nan))
        if self._bounds is not None:
            values = pa.concat_arrays([self._bounds, values])
        if len(values):
            found = pc.min_max(values)
            self._bounds = pa.array([found["min"], found["max"]], values.type)

    def result(self) -> ColumnStatistics:
        """The statistics of all batches."""
        low, high = self._texts()
        least = length_of(self.field)
        average = -(-self._length_sum // self._values) if self._values else least
        return ColumnStatistics(
            column_id=self.field.id,
            distinct_count=min(self._distinct(), self._values),
            min=low,
            max=high,
            null_count=self._nulls,
            average_length=average if self._varies else least,
            max_length=self._length_max if self._varies and self._values else least,
        )

    def _texts(self) -> tuple[str | None, str | None]:
        """The bounds; NaN is greater than all other numbers."""
        texts: list[str | None] = [None, None]
        if self._bounds is not None:
            legacy = self._root not in TIMESTAMPS
            column = self._bounds.cast(arrow_type(self.field.type))
            texts = [value_text(value, self.field, legacy=legacy) for value in column]
        if self._has_nan:
            texts = [texts[0] or "NaN", "NaN"]
        return texts[0], texts[1]

    def _distinct(self) -> int:
        """The number of distinct hashes, estimated from the smallest ones if there are too many."""
        if len(self._hashes) < _HASHES_MAX:
            return len(self._hashes)
        return round((_HASHES_MAX - 1) / (float(self._hashes[-1]) / _HASH_RANGE))
