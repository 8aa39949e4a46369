"""The changelog of a compaction: compares the rows of a key before and after.

https://paimon.apache.org/docs/master/primary-key-table/changelog-producer/

1. The keys of a window, in order, are those of the merged rows, including tombstones.
2. `changed_keys` finds, for each key, its row before and whether it can have changed:
   - *lookup*: the key has a row in level 0. The row before is the row in the lowest level above 0
     that has the key: earlier compactions have merged the rows of all higher levels into it.
   - *full-compaction*: the key has a row outside the deepest level. (The changelog has already
     reported the rows of the deepest level.) The row before is the row in the deepest level.
3. `changelog_rows` compares the rows before with the merged rows:

   | before | after | rows |
   |---|---|---|
   | none, or a deletion | adds | +I after |
   | none, or a deletion | none, or a deletion | |
   | adds | none, or a deletion | -D before |
   | adds | adds | -U before, +U after; of equal rows only if they are wanted |

INVARIANT: replaying a changelog from its start gives the rows of the compacted levels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.merge.keys import NONE, in_one, is_valid, order_columns, shared_codes
from lakecore.merge.spec import countable_rows, of_kinds
from lakecore.model.rows import RETRACTS, VALUE_KIND, RowKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakecore.merge.spec import MergeFunction, MergeSpec, Slice


# --- equality ------------------------------------------------------------------------------------
# Which rows of two tables are equal, by Java's rules for a row before and after a change.
#
# Null equals null. Floats follow Java's order: NaN equals NaN, and -0.0 differs from 0.0. Lists are
# compared by element, rows by field. Maps are equal if they hold the same entries in any order.


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
    offsets = values.offsets.to_numpy().astype(np.int64)
    return offsets[:-1], offsets[1:]


def _all_equal(rows: np.ndarray, owners: np.ndarray, elements: np.ndarray) -> np.ndarray:
    same = rows.copy()
    same[owners[~elements]] = False
    return same


# --- changelog -----------------------------------------------------------------------------------

Equal: TypeAlias = "Callable[[pa.Table, pa.Table, Sequence[str]], np.ndarray]"
"""See `equal_rows`."""


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """The keys of a window, in order.

    For each key: `before` is the position of its previous row in the window, or NONE; `changed`
    says whether the key may have changed; `first` is the position of one of its rows.
    """

    before: np.ndarray
    changed: np.ndarray
    first: np.ndarray

    @property
    def count(self) -> int:
        return len(self.before)

    @property
    def without_before(self) -> np.ndarray:
        """The changed keys whose previous row is not in the window."""
        return np.flatnonzero(self.changed & (self.before == NONE))


def changed_keys(
    window: Sequence[Slice], spec: MergeSpec, before_level: int | None = None
) -> ChangedKeys:
    """The changed keys of a window; `before_level` is set for a full-compaction changelog."""
    by_run = shared_codes([part.keys for part in window])
    codes = np.concatenate(by_run)
    levels = np.repeat([part.level for part in window], [part.keys.length for part in window])
    alive = np.concatenate(countable_rows(window, by_run, spec))
    counted = alive
    if before_level is not None and spec.complete_levels:
        # A lower level has absorbed the row of the deepest level, but no changelog has reported it.
        each = countable_rows(window, by_run, replace(spec, complete_levels=False))
        counted = np.concatenate(each)
    rows = np.flatnonzero(alive)
    keys, places = np.unique(codes[rows], return_index=True)
    is_before = counted & (levels > 0 if before_level is None else levels == before_level)
    before = np.full(len(keys), NONE)
    at, held = _places(keys, codes, is_before)
    before[at] = held
    if before_level is None:
        changed = np.zeros(len(keys), bool)
        changed[_places(keys, codes, alive & (levels == 0))[0]] = True
    else:
        at, _ = _places(keys, codes, counted)
        changed = (before == NONE) | (np.bincount(at, minlength=len(keys)) > 1)
    return ChangedKeys(before=before, changed=changed, first=rows[places])


def changelog_rows(
    before: pa.Table,
    after: pa.Table,
    at: np.ndarray,
    compared: Sequence[str] | None,
    equal: Equal = equal_rows,
) -> pa.Table:
    """The changes of the keys of `after`, in their order; -U directly before +U.

    `at` holds, for each row of `after`, the index of its row in `before`, or NONE. If `equal` finds
    both rows equal in the columns `compared`, the row has not changed (None: every existing row
    counts as changed).
    """
    adds = ~_retracting(after)
    held = at != NONE
    held[held] = ~_retracting(before)[at[held]]
    both = held & adds
    rows = np.flatnonzero(both)
    if compared is not None and len(rows):
        was, became = before.take(pa.array(at[rows])), after.take(pa.array(rows))
        both[rows] = ~equal(was, became, compared)
    gone = np.flatnonzero((held & ~adds) | both)
    come = np.flatnonzero((adds & ~held) | both)
    taken = _of_kind(before, at[gone], np.where(both[gone], _BEFORE, _DELETE))
    given = _of_kind(after, come, np.where(both[come], _AFTER, _INSERT))
    if not len(gone) or not len(come):
        return taken if len(gone) else given
    # The sort is stable, so `gone` comes before `come`.
    order = np.argsort(np.concatenate([gone, come]), kind="stable")
    return pa.concat_tables([taken, given]).take(pa.array(order))


_INSERT, _BEFORE = np.int8(RowKind.INSERT), np.int8(RowKind.UPDATE_BEFORE)
_AFTER, _DELETE = np.int8(RowKind.UPDATE_AFTER), np.int8(RowKind.DELETE)


def _places(keys: np.ndarray, codes: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each masked row whose key is in `keys`: the index of the key in `keys`, and the row."""
    rows = np.flatnonzero(mask)
    if not len(keys):
        rows = rows[:0]
    at = np.searchsorted(keys, codes[rows])
    at[at == len(keys)] = 0
    known = keys[at] == codes[rows]
    return at[known], rows[known]


