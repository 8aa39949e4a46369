"""Functions over lists and maps: collect, merge_map, merge_map_with_keytime.

The result for an element or entry depends only on the elements equal to it, or on the entries of
its key, in fold order. The elements of all groups are concatenated and grouped by value; which of
them remain has a closed form for each function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from lakecore.errors import InvalidRequest
from lakecore.merge.aggregators.elements import Elements, alike, elements_of, equal_codes
from lakecore.merge.aggregators.fold import Aggregate, Fold
from lakecore.merge.groups import NONE, Groups, is_valid
from lakecore.model.types import STRINGS, Atomic, Map, Row

if TYPE_CHECKING:
    import pyarrow as pa


def collect(aggregate: Aggregate) -> Fold:
    """The elements of all lists, one list after another; with `distinct` each value once.

    Retracting a list removes, for each of its elements, the oldest equal element. Null if every
    added list was null. Elements of any type are compared by value.
    """
    distinct = aggregate.distinct

    def fold(values: pa.Array, groups: Groups, retract: np.ndarray | None) -> pa.Array:
        elements = elements_of(values, groups)
        held = _held(values, groups, retract)
        if retract is None and not distinct:
            return elements.of_groups(np.arange(elements.count), held)
        codes = equal_codes([elements.groups, elements.child()])
        if retract is None:
            stays = codes == np.arange(elements.count)
        elif distinct:
            stays = _present(codes, retract[elements.rows])
        else:
            stays = _not_taken_back(codes, retract[elements.rows])
        return elements.of_groups(np.flatnonzero(stays), held)

    return Fold(fold=fold, retracts=True, changes_single=distinct, reverses=False)


def merge_map(aggregate: Aggregate) -> Fold:
    """The entries of all maps, the last entry of each key; retracting a map removes its keys.

    Null if every added map was null.
    """
    del aggregate

    def fold(values: pa.Array, groups: Groups, retract: np.ndarray | None) -> pa.Array:
        elements = elements_of(values, groups)
        same = alike(_key_codes(elements))
        stays = np.zeros(elements.count, bool)
        stays[same.order[same.runs.lasts]] = True
        if retract is not None:
            stays &= ~retract[elements.rows]
        return elements.of_groups(np.flatnonzero(stays), _held(values, groups, retract))

    return Fold(fold=fold, retracts=True)


def merge_map_with_keytime(aggregate: Aggregate) -> Fold:
    """For each key of all maps, the entry with the greatest time; of equal times, the earlier one.

    The time is a text field of the value ROW: `fields.X.ts-field`, or the last field. An entry
    whose value is null removes the key. An entry without a time is ignored, except in the first
    map, which is taken unchanged; any later entry with a time replaces it. Times are compared by
    code point. (Java compares UTF-16 units, which differs only beyond U+DFFF.)
    """
    time_field = _time_field(aggregate)

    def fold(values: pa.Array, groups: Groups, _: np.ndarray | None) -> pa.Array:
        elements = elements_of(values, groups)
        in_first = elements.rows == groups.first(is_valid(values))[elements.groups]
        same = alike(_key_codes(elements))
        rows = elements.child(1)
        known = is_valid(rows)
        removes = (~known & ~in_first)[same.order]
        times = _ranks(rows.field(time_field))
        score = np.where(known, times, NONE)[same.order]
        place = np.arange(elements.count)
        of_run = same.runs.numbers
        removed = same.runs.last(removes)
        score[place < removed[of_run]] = NONE
        best = _greatest(score, same.runs)
        chosen = same.runs.first((score == best[of_run]) & (score != NONE))
        # Without any time, an entry of the first map is kept.
        untouched = (best == NONE) & (removed == NONE) & in_first[same.order[same.runs.starts]]
        chosen = np.where(untouched, same.runs.starts, chosen)
        kept = np.sort(same.order[chosen[chosen != NONE]])
        return elements.of_groups(kept, _held(values, groups, None))

    return Fold(fold=fold, keeps_added=_removing)


def _removing(values: pa.Array, groups: Groups) -> np.ndarray:
    """A mask of the maps that remove keys, of whatever maps come before them."""
    elements = elements_of(values, groups)
    mask = np.zeros(len(values), bool)
    mask[elements.rows[~is_valid(elements.child(1))]] = True
    return mask


def _held(values: pa.Array, groups: Groups, retract: np.ndarray | None) -> np.ndarray:
    """A mask of the groups in which a value was added. A retraction alone adds no value."""
    valid = is_valid(values)
    return groups.any(valid if retract is None else valid & ~retract)


def _key_codes(elements: Elements) -> np.ndarray:
    return equal_codes([elements.groups, elements.child(0)])


def _present(codes: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """A mask of the elements of a set: the first of equal ones after their last retraction."""
    same = alike(codes)
    place = np.arange(len(codes))
    since = same.runs.last(taken[same.order])[same.runs.numbers]
    first = same.runs.first(place > since)
    stays = np.zeros(len(codes), bool)
    stays[same.order[first[first != NONE]]] = True
    return stays


def _not_taken_back(codes: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """For a multiset: a mask of the elements that remain after retractions.

    The count of a value never falls below zero, so its final count is the running sum minus the
    lowest negative value of that sum. The oldest elements are removed first, so the newest remain.
    """
    same = alike(codes)
    if not len(codes):
        return np.zeros(0, bool)
    steps = np.where(taken, -1, 1)[same.order]
    sums = np.cumsum(steps)
    before = (sums - steps)[same.runs.starts]
    of_run = same.runs.numbers
    sums -= before[of_run]
    lowest = np.minimum(np.minimum.reduceat(sums, same.runs.starts), 0)
    left = sums[same.runs.lasts] - lowest
    added = (steps > 0).astype(np.int64)
    upto = np.cumsum(added)
    newer = upto[same.runs.lasts][of_run] - upto
    stays = np.zeros(len(codes), bool)
    stays[same.order] = (added > 0) & (newer < left[of_run])
    return stays


def _ranks(texts: pa.Array) -> np.ndarray:
    """A rank for each string, larger for a greater string; NONE for null."""
    series = pl.from_arrow(texts)
    assert isinstance(series, pl.Series)
    ranks: np.ndarray = series.rank("dense").cast(pl.Int64).fill_null(NONE).to_numpy()
    return ranks


def _greatest(score: np.ndarray, runs: Groups) -> np.ndarray:
    if not runs.count:
        return score
    greatest: np.ndarray = np.maximum.reduceat(score, runs.starts)
    return greatest


def _time_field(aggregate: Aggregate) -> int:
    """The position of the time field in the ROW of the map's values."""
    value = aggregate.type.value if isinstance(aggregate.type, Map) else None
    if not isinstance(value, Row) or len(value.fields) < 2:
        raise InvalidRequest(
            "the values of the map must be rows of at least two fields",
            column=aggregate.column,
            function=aggregate.function,
            type=aggregate.type,
        )
    names = [field.name for field in value.fields]
    name = names[-1] if aggregate.ts_field is None else aggregate.ts_field
    if name not in names:
        raise InvalidRequest(
            "the option names a field that does not exist",
            option=f"fields.{aggregate.column}.ts-field",
            value=name,
            fields=names,
        )
    place = names.index(name)
    kind = value.fields[place].type
    if not isinstance(kind, Atomic) or kind.root not in STRINGS:
        raise InvalidRequest(
            "the time of an entry must be a string",
            column=aggregate.column,
            function=aggregate.function,
            field=name,
            type=kind,
        )
    return place
