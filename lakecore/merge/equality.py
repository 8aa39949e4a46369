"""Which rows of two tables are equal, by Java's rules for a row before and after a change.

Null equals null. Floats follow Java's order: NaN equals NaN, and -0.0 differs from 0.0. Lists are
compared by element, rows by field. Maps are equal if they hold the same entries in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.merge.groups import in_one, is_valid
from lakecore.merge.keys import order_columns, shared_codes

if TYPE_CHECKING:
    from collections.abc import Sequence


def equal_rows(left: pa.Table, right: pa.Table, columns: Sequence[str]) -> np.ndarray:
    """For each row index, whether the rows of both tables are equal in these columns."""
    same = np.ones(left.num_rows, bool)
    for name in columns:
        if not same.any():
            break
        same &= equal_values(in_one(left.column(name)), in_one(right.column(name)))
    return same


def equal_values(left: pa.Array, right: pa.Array) -> np.ndarray:
    """For each index, whether the values of two arrays of one type are equal."""
    there, also = is_valid(left), is_valid(right)
    kind = left.type
    if pa.types.is_struct(kind):
        same = np.ones(len(left), bool)
        for place in range(kind.num_fields):
            same &= equal_values(left.field(place), right.field(place))
    elif pa.types.is_map(kind):
        same = _equal_maps(left, right, there & also)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        same = _equal_lists(left, right, there & also)
    elif pa.types.is_floating(kind):
        same = _in_order(left) == _in_order(right)
    else:
        same = np.asarray(pc.fill_null(pc.equal(left, right), fill_value=False))
    equal: np.ndarray = np.where(there & also, same, there == also)
    return equal


def _in_order(values: pa.Array) -> np.ndarray:
    (ordered,) = order_columns([pc.fill_null(values, 0.0)]).columns
    return np.asarray(ordered)


def _equal_lists(left: pa.Array, right: pa.Array, both: np.ndarray) -> np.ndarray:
    rows, entries = _entries(left, right, both)
    owners, at, other = entries
    elements = equal_values(left.values.take(pa.array(at)), right.values.take(pa.array(other)))
    return _all_equal(rows, owners, elements)


def _equal_maps(left: pa.Array, right: pa.Array, both: np.ndarray) -> np.ndarray:
    rows, entries = _entries(left, right, both)
    owners, at, other = entries
    keys, others = left.keys.take(pa.array(at)), right.keys.take(pa.array(other))
    if not pa.types.is_nested(keys.type):
        codes = shared_codes([order_columns([keys]), order_columns([others])])
        at, other = (
            places[np.lexsort((code, owners))]
            for places, code in zip((at, other), codes, strict=True)
        )
        keys, others = left.keys.take(pa.array(at)), right.keys.take(pa.array(other))
    elements = equal_values(keys, others)
    elements &= equal_values(left.items.take(pa.array(at)), right.items.take(pa.array(other)))
    return _all_equal(rows, owners, elements)


def _entries(
    left: pa.Array, right: pa.Array, both: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """A mask of rows with non-null lists of equal length on both sides, and their entries.

    For each entry: its row, its position on the left, and its position on the right.
    """
    starts, ends = _bounds(left)
    others, other_ends = _bounds(right)
    rows = both & (ends - starts == other_ends - others)
    sizes = np.where(rows, ends - starts, 0)
    before = np.cumsum(sizes) - sizes
    owners = np.repeat(np.arange(len(left)), sizes)
    ranks = np.arange(len(owners)) - np.repeat(before, sizes)
    return rows, (owners, starts[owners] + ranks, others[owners] + ranks)


def _bounds(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    offsets = values.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    return offsets[:-1], offsets[1:]


def _all_equal(rows: np.ndarray, owners: np.ndarray, elements: np.ndarray) -> np.ndarray:
    same = rows.copy()
    same[owners[~elements]] = False
    return same
