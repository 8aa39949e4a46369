"""Which row groups of a data file may hold matching rows.

INVARIANT: if rows are merged afterwards, only conditions on the key prune row groups. Such a
condition is true for all rows of a key or for none, so no older row reappears.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.format.binary_row import decode_rows
from lakecore.format.statistics import stats_columns
from lakecore.io.files.data_files import row_group_bounds
from lakecore.merge.keys import is_valid, order_columns
from lakecore.model.rows import KEY_PREFIX
from lakecore.model.types import Atomic, Field, Root, arrow_schema, arrow_type
from lakecore.plan.pruning import may_match

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.io.files.file_format import RowGroup
    from lakecore.io.stores.store import Store
    from lakecore.model.files import DataFile, Split
    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate
    from lakecore.rows.evolution import ColumnMapping

_LOW, _HIGH, _NULLS = range(3)


def matching_row_groups(
    store: Store, path: str, condition: Predicate, columns: Mapping[str, ColumnMapping]
) -> list[int] | None:
    """The row groups that may hold a matching row, ascending; None if the file has no row groups.

    `columns`: the columns of the condition. A column that the file lacks, or stores with another
    type, counts as unknown.
    """
    found = bounded_row_groups(store, path, columns)
    if found is None or len(found.groups) <= 1:
        return None
    rows = np.array([group.row_count for group in found.groups], np.int64)
    mask = may_match(condition, found.low, found.high, found.nulls, rows)
    return [int(index) for index in np.flatnonzero(mask)]


@dataclass(frozen=True, slots=True)
class BoundedRowGroups:
    """The row groups of a file, with minimum, maximum and null count of each column.

    Unknown values are null.
    """

    groups: Sequence[RowGroup]
    low: pa.RecordBatch
    high: pa.RecordBatch
    nulls: pa.RecordBatch


def bounded_row_groups(
    store: Store, path: str, columns: Mapping[str, ColumnMapping]
) -> BoundedRowGroups | None:
    """The row groups with bounds of these columns; None if the file has no row groups."""
    stored = {
        name: mapping.stored.name
        for name, mapping in columns.items()
        if mapping.stored is not None and not mapping.changed
    }
    groups = row_group_bounds(store, path, list(stored.values()))
    if groups is None:
        return None
    fields = [mapping.read for mapping in columns.values()]
    low, high, nulls = (
        pa.RecordBatch.from_arrays(
            [_column(groups, field, stored.get(field.name), part) for field in fields],
            [field.name for field in fields],
        )
        for part in (_LOW, _HIGH, _NULLS)
    )
    return BoundedRowGroups(groups, low, high, nulls)


def _column(groups: Sequence[RowGroup], field: Field, name: str | None, part: int) -> pa.Array:
    """Minima, maxima or null counts of a column, one value for each row group."""
    if part == _NULLS:
        return pa.array([None if name is None else g.null_counts[name] for g in groups], pa.int64())
    kind = arrow_type(field.type)
    bounds = [None if name is None else group.bounds[name] for group in groups]
    values = [None if bound is None else bound[part] for bound in bounds]
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.nulls(len(groups), kind)


# --- keys ----------------------------------------------------------------------------------------
# The bounds of the keys of files and of their row groups, as `OrderColumns.at` gives them.

_UNORDERED = frozenset({Root.FLOAT, Root.DOUBLE})
"""Types whose bounds ignore NaN and do not distinguish -0.0 from 0.0."""


@dataclass(frozen=True, slots=True)
class BoundedFile:
    """A file with its first and last key."""

    file: DataFile
    low: tuple[object, ...]
    high: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """A row group: its rows, and bounds of its keys. If `index` is None, the whole file."""

    index: int | None
    first_row: int
    row_count: int
    low: tuple[object, ...] = ()
    high: tuple[object, ...] = ()

    @property
    def end(self) -> int:
        return self.first_row + self.row_count


def bounded_files(files: Sequence[DataFile], key: Sequence[Field]) -> list[BoundedFile]:
    """The files with the bounds that their manifest entries state."""
    low, high = (
        order_columns(decode_rows(bounds, key).columns)
        for bounds in ([file.key_min for file in files], [file.key_max for file in files])
    )
    return [BoundedFile(file, low.at(n), high.at(n)) for n, file in enumerate(files)]


def key_groups(
    store: Store, path: str, file: DataFile, key: Mapping[str, ColumnMapping]
) -> tuple[KeyGroup, ...]:
    """The row groups that have rows; the whole file if the bounds of its keys are not known."""
    whole = (KeyGroup(None, 0, file.row_count),)
    kinds = [each.read.type for each in key.values()]
    if any(isinstance(kind, Atomic) and kind.root in _UNORDERED for kind in kinds):
        return whole
    found = bounded_row_groups(store, path, key)
    if found is None or not found.groups:
        return whole
    if any(column.null_count for column in (*found.low.columns, *found.high.columns)):
        return whole
    low, high = order_columns(found.low.columns), order_columns(found.high.columns)
    return tuple(
        KeyGroup(group.index, group.first_row, group.row_count, low.at(number), high.at(number))
        for number, group in enumerate(found.groups)
        if group.row_count
    )


# --- places --------------------------------------------------------------------------------------
# Places: numbers that stand for large values during a merge.
#
# A *place* is an integer that encodes a file and the position of a row in it. A merge that only
# chooses among values can choose among places instead, whatever the size of the values. A place is
# null where its value is null. The chosen values are read after the merge
# (`sections/large_rows.py`).

_ROW_BITS = 40
_PLACE = f"{KEY_PREFIX}PLACE"
"""No column of a table has such a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The columns that are merged by place, and the number of each file of a split, by file name.

    `nulls`: whether a place is null where its value is null. A merge that chooses whole rows does
    not need this, and finding the nulls may require reading the values.
    """

    columns: frozenset[str]
    split: Split
    numbers: Mapping[str, int]
    nulls: bool

    def known_nulls(
        self, file: DataFile, schema: TableSchema, mappings: Sequence[ColumnMapping]
    ) -> dict[str, bool]:
        """For each placed column, whether all of its values in a file are null.

        The result has only columns whose nulls are known without reading; False means that no value
        is null, or that nulls do not matter. `schema`: the schema of the file.
        """
        placed = [each for each in mappings if each.read.name in self.columns]
        if not self.nulls:
            return {each.read.name: False for each in placed}
        names = [field.name for field in stats_columns(file, schema)]
        counts = dict(zip(names, file.value_stats.null_counts or (), strict=False))
        known = {each.read.name: _all_null(each, counts, file.row_count) for each in placed}
        return {name: null for name, null in known.items() if null is not None}

    def asks_for_nulls(self, field: Field) -> bool:
        """Whether the merge only needs to know where the column is null.

        A cast does not change nulls.
        """
        return field.name in self.columns and not isinstance(field.type, Atomic)

    def uncast(self, mappings: Sequence[ColumnMapping]) -> tuple[ColumnMapping, ...]:
        """The mappings. If only the nulls of a column matter, the column is read without a cast."""
        return tuple(
            replace(each, read=replace(each.stored, name=each.read.name), changed=False)
            if each.changed and each.stored is not None and self.asks_for_nulls(each.read)
            else each
            for each in mappings
        )

    def number(self, batch: pa.RecordBatch, file: DataFile, position: int) -> pa.RecordBatch:
        """The batch with a column of places added; its first row is at `position` of the file."""
        first = place_of(self.numbers[file.name], position)
        places = pa.array(np.arange(first, first + batch.num_rows))
        return batch.append_column(_PLACE, places)

    def put_into(
        self, batch: pa.RecordBatch, fields: Sequence[Field], known: Mapping[str, bool]
    ) -> pa.RecordBatch:
        """The columns `fields`; the columns merged by place have places instead of values.

        `batch` has a column of places, and the columns of `fields` that are not in `known`.
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
    """The place (see the module) of row `row` in the file with this number."""
    return (number << _ROW_BITS) + row


Number = TypeVar("Number", int, np.ndarray)
"""One number, or an array of numbers."""


def row_of(place: Number) -> tuple[Number, Number]:
    """The file number and the row position that a place encodes."""
    return place >> _ROW_BITS, place & ((1 << _ROW_BITS) - 1)


def _all_null(
    mapping: ColumnMapping, counts: Mapping[str, int | None], row_count: int
) -> bool | None:
    """Whether a column of a file is null in all rows (True) or in none (False); else None.

    Returns None for nested columns: engines count their nulls differently.
    """
    stored = mapping.stored
    if stored is None:
        return True
    count = counts.get(stored.name)
    if count not in {0, row_count} or mapping.changed or not isinstance(stored.type, Atomic):
        return None
    return count == row_count
