"""The changelog of a compaction: compares the rows of a key before and after.

https://paimon.apache.org/docs/master/primary-key-table/changelog-producer/

1. The keys of a window, in order, are those of the merged rows, including tombstones.
2. `changed_keys` finds, for each key, its row before and whether it can have changed:
   - *lookup*: the key has a row in level 0. Its row before is the row in the lowest level above 0
     that has one: earlier compactions have merged the rows of all higher levels into it.
   - *full-compaction*: the key has a row outside the deepest level. (The changelog has already
     reported the rows of the deepest level.) Its row before is the row in the deepest level.
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
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from lakecore.merge.equality import equal_rows
from lakecore.merge.groups import NONE
from lakecore.merge.keys import shared_codes
from lakecore.merge.order import countable_rows, of_kinds
from lakecore.model.rows import RETRACTS, VALUE_KIND, RowKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.merge.spec import MergeSpec, Slice

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
        """The number of keys."""
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
    """The rows in the mask whose key is among `keys`: the index of the key, and that of the row."""
    rows = np.flatnonzero(mask)
    if not len(keys):
        return rows[:0], rows[:0]
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
