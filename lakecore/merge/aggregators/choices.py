"""Functions that return one of the values (last, first), or combine booleans (and, or)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakecore.merge.aggregators.fold import (
    FIRST,
    FIRST_NON_NULL,
    LAST,
    LAST_NON_NULL,
    Aggregate,
    Fold,
    Step,
    kept_last,
    kept_none,
)
from lakecore.merge.groups import NONE, Groups, bits_of, is_valid, pick, with_width
from lakecore.merge.keys import order_columns, shared_codes
from lakecore.model.types import INTEGERS, Atomic, Root, arrow_type


def last_value(aggregate: Aggregate) -> Fold:
    """The last value, null or not; null if the last value was retracted."""
    del aggregate
    return Fold(choice=LAST, retracts=True, keeps=kept_none)


def last_non_null_value(aggregate: Aggregate) -> Fold:
    """The last non-null value; null if the last non-null value was retracted."""
    del aggregate
    return Fold(choice=LAST_NON_NULL, retracts=True, keeps=kept_last)


def first_value(aggregate: Aggregate) -> Fold:
    """The first value, null or not."""
    del aggregate
    return Fold(choice=FIRST)


def first_non_null_value(aggregate: Aggregate) -> Fold:
    """The first non-null value."""
    del aggregate
    return Fold(choice=FIRST_NON_NULL)


def bool_and(aggregate: Aggregate) -> Fold:
    """Whether every non-null value is true."""
    del aggregate
    return Fold(
        fold=lambda values, groups, _: _truth(values, groups, decisive=False), commutes=True
    )


def bool_or(aggregate: Aggregate) -> Fold:
    """Whether any value is true."""
    del aggregate
    return Fold(fold=lambda values, groups, _: _truth(values, groups, decisive=True), commutes=True)


def _truth(values: pa.Array, groups: Groups, *, decisive: bool) -> pa.Array:
    """`decisive` if any value equals it, else the opposite value; null if all values are null."""
    known = is_valid(values)
    is_decisive = known & (
        values.fill_null(not decisive).to_numpy(zero_copy_only=False) == decisive
    )
    decided = groups.any(is_decisive)
    return pa.array(decided if decisive else ~decided, mask=~groups.any(known))


# --- extremes ------------------------------------------------------------------------------------
# Maximum and minimum, in the order of keys: NaN is the greatest value, and -0.0 is below 0.0.

_NUMBERED = {*INTEGERS, Root.DATE, Root.TIME, Root.TIMESTAMP, Root.TIMESTAMP_LTZ}


def max_of(aggregate: Aggregate) -> Fold:
    """The greatest value; nulls are ignored."""
    return _extreme_of(aggregate, np.maximum)


def min_of(aggregate: Aggregate) -> Fold:
    """The least value; nulls are ignored."""
    return _extreme_of(aggregate, np.minimum)


def _extreme_of(aggregate: Aggregate, better: np.ufunc) -> Fold:
    if not _is_numbered(aggregate):
        return Fold(fold=lambda values, groups, _: _extreme(values, groups, better), commutes=True)
    limits = np.iinfo(f"i{arrow_type(aggregate.type).bit_width // 8}")
    neutral = limits.dtype.type(limits.min if better is np.maximum else limits.max)
    return Fold(
        fold=lambda values, groups, _: _extreme_number(values, groups, better),
        step=Step(neutral=neutral, join=better, fits=lambda _: True),
        commutes=True,
    )


def _is_numbered(aggregate: Aggregate) -> bool:
    """Whether NumPy and Arrow order the values in the same way: integers, dates and times."""
    return isinstance(aggregate.type, Atomic) and aggregate.type.root in _NUMBERED


def _extreme(values: pa.Array, groups: Groups, better: np.ufunc) -> pa.Array:
    """The maximum or minimum of each group in key order; of equal values, the first."""
    known = is_valid(values)
    rows, numbers, left = groups.only(known)
    at = np.full(groups.count, NONE)
    if left.count:
        given = values if left.length == len(values) else values.take(pa.array(rows))
        (codes,) = shared_codes([order_columns([given])])
        best = better.reduceat(codes, left.starts)
        at[numbers] = rows[left.first(codes == np.repeat(best, left.sizes))]
    return pick(values, at)


def _extreme_number(values: pa.Array, groups: Groups, better: np.ufunc) -> pa.Array:
    """Like `_extreme`, for integers, dates and times, which need no ranks."""
    known, numbers = is_valid(values), bits_of(values)
    if known.all():
        return with_width(better.reduceat(numbers, groups.starts), None, values.type)
    limit = getattr(np.iinfo(numbers.dtype), "min" if better is np.maximum else "max")
    best = better.reduceat(np.where(known, numbers, limit), groups.starts)
    return with_width(best, groups.any(known), values.type)
