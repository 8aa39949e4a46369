"""The `deduplicate` engine: the newest row of each key wins.

https://paimon.apache.org/docs/master/primary-key-table/merge-engine/overview/#deduplicate

Keys, sequence numbers and kinds alone decide which rows survive. Then each run is filtered by a
mask. A read never sorts values and never copies them twice.

1. Rows of an ignored kind are dropped.
2. *Whole runs are older or newer* (the common case): from the newest run to the oldest, a row loses
   if a newer run has its key. If the result must be in key order and keys are dense, each row is
   written to the slot of its key, oldest run first: the last write wins, and the slots are sorted.
3. *Otherwise* (overlapping sequence ranges, user sequence fields, repeated keys): rows whose key
   occurs more than once are sorted by key, sequence fields, sequence number and commit order. The
   last row of a key wins. Commit order breaks ties: writers that start at one snapshot assign equal
   sequence numbers.
4. Winners of a retracting kind are dropped, unless tombstones must be kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.merge.keys import NONE, groups_of, order_columns, shared_codes
from lakecore.merge.spec import (
    countable_rows,
    filter_rows,
    key_order,
    merge_order,
    of_kinds,
    of_kinds_over,
    oldest_first,
    runs_decide,
    split_mask,
    take_in_pieces,
)
from lakecore.model.arrow_arrays import size_of
from lakecore.model.rows import RETRACTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakecore.merge.spec import MergeFunction, MergeSpec, Slice

_DENSE_SPAN_MAX = 32
"""Codes whose range is at most this many times the number of rows get a table of flags."""
_PLACED_SPAN_MAX = 4
"""Codes whose range is at most this many times the number of rows get slots instead of a sort."""


class Deduplicate:
    """The merge function of `merge-engine` = `deduplicate`."""

    chooses_rows: ClassVar = True
    newest_wins: ClassVar = True

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """The newest row of each key.

        With `keep_deletions`, tombstones stay, as rows of kind -D or -U. Without them, an older row
        of another level would reappear.
        """
        if not spec.in_key_order:
            for part, mask in self.winners(window, spec):
                yield filter_rows(part.rows, mask)
            return
        window = _later_wins(window)
        if runs_decide(window, spec):
            codes = shared_codes([part.keys for part in window])
            alive = countable_rows(window, codes, spec)
            extent = _extent(codes)
            if len(window) > 1 and extent.is_within(_PLACED_SPAN_MAX):
                places = _newest_places(window, codes, alive, extent)
                yield from take_in_pieces(window, _without_deletes(window, places, spec))
                return
            _keep_last_by_run(window, codes, alive, extent)
            order = key_order(window, np.concatenate(codes))
        else:
            alive, order = _newest_in_order(window, spec)
        _clear_deletes(window, alive, spec)
        yield from _in_key_order(window, np.concatenate(alive), order)

    def winners(
        self, window: Sequence[Slice], spec: MergeSpec
    ) -> Iterator[tuple[Slice, np.ndarray]]:
        """The runs, each with a mask of the rows that `__call__` returns."""
        window = _later_wins(window)
        if runs_decide(window, spec):
            codes = shared_codes([part.keys for part in window])
            alive = countable_rows(window, codes, spec)
            _keep_last_by_run(window, codes, alive, _extent(codes))
        else:
            alive, _ = _newest_in_order(window, spec)
        _clear_deletes(window, alive, spec)
        yield from zip(window, alive, strict=True)


def _later_wins(window: Sequence[Slice]) -> list[Slice]:
    """The runs in commit order, so that of two rows the later one wins if nothing else decides."""
    return sorted(window, key=lambda part: part.commit_order)


def _newest_in_order(
    window: Sequence[Slice], spec: MergeSpec
) -> tuple[list[np.ndarray], np.ndarray]:
    """For each run, a mask of its rows that are the newest of their key.

    Also the positions of all rows over all runs, in merge order.
    """
    code, order = merge_order(window, spec)
    live = np.zeros(len(code), bool)
    live[order[groups_of(code[order]).lasts]] = True
    return split_mask(window, live), order


def _clear_deletes(window: Sequence[Slice], alive: list[np.ndarray], spec: MergeSpec) -> None:
    if spec.keep_deletions:
        return
    for part, mask in zip(window, alive, strict=True):
        deletes = of_kinds(part.rows, RETRACTS)
        if deletes is not None:
            mask[deletes] = False


class _Extent(NamedTuple):
    """The extent of key codes: the smallest, the size of their range, and how many there are."""

    low: int
    span: int
    rows: int

    def is_within(self, share: int) -> bool:
        """Whether the range has at most `share` times as many integers as there are codes."""
        return self.span <= share * self.rows


def _extent(codes: list[np.ndarray]) -> _Extent:
    """The extent of the codes of runs; each run is sorted."""
    filled = [code for code in codes if len(code)]
    low = min((int(code[0]) for code in filled), default=0)
    high = max((int(code[-1]) for code in filled), default=-1)
    return _Extent(low, high - low + 1, sum(map(len, filled)))


def _newest_places(
    window: Sequence[Slice], codes: list[np.ndarray], alive: list[np.ndarray], extent: _Extent
) -> np.ndarray:
    """The positions, over all runs, of the newest row of each key, in key order."""
    starts = np.cumsum([0, *map(len, codes)])
    place_of = np.full(extent.span, -1)
    for run in sorted(range(len(window)), key=lambda run: window[run].sequence_max):
        places = np.arange(starts[run], starts[run + 1])
        at = codes[run] - np.int64(extent.low)
        if alive[run].all():
            place_of[at] = places
        else:
            place_of[at[alive[run]]] = places[alive[run]]
    return place_of.compress(place_of >= 0)


def _without_deletes(window: Sequence[Slice], places: np.ndarray, spec: MergeSpec) -> np.ndarray:
    if spec.keep_deletions:
        return places
    deletes = of_kinds_over(window, RETRACTS)
    return places if deletes is None else places[~deletes[places]]


def _keep_last_by_run(
    window: Sequence[Slice], codes: list[np.ndarray], alive: list[np.ndarray], extent: _Extent
) -> None:
    """Clear the flag in `alive` of each row whose key is in a newer run.

    The codes of a run are sorted and unique.
    """
    newest_first = sorted(range(len(window)), key=lambda run: -window[run].sequence_max)
    if extent.is_within(_DENSE_SPAN_MAX):
        _keep_last_of_dense(codes, alive, newest_first, extent)
    else:
        _keep_last_of_sparse(codes, alive, newest_first)


def _keep_last_of_dense(
    codes: list[np.ndarray], alive: list[np.ndarray], newest_first: list[int], extent: _Extent
) -> None:
    """Like `_keep_last_by_run`, with one flag for each possible code of newer runs."""
    seen = np.zeros(extent.span, bool)
    # NOTE: newly allocated memory must be cleared, which costs as much as the rest of this
    # function. All runs therefore share it.
    length = max(map(len, codes))
    places, newer = np.empty(length, np.int64), np.empty(length, bool)
    for run in newest_first:
        mask = alive[run]
        at, held = places[: len(mask)], newer[: len(mask)]
        np.subtract(codes[run], np.int64(extent.low), out=at)
        seen.take(at, out=held, mode="clip")
        if run != newest_first[-1]:
            seen[at if mask.all() else at[mask]] = True
        np.greater(mask, held, out=mask)


def _keep_last_of_sparse(
    codes: list[np.ndarray], alive: list[np.ndarray], newest_first: list[int]
) -> None:
    """Like `_keep_last_by_run`, with a sorted array of the codes of newer runs."""
    seen = np.empty(0, np.int64)
    for position, run in enumerate(newest_first):
        own = codes[run] if alive[run].all() else codes[run][alive[run]]
        older, newer = codes[run], seen
        if len(older) and len(newer):
            if len(newer) <= len(older):
                at = np.searchsorted(older, newer)
                at[at == len(older)] = 0
                alive[run][at[older[at] == newer]] = False
            else:
                at = np.searchsorted(newer, older)
                at[at == len(newer)] = 0
                alive[run] &= newer[at] != older
        if position + 1 < len(newest_first):
            seen = own if not len(seen) else _union(seen, own)


def _union(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The sorted distinct values of two sorted arrays."""
    both = np.concatenate([left, right])
    both.sort(kind="stable")
    fresh = np.ones(len(both), bool)
    np.not_equal(both[1:], both[:-1], out=fresh[1:])
    return both[fresh]


