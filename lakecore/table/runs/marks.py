"""Which stored rows of a section come out of its merge, decided before a value is read.

Where rows come out as they went in, the keys, sequences and kinds of all rows decide. They are in
memory; what has one key is merged at once, window by window, and the rows that win are marked.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import ChoosesRows, Slice
from lakecore.table.runs.split_files import KeysInOrder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.model.files import DataFile
    from lakecore.table.runs.read import ReadPlan
    from lakecore.table.runs.split_files import SplitFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Which rows come out, of all files of a split, one file after the other.

    File `n` has the rows from `starts[n]` on; of its first `decided[n]` it is known. `deciding`
    holds columns of all rows, of those that do not come out, too.
    """

    starts: np.ndarray
    rows: np.ndarray
    decided: np.ndarray
    deciding: pl.DataFrame = field(default_factory=pl.DataFrame)

    def are_decided(self, start: int, end: int) -> bool:
        """Whether it is known of all these rows."""
        inside = slice(
            int(np.searchsorted(self.starts, start, side="right")) - 1,
            int(np.searchsorted(self.starts, end, side="left")),
        )
        ends = np.minimum(self.starts[1:][inside], end)
        return bool((self.starts[:-1][inside] + self.decided[inside] >= ends).all())


def decided_by_keys(plan: ReadPlan) -> bool:
    """Whether keys, sequences and kinds decide which rows come out."""
    return isinstance(MERGE_FUNCTIONS[plan.engine], ChoosesRows)


def no_marks(files: Sequence[DataFile], deciding: pl.DataFrame | None = None) -> Marks:
    """Marks of no row, none of which is decided."""
    starts = np.cumsum([0, *(file.row_count for file in files)])
    return Marks(
        starts=starts,
        rows=np.zeros(int(starts[-1]), bool),
        decided=np.zeros(len(files), np.int64),
        deciding=pl.DataFrame() if deciding is None else deciding,
    )


def mark_rows(marks: Marks, files: SplitFiles, window_rows: int) -> Iterator[None]:
    """Merge a section of which `decided_by_keys`, about so many rows at a time.

    Raises CorruptTable for keys out of order, see `SplitFiles.slices`.
    """
    plan, split = files.plan, files.split
    engine = MERGE_FUNCTIONS[plan.engine]
    assert isinstance(engine, ChoosesRows)
    rows_max = max(1, window_rows // len(split.runs))
    numbers = count()
    runs = [
        deque(
            piece for file in run for piece in _pieces(marks, files, file, next(numbers), rows_max)
        )
        for run in split.runs
    ]
    for window in _windows(runs):
        for piece, wins in engine.winners(window, plan.merge):
            places = piece.places
            at = slice(places.start, places.stop) if isinstance(places, range) else places
            marks.rows[at] = wins
            marks.decided[piece.number] = places[-1] + 1 - marks.starts[piece.number]
        yield
    # The last ones of a file may be deleted.
    marks.decided[:] = np.diff(marks.starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece(Slice):
    """Rows of the file of a number, and their places among those of all files, ascending."""

    number: int
    places: range | np.ndarray

    def cut(self, start: int, end: int) -> _Piece:
        """Some of them; nothing is copied."""
        return replace(
            self,
            rows=self.rows.slice(start, end - start),
            keys=self.keys.slice(start, end - start),
            places=self.places[start:end],
        )


def _pieces(
    marks: Marks, files: SplitFiles, file: DataFile, number: int, rows_max: int
) -> Iterator[_Piece]:
    """The rows of a file, less those that its deletion vector names, at most so many at a time."""
    start, end = marks.starts[number : number + 2].tolist()
    rows = marks.deciding[start:end]
    places: range | np.ndarray = range(start, end)
    deleted = files.deleted_rows(file)
    if deleted is not None:
        left = np.ones(end - start, bool)
        left[deleted[deleted < end - start]] = False
        places = start + np.flatnonzero(left)
        rows = rows.filter(pl.Series(left))
    order = KeysInOrder(files.plan, files.path(file))
    # Rows lie as they were read: they are not copied to lie in one piece.
    for batch in rows.to_arrow().to_batches(rows_max):
        keys = order_columns([batch.column(name) for name in files.plan.merge.key])
        order.check(keys)
        yield _Piece(
            rows=pa.Table.from_batches([batch]),
            keys=keys,
            sequence_min=file.sequence_min,
            sequence_max=file.sequence_max,
            commit_order=files.split.commit_order.get(file.name, 0),
            level=file.level,
            number=number,
            places=places[: batch.num_rows],
        )
        places = places[batch.num_rows :]


def _windows(runs: Sequence[deque[_Piece]]) -> Iterator[list[_Piece]]:
    """The rows of each run up to the least last key of those that go on after their first piece."""
    while left := [run for run in runs if run]:
        lasts = [run[0].keys.at(run[0].keys.length - 1) for run in left if len(run) > 1]
        bound = min(lasts) if lasts else None
        window: list[_Piece] = []
        for run in left:
            piece = run.popleft()
            length = piece.keys.length
            inside = length if bound is None else piece.keys.count_up_to(bound)
            if inside < length:
                run.appendleft(piece.cut(inside, length))
            if inside:
                window.append(piece.cut(0, inside))
        yield window
