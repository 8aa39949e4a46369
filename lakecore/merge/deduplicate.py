"""The newest row of each key wins.

https://paimon.apache.org/docs/master/primary-key-table/merge-engine/overview/#deduplicate

Which rows survive is decided on keys, sequences and kinds alone; then each run is cut down by its
mask. Values are never sorted for a read, and never moved twice.

1. Rows of an ignored kind are left out first.
2. *Whole runs are older or newer* (the common case): from the newest run down, a row of an older
   run loses if its key is among the keys already seen.
3. *Otherwise* (overlapping sequence ranges, user sequence fields, repeated keys): the rows whose
   key occurs more than once are sorted by key, sequence fields, sequence number, and order of
   commit, for writers that begin at one snapshot number their rows alike; the last of a key wins.
4. Winners of a kind that retracts are dropped, unless deletions are to be kept.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.merge.keys import sequence_codes, shared_codes
from lakecore.model.rows import RETRACTS, SEQUENCE_NUMBER, VALUE_KIND

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.merge.spec import MergeSpec, Slice
    from lakecore.model.rows import RowKind

PIECE_ROWS = 131_072
_DENSE_SPAN_MAX = 32
"""Codes in the range of a window, for a row of it, up to which a flag for each code is cheaper."""


class Deduplicate:
    """The merge function of `merge-engine` = `deduplicate`."""

    associative: ClassVar = True

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """The newest row of each key.

        With `keep_deletions`, deletions stay, as rows of kind -D or -U. Dropping one earlier would
        let an older row of a lower level come back.
        """
        # Where nothing else decides, the row that comes later here wins.
        window = sorted(window, key=lambda part: part.commit_order)
        codes = shared_codes([part.keys for part in window])
        alive = [
            np.ones(part.keys.length, bool) if mask is None else ~mask
            for part in window
            for mask in [_of_kinds(part.rows, spec.ignored)]
        ]
        order = None
        if self.needs_sequence_numbers(window, spec):
            order = _key_order(_joined(codes))
            alive = _keep_last_by_sequence(window, codes, alive, order, spec)
        else:
            _keep_last_by_run(window, codes, alive)
        if not spec.keep_deletions:
            for part, mask in zip(window, alive, strict=True):
                deletes = _of_kinds(part.rows, RETRACTS)
                if deletes is not None:
                    mask[deletes] = False
        if spec.in_key_order:
            yield from _in_key_order(window, codes, alive, order)
        else:
            for part, mask in zip(window, alive, strict=True):
                yield _filter(part.rows, mask)

    def needs_sequence_numbers(self, window: Sequence[Slice], spec: MergeSpec) -> bool:
        """Whether rows must be compared one by one."""
        if spec.sequence or not all(part.unique for part in window):
            return True
        ordered = sorted(window, key=lambda part: (part.sequence_min, part.sequence_max))
        return not all(
            older.sequence_max < newer.sequence_min for older, newer in pairwise(ordered)
        )


def _keep_last_by_run(
    window: Sequence[Slice], codes: list[np.ndarray], alive: list[np.ndarray]
) -> None:
    """Clear in `alive` each row whose key a newer run holds. Codes of a run are sorted, unique."""
    newest_first = sorted(range(len(window)), key=lambda run: -window[run].sequence_max)
    filled = [code for code in codes if len(code)]
    low = min((int(code[0]) for code in filled), default=0)
    span = max((int(code[-1]) for code in filled), default=-1) - low + 1
    if span <= _DENSE_SPAN_MAX * sum(map(len, filled)):
        _keep_last_of_dense(codes, alive, newest_first, low, span)
    else:
        _keep_last_of_sparse(codes, alive, newest_first)


def _keep_last_of_dense(
    codes: list[np.ndarray], alive: list[np.ndarray], newest_first: list[int], low: int, span: int
) -> None:
    """Which codes newer runs hold is a table of flags."""
    seen = np.zeros(span, bool)
    # NOTE: memory is new to a thread each time it is asked for, and to clear it costs as much as
    # all that is done here. So all runs share it.
    length = max(map(len, codes))
    places, newer = np.empty(length, np.int64), np.empty(length, bool)
    for run in newest_first:
        mask = alive[run]
        at, held = places[: len(mask)], newer[: len(mask)]
        np.subtract(codes[run], np.int64(low), out=at)
        seen.take(at, out=held, mode="clip")
        seen[at if mask.all() else at[mask]] = True
        np.greater(mask, held, out=mask)


def _keep_last_of_sparse(
    codes: list[np.ndarray], alive: list[np.ndarray], newest_first: list[int]
) -> None:
    """Which codes newer runs hold is a sorted array."""
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


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The parts as one array; one part is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _key_order(codes: np.ndarray) -> np.ndarray | None:
    """The positions of the rows in key order, rows of a key in any order; None: they are in it."""
    if len(codes) < 2 or bool((codes[1:] >= codes[:-1]).all()):
        return None
    return pl.Series(codes).arg_sort().to_numpy()


def _keep_last_by_sequence(
    window: Sequence[Slice],
    codes: list[np.ndarray],
    alive: list[np.ndarray],
    order: np.ndarray | None,
    spec: MergeSpec,
) -> list[np.ndarray]:
    """`alive` less each row that is not the last of its key by sequence."""
    code, live = _joined(codes), _joined(alive)
    order = np.arange(len(code)) if order is None else order
    if not live.all():
        order = order[live[order]]
    ordered = code[order]
    same = ordered[1:] == ordered[:-1]
    repeated = np.zeros(len(order), bool)
    repeated[1:] |= same
    repeated[:-1] |= same
    contested = order[repeated]
    if len(contested):
        by = [contested, _column(window, SEQUENCE_NUMBER, contested).to_numpy()]
        if spec.sequence:
            fields = [_column(window, name, contested) for name in spec.sequence]
            by.append(sequence_codes(fields, descending=spec.sequence_descending))
        by.append(code[contested])
        ranked = contested[np.lexsort(by)]
        key = code[ranked]
        live[ranked[:-1][key[1:] == key[:-1]]] = False
    return np.split(live, np.cumsum([len(mask) for mask in alive])[:-1])


def _column(window: Sequence[Slice], name: str, rows: np.ndarray) -> pa.ChunkedArray:
    chunks = [chunk for part in window for chunk in part.rows.column(name).chunks]
    column = pa.chunked_array(chunks, type=window[0].rows.schema.field(name).type)
    return column.take(pa.array(rows))


def _of_kinds(rows: pa.Table, kinds: frozenset[RowKind]) -> np.ndarray | None:
    """A mask of the rows of these kinds; None if there are none (or no kinds at all)."""
    if not kinds or rows.schema.get_field_index(VALUE_KIND) < 0:
        return None
    present = rows.column(VALUE_KIND).to_numpy()
    wanted = [int(kind) for kind in kinds]
    if present.max(initial=0) < min(wanted):
        return None
    mask = np.isin(present, wanted)
    return mask if mask.any() else None


def _filter(rows: pa.Table, mask: np.ndarray) -> pa.Table:
    count = int(np.count_nonzero(mask))
    if count == len(mask):
        return rows
    return rows.slice(0, 0) if count == 0 else rows.filter(pa.array(mask))


def _in_key_order(
    window: Sequence[Slice],
    codes: list[np.ndarray],
    alive: list[np.ndarray],
    order: np.ndarray | None,
) -> Iterator[pa.Table]:
    """The surviving rows, sorted by key, a piece at a time: the whole is never held twice."""
    rows = pa.concat_tables([part.rows for part in window])
    live = _joined(alive)
    if order is None:
        order = _key_order(_joined(codes))
    if order is None:
        yield _filter(rows, live)
        return
    chosen = order if live.all() else order[live[order]]
    for start in range(0, len(chosen), PIECE_ROWS):
        yield rows.take(pa.array(chosen[start : start + PIECE_ROWS]))
