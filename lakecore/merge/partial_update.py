"""The `partial-update` engine: a column keeps its last non-null value among the rows of a key.

https://paimon.apache.org/docs/master/primary-key-table/merge-engine/partial-update/

- *Sequence groups* order some columns by others. A row whose sequence columns are all null does not
  affect the group. A row that is not older than the group sets the columns, also to null. An older
  row affects only columns with a function, as if it had arrived first.
- A column with a function is folded. Outside sequence groups, every row counts.
- Rows of kind -U and -D need one of these options:
  `ignore-delete`;
  sequence groups: a -U or -D sets their columns to null, or is retracted by their functions;
  `partial-update.remove-record-on-delete`: a -D discards the rows before it;
  `partial-update.remove-record-on-sequence-group`: a -D not older than the group discards them.
  Rows after such a -D are folded onto its values; if it is the last row, the key is deleted.
- A key with only -U and -D rows stays a retraction for a later merge. The rows of such a key are
  folded as if they added, because retracting their sum retracts each row. The result is a -D only
  if one of these rows discards the rows before it. Otherwise it is a -U, because a -D would wrongly
  discard rows in a later merge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.merge.aggregators import AGGREGATORS, Aggregate
from lakecore.merge.aggregators.fold import LAST, LAST_NON_NULL, Fold
from lakecore.merge.fold import (
    Chosen,
    Column,
    Contested,
    Folded,
    Kept,
    choose_column,
    fold_column,
    kept_of_column,
    retractable,
)
from lakecore.merge.keys import NONE, Groups, sequence_codes, spread
from lakecore.model.rows import SEQUENCE_NUMBER, VALUE_KIND, RowKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.merge.spec import MergeSpec, SequenceGroup


def functions_of_columns(spec: MergeSpec, columns: Sequence[str]) -> dict[str, Fold] | None:
    """The function of each of these columns; None if sequence groups order some of them."""
    if spec.groups:
        return None
    functions = {
        aggregate.column: AGGREGATORS[aggregate.function](aggregate)
        for aggregate in spec.aggregates
    }
    return {
        name: functions.get(name, Fold(choice=LAST_NON_NULL))
        for name in columns
        if name not in {SEQUENCE_NUMBER, VALUE_KIND}
    }


def fold_partial_update(contested: Contested, spec: MergeSpec) -> Folded:
    """One row for each key.

    Raises InvalidRequest for -U and -D rows that the table cannot merge.
    """
    chosen, deleted, taken_back = _live_rows(contested, spec)
    functions = {aggregate.column: aggregate for aggregate in spec.aggregates}
    adding = chosen if chosen.retract is None else chosen.only(~chosen.retract)
    grouped: dict[str, Column] = {}
    for group in spec.groups:
        if set(group.sequence) <= set(contested.columns):
            grouped |= _fold_group(contested, group, chosen, functions)
    columns: dict[str, Column] = {}
    for name in contested.columns:
        if name in grouped:
            columns[name] = grouped[name]
        elif name in spec.primary_key:
            columns[name] = contested.groups.lasts
        elif name in functions:
            columns[name] = fold_column(contested, functions[name], adding)
        else:
            columns[name] = choose_column(contested, name, LAST_NON_NULL, adding)
    return Folded(columns=columns, deleted=deleted, taken_back=taken_back)


def kept_by_partial_update(contested: Contested, spec: MergeSpec) -> Kept:
    """The rows that a fold without the older rows of their keys would lose.

    A key with only retractions folds to a retraction, which loses nothing. Whether a -D of a
    sequence group removes the record depends on the older rows.
    """
    groups, kinds, retract = contested.groups, contested.kinds, contested.retract
    alone, over = np.zeros(groups.length, bool), np.zeros(groups.length, bool)
    for aggregate in spec.aggregates:
        if aggregate.column in contested.columns:
            alone |= kept_of_column(contested, aggregate, contested.all_rows, late=True)
    if kinds is None or retract is None:
        return Kept(alone, over)
    alone &= np.repeat(groups.any(~retract), groups.sizes)
    is_delete = kinds == RowKind.DELETE
    if spec.remove_on_delete:
        removed = np.repeat(groups.last(is_delete), groups.sizes)
        at = np.arange(groups.length)
        over = at < removed
        is_delete = at == removed
        is_delete[groups.lasts] = False
        alone |= is_delete
    elif any(group.removes for group in spec.groups):
        alone |= is_delete
    return Kept(alone & ~over, over)


def _live_rows(
    contested: Contested, spec: MergeSpec
) -> tuple[Chosen, np.ndarray, np.ndarray | None]:
    """The rows that still count, the deleted keys, and the keys that have only retractions."""
    chosen, groups = contested.all_rows, contested.groups
    retract, kinds = chosen.retract, contested.kinds
    if retract is None or kinds is None:
        return chosen, np.zeros(groups.count, bool), None
    if not spec.groups and not spec.remove_on_delete:
        raise InvalidRequest(
            "merge-engine=partial-update does not accept rows of kind -U and -D by default; "
            "write none, or set ignore-delete, partial-update.remove-record-on-delete or "
            "sequence groups",
            key=spec.key,
        )
    only_retracts = ~groups.any(~retract)
    removed = _removed(contested, spec)
    counts = np.ones(groups.length, bool)
    if not spec.groups:
        # Without sequence groups, a -U row changes nothing, unless the key has no other rows.
        counts = (kinds != RowKind.UPDATE_BEFORE) | np.repeat(only_retracts, groups.sizes)
    deleted = only_retracts | ((removed != NONE) & (removed == groups.last(counts)))
    chosen = chosen.adding(np.repeat(only_retracts, groups.sizes))
    begins = np.repeat(removed, groups.sizes)
    at = np.arange(groups.length)
    chosen = chosen.adding(at == begins).only(counts & (at >= begins))
    return chosen, deleted, only_retracts & (removed == NONE)


def _removed(contested: Contested, spec: MergeSpec) -> np.ndarray:
    """For each key, the position of the last row that discards all rows before it, or NONE."""
    groups, kinds = contested.groups, contested.kinds
    assert kinds is not None, "without kinds every row adds"
    is_delete = kinds == RowKind.DELETE
    if spec.remove_on_delete:
        return groups.last(is_delete)
    removing = [group for group in spec.groups if group.removes]
    found = np.full(groups.count, NONE)
    if not removing or not is_delete.any():
        return found
    # Whether a -D discards depends on the state, which an earlier discard has replaced.
    rows, numbers, some = groups.only(np.repeat(groups.any(is_delete), groups.sizes))
    orders = [_sequence_of(contested, group, rows) for group in removing]
    held = np.full((len(orders), some.count), NONE)
    for number, row in some.ranks():
        newer = np.array([~order.empty[row] for order in orders])
        given = np.array([order.codes[row] for order in orders])
        newer &= given >= held[:, number]
        removes = newer.any(axis=0) & is_delete[rows[row]]
        held[:, number] = np.where(newer | removes, given, held[:, number])
        found[numbers[number[removes]]] = rows[row[removes]]
    return found


# --- sequence groups ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sequence:
    """The sequence of a group in some rows: an ascending code, and whether all columns are null."""

    codes: np.ndarray
    empty: np.ndarray


def _sequence_of(contested: Contested, group: SequenceGroup, rows: np.ndarray) -> _Sequence:
    columns = [pa.chunked_array([contested.values(name, rows)]) for name in group.sequence]
    empty = np.logical_and.reduce([contested.valid(name)[rows] == 0 for name in group.sequence])
    return _Sequence(sequence_codes(columns, descending=False), empty)


def _fold_group(
    contested: Contested, group: SequenceGroup, chosen: Chosen, functions: dict[str, Aggregate]
) -> dict[str, Column]:
    rows, groups = chosen.rows, chosen.groups
    sequence = _sequence_of(contested, group, rows)
    # The first row after a discard is the discarding row: it counts whatever its sequence is.
    begins = np.zeros(len(rows), bool)
    begins[groups.starts] = True
    removing = contested.kinds is not None and (contested.kinds[rows] == RowKind.DELETE)
    adds = np.ones(len(rows), bool) if chosen.retract is None else ~chosen.retract
    heeded = ~sequence.empty | (begins & removing & adds)
    newer = heeded & _not_older(sequence.codes, heeded, groups)
    columns: dict[str, Column] = {}
    setting = chosen.only(newer)
    adding = replace(setting, retract=None)
    for name in group.sequence:
        columns[name] = choose_column(contested, name, LAST, adding)
    for name in group.columns:
        if name not in contested.columns or name in group.sequence:
            continue
        if name not in functions:
            columns[name] = choose_column(contested, name, LAST, setting)
            continue
        early = (heeded & ~newer & adds)[heeded]
        columns[name] = _fold_ordered(contested, functions[name], chosen.only(heeded), early)
    return columns


def _not_older(codes: np.ndarray, heeded: np.ndarray, groups: Groups) -> np.ndarray:
    """For each row, whether its code is at least that of all earlier `heeded` rows of its group."""
    if not len(codes):
        return np.zeros(0, bool)
    base = groups.numbers * (int(codes.max()) + 2)
    own = base + np.where(heeded, codes + 1, 0)
    reached = np.maximum.accumulate(own)
    before = np.empty_like(reached)
    before[0] = 0
    before[1:] = reached[:-1]
    not_older: np.ndarray = own >= np.maximum(before, base)
    return not_older


def _fold_ordered(
    contested: Contested, aggregate: Aggregate, chosen: Chosen, early: np.ndarray
) -> Column:
    """Fold a column. `early` is a mask of rows that are older than the state when they arrive.

    If `Fold.reverses`, such a row is folded as if it had come before the rows of the state.
    """
    fold = AGGREGATORS[aggregate.function](aggregate)
    if chosen.retract is not None:
        kept = ~chosen.retract if aggregate.ignore_retract else np.ones(len(early), bool)
        chosen, early = retractable(aggregate, fold, chosen), early[kept]
    if fold.commutes or not fold.reverses or not early.any():
        return fold_column(contested, aggregate, chosen)
    count = contested.groups.count
    mixed = np.zeros(chosen.groups.count, bool)
    if not fold.associates:
        mixed = chosen.groups.any(early)
    elif chosen.retract is not None:
        mixed = chosen.groups.any(chosen.retract) & chosen.groups.any(early)
    is_mixed = np.repeat(mixed, chosen.groups.sizes)
    plain, stepped = chosen.only(~is_mixed), chosen.only(is_mixed)
    parts: list[pa.Array] = []
    numbers: list[np.ndarray] = []
    if plain.groups.count:
        ordered = _early_first(plain, early[~is_mixed])
        parts.append(
            fold(contested.values(aggregate.column, ordered.rows), ordered.groups, ordered.retract)
        )
        numbers.append(plain.numbers)
    if stepped.groups.count:
        values = contested.values(aggregate.column, stepped.rows)
        parts.append(_one_by_one(fold, values, stepped, early[is_mixed]))
        numbers.append(stepped.numbers)
    return spread(pa.concat_arrays(parts), np.concatenate(numbers), count)


def _early_first(chosen: Chosen, early: np.ndarray) -> Chosen:
    """The rows of each group with the early rows in front, in reverse order."""
    at = np.arange(len(early))
    signed = np.where(early, -1 - at, at)
    order = np.lexsort((signed, chosen.groups.numbers))
    retract = None if chosen.retract is None else chosen.retract[order]
    return replace(chosen, rows=chosen.rows[order], retract=retract)


def _one_by_one(fold: Fold, values: pa.Array, chosen: Chosen, early: np.ndarray) -> pa.Array:
    """Fold rank by rank, two values at a time, for functions whose result depends on the steps."""
    groups = chosen.groups
    retract = np.zeros(groups.length, bool) if chosen.retract is None else chosen.retract
    state = pa.nulls(groups.count, values.type)
    for rank, (number, row) in enumerate(groups.ranks()):
        given, back = values.take(pa.array(row)), retract[row]
        size = len(row)
        if rank == 0:
            after = fold(given, Groups(np.arange(size), size), back)
        else:
            first = early[row]
            both = pa.concat_arrays([state.take(pa.array(number)), given])
            pairs = np.empty(2 * size, np.int64)
            pairs[0::2] = np.where(first, size, 0) + np.arange(size)
            pairs[1::2] = np.where(first, 0, size) + np.arange(size)
            masks = np.zeros(2 * size, bool)
            masks[1::2] = back
            after = fold(
                both.take(pa.array(pairs)), Groups(np.arange(0, 2 * size, 2), 2 * size), masks
            )
        at = np.arange(groups.count)
        at[number] = groups.count + np.arange(size)
        state = pa.concat_arrays([state, after]).take(pa.array(at))
    return state
