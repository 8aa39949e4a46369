"""Folding run by run, without sorting: each key has a slot and at most one row in each run.

This requires that each run as a whole is older or newer than the others, and that no row is a
retraction. Most reads of aggregation tables, and of partial-update tables without sequence groups,
are of this kind.

If a step of a function is one operation on whole arrays (`Fold.choice`, `Fold.step`), the runs are
processed in order: their values replace the values in the slots, or are combined with them. A key
with a single row is unchanged, because a single step changes nothing. For variable-width values,
the slots hold positions. For other functions, the rows of keys with several rows are sorted into
merge order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.merge.aggregators.fold import LAST, LAST_NON_NULL, Fold
from lakecore.merge.groups import (
    NONE,
    Groups,
    bits_of,
    groups_of,
    has_width,
    in_one,
    interleaved,
    is_valid,
    pick,
    room,
    with_width,
)
from lakecore.merge.keys import shared_codes
from lakecore.model.rows import VALUE_KIND, RowKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.merge.aggregators.fold import Choice, Step
    from lakecore.merge.spec import Slice

_SPAN_MAX = 8
"""Codes whose range is at most this many times the number of rows get one slot each."""


@dataclass(frozen=True)
class Runs:
    """For each row of each run, the slot of its key. Runs are oldest first, slots in key order."""

    slots: Sequence[np.ndarray]
    span: int

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of rows of each slot."""
        counts = np.zeros(self.span, np.int32)
        for place in self.places:
            counts[place] += 1
        return counts

    @cached_property
    def by_key(self) -> tuple[np.ndarray, Groups]:
        """The positions of the rows, sorted by key and run, and one group of rows for each key."""
        slots = np.concatenate(self.slots)
        order = np.argsort(slots, kind="stable")
        return order, groups_of(slots[order])

    @cached_property
    def places(self) -> Sequence[np.ndarray | slice]:
        """The slots of each run; a slice, which is faster, if they are consecutive."""
        return [
            slice(int(slots[0]), int(slots[-1]) + 1)
            if len(slots) and int(slots[-1]) - int(slots[0]) + 1 == len(slots)
            else slots
            for slots in self.slots
        ]

    @cached_property
    def occupied(self) -> np.ndarray | None:
        """The slots that have rows; None: all."""
        flags = np.zeros(self.span, bool)
        for place in self.places:
            flags[place] = True
        return None if flags.all() else np.flatnonzero(flags)

    def kept(self, by_slot: np.ndarray) -> np.ndarray:
        """The values of the slots that have rows, from an array with one value for each slot."""
        if self.occupied is None:
            return by_slot
        out = room(len(self.occupied), by_slot.dtype)
        return by_slot.take(self.occupied, out=out, mode="clip")

    def chosen(self, choice: Choice, columns: Sequence[pa.Array]) -> pa.Array:
        """The chosen value of each slot that has rows."""
        kind = columns[0].type
        if has_width(kind):
            bits = [bits_of(column) for column in columns]
            return with_width(*self._laid(bits, columns, choice), kind)
        ends = np.cumsum([len(slots) for slots in self.slots])
        rows = [np.arange(end - len(own), end) for end, own in zip(ends, self.slots, strict=True)]
        at, known = self._laid(rows, columns, choice)
        return pick(pa.concat_arrays(columns), at if known is None else np.where(known, at, NONE))

    def joined(self, step: Step, columns: Sequence[pa.Array]) -> pa.Array | None:
        """The combined value of each slot that has rows; None if it might overflow the type."""
        bits = [bits_of(column) for column in columns]
        if not step.fits(bits):
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            laid = self._laid(bits, columns, LAST_NON_NULL, step)
        return with_width(*laid, columns[0].type)

    def _laid(
        self,
        values: Sequence[np.ndarray],
        columns: Sequence[pa.Array],
        choice: Choice,
        step: Step | None = None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """The chosen or combined value of each occupied slot, and a mask of non-nulls (None: all).

        `values` (for example positions) replace the values of `columns`. The first run, which is
        usually the largest, is only copied.
        """
        laid = room(self.span, values[0].dtype)
        some_null = any(column.null_count for column in columns)
        known = np.zeros(self.span, bool) if some_null or step is not None else None
        order = range(len(columns))
        for number, run in enumerate(order if choice.last else reversed(order)):
            place, column, own = self.places[run], columns[run], values[run]
            valid = is_valid(column) if column.null_count else None
            if number and valid is not None and not choice.nulls:
                # Taking the non-null values costs less than blending them with the current ones.
                there = np.flatnonzero(valid)
                own, valid = own.take(there), None
                place = there + place.start if isinstance(place, slice) else place.take(there)
            if number and step is not None and known is not None:
                own = step.joined(laid[place], known[place], own)
            laid[place] = own
            if known is not None:
                known[place] = True if valid is None else valid
        return self.kept(laid), self.kept(known) if known is not None and some_null else None


def slots_of(codes: Sequence[np.ndarray]) -> Runs:
    """Assign a slot to each row. The codes of each run are sorted and unique."""
    filled = [code for code in codes if len(code)]
    low = min((int(code[0]) for code in filled), default=0)
    span = max((int(code[-1]) for code in filled), default=-1) - low + 1
    lengths = [len(code) for code in codes]
    if span <= _SPAN_MAX * sum(lengths):
        return Runs([code - np.int64(low) for code in codes], span)
    flat = np.concatenate(codes)
    order = np.argsort(flat, kind="stable")
    groups = groups_of(flat[order])
    ranks = np.empty(len(flat), np.int64)
    ranks[order] = groups.numbers
    return Runs(np.split(ranks, np.cumsum(lengths)[:-1]), groups.count)


def fold_runs(window: Sequence[Slice], functions: Mapping[str, Fold]) -> pa.Table:
    """One row for each key, in key order, folded by the function of each column.

    The runs are oldest first, and no row is a retraction.
    """
    schema = window[0].rows.schema
    runs = slots_of(shared_codes([part.keys for part in window]))

    def folded(name: str) -> pa.Array:
        columns = [in_one(part.rows.column(name)) for part in window]
        if name == VALUE_KIND:
            return _kinds(columns, runs)
        # The sequence number is that of the newest row.
        fold = functions.get(name, Fold(choice=LAST))
        if fold.choice is not None:
            return runs.chosen(fold.choice, columns)
        joined = None if fold.step is None else runs.joined(fold.step, columns)
        return _grouped(fold, columns, runs) if joined is None else joined

    return pa.Table.from_arrays([folded(name) for name in schema.names], schema=schema)


def _kinds(columns: Sequence[pa.Array], runs: Runs) -> pa.Array:
    """The kinds of the result: +I for folded rows; a single row keeps its kind."""
    if not any(column.to_numpy().any() for column in columns):
        return pa.array(runs.kept(np.full(runs.span, np.int8(RowKind.INSERT))))
    lone = runs.kept(runs.counts) == 1
    kinds = runs.chosen(LAST, columns).to_numpy()
    return pa.array(np.where(lone, kinds, np.int8(RowKind.INSERT)))


def _grouped(fold: Fold, columns: Sequence[pa.Array], runs: Runs) -> pa.Array:
    """The values of slots that have rows.

    If a key has several rows, they are folded in merge order.
    """
    column = pa.concat_arrays(columns)
    order, groups = runs.by_key
    alone = groups.sizes == 1
    lone = column.take(pa.array(order[groups.starts[alone]]))
    rows, _, several = groups.only(np.repeat(~alone, groups.sizes))
    folded = fold(column.take(pa.array(order[rows])), several, None)
    return pa.concat_arrays([lone, folded]).take(pa.array(interleaved(alone)))
