"""listagg: strings joined by a delimiter.

1. Null and blank strings are ignored. Blank means Java's whitespace: the breaking spaces of
   Unicode, and the control characters 9 to 13 and 28 to 31.
2. Without `distinct`, the other strings of each group are joined in one call.
3. With `distinct`, the first string is kept unchanged. Later strings are split at the delimiter,
   and each token that is not blank and not yet present is added.

Paimon splits the joined string again at each step of 3. This gives the same result unless the
delimiter can overlap itself (such as `||` after a token that ends in `|`), or is empty (then Paimon
splits at spaces). For such delimiters, strings are joined rank by rank, two at a time; for all
others, in one step.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.merge.aggregators.collections import elements_of, equal_codes
from lakecore.merge.aggregators.fold import Aggregate, Fold
from lakecore.merge.groups import Groups, groups_of, is_valid, spread

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

    # A blank text becomes null.
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
    """The strings of each group joined."""
    offsets = pa.array(np.append(groups.starts, groups.length), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, texts), delimiter)


def _join_distinct(texts: pa.Array, groups: Groups, delimiter: str) -> pa.Array:
    """The first string of each group, joined with the new tokens of the others."""
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
