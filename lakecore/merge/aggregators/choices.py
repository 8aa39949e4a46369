"""Functions that return one of the values (last, first), or combine booleans (and, or)."""

from __future__ import annotations

import pyarrow as pa

from lakecore.merge.aggregators.fold import (
    FIRST,
    FIRST_NON_NULL,
    LAST,
    LAST_NON_NULL,
    Aggregate,
    Fold,
    kept_last,
    kept_none,
)
from lakecore.merge.groups import Groups, is_valid


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
