"""The elements of a column of lists or maps, concatenated in fold order.

1. `elements_of` flattens a column: for each element its position in the child arrays, its row and
   its group. Nothing is copied.
2. `equal_codes` finds equal elements by the rules of Paimon's Java: null equals null, NaN equals
   NaN, 0.0 differs from -0.0, and the order of a map's entries does not matter.
3. A function decides which elements remain. `Elements.of_groups` builds one list for each group
   from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.merge.groups import Groups, groups_of, is_valid
from lakecore.model.arrow_arrays import struct_array

if TYPE_CHECKING:
    from collections.abc import Sequence

_t = pa.types


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """The elements of all lists (or maps) in a column. Null lists have none.

    `at` is the position of each element in `children`, which holds list elements, or map keys and
    values. `rows` and `groups` are the row and the group of each element; both ascend.
    """

    type: pa.DataType
    children: tuple[pa.Array, ...]
    at: np.ndarray
    rows: np.ndarray
    groups: np.ndarray

    @property
    def count(self) -> int:
        """The number of elements."""
        return len(self.at)

    def child(self, index: int = 0) -> pa.Array:
        """A child array: the list elements, or the keys (0) or values (1) of a map."""
        return self.children[index].take(pa.array(self.at))

    def only(self, mask: np.ndarray) -> Elements:
        """The elements for which the mask holds."""
        return Elements(
            type=self.type,
            children=self.children,
            at=self.at[mask],
            rows=self.rows[mask],
            groups=self.groups[mask],
        )

    def of_groups(self, kept: np.ndarray, held: np.ndarray) -> pa.Array:
        """For each group, the list of its elements at the positions `kept`; null where not `held`.

        Within a group, positions may be in any order. All positions belong to groups that are held.
        """
        counts = np.bincount(self.groups[kept], minlength=len(held))
        at = pa.array(self.at[kept])
        return lists(self.type, counts, held, [child.take(at) for child in self.children])


def elements_of(values: pa.Array, groups: Groups) -> Elements:
    """The elements of the lists or maps in a column."""
    offsets = values.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    # A null list may still span elements.
    lengths = np.where(is_valid(values), np.diff(offsets), 0)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    rows = np.repeat(np.arange(len(values)), lengths)
    at = np.arange(total) + np.repeat(offsets[:-1] - (ends - lengths), lengths)
    is_map = _t.is_map(values.type)
    return Elements(
        type=values.type,
        children=(values.keys, values.items) if is_map else (values.values,),
        at=at,
        rows=rows,
        groups=groups.numbers[rows],
    )


def lists(
    kind: pa.DataType, counts: np.ndarray, held: np.ndarray, children: Sequence[pa.Array]
) -> pa.Array:
    """A list or map array of that type from the length of each list; null where not `held`."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    mask = None if held.all() else pa.array(~held)
    if _t.is_map(kind):
        keys, items = children
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
    return pa.ListArray.from_arrays(offsets, children[0], type=kind, mask=mask)


def equal_codes(columns: Sequence[np.ndarray | pa.Array]) -> np.ndarray:
    """For each row, the position of the first row that equals it in all columns."""
    frame = pl.DataFrame({str(index): _series(column) for index, column in enumerate(columns)})
    names = frame.columns
    # INVARIANT: `first` follows the row order within each partition.
    first = frame.with_row_index("row").select(pl.col("row").first().over(names)).to_series()
    return first.to_numpy().astype(np.int64)


@dataclass(frozen=True, slots=True)
class Alike:
    """Rows sorted by their code (stable), and the groups of rows with equal codes.

    `order[i]` is the row at position i; `runs` are the groups, as ranges of positions.
    """

    order: np.ndarray
    runs: Groups


def alike(codes: np.ndarray) -> Alike:
    """Sort rows by code, and group those with equal codes."""
    order = np.argsort(codes, kind="stable")
    return Alike(order, groups_of(codes[order]))


def _series(column: np.ndarray | pa.Array) -> pl.Series:
    if isinstance(column, np.ndarray):
        return pl.Series(column)
    series = pl.from_arrow(_comparable(column))
    assert isinstance(series, pl.Series)
    return series


def _comparable(array: pa.Array) -> pa.Array:
    """The array in a form that can be compared: floats as bits, maps with sorted entries."""
    kind = array.type
    if _t.is_floating(kind):
        return _float_bits(array)
    if _t.is_struct(kind):
        children = [_comparable(array.field(index)) for index in range(kind.num_fields)]
        fields = [pa.field(str(index), child.type) for index, child in enumerate(children)]
        return struct_array(array, children, fields)
    if _t.is_map(kind):
        return _sorted_entries(array)
    if _t.is_list(kind):
        elements = elements_of(array, _each(len(array)))
        inner = _comparable(elements.child())
        counts = np.bincount(elements.rows, minlength=len(array))
        return lists(pa.list_(inner.type), counts, is_valid(array), [inner])
    return array


def _float_bits(array: pa.Array) -> pa.Array:
    single = _t.is_float32(array.type)
    numbers = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
    # Java compares floats by their bits, and all NaNs are equal.
    numbers = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers)
    bits = numbers.view(np.int32 if single else np.int64)
    return pa.array(bits, mask=~is_valid(array))


def _sorted_entries(array: pa.Array) -> pa.Array:
    """The maps as lists of (code of the key, value), sorted by code."""
    elements = elements_of(array, _each(len(array)))
    keys = equal_codes([elements.child(0)])
    order = np.lexsort([keys, elements.rows])
    items = _comparable(elements.child(1)).take(pa.array(order))
    entries = pa.StructArray.from_arrays([pa.array(keys[order]), items], ["key", "value"])
    counts = np.bincount(elements.rows, minlength=len(array))
    return lists(pa.list_(entries.type), counts, is_valid(array), [entries])


def _each(count: int) -> Groups:
    """One group for each row."""
    return Groups(np.arange(count), count)
