"""Folding run by run, without sorting: each key has a slot, and each run brings it one row at most.

It needs runs of which each is older or newer than the others as a whole, and rows that all add: the
common read of a partial-update table without sequence groups, and of an aggregation.

A function of which a step is one operation on whole arrays (`Fold.choice`, `Fold.step`) takes run
after run: its values are put into the slots, over those of the runs before it or joined with them.
A key with one row comes out as it is, since a single step changes nothing. Of values without a
fixed width their places are put there. The rows of other functions are put in merge order, those of
keys with several.
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
"""Codes in the range of a window, for a row of it, up to which a slot for each code is cheaper."""


@dataclass(frozen=True)
class Runs:
    """The slot of each row of each run, oldest run first; slots rise with the keys."""

    slots: Sequence[np.ndarray]
    span: int

    @cached_property
    def counts(self) -> np.ndarray:
        """How many rows each slot has."""
        counts = np.zeros(self.span, np.int32)
        for place in self.places:
            counts[place] += 1
        return counts

    @cached_property
    def by_key(self) -> tuple[np.ndarray, Groups]:
        """The positions of the rows by key and run, and the groups of each key."""
        slots = np.concatenate(self.slots)
        order = np.argsort(slots, kind="stable")
        return order, groups_of(slots[order])

    @cached_property
    def places(self) -> Sequence[np.ndarray | slice]:
        """The slots of each run; as a slice, which is faster, where they follow each other."""
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
        """Those of occupied slots, of an array with a value for each slot."""
        if self.occupied is None:
            return by_slot
        out = room(len(self.occupied), by_slot.dtype)
        return by_slot.take(self.occupied, out=out, mode="clip")

    def chosen(self, choice: Choice, columns: Sequence[pa.Array]) -> pa.Array:
        """Of each occupied slot the value chosen."""
        kind = columns[0].type
        if has_width(kind):
            bits = [bits_of(column) for column in columns]
            return with_width(*self._laid(bits, columns, choice), kind)
        ends = np.cumsum([len(slots) for slots in self.slots])
        rows = [np.arange(end - len(own), end) for end, own in zip(ends, self.slots, strict=True)]
        at, known = self._laid(rows, columns, choice)
        return pick(pa.concat_arrays(columns), at if known is None else np.where(known, at, NONE))

    def joined(self, step: Step, columns: Sequence[pa.Array]) -> pa.Array | None:
        """The values of each occupied slot, joined; None if that might leave their type."""
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
        """Of each occupied slot the value chosen or joined; which are not null (None: all).

        `values` stand for those of the columns. The first run, mostly the largest, is only copied:
        what is computed takes memory that is new each time, which costs more than to compute it.
        """
        laid = room(self.span, values[0].dtype)
        some_null = any(column.null_count for column in columns)
        known = np.zeros(self.span, bool) if some_null or step is not None else None
        order = range(len(columns))
        for number, run in enumerate(order if choice.last else reversed(order)):
            place, column, own = self.places[run], columns[run], values[run]
            valid = is_valid(column) if column.null_count else None
            if number and valid is not None and not choice.nulls:
                # To pick what is not null costs less than to blend it with what is held.
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
    """The slots of rows of these codes, which are sorted and unique in each run."""
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
    """One row a key, in key order, by the function of each column.

    The runs come oldest first, and all their rows add.
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
    """The kinds of folded rows: they are inserted; a lone one is of its kind."""
    if not any(column.to_numpy().any() for column in columns):
        return pa.array(runs.kept(np.full(runs.span, np.int8(RowKind.INSERT))))
    lone = runs.kept(runs.counts) == 1
    kinds = runs.chosen(LAST, columns).to_numpy()
    return pa.array(np.where(lone, kinds, np.int8(RowKind.INSERT)))


def _grouped(fold: Fold, columns: Sequence[pa.Array], runs: Runs) -> pa.Array:
    """The values of the occupied slots, folded in merge order where a key has several."""
    column = pa.concat_arrays(columns)
    order, groups = runs.by_key
    alone = groups.sizes == 1
    lone = column.take(pa.array(order[groups.starts[alone]]))
    rows, _, several = groups.only(np.repeat(~alone, groups.sizes))
    folded = fold(column.take(pa.array(order[rows])), several, None)
    return pa.concat_arrays([lone, folded]).take(pa.array(interleaved(alone)))
