"""Sorts rows within the memory budget, with sorted runs on local disk.

1. Rows are collected until they fill their share of memory, sorted, and written to local disk as a
   run.
2. Runs are merged, a limited number at a time, into larger runs until few are left.
3. The last merge returns the rows. If all rows fit in memory, nothing is written to disk.

Rows with equal sort keys keep their order. The sort key of a space-filling curve (Z-order, Hilbert)
is stored with each row of a run, so that it is computed only once.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from lakecore.io.freed_memory import release_freed
from lakecore.io.spill import SpillDirectory, SpilledRun
from lakecore.merge.curves import Ordering, curve_columns, plain_columns
from lakecore.merge.deduplicate import KEEP_ALL
from lakecore.merge.keys import OrderColumns
from lakecore.merge.spec import MergeSpec, Slice
from lakecore.model.arrow_arrays import size_of
from lakecore.model.rows import KEY_PREFIX
from lakecore.table.sections.windows import BATCHES_HELD, counted, in_pieces, merge_slices

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from lakecore.memory import Budget

_RUN_SHARE = 2
"""The rows of a run take half of the leased memory: sorting takes as much again."""
_ROW_BYTES = 64
"""Bytes that sorting takes for each row in addition to its values: keys, codes, positions."""
_RUNS_AT_ONCE = 64
_READERS = 2
_PLACE = f"{KEY_PREFIX}SORT_PLACE"
_CURVE = f"{KEY_PREFIX}SORT_CURVE_"
"""No column of a table has names with these prefixes."""
_BY_SLICE = MergeSpec(key=())
"""Merges by the keys that the slices hold. No two rows have the same key."""


class ExternalSort:
    """Sorts the rows of one bucket: `add` them all, then read `sorted` once. A context manager."""

    def __init__(
        self, ordering: Ordering, budget: Budget, room_bytes: int, runs_at_once: int
    ) -> None:
        """`room_bytes`: the memory for rows, which the caller has leased.

        `runs_at_once`: the largest number of runs on disk that a merge reads.
        """
        self._ordering = ordering
        self._budget = budget
        self._room_bytes = room_bytes
        self._runs_at_once = min(runs_at_once, _RUNS_AT_ONCE)
        self._spills = SpillDirectory()
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._count = 0
        self._spilled: list[SpilledRun] = []
        self._largest_row_bytes = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, rows: pa.Table) -> None:
        """Add rows; some rows may be spilled to local disk."""
        if not rows.num_rows:
            return
        self._held.append(rows)
        size_bytes = size_of(rows)
        self._held_bytes += size_bytes + _ROW_BYTES * rows.num_rows
        self._largest_row_bytes = max(self._largest_row_bytes, size_bytes // rows.num_rows)
        if self._held_bytes * _RUN_SHARE >= self._room_bytes:
            self.spill()

    @property
    def has_spilled(self) -> bool:
        return bool(self._spilled)

    def spill(self) -> None:
        """Write the rows held to local disk."""
        if not self._held:
            return
        first = self._count
        rows = self._sorted_rows()
        self._spilled.append(self._written(rows, first, self._count - 1))
        release_freed(self._budget.size_bytes)

    def sorted(self) -> Iterator[pa.Table]:
        """All rows, sorted, as tables without the columns that only serve the sort."""
        if not self._spilled:
            if self._held:
                names = self._held[0].schema.names
                for piece in self._sorted_rows():
                    yield piece.select(names)
            return
        self.spill()
        at_once = self._at_once()
        while len(self._spilled) > at_once:
            # The oldest runs first, so that runs stay in order of arrival.
            group, self._spilled = self._spilled[:at_once], self._spilled[at_once:]
            self._spilled.append(self._merged_run(group))
        schema = self._spills.schema(self._spilled[0])
        names = [name for name in schema.names if not name.startswith((_CURVE, _PLACE))]
        with closing(self._merged(self._spilled)) as merged:
            for piece in merged:
                yield piece.select(names)
                del piece

    def close(self) -> None:
        """Drop all rows, on disk too."""
        self._held, self._spilled = [], []
        self._spills.close()

    # --- runs -------------------------------------------------------------------------------------

    def _sorted_rows(self) -> Iterator[pa.Table]:
        """The rows in memory, sorted, with the columns that they are sorted by.

        Empties the memory.
        """
        rows = pa.concat_tables(self._held)
        self._held, self._held_bytes = [], 0
        places = np.arange(self._count, self._count + rows.num_rows)
        self._count += rows.num_rows
        if self._ordering.is_curve:
            for at, column in enumerate(curve_columns(self._ordering, rows)):
                rows = rows.append_column(f"{_CURVE}{at}", pa.array(column))
        rows = rows.append_column(_PLACE, pa.array(places))
        return KEEP_ALL([self._slice(rows, int(places[0]), int(places[-1]))], _BY_SLICE)

    def _written(self, tables: Iterable[pa.Table], low: int, high: int) -> SpilledRun:
        """Write the tables to local disk as one run, in batches small enough to merge."""
        piece_bytes = self._room_bytes // (BATCHES_HELD * self._runs_at_once)
        tables = iter(tables)
        first = next(tables)
        rows_max = max(1, piece_bytes // max(1, size_of(first) // first.num_rows))

        def pieces() -> Iterator[pa.Table]:
            yield from in_pieces([first], rows_max)
            for table in tables:
                yield from in_pieces([table], rows_max)
                release_freed(self._budget.size_bytes)

        return self._spills.write(first.schema, pieces(), low, high)

    def _at_once(self) -> int:
        """How many runs to merge at once: fewer if single rows are large."""
        fitting = self._room_bytes // (BATCHES_HELD * self._largest_row_bytes)
        return max(2, min(self._runs_at_once, fitting))

    def _merged_run(self, runs: list[SpilledRun]) -> SpilledRun:
        low = min(run.sequence_min for run in runs)
        high = max(run.sequence_max for run in runs)
        with closing(self._merged(runs)) as merged:
            done = self._written(merged, low, high)
        for run in runs:
            self._spills.remove(run)
        release_freed(self._budget.size_bytes)
        return done

    def _merged(self, runs: list[SpilledRun]) -> Generator[pa.Table, None, None]:
        streams = [self._slices(run) for run in runs]
        return merge_slices(streams, KEEP_ALL, _BY_SLICE, self._budget, _READERS)

    def _slices(self, run: SpilledRun) -> Iterator[Slice]:
        batches = (pa.Table.from_batches([batch]) for batch in self._spills.read(run))
        parts = (self._slice(rows, run.sequence_min, run.sequence_max) for rows in batches)
        return counted(parts, run.row_count)

    def _slice(self, rows: pa.Table, low: int, high: int) -> Slice:
        columns: list[np.ndarray | pa.Array] = []
        if self._ordering.is_curve:
            names = [name for name in rows.schema.names if name.startswith(_CURVE)]
            columns += [rows.column(name).to_numpy() for name in names]
        else:
            columns += plain_columns(self._ordering, rows)
        columns.append(rows.column(_PLACE).to_numpy())
        keys = OrderColumns(tuple(columns), rows.num_rows)
        return Slice(rows=rows, keys=keys, sequence_min=low, sequence_max=high, commit_order=low)
