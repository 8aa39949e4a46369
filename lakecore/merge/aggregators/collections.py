"""Functions over lists and maps: collect, merge_map, merge_map_with_keytime.

The result for an element or entry depends only on the elements equal to it, or on the entries of
its key, in fold order. The elements of all groups are concatenated and grouped by value; which of
them remain has a closed form for each function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.merge.aggregators.fold import Aggregate, Fold
from lakecore.merge.keys import NONE, Groups, groups_of, is_valid, pick, sequence_codes
from lakecore.model.arrow_arrays import struct_array
from lakecore.model.types import STRINGS, Array, Atomic, Map, Row

if TYPE_CHECKING:
    from collections.abc import Sequence


# --- elements ------------------------------------------------------------------------------------
# The elements of a column of lists or maps, concatenated in fold order.
#
# 1. `elements_of` flattens a column: for each element its position in the child arrays, its row and
#    its group. Nothing is copied.
# 2. `equal_codes` finds equal elements by the rules of Paimon's Java: null equals null, NaN equals
#    NaN, 0.0 differs from -0.0, and the order of a map's entries does not matter.
# 3. A function decides which elements remain. `Elements.of_groups` builds one list for each group
#    from them.

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
        return len(self.at)

    def child(self, index: int = 0) -> pa.Array:
        """A child array: the list elements, or the keys (0) or values (1) of a map."""
        return self.children[index].take(pa.array(self.at))

    def only(self, mask: np.ndarray) -> Elements:
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
    offsets = values.offsets.to_numpy().astype(np.int64)
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
    numbers = pc.fill_null(array, 0.0).to_numpy()
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


# --- collections ---------------------------------------------------------------------------------


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

    The time is a string field of the value ROW: `fields.X.ts-field`, or the last field. An entry
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
    """A mask of the maps that always remove keys, whichever maps come before them."""
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
    """A mask of the elements of a set: of equal elements, the first after the last retraction."""
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


# --- nested --------------------------------------------------------------------------------------
# Functions over lists of rows (a table inside a column): nested_update, nested_partial_update.
#
# The rows of all groups are concatenated, and rows with the same nested key are brought together.
#
# - Without a limit, each key is independent. After its last retraction, its last row remains, or
#   the last of those with the greatest nested sequence.
# - `count-limit` accepts only the first keys of a list (or, without a nested key, the first rows).
#   Without retractions this needs only the rank of each key in its group.
# - With a limit, a retraction makes room for another key, so the result depends on the order of
#   additions and retractions. Such a column is folded in turns: a turn is the additions of each
#   group up to its next retraction.
#
# Null rows are ignored. The result holds the keys in the order of their first row; Paimon does not
# define an order.

_NULL_KEYS = ("merge", "ignore", "error")


def nested_update(aggregate: Aggregate) -> Fold:
    """The newest row of each nested key in all lists; without a nested key, all rows.

    Retracting a list removes its keys, or, without a nested key, every row that equals one of its
    rows. Null if every added list was null.
    """
    rule = _rule(aggregate)

    def fold(values: pa.Array, groups: Groups, retract: np.ndarray | None) -> pa.Array:
        valid = is_valid(values)
        elements, rows = _rows(elements_of(values, groups), rule)
        taken = None if retract is None else retract[elements.rows]
        held = groups.any(valid if retract is None else valid & ~retract)
        entries = _entries(elements, rows, rule, compared=bool(rule.key) or taken is not None)
        if taken is None:
            kept = entries.admit(np.arange(elements.count))
        elif rule.limit is None:
            kept = entries.outlast(taken)
        else:
            kept = entries.take_turns(taken)
        return elements.of_groups(kept, held)

    def beyond_limit(values: pa.Array, groups: Groups) -> np.ndarray:
        """The lists of groups that reach the limit: a row beyond it may update an older key."""
        elements, _ = _rows(elements_of(values, groups), rule)
        counts = np.bincount(elements.groups, minlength=groups.count)
        full: np.ndarray = np.repeat(counts > (rule.limit or 0), groups.sizes)
        return full

    limited = bool(rule.key) and rule.limit is not None
    return Fold(
        fold=fold, retracts=True, keeps_added=beyond_limit if limited else None, changes_single=True
    )


def nested_partial_update(aggregate: Aggregate) -> Fold:
    """One row for each nested key of all lists, with the last non-null value of each field.

    Null if every list was null.
    """
    rule = _rule(aggregate)
    if not rule.key:
        raise InvalidRequest(
            "the function needs a nested key",
            column=aggregate.column,
            function=aggregate.function,
            option=f"fields.{aggregate.column}.nested-key",
        )

    def fold(values: pa.Array, groups: Groups, _: np.ndarray | None) -> pa.Array:
        elements, rows = _rows(elements_of(values, groups), rule)
        same = alike(_nested_key_codes(elements, rows, rule))
        appeared = same.order[same.runs.starts]
        by_age = np.argsort(appeared)
        children = []
        for field in rows.flatten():
            last = same.runs.last(is_valid(field)[same.order])[by_age]
            children.append(pick(field, np.where(last == NONE, NONE, same.order[last])))
        merged = pa.StructArray.from_arrays(children, fields=list(rows.type))
        counts = np.bincount(elements.groups[appeared], minlength=groups.count)
        return lists(values.type, counts, groups.any(is_valid(values)), [merged])

    return Fold(fold=fold, changes_single=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    column: str
    key: tuple[int, ...]
    sequence: tuple[int, ...]
    null_keys: str
    limit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entries:
    """The rows of all groups, in order, represented by numbers.

    Two rows have the same code if they have the same group and key (without a key: if they are
    equal). `sequence` increases with the nested sequence. All positions, given and returned, are
    sorted by group.
    """

    groups: np.ndarray
    codes: np.ndarray
    sequence: np.ndarray | None
    keyed: bool
    limit: int | None

    def admit(self, at: np.ndarray) -> np.ndarray:
        """The positions that remain if these rows are added one after another."""
        if not self.keyed:
            first: np.ndarray = at[_places(self.groups[at]) < (self.limit or 0)]
            return at if self.limit is None else first
        same = alike(self.codes[at])
        chosen = self._newest(at, same.order, same.runs, np.ones(len(at), bool))
        appeared = same.order[same.runs.starts]
        by_age = np.argsort(appeared)
        kept: np.ndarray = at[same.order[chosen[by_age]]]
        if self.limit is not None:
            kept = kept[_places(self.groups[kept]) < self.limit]
        return kept

    def outlast(self, taken: np.ndarray) -> np.ndarray:
        """For a column without a count limit: the positions of the rows that remain at the end.

        `taken` marks the retractions; each removes the earlier rows with the same code.
        """
        same = alike(self.codes)
        place = np.arange(len(self.codes))
        since = same.runs.last(taken[same.order])[same.runs.numbers]
        newer = place > since
        if not self.keyed:
            return np.sort(same.order[newer])
        appeared = same.runs.first(newer)
        left = appeared != NONE
        chosen = self._newest(place, same.order, same.runs, newer)[left]
        by_age = np.argsort(same.order[appeared[left]])
        kept: np.ndarray = same.order[chosen][by_age]
        return kept

    def take_turns(self, taken: np.ndarray) -> np.ndarray:
        """For a column with a count limit: the positions of the rows that remain at the end.

        `taken` marks the retractions. In each group, stretches of additions and of retractions
        alternate, and are applied in turn.
        """
        turns = _turns(self.groups, taken)
        order = np.argsort(turns, kind="stable")
        kept = np.empty(0, np.int64)
        for now in np.split(order, np.cumsum(np.bincount(turns))[:-1]):
            added, back = now[~taken[now]], now[taken[now]]
            kept = kept[~np.isin(self.codes[kept], self.codes[back])]
            growing = np.isin(self.groups[kept], self.groups[added])
            grown = self.admit(self._by_group(kept[growing], added))
            kept = self._by_group(kept[~growing], grown)
        return kept

    def _by_group(self, *parts: np.ndarray) -> np.ndarray:
        at = np.concatenate(parts)
        grouped: np.ndarray = at[np.argsort(self.groups[at], kind="stable")]
        return grouped

    def _newest(
        self, at: np.ndarray, order: np.ndarray, runs: Groups, counts: np.ndarray
    ) -> np.ndarray:
        """For each run, the position of its last counted row with the greatest sequence."""
        if self.sequence is None or not runs.count:
            return runs.last(counts)
        sequence = np.where(counts, self.sequence[at][order], NONE)
        greatest = np.maximum.reduceat(sequence, runs.starts)
        return runs.last(counts & (sequence == greatest[runs.numbers]))


def _rows(elements: Elements, rule: _Rule) -> tuple[Elements, pa.Array]:
    """The non-null elements and their rows, according to `nested-key-null-strategy`."""
    rows = elements.child()
    counts = is_valid(rows)
    if rule.null_keys != "merge":
        fields = [is_valid(rows.field(place)) for place in rule.key]
        whole = np.logical_and.reduce([np.ones(len(rows), bool), *fields])
        if rule.null_keys == "error" and bool((counts & ~whole).any()):
            raise InvalidRequest(
                "a nested key is null",
                column=rule.column,
                nested_key=[rows.type.field(place).name for place in rule.key],
                option=f"fields.{rule.column}.nested-key-null-strategy",
            )
        counts &= whole
    if counts.all():
        return elements, rows
    return elements.only(counts), rows.filter(pa.array(counts))


def _nested_key_codes(elements: Elements, rows: pa.Array, rule: _Rule) -> np.ndarray:
    parts = [rows.field(place) for place in rule.key] if rule.key else [rows]
    return equal_codes([elements.groups, *parts])


def _entries(elements: Elements, rows: pa.Array, rule: _Rule, *, compared: bool) -> _Entries:
    sequence = None
    if rule.sequence:
        fields = [pa.chunked_array([rows.field(place)]) for place in rule.sequence]
        sequence = sequence_codes(fields, descending=False)
    return _Entries(
        groups=elements.groups,
        codes=_nested_key_codes(elements, rows, rule) if compared else np.arange(elements.count),
        sequence=sequence,
        keyed=bool(rule.key),
        limit=rule.limit,
    )


def _places(numbers: np.ndarray) -> np.ndarray:
    """The rank of each row in its group: 0, 1, ..."""
    groups = groups_of(numbers)
    places: np.ndarray = np.arange(len(numbers)) - np.repeat(groups.starts, groups.sizes)
    return places


def _turns(numbers: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """For each row, how often its group switched between adding and retracting before it."""
    changed = np.zeros(len(taken), np.int64)
    changed[1:] = taken[1:] != taken[:-1]
    groups = groups_of(numbers)
    changed[groups.starts] = 0
    upto = np.cumsum(changed)
    turns: np.ndarray = upto - np.repeat(upto[groups.starts], groups.sizes)
    return turns


def _rule(aggregate: Aggregate) -> _Rule:
    column = aggregate.column
    kind = aggregate.type
    if not isinstance(kind, Array) or not isinstance(kind.element, Row):
        raise InvalidRequest(
            "the function needs an ARRAY of ROW",
            column=column,
            function=aggregate.function,
            type=kind,
        )
    strategy = aggregate.nested_key_null_strategy
    for option, is_set in (
        ("nested-key-null-strategy", strategy is not None),
        ("nested-sequence-field", bool(aggregate.nested_sequence_field)),
    ):
        if is_set and not aggregate.nested_key:
            raise InvalidRequest(
                "the option needs a nested key",
                option=f"fields.{column}.{option}",
                needs=f"fields.{column}.nested-key",
            )
    null_keys = "merge" if strategy is None else strategy.lower()
    if null_keys not in _NULL_KEYS:
        raise InvalidRequest(
            "unknown strategy for nulls in a nested key",
            option=f"fields.{column}.nested-key-null-strategy",
            value=strategy,
            allowed=_NULL_KEYS,
        )
    sequence = _field_places(
        kind.element, aggregate.nested_sequence_field, column, "sequence-field"
    )
    for place in sequence:
        field = kind.element.fields[place]
        if not isinstance(field.type, Atomic):
            raise Unsupported(
                "a nested sequence field must not be of a nested type",
                column=column,
                field=field.name,
                type=field.type,
            )
    return _Rule(
        column=column,
        key=_field_places(kind.element, aggregate.nested_key, column, "key"),
        sequence=sequence,
        null_keys=null_keys,
        limit=aggregate.count_limit,
    )


def _field_places(row: Row, names: tuple[str, ...], column: str, option: str) -> tuple[int, ...]:
    known = [field.name for field in row.fields]
    for name in names:
        if name not in known:
            raise InvalidRequest(
                "the option names a field that does not exist",
                option=f"fields.{column}.nested-{option}",
                value=name,
                fields=known,
            )
    return tuple(known.index(name) for name in names)
