"""Rows that do not fit in memory, hash-partitioned to local disk by some columns.

If two sets of rows are partitioned by columns of the same types, rows with equal values are in
parts of the same number. A join then needs only one part of one set in memory.

Each run on disk holds its rows in `FAN` small parts, one after another. A part consists of adjacent
small parts, so it is read without the other parts. Rows that match nothing are in `FAN` more small
parts of their run, in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.frames.arrow_frames import to_frame
from lakecore.io.spill import SpillDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from lakecore.io.spill import SpilledRun

FAN = 256
"""The maximum number of parts."""


class RowParts:
    """Rows on disk; a context manager that releases the disk space.

    With `nulls_anywhere`, rows with a null in one of the columns are spread over all parts, because
    there may be many of them and they match nothing. They keep their order, from part to part.
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
        """The number of runs on disk."""
        return len(self._runs)

    def add(self, rows: pa.Table) -> None:
        """Write rows to disk."""
        parts = small_parts(rows, self._on)
        if self._nulls_anywhere:
            absent = np.zeros(rows.num_rows, bool)
            for name in self._on:
                absent |= rows.column(name).is_null().to_numpy()
            ordinals = np.cumsum(absent)
            spread = FAN + (ordinals - 1) * FAN // max(1, absent.sum())
            parts = np.where(absent, spread, parts)
        rows = rows.take(pa.array(np.argsort(parts, kind="stable")))
        begins = np.concatenate([[0], np.cumsum(np.bincount(parts, minlength=2 * FAN))])
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
        """The rows of part `number` of `count`; one table for each run that has some."""
        for place, (run, numbers) in enumerate(self._runs):
            unmatched = (place * FAN + numbers - FAN) * count // (FAN * len(self._runs))
            parts = np.where(numbers < FAN, numbers * count // FAN, unmatched)
            wanted = np.flatnonzero(parts == number)
            if len(wanted):
                yield pa.Table.from_batches(self._spills.read(run, wanted.tolist()))

    def close(self) -> None:
        """Release the disk space."""
        self._runs = []
        self._spills.close()


def small_parts(rows: pa.Table, on: Sequence[str]) -> np.ndarray:
    """For each row, the number of its small part (see the module).

    Rows with equal values have the same number. If `on` is empty, the rows are spread evenly.
    """
    if not on:
        return np.arange(rows.num_rows) % FAN
    frame = to_frame(rows.select(list(on)))
    return (
        frame.select((pl.struct(pl.all()).hash(seed=0) % FAN).cast(pl.Int64)).to_series().to_numpy()
    )


def in_part(rows: pa.Table, on: Sequence[str], number: int, count: int) -> pa.Table:
    """The rows of part `number` of `count`."""
    if count == 1:
        return rows
    return rows.filter(pa.array(small_parts(rows, on) * count // FAN == number))