def _retracting(rows: pa.Table) -> np.ndarray:
    mask = of_kinds(rows, RETRACTS)
    return np.zeros(rows.num_rows, bool) if mask is None else mask


def _of_kind(rows: pa.Table, places: np.ndarray, kinds: np.ndarray) -> pa.Table:
    taken = rows.take(pa.array(places))
    index = taken.schema.get_field_index(VALUE_KIND)
    return taken.set_column(index, taken.schema.field(index), pa.array(kinds, pa.int8()))


# --- difference ----------------------------------------------------------------------------------
# Compares two merged states of a range of keys, and returns the changes from one to the other.
#
# If a key is in both states and its columns differ, only the later row is returned, as +U. Paimon
# compares two tags in the same way.

BEFORE, AFTER = 0, 1
"""The `commit_order` of slices of the earlier and of the later state."""


class _Difference:
    """A merge function for at most two slices, one for each of the two states."""

    chooses_rows: ClassVar = False

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """Rows in key order, with their kinds: -D deleted, +I new, +U changed."""
        del spec
        sides = {part.commit_order: part for part in window}
        if len(sides) < 2:
            (part,) = window
            kind = RowKind.DELETE if part.commit_order == BEFORE else RowKind.INSERT
            yield _with_kinds(part.rows, np.full(part.rows.num_rows, kind, np.int8))
            return
        before, after = sides[BEFORE], sides[AFTER]
        old, new = shared_codes([before.keys, after.keys])
        at = np.minimum(np.searchsorted(old, new), len(old) - 1)
        both = old[at] == new
        changed = both.copy()
        changed[both] = ~equal_rows(
            before.rows.take(pa.array(at[both])),
            after.rows.filter(pa.array(both)),
            before.rows.column_names,
        )
        gone = ~np.isin(old, new)
        kept = changed | ~both
        kinds = np.concatenate(
            [
                np.full(int(gone.sum()), RowKind.DELETE, np.int8),
                np.where(both[kept], np.int8(RowKind.UPDATE_AFTER), np.int8(RowKind.INSERT)),
            ]
        )
        rows = pa.concat_tables(
            [before.rows.filter(pa.array(gone)), after.rows.filter(pa.array(kept))]
        )
        order = np.argsort(np.concatenate([old[gone], new[kept]]), kind="stable")
        yield _with_kinds(rows.take(pa.array(order)), kinds[order])


DIFFERENCE: MergeFunction = _Difference()


def _with_kinds(rows: pa.Table, kinds: np.ndarray) -> pa.Table:
    return rows.append_column(VALUE_KIND, pa.array(kinds))
