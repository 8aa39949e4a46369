"""Late materialisation: keys decide which rows of a section survive; only their values are read.

If a merge returns rows unchanged, the key, sequence number and kind of the rows determine which
rows survive. These columns of all rows are held in memory. They are merged window by window, and
the surviving rows are marked.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.spec import ChoosesRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.merge.spec import Slice
    from lakecore.model.files import DataFile
    from lakecore.table.stored_rows.read_plan import ReadPlan
    from lakecore.table.stored_rows.split_files import SplitFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """A flag for each row of a split: whether the row survives. Files are in order.

    The rows of file `n` begin at `starts[n]`; its first `decided[n]` flags are final. `known` holds
    the columns that decide (key, sequence number, kind) of all rows.
    """

    starts: np.ndarray
    rows: np.ndarray
    decided: np.ndarray
    known: pl.DataFrame = field(default_factory=pl.DataFrame)

    def are_decided(self, start: int, end: int) -> bool:
        """Whether the flags of the rows from `start` to `end` (exclusive) are final."""
        inside = slice(
            int(np.searchsorted(self.starts, start, side="right")) - 1,
            int(np.searchsorted(self.starts, end, side="left")),
        )
        ends = np.minimum(self.starts[1:][inside], end)
        return bool((self.starts[:-1][inside] + self.decided[inside] >= ends).all())

    def decide(self, places: range | np.ndarray | None, wins: np.ndarray) -> None:
        """Set the flags of the rows at `places`, the next undecided rows of one file."""
        assert places is not None
        self.rows[slice(places.start, places.stop) if isinstance(places, range) else places] = wins
        number = int(np.searchsorted(self.starts, places[-1], side="right")) - 1
        self.decided[number] = places[-1] + 1 - self.starts[number]


def decided_by_keys(plan: ReadPlan) -> bool:
    """Whether key, sequence number and kind alone determine which rows survive."""
    return isinstance(MERGE_FUNCTIONS[plan.engine], ChoosesRows)


def no_marks(files: Sequence[DataFile], known: pl.DataFrame | None = None) -> Marks:
    """Marks in which no row is marked and no flag is final."""
    starts = np.cumsum([0, *(file.row_count for file in files)])
    return Marks(
        starts=starts,
        rows=np.zeros(int(starts[-1]), bool),
        decided=np.zeros(len(files), np.int64),
        known=pl.DataFrame() if known is None else known,
    )


def mark_rows(marks: Marks, files: SplitFiles, window_rows: int) -> Iterator[None]:
    """Merge the keys of a section for which `decided_by_keys` holds, in windows of `window_rows`.

    Raises CorruptTable for keys out of order, see `SplitFiles.slices_of`.
    """
    plan, split = files.plan, files.split
    engine = MERGE_FUNCTIONS[plan.engine]
    assert isinstance(engine, ChoosesRows)
    rows_max = max(1, window_rows // len(split.runs))
    numbers = count()
    runs = [
        deque(
            part
            for file in run
            for part in _placed_rows(marks, files, file, next(numbers), rows_max)
        )
        for run in split.runs
    ]
    for window in _windows(runs):
        for part, wins in engine.winners(window, plan.merge):
            marks.decide(part.places, wins)
        yield
    # Deleted rows at the end of a file were never passed to `decide`.
    marks.decided[:] = np.diff(marks.starts)


def _placed_rows(
    marks: Marks, files: SplitFiles, file: DataFile, number: int, rows_max: int
) -> Iterator[Slice]:
    """The rows of a file that are not deleted, at most `rows_max` in each slice."""
    start, end = marks.starts[number : number + 2].tolist()
    rows = marks.known[start:end]
    places: range | np.ndarray = range(start, end)
    deleted = files.deleted_rows(file)
    if deleted is not None:
        left = np.ones(end - start, bool)
        left[deleted[deleted < end - start]] = False
        places = start + np.flatnonzero(left)
        rows = rows.filter(pl.Series(left))
    # Keep the chunks as they were read; do not copy them into one.
    for part in files.slices_of(file, rows.to_arrow().to_batches(rows_max)):
        length = part.keys.length
        yield replace(part, places=places[:length])
        places = places[length:]


def _windows(runs: Sequence[deque[Slice]]) -> Iterator[list[Slice]]:
    """Windows over the runs: the rows of each run up to a common key.

    That key is the smallest last key of the runs that have more slices.
    """
    while left := [run for run in runs if run]:
        lasts = [run[0].keys.at(run[0].keys.length - 1) for run in left if len(run) > 1]
        bound = min(lasts) if lasts else None
        window: list[Slice] = []
        for run in left:
            part = run.popleft()
            length = part.keys.length
            inside = length if bound is None else part.keys.count_up_to(bound)
            if inside < length:
                run.appendleft(part.cut(inside, length))
            if inside:
                window.append(part.cut(0, inside))
        yield window
