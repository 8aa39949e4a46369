"""Rows that are too many for memory, on local disk, in parts by the hash of some columns.

Two sets of rows that are parted by columns of the same types have equal values in parts of the
same number, so that what joins them need hold one part of one of them only.

Each run on disk holds its rows in the order of `FAN` small parts; a part that is read is some of
those, next to each other. A part is found without reading the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.frames.polars_source import to_frame
from lakecore.io.spill import SpillDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from lakecore.io.spill import SpilledRun

FAN = 256
"""The most parts that there can be."""


class RowParts:
    """Rows on disk; a context manager that gives the disk back.

    With `nulls_anywhere`, a row with a null in one of the columns may be in any part: such rows
    may be many, and nothing matches them.
    """

    def __init__(self, on: Sequence[str], *, nulls_anywhere: bool = False) -> None:
        self._on = tuple(on)
        self._nulls_anywhere = nulls_anywhere
        self._spills = SpillDirectory()
        self._runs: list[tuple[SpilledRun, np.ndarray]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __len__(self) -> int:
        """How many runs there are on disk."""
        return len(self._runs)

    def add(self, rows: pa.Table) -> None:
        """Put rows on disk."""
        parts = small_parts(rows, self._on)
        if self._nulls_anywhere:
            absent = np.zeros(rows.num_rows, bool)
            for name in self._on:
                absent |= rows.column(name).is_null().to_numpy()
            parts = np.where(absent, np.arange(rows.num_rows) % FAN, parts)
        rows = rows.take(pa.array(np.argsort(parts, kind="stable")))
        begins = np.concatenate([[0], np.cumsum(np.bincount(parts, minlength=FAN))])
        numbers: list[int] = []

        def pieces() -> Iterator[pa.Table]:
            for number in np.flatnonzero(np.diff(begins)):
                piece = rows.slice(begins[number], begins[number + 1] - begins[number])
                batches = piece.to_batches()
                numbers.extend([int(number)] * len(batches))
                yield pa.Table.from_batches(batches)

        run = self._spills.write(rows.schema, pieces(), 0, 0)
        self._runs.append((run, np.array(numbers, np.int64)))

    def part(self, number: int, count: int) -> Iterator[pa.Table]:
        """The rows of one of so many parts, a table for each run that has some."""
        for run, numbers in self._runs:
            wanted = np.flatnonzero(numbers * count // FAN == number)
            if len(wanted):
                yield pa.Table.from_batches(self._spills.read(run, wanted.tolist()))

    def close(self) -> None:
        """Give back the disk."""
        self._runs = []
        self._spills.close()


def small_parts(rows: pa.Table, on: Sequence[str]) -> np.ndarray:
    """The number of each row's small part; equal values have the same, no columns any."""
    if not on:
        return np.arange(rows.num_rows) % FAN
    frame = to_frame(rows.select(list(on)))
    return (
        frame.select((pl.struct(pl.all()).hash(seed=0) % FAN).cast(pl.Int64)).to_series().to_numpy()
    )


def in_part(rows: pa.Table, on: Sequence[str], number: int, count: int) -> pa.Table:
    """The rows of one of so many parts."""
    if count == 1:
        return rows
    return rows.filter(pa.array(small_parts(rows, on) * count // FAN == number))
