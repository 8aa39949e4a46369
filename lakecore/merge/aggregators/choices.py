"""Aggregate functions that choose one of the values, and those that join strings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.merge.aggregators.collections import elements_of, equal_codes
from lakecore.merge.aggregators.fold import (
    FIRST,
    FIRST_NON_NULL,
    LAST,
    LAST_NON_NULL,
    Aggregate,
    Fold,
    Step,
    kept_last,
)
from lakecore.merge.keys import (
    NONE,
    Groups,
    bits_of,
    groups_of,
    is_valid,
    order_columns,
    pick,
    shared_codes,
    spread,
    with_width,
)
from lakecore.model.types import INTEGERS, Atomic, Root, arrow_type


def last_value(aggregate: Aggregate) -> Fold:
    """The last value, null or not; null if the last value was retracted."""
    del aggregate
    return Fold(choice=LAST, retracts=True, keeps=None)


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
    """For each group, `decisive` if any value equals it, else the opposite; null without values."""
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


# --- texts ---------------------------------------------------------------------------------------
# listagg: strings joined by a delimiter.
#
# 1. Null and blank strings are ignored. Blank means Java's whitespace: the breaking spaces of
#    Unicode, and the control characters 9 to 13 and 28 to 31.
# 2. Without `distinct`, the other strings of each group are joined in one call.
# 3. With `distinct`, the first string is kept unchanged. Later strings are split at the delimiter,
#    and each token that is not blank and not yet present is added.
#
# Paimon splits the joined string again at each step of 3. Splitting once gives the same result
# unless the delimiter can overlap itself (such as `||` after a token that ends in `|`), or is empty
# (then Paimon splits at spaces). For such delimiters, strings are joined rank by rank, two at a
# time; for all others, in one step.

_BLANK = (
    r"\A[\t-\r\x1c-\x20\x{1680}\x{2000}-\x{2006}\x{2008}-\x{200a}"
    r"\x{2028}\x{2029}\x{205f}\x{3000}]*\z"
)


def listagg(aggregate: Aggregate) -> Fold:
    """The strings joined by the delimiter, each token once with `distinct`; null if all are blank.

    As in Paimon, the result of a VARCHAR or CHAR column may exceed the length of its type.
    """
    delimiter = aggregate.delimiter
    distinct = aggregate.distinct

    def fold(values: pa.Array, groups: Groups, _: np.ndarray | None) -> pa.Array:
        rows, numbers, spoken = groups.only(_speaks(values))
        texts = values.take(pa.array(rows))
        if not distinct:
            joined = _join(texts, spoken, delimiter)
        elif _overlaps_itself(delimiter):
            joined = _join_distinct_by_rank(texts, spoken, delimiter)
        else:
            joined = _join_distinct(texts, spoken, delimiter)
        return spread(joined, numbers, groups.count)

    # A blank string becomes null.
    by_rank = distinct and _overlaps_itself(delimiter)
    return Fold(fold=fold, keeps_added=_all_of_many if by_rank else None, changes_single=True)


def _all_of_many(values: pa.Array, groups: Groups) -> np.ndarray:
    """The strings of groups that have several: each step splits what was joined before."""
    mask = _speaks(values)
    many = np.add.reduceat(mask.astype(np.int64), groups.starts) > 1
    return mask & np.repeat(many, groups.sizes)


def _speaks(values: pa.Array) -> np.ndarray:
    """A mask of the strings that count: neither null nor blank."""
    mask: np.ndarray = is_valid(values) & ~_is_blank(values)
    return mask


def _is_blank(values: pa.Array) -> np.ndarray:
    blank = pc.match_substring_regex(values, _BLANK)
    mask: np.ndarray = pc.fill_null(blank, True).to_numpy(zero_copy_only=False)
    return mask


def _join(texts: pa.Array, groups: Groups, delimiter: str) -> pa.Array:
    offsets = pa.array(np.append(groups.starts, groups.length), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, texts), delimiter)


def _join_distinct(texts: pa.Array, groups: Groups, delimiter: str) -> pa.Array:
    split = pc.split_pattern(texts, delimiter or " ")
    elements = elements_of(split, groups)
    tokens = elements.child()
    codes = equal_codes([elements.groups, tokens])
    of_first = elements.rows == groups.starts[elements.groups]
    fresh = (codes == np.arange(elements.count)) & ~_is_blank(tokens)
    if delimiter:
        kept = np.flatnonzero(of_first | fresh)
        return _join(tokens.take(pa.array(kept)), groups_of(elements.groups[kept]), delimiter)
    # An empty delimiter splits at spaces but joins without them: the first string is kept whole.
    kept = np.flatnonzero(~of_first & fresh)
    parts = pa.concat_arrays([texts.take(pa.array(groups.starts)), tokens.take(pa.array(kept))])
    numbers = np.concatenate([np.arange(groups.count), elements.groups[kept]])
    order = np.argsort(numbers, kind="stable")
    return _join(parts.take(pa.array(order)), groups_of(numbers[order]), delimiter)


def _join_distinct_by_rank(texts: pa.Array, groups: Groups, delimiter: str) -> pa.Array:
    """As `_join_distinct`, for delimiters where a joined string does not split into its parts."""
    joined = texts.take(pa.array(groups.starts))
    for rank, (alive, rows) in enumerate(groups.ranks()):
        if rank == 0:
            continue
        pairs = pa.concat_arrays([joined.take(pa.array(alive)), texts.take(pa.array(rows))])
        count = len(alive)
        order = np.arange(2 * count).reshape(2, count).T.ravel()
        longer = _join_distinct(
            pairs.take(pa.array(order)), Groups(np.arange(0, 2 * count, 2), 2 * count), delimiter
        )
        place = np.arange(groups.count)
        place[alive] = groups.count + np.arange(count)
        joined = pa.concat_arrays([joined, longer]).take(pa.array(place))
    return joined


def _overlaps_itself(delimiter: str) -> bool:
    """Whether the delimiter is empty, or some proper suffix of it is also a prefix."""
    return not delimiter or any(
        delimiter.startswith(delimiter[cut:]) for cut in range(1, len(delimiter))
    )