def _in_key_order(
    window: Sequence[Slice], live: np.ndarray, order: np.ndarray
) -> Iterator[pa.Table]:
    """The surviving rows, sorted by key, in pieces, so that memory never holds the window twice."""
    chosen = order if len(order) == len(live) and live.all() else order[live[order]]
    if len(window) == 1 and (chosen[1:] > chosen[:-1]).all():
        yield filter_rows(window[0].rows, live)
    else:
        yield from take_in_pieces(window, chosen)


# --- first row -----------------------------------------------------------------------------------
# The `first-row` engine: the oldest row of each key wins; compacted rows win over level 0.
#
# https://paimon.apache.org/docs/master/primary-key-table/merge-engine/first-row/
#
# A batch read returns rows of level 0 only after compaction has moved them up (`plan/splits.py`).


class FirstRow:
    """The merge function of `merge-engine` = `first-row`."""

    chooses_rows: ClassVar = True
    newest_wins: ClassVar = False

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """The oldest row of each key.

        Raises InvalidRequest for a -U or -D row of a key with other rows, unless its kind is
        ignored.
        """
        runs, firsts = _firsts(window, spec)
        if spec.in_key_order:
            yield from take_in_pieces(runs, firsts)
        else:
            for part, mask in _masks(runs, firsts):
                yield filter_rows(part.rows, mask)

    def winners(
        self, window: Sequence[Slice], spec: MergeSpec
    ) -> Iterator[tuple[Slice, np.ndarray]]:
        """The runs, each with a mask of the rows that `__call__` returns."""
        yield from _masks(*_firsts(window, spec))


