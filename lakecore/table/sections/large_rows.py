"""Merges runs of large rows, with one large row in memory at a time.

A merge holds one row of each run. If a single row takes a large part of the budget:

1. the runs are merged with *places* instead of values: a place is a number that stands for a file
   and a position in it (`row_groups.py`). Columns of variable width have places if they do not
   affect the merge and are returned unchanged;
2. the values of each merged row are then read from their places, in key order.

Each column has its own places, because a merged row may take its values from several rows. A column
whose aggregate function computes a new value has none; one value of each run is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.io.files.data_files import BatchSize
from lakecore.io.freed_memory import release_all_freed
from lakecore.memory import LARGE_LEAST_BYTES
from lakecore.merge import MERGE_FUNCTIONS, chooses_value
from lakecore.model.types import Field, arrow_schema, arrow_type
from lakecore.rows.read_rules import inputs_of, judged
from lakecore.table.file_reader.late_casts import (
    NO_LATE_CASTS,
    casts_after_merge,
    flags_of,
    keys_wanted,
    late_casts,
)
from lakecore.table.file_reader.row_groups import Places, row_of
from lakecore.table.file_reader.split_files import SplitFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.io.stores.store import Store
    from lakecore.model.files import DataFile, Split
    from lakecore.table.file_reader.read_plan import ReadPlan

_ONE = BatchSize(1, LARGE_LEAST_BYTES)


def places_of(split: Split, fields: Sequence[Field], plan: ReadPlan) -> Places | None:
    """The columns to merge by place if rows are large. None if they must be merged by value."""
    late = {each.column for each in casts_after_merge(split.files, fields, plan).casts}
    judged_first: tuple[str, ...] = ()
    if plan.row_filter is not None and flags_of(split.files, fields, plan, NO_LATE_CASTS):
        judged_first = inputs_of(plan.row_filter)
    columns = frozenset(
        field.name
        for field in fields
        if (field in late or not pa.types.is_primitive(arrow_type(field.type)))
        and chooses_value(plan.merge, field.name)
        and field.name not in judged_first
    )
    if not columns:
        return None
    return Places(
        columns=columns,
        split=split,
        numbers={file.name: number for number, file in enumerate(split.files)},
        nulls=not MERGE_FUNCTIONS[plan.engine].chooses_rows,
    )


class Values:
    """Reads the values that places stand for. Each file is read mostly forward."""

    def __init__(
        self, places: Places, fields: Sequence[Field], plan: ReadPlan, store: Store
    ) -> None:
        self._files = SplitFiles(places.split, plan, store)
        self.placed = [field for field in fields if field.name in places.columns]
        self._wanted = keys_wanted(fields, plan)
        self._starts: dict[int, list[int] | None] = {}
        self._open: dict[tuple[int, tuple[str, ...]], _Opened] = {}

    def rows(self, merged: pa.Table) -> Iterator[pa.Table]:
        """The merged rows with values instead of places; one by one, if values are read.

        Rows whose keys the predicate excludes are dropped. Such a row may be an old version whose
        newer version is in a pruned file; a failing cast of it must not fail the read.
        """
        placed = [field for field in self.placed if field.name in merged.schema.names]
        if not placed:
            yield merged
            return
        if self._wanted is not None:
            merged = merged.filter(self._wanted)
        for at in range(merged.num_rows):
            row = self._shown(merged.slice(at, 1), placed)
            # Decoders and encoders use different memory pools.
            release_all_freed()
            if row is not None:
                yield row
            # Free this row before the next one is read.
            del row

    def value(self, place: int, field: Field) -> pa.Array:
        """The value of one place, as an array of length 1."""
        return self._at(*row_of(place), [field]).column(0)

    def close(self) -> None:
        self._open.clear()

    def _shown(self, row: pa.Table, placed: Sequence[Field]) -> pa.Table | None:
        """A row with values. None if the row filter hides it, or cannot judge it."""
        row_filter = self._files.plan.row_filter
        if row_filter is None:
            return self._row(row, placed)
        inputs = inputs_of(row_filter)
        first = [field for field in placed if field.name in inputs]
        rest = [field for field in placed if field not in first]
        try:
            row = self._row(row, first)
        except InvalidRequest:
            return None
        is_shown = judged(row_filter, row.to_batches()[0])[0].as_py()
        return self._row(row, rest) if is_shown else None

    def _row(self, row: pa.Table, placed: Sequence[Field]) -> pa.Table:
        """A row with values instead of places. Values of the same stored row are read together."""
        wanted: dict[int, list[Field]] = {}
        values: dict[str, pa.Array] = {}
        for field in placed:
            place = row.column(field.name)[0].as_py()
            values[field.name] = pa.nulls(1, arrow_type(field.type))
            if place is not None:
                wanted.setdefault(place, []).append(field)
        for place, fields in wanted.items():
            found = self._at(*row_of(place), fields)
            values |= zip(found.schema.names, found.columns, strict=True)
            del found
        for node in arrow_schema(placed):
            at = row.schema.get_field_index(node.name)
            row = row.set_column(at, node, values[node.name])
        return row

    def _at(self, number: int, position: int, fields: Sequence[Field]) -> pa.RecordBatch:
        """These columns of one row: the row at `position` in the file with this number."""
        file = self._files.split.files[number]
        group, end = self._group_of(number, file, position)
        late = late_casts([file], fields, self._files.plan.schemas)
        files, fields = replace(self._files, late=late), (*fields, *late.fields)
        names = number, tuple(field.name for field in fields)
        opened = self._open.pop(names, None)
        if opened is None or opened.group != group or position < opened.next_row:
            groups = None if group is None else [group]
            opened = _Opened(group, files.stored_rows(file, fields, _ONE, row_groups=groups))
        while (batch := opened.left or next(opened.batches, None)) is not None:
            opened.left = None
            first, rows = batch
            after = first + rows.num_rows
            if first <= position < after:
                if position + 1 < end:
                    opened.next_row = position + 1
                    opened.left = batch if position + 1 < after else None
                    self._open[names] = opened
                row = pa.Table.from_batches([rows.slice(position - first, 1)])
                return late.cast(row).to_batches()[0]
            del batch, rows
        raise CorruptTable("a data file has fewer rows than it had", file=file.name, row=position)

    def _group_of(self, number: int, file: DataFile, position: int) -> tuple[int | None, int]:
        """The row group of a row (None: the file has none), and where the group ends."""
        if number not in self._starts:
            self._starts[number] = self._files.row_group_starts(file)
        starts = self._starts[number]
        if starts is None:
            return None, file.row_count
        group = int(np.searchsorted(starts, position, side="right")) - 1
        return group, [*starts, file.row_count][group + 1]


Rows: TypeAlias = "tuple[int, pa.RecordBatch]"
"""The position of the first row in its file, and the rows."""


@dataclass(slots=True)
class _Opened:
    """An open row group. `left`: decoded rows that follow the last one, as in an Avro block."""

    group: int | None
    batches: Iterator[Rows]
    next_row: int = 0
    left: Rows | None = None
