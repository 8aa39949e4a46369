"""Folding run by run, without sorting: each key has a slot, and each run brings it one row at most.

It needs runs of which each is older or newer than the others as a whole, and rows that all add: the
common read of a partial-update table without sequence groups, and of an aggregation.

A function of which a step is one operation on whole arrays (`Fold.choice`, `Fold.step`) takes run
after run; a key with one row comes out as it is, since a single step changes nothing. The rows of
other functions are put in merge order, those of keys with several.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.merge.aggregators.fold import LAST, Choice, Fold
from lakecore.merge.groups import NONE, Groups, groups_of, in_one, interleaved, is_valid, pick
from lakecore.merge.keys import shared_codes
from lakecore.model.rows import VALUE_KIND, RowKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.merge.aggregators.fold import Step
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
        for slots in self.slots:
            counts[slots] += 1
        return counts

    @cached_property
    def by_key(self) -> tuple[np.ndarray, Groups]:
        """The positions of the rows by key and run, and the groups of each key."""
        slots = np.concatenate(self.slots)
        order = np.argsort(slots, kind="stable")
        return order, groups_of(slots[order])

    @cached_property
    def occupied(self) -> np.ndarray:
        """The slots that have rows."""
        return np.flatnonzero(self.counts)

    def positions(self, choice: Choice, columns: Sequence[pa.Array]) -> np.ndarray:
        """Of each occupied slot the position, over all runs, of the row chosen, or NONE."""
        at = np.full(self.span, NONE)
        ends = np.cumsum([len(slots) for slots in self.slots])
        order = range(len(self.slots)) if choice.last else reversed(range(len(self.slots)))
        for run in order:
            slots = self.slots[run]
            rows = np.arange(ends[run] - len(slots), ends[run])
            if choice.nulls or columns[run].null_count == 0:
                at[slots] = rows
            else:
                at[slots] = np.where(is_valid(columns[run]), rows, at[slots])
        chosen: np.ndarray = at[self.occupied]
        return chosen


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
    folded: dict[str, pa.Array] = {}
    newest: np.ndarray | None = None
    for name in schema.names:
        columns = [in_one(part.rows.column(name)) for part in window]
        # A column of the system is of the newest row.
        fold = functions.get(name, Fold(choice=LAST))
        if fold.choice is None:
            stepped = _stepped(fold.step, columns, runs)
            folded[name] = _grouped(fold, columns, runs) if stepped is None else stepped
            continue
        choice = fold.choice
        if choice.last and (choice.nulls or not any(column.null_count for column in columns)):
            at = newest = runs.positions(LAST, columns) if newest is None else newest
        else:
            at = runs.positions(choice, columns)
        folded[name] = pick(pa.concat_arrays(columns), at)
    if VALUE_KIND in folded:
        several = runs.counts[runs.occupied] > 1
        kinds = np.where(several, np.int8(RowKind.INSERT), folded[VALUE_KIND].to_numpy())
        folded[VALUE_KIND] = pa.array(kinds)
    return pa.Table.from_arrays([folded[name] for name in schema.names], schema=schema)


def _grouped(fold: Fold, columns: Sequence[pa.Array], runs: Runs) -> pa.Array:
    """The values of the occupied slots, folded in merge order where a key has several."""
    column = pa.concat_arrays(columns)
    order, groups = runs.by_key
    alone = groups.sizes == 1
    lone = column.take(pa.array(order[groups.starts[alone]]))
    rows, _, several = groups.only(np.repeat(~alone, groups.sizes))
    folded = fold(column.take(pa.array(order[rows])), several, None)
    return pa.concat_arrays([lone, folded]).take(pa.array(interleaved(alone)))


def _stepped(step: Step | None, columns: Sequence[pa.Array], runs: Runs) -> pa.Array | None:
    """The values of the occupied slots; None if there is no step, or it might leave the type."""
    if step is None:
        return None
    kind = columns[0].type
    numbers = [step.numbers(column, step.neutral) for column in columns]
    if not step.fits(numbers):
        return None
    state = np.full(runs.span, step.neutral, numbers[0].dtype)
    some_null = any(column.null_count for column in columns)
    known = np.zeros(runs.span, bool) if some_null else None
    for slots, column, own in zip(runs.slots, columns, numbers, strict=True):
        state[slots] = step.join(state[slots], own)
        if known is not None:
            known[slots] |= is_valid(column)
    values = state[runs.occupied]
    mask = None if known is None else ~known[runs.occupied]
    return pa.array(values, mask=mask).view(kind)
