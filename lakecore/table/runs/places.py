"""Where a value lies, in place of the value: a number that merging carries along.

A *place* says the file, by its number, and the row there. A value that a merge only chooses it may
choose by place, however large it is: to it a place is a value like others, and null where the value
is null. What is chosen is read after (`large_rows.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.format.statistics import stats_columns
from lakecore.merge.groups import is_valid
from lakecore.model.rows import KEY_PREFIX
from lakecore.model.types import Atomic, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.model.files import DataFile, Split
    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field
    from lakecore.plan.evolution import ColumnMapping

_ROW_BITS = 40
_PLACE = f"{KEY_PREFIX}PLACE"
"""No column of a table has such a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Which columns are given as places, and the numbers of the files of a split, by name.

    `nulls`: a place is null where its value is. Who chooses whole rows need not know, and to know
    may take reading the values.
    """

    columns: frozenset[str]
    split: Split
    numbers: Mapping[str, int]
    nulls: bool

    def known_nulls(
        self, file: DataFile, schema: TableSchema, mappings: Sequence[ColumnMapping]
    ) -> dict[str, bool]:
        """Of placed columns of a file, as far as it is known unread, whether all is null.

        Otherwise nothing is, or nobody asks. `schema` is that of the file.
        """
        placed = [each for each in mappings if each.read.name in self.columns]
        if not self.nulls:
            return {each.read.name: False for each in placed}
        names = [field.name for field in stats_columns(file, schema)]
        counts = dict(zip(names, file.value_stats.null_counts or (), strict=False))
        known = {each.read.name: _all_null(each, counts, file.row_count) for each in placed}
        return {name: null for name, null in known.items() if null is not None}

    def asks_for_nulls(self, field: Field) -> bool:
        """Whether of a column nothing counts but nulls, which are the same before a cast."""
        return field.name in self.columns and not isinstance(field.type, Atomic)

    def uncast(self, mappings: Sequence[ColumnMapping]) -> tuple[ColumnMapping, ...]:
        """The mappings, placed columns of which nulls alone count as they are stored."""
        return tuple(
            replace(each, read=replace(each.stored, name=each.read.name), changed=False)
            if each.changed and each.stored is not None and self.asks_for_nulls(each.read)
            else each
            for each in mappings
        )

    def number(self, batch: pa.RecordBatch, file: DataFile, position: int) -> pa.RecordBatch:
        """Rows of a file, of which the first is at this position, with a column of their places."""
        first = place_of(self.numbers[file.name], position)
        places = pa.array(np.arange(first, first + batch.num_rows))
        return batch.append_column(_PLACE, places)

    def put_into(
        self, batch: pa.RecordBatch, fields: Sequence[Field], known: Mapping[str, bool]
    ) -> pa.RecordBatch:
        """The columns `fields` of rows with a column of their places, placed ones as places.

        The batch has all but those of which it is known whether they are null.
        """
        places = batch.column(_PLACE)
        columns: list[pa.Array] = []
        schema = arrow_schema(fields)
        for at, field in enumerate(fields):
            if field.name not in self.columns:
                columns.append(batch.column(field.name))
                continue
            schema = schema.set(at, pa.field(field.name, pa.int64()))
            if field.name not in known:
                valid = pa.array(is_valid(batch.column(field.name)))
                columns.append(pc.if_else(valid, places, pa.scalar(None, pa.int64())))
            elif known[field.name]:
                columns.append(pa.nulls(batch.num_rows, pa.int64()))
            else:
                columns.append(places)
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def place_of(number: int, row: int) -> int:
    """The place of a row of the file of a number."""
    return (number << _ROW_BITS) + row


Number = TypeVar("Number", int, np.ndarray)
"""One, or an array of them."""


def row_of(place: Number) -> tuple[Number, Number]:
    """The number of the file of a place, and the row there."""
    return place >> _ROW_BITS, place & ((1 << _ROW_BITS) - 1)


def _all_null(
    mapping: ColumnMapping, counts: Mapping[str, int | None], row_count: int
) -> bool | None:
    """Whether a column of a file is null in all rows, or in none; None: in some, or unknown.

    Of nested values engines do not count nulls alike.
    """
    stored = mapping.stored
    if stored is None:
        return True
    count = counts.get(stored.name)
    if count not in {0, row_count} or mapping.changed or not isinstance(stored.type, Atomic):
        return None
    return count == row_count