def _firsts(window: Sequence[Slice], spec: MergeSpec) -> tuple[list[Slice], np.ndarray]:
    """The runs, and the position of the surviving row of each key over all runs."""
    runs = oldest_first(window, spec)
    codes, order = merge_order(runs, spec)
    groups = groups_of(codes[order])
    firsts = order[groups.starts]
    if spec.complete_levels:
        # A row that readers have seen stays, whatever sequence numbers other rows have.
        levels = np.repeat([part.level for part in runs], [part.keys.length for part in runs])
        seen = groups.first(levels[order] > 0)
        firsts = np.where(seen == NONE, firsts, order[seen])
    takes_back = of_kinds_over(runs, RETRACTS)
    if takes_back is not None:
        if (takes_back[order] & np.repeat(groups.sizes > 1, groups.sizes)).any():
            raise InvalidRequest(
                "merge-engine=first-row does not accept rows of kind -U and -D; write none, or set "
                "ignore-delete",
                key=spec.key,
            )
        if not spec.keep_deletions:
            firsts = firsts[~takes_back[firsts]]
    return runs, firsts


def _masks(runs: list[Slice], firsts: np.ndarray) -> Iterator[tuple[Slice, np.ndarray]]:
    is_first = np.zeros(sum(part.keys.length for part in runs), bool)
    is_first[firsts] = True
    yield from zip(runs, split_mask(runs, is_first), strict=True)


# --- keep all ------------------------------------------------------------------------------------
# A merge function that keeps every row, in merge order.
#
# If a later merge must see all rows of a key together, `KEEP_ALL` only sorts them, as often as
# needed, and `whole_keys` cuts the result between keys.


class _KeepAll:
    chooses_rows: ClassVar = True

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """The rows, sorted by key, sequence fields and sequence number; tombstones included."""
        runs = oldest_first(window, spec)
        _, order = merge_order(runs, spec)
        yield from take_in_pieces(runs, order)


KEEP_ALL: MergeFunction = _KeepAll()


def whole_keys(
    batches: Iterable[pa.Table], key: Sequence[str], bytes_max: int | None = None
) -> Iterator[pa.Table]:
    """The same sorted rows, cut so that no key spans two tables.

    The last key of a batch waits for the next batch. All rows of one key are held in memory.
    Raises InvalidRequest if they are more than `bytes_max`.
    """
    waiting: list[pa.Table] = []
    waiting_bytes = 0
    waits_for: tuple[object, ...] = ()
    for batch in batches:
        keys = order_columns([batch.column(name) for name in key])
        if not keys.length:
            continue
        last = keys.at(keys.length - 1)
        ended = keys.count_below(last)
        if waiting and (ended or last != waits_for):
            yield pa.concat_tables([*waiting, batch.slice(0, ended)])
            waiting, waiting_bytes = [], 0
        elif ended:
            yield batch.slice(0, ended)
        waiting.append(batch.slice(ended))
        waits_for = last
        waiting_bytes += size_of(waiting[-1])
        if bytes_max is not None and waiting_bytes > bytes_max:
            raise InvalidRequest(
                "one key has more rows than the memory budget lets its merge engine see at once: "
                "write them in several commits, or set lakecore.memory-budget higher",
                key=last,
                rows=sum(table.num_rows for table in waiting),
                size_bytes=waiting_bytes,
                bytes_max=bytes_max,
            )
    if waiting:
        yield pa.concat_tables(waiting)
