"""Which stored rows of a section come out of its merge, decided before a value is read.

Where rows come out as they went in, keys, sequences and kinds alone decide. So the runs are merged
with places (`places.py`) for their values, and the rows that win are marked, file by file.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.spec import ChoosesRows
from lakecore.table.runs.places import Places, row_of
from lakecore.table.runs.read import MergeRoom, merge_runs

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from lakecore.io.store import Store
    from lakecore.memory import Budget
    from lakecore.merge.spec import MergeSpec, Slice
    from lakecore.model.files import Split
    from lakecore.table.runs.read import ReadPlan

_ONE_ROW = pa.table({"": pa.nulls(1)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Which rows come out, of all files of a split, one file after the other, and keys of all.

    File `n` has the rows from `starts[n]` on; of its first `decided[n]` it is known. `keys` holds
    values of the fields of `key_fields`, as integers of their width. Of a row that does not come
    out the key may be anything.
    """

    starts: np.ndarray
    rows: np.ndarray
    decided: np.ndarray
    key_fields: tuple[pa.Field, ...] = ()
    keys: tuple[np.ndarray, ...] = ()

    def are_decided(self, start: int, end: int) -> bool:
        """Whether it is known of all these rows."""
        inside = slice(
            int(np.searchsorted(self.starts, start, side="right")) - 1,
            int(np.searchsorted(self.starts, end, side="left")),
        )
        ends = np.minimum(self.starts[1:][inside], end)
        return bool((self.starts[:-1][inside] + self.decided[inside] >= ends).all())

    def keys_of(self, start: int, end: int) -> pa.RecordBatch:
        """The keys of these rows."""
        columns = [
            pa.Array.from_buffers(field.type, end - start, [None, pa.py_buffer(words[start:end])])
            for field, words in zip(self.key_fields, self.keys, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(self.key_fields))


def decided_by_keys(plan: ReadPlan) -> bool:
    """Whether keys, sequences and kinds decide which rows come out."""
    return isinstance(MERGE_FUNCTIONS[plan.engine], ChoosesRows)


def kept_keys(plan: ReadPlan) -> list[pa.Field]:
    """The columns of the plan that are keys of a fixed width, which are at hand once rows merge."""
    fields = [plan.schema.arrow.field(name) for name in plan.columns if name in plan.merge.key]
    return [each for each in fields if pa.types.is_primitive(each.type) and each.type.bit_width > 1]


def no_marks(split: Split, keys: Sequence[pa.Field] = ()) -> Marks:
    """Marks of no row, none of which is decided; `keys` are some of `kept_keys`."""
    starts = np.cumsum([0, *(file.row_count for file in split.files)])
    count = int(starts[-1])
    return Marks(
        starts=starts,
        rows=np.zeros(count, bool),
        decided=np.zeros(len(split.files), np.int64),
        key_fields=tuple(keys),
        keys=tuple(np.empty(count, _words_of(each.type)) for each in keys),
    )


def mark_rows(
    marks: Marks, split: Split, plan: ReadPlan, store: Store, budget: Budget
) -> Generator[None, None, None]:
    """Merge a section of which `decided_by_keys`, window by window."""
    engine = MERGE_FUNCTIONS[plan.engine]
    assert isinstance(engine, ChoosesRows)
    placed = next(name for name in plan.columns if name not in plan.merge.columns_for(()))
    places = Places(
        columns=frozenset({placed}),
        split=split,
        numbers={file.name: number for number, file in enumerate(split.files)},
        nulls=False,
    )
    room = MergeRoom(places=places)
    only_place = replace(plan, columns=(placed,))
    merge = _Mark(engine, placed, marks)
    with closing(merge_runs(split, only_place, store, budget, merge, room)) as windows:
        for _ in windows:
            yield
    marks.decided[:] = np.diff(marks.starts)


@dataclass(frozen=True, slots=True)
class _Mark:
    """A merge function that marks the rows that its engine would give out."""

    engine: ChoosesRows
    placed: str
    marks: Marks

    chooses_rows: ClassVar = True

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """A row without columns: the window is done."""
        marks = self.marks
        for part, wins in self.engine.winners(window, spec):
            at = self._rows_of(part.rows.column(self.placed).to_numpy())
            marks.rows[at] = wins
            for field, words in zip(marks.key_fields, marks.keys, strict=True):
                words[at] = _words(part.rows.column(field.name))
        yield _ONE_ROW

    def _rows_of(self, places: np.ndarray) -> slice | np.ndarray:
        """Where, over all files, the rows at these places are; from now on they are decided."""
        starts, decided = self.marks.starts, self.marks.decided
        low = int(places.min())
        # Rows of one file, one after the other: a run that was made of several mixes their rows.
        if int(places.max()) - low == len(places) - 1:
            number, row = row_of(low)
            decided[number] = row + len(places)
            first = int(starts[number]) + row
            return slice(first, first + len(places))
        numbers, rows = row_of(places)
        np.maximum.at(decided, numbers, rows + 1)
        at: np.ndarray = starts[numbers] + rows
        return at


def _words_of(kind: pa.DataType) -> str:
    """The integers that are as wide as values of a type."""
    return f"i{kind.bit_width // 8}"


def _words(column: pa.ChunkedArray) -> np.ndarray:
    """The values of a column of a fixed width, as integers of it."""
    values = column.combine_chunks() if column.num_chunks > 1 else column.chunk(0)
    words = np.frombuffer(values.buffers()[1], _words_of(values.type))
    return words[values.offset : values.offset + len(values)]
