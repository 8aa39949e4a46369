"""Blocks: rows in key order, in memory, and the search for keys in them.

A block is never changed, so threads may share it. Keys to find are unique and ascending; a block
may hold a key several times.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.merge.keys import OrderColumns, order_columns
from lakecore.model.arrow_arrays import size_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_FEW = 24
"""Up to this many keys are searched one by one."""
_KEY_BYTES = 8


@dataclass(frozen=True)
class Block:
    """Rows sorted by their `keys`. `first_row` is the position of the first row in its file.

    `unique`: no key occurs twice. `mapped`: the rows are memory-mapped from a local file.
    """

    rows: pa.Table
    keys: OrderColumns
    first_row: int = 0
    unique: bool = False
    mapped: bool = False

    @property
    def size_bytes(self) -> int:
        """The approximate memory of the block."""
        rows = 0 if self.mapped else int(size_of(self.rows))
        return rows + _KEY_BYTES * self.keys.length * len(self.keys.columns)

    def find(self, keys: OrderColumns) -> tuple[np.ndarray, np.ndarray]:
        """All pairs of a key and a row with that key.

        Returns two arrays of equal length, ascending by key: the indexes of the keys, and of the
        rows.
        """
        if not keys.length or not self.keys.length:
            nothing = np.empty(0, np.int64)
            return nothing, nothing
        column = self.keys.columns[0]
        if len(self.keys.columns) == 1:
            if isinstance(column, np.ndarray):
                (asked,) = keys.columns
                starts = np.searchsorted(column, asked, "left")
                if self.unique:
                    there = column[np.minimum(starts, len(column) - 1)] == asked
                    return np.flatnonzero(there), starts[there]
                return _ranges(starts, np.searchsorted(column, asked, "right"))
            return self._find_texts(keys.columns[0])
        if keys.length <= _FEW:
            bounds = [keys.at(number) for number in range(keys.length)]
            starts = np.array([self.keys.count_below(bound) for bound in bounds])
            return _ranges(starts, np.array([self.keys.count_up_to(bound) for bound in bounds]))
        asked_frame = _frame(keys).with_row_index("key")
        names = asked_frame.columns[1:]
        found = self._frame.join(asked_frame, on=names, how="inner", maintain_order="left")
        pairs = found.select("key", "row").to_numpy().astype(np.int64)
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        return pairs[:, 0], pairs[:, 1]

    def _find_texts(self, asked: np.ndarray | pa.Array) -> tuple[np.ndarray, np.ndarray]:
        column = self.keys.columns[0]
        starts, ends = (
            pc.search_sorted(column, asked, side=side).to_numpy().astype(np.int64)
            for side in ("left", "right")
        )
        return _ranges(starts, ends)

    @cached_property
    def _frame(self) -> pl.DataFrame:
        return _frame(self.keys).with_row_index("row")


def sorted_block(rows: pa.Table, on: Sequence[str]) -> Block:
    """A block of the rows in which no column of `on` is null, sorted by these columns."""
    for name in on:
        if rows.column(name).null_count:
            rows = rows.filter(pc.is_valid(rows.column(name)))
    keys = order_columns([rows.column(name).combine_chunks() for name in on])
    order = pa.array(order_of(keys))
    rows = rows.take(order).combine_chunks()
    return Block(rows, order_columns([rows.column(name) for name in on]))


def distinct(keys: OrderColumns) -> OrderColumns:
    """The keys in ascending order, each once."""
    column = keys.columns[0]
    if len(keys.columns) == 1 and isinstance(column, np.ndarray):
        # Sorting is several times faster than np.unique, which hashes first.
        ordered = np.sort(column)
        once = ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered
        return OrderColumns((once,), len(once))
    if keys.length == 1:
        return keys
    frame = _frame(keys)
    names = frame.columns
    frame = frame.with_row_index("row").unique(names, keep="any").sort(names)
    return taken(keys, frame["row"].to_numpy().astype(np.int64))


def order_of(keys: OrderColumns) -> np.ndarray:
    """The indexes that sort the keys in ascending order; the sort is stable."""
    if len(keys.columns) == 1 and isinstance(keys.columns[0], np.ndarray):
        return np.argsort(keys.columns[0], kind="stable")
    frame = _frame(keys)
    return frame.select(pl.arg_sort_by(frame.columns, maintain_order=True)).to_series().to_numpy()


def taken(keys: OrderColumns, numbers: np.ndarray) -> OrderColumns:
    """The keys at these indexes."""
    columns = tuple(
        column.take(pa.array(numbers)) if isinstance(column, pa.Array) else column[numbers]
        for column in keys.columns
    )
    return OrderColumns(columns, len(numbers))


def _frame(keys: OrderColumns) -> pl.DataFrame:
    columns = []
    for number, column in enumerate(keys.columns):
        if isinstance(column, pa.Array) and pa.types.is_fixed_size_binary(column.type):
            column = column.cast(pa.binary())  # noqa: PLW2901  Polars has no fixed size
        series = pl.Series(column) if isinstance(column, np.ndarray) else pl.from_arrow(column)
        assert isinstance(series, pl.Series)
        columns.append(series.alias(str(number)))
    return pl.DataFrame(columns)


def _ranges(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs (i, row) with `starts[i]` <= row < `ends[i]`, as two arrays."""
    counts = ends - starts
    numbers = np.repeat(np.arange(len(counts)), counts)
    if len(numbers) == 0 or counts.max() == 1:
        return numbers, starts[numbers]
    within = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers, starts[numbers] + within
