"""The common part of the merge engines that fold the rows of a key to a new row, column by column.

1. A key with a single row keeps it unchanged; no function is applied. (Paimon does the same in
   flush, read and rewrite.) With `MergeSpec.folds_single` it is folded, too.
2. The rows of the other keys, in merge order, are the *contested* rows. The engine folds them, each
   column for all keys together.
3. Without the older rows of a key (`MergeSpec.lacks_older`), a fold must stand for its rows in a
   later merge. Rows for which it cannot, such as a retraction of an element of a list that is not
   there, are not folded: they stay apart, and the rows between them are folded.
4. The result has the sequence number of the last row. The engine decides whether it is a tombstone
   or an insertion. Tombstones are dropped, unless they must be kept.

If the first row of a merge is a retraction, the fold starts empty: the retraction counts against
rows that are merged later. (Paimon since 1.0 starts with the values of that row, which counts them
twice; see docs/decisions.)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from lakecore.errors import InvalidRequest, Uncomputable
from lakecore.merge.aggregators import AGGREGATORS
from lakecore.merge.aggregators.fold import (
    LAST,
    LAST_NON_NULL,
    Aggregate,
    Choice,
    Fold,
    Step,
    kept_known,
)
from lakecore.merge.keys import (
    NONE,
    Groups,
    bits_of,
    groups_of,
    has_width,
    in_one,
    interleaved,
    is_valid,
    order_columns,
    pick,
    room,
    shared_codes,
    spread,
    with_width,
)
from lakecore.merge.spec import merge_order, of_kinds, oldest_first, piece_rows, runs_decide
from lakecore.model.arrow_arrays import size_of
from lakecore.model.rows import LAYER, RETRACTS, SEQUENCE_NUMBER, VALUE_KIND, RowKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakecore.merge.spec import MergeFunction, MergeSpec, Slice

# --- runs ----------------------------------------------------------------------------------------
# Folding run by run, without sorting: each key has a slot and at most one row in each run.
#
# Folding run by run requires that each run as a whole is older or newer than the others, and that
# no row is a retraction. Most reads of aggregation tables, and of partial-update tables without
# sequence groups, are of this kind.
#
# If a step of a function is one operation on whole arrays (`Fold.choice`, `Fold.step`), the runs
# are processed in order: their values replace the values in the slots, or are combined with them. A
# key with a single row is unchanged, because a single step changes nothing. For variable-width
# values, the slots hold positions. For other functions, the rows of keys with several rows are
# sorted into merge order.

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


# --- fold ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Contested:
    """The rows of the keys that are folded, in merge order, one group for each key.

    Row r is at position `order[r]` of the window's table. `kinds` is None if no row is a
    retraction.
    """

    window: _Window
    groups: Groups
    order: np.ndarray
    kinds: np.ndarray | None

    @property
    def columns(self) -> list[str]:
        """The names of the columns that were read."""
        return [name for name in self.window.names if name not in {SEQUENCE_NUMBER, VALUE_KIND}]

    @property
    def retract(self) -> np.ndarray | None:
        """A mask of the retracting rows; None if there are none."""
        if self.kinds is None:
            return None
        mask = _retracting(self.kinds)
        return mask if mask.any() else None

    def of_groups(self, first: int, last: int) -> Contested:
        """The rows of the groups from `first` (inclusive) to `last` (exclusive)."""
        starts = np.append(self.groups.starts, self.groups.length)[first : last + 1]
        rows = slice(int(starts[0]), int(starts[-1]))
        groups = Groups(starts[:-1] - starts[0], rows.stop - rows.start)
        kinds = None if self.kinds is None else self.kinds[rows]
        return Contested(self.window, groups, self.order[rows], kinds)

    def valid(self, name: str) -> np.ndarray:
        """A mask of the rows in which the column is not null, in merge order."""
        valid: np.ndarray = is_valid(self.window.column(name))[self.order]
        return valid

    def values(self, name: str, rows: np.ndarray) -> pa.Array:
        return self.window.take(name, self.order[rows])

    @property
    def all_rows(self) -> Chosen:
        """The choice of all rows for a column."""
        return Chosen(
            rows=np.arange(self.groups.length),
            numbers=np.arange(self.groups.count),
            groups=self.groups,
            retract=self.retract,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The rows that count for a column, in fold order; `numbers` are their groups."""

    rows: np.ndarray
    numbers: np.ndarray
    groups: Groups
    retract: np.ndarray | None

    def only(self, mask: np.ndarray) -> Chosen:
        if mask.all():
            return self
        rows, numbers, groups = self.groups.only(mask)
        retract = None if self.retract is None else self.retract[rows]
        if retract is not None and not retract.any():
            retract = None
        return Chosen(
            rows=self.rows[rows], numbers=self.numbers[numbers], groups=groups, retract=retract
        )

    def adding(self, mask: np.ndarray) -> Chosen:
        """The same rows, but rows of the mask count as additions (+I), regardless of their kind."""
        if self.retract is None:
            return self
        retract = self.retract & ~mask
        return replace(self, retract=retract if retract.any() else None)

    def since(self, begins: np.ndarray) -> Chosen:
        """The rows of each group from a position on.

        The row at that position counts as an addition.

        `begins` holds the position for each group; NONE: all rows of the group.
        """
        mask = np.arange(self.groups.length) >= np.repeat(begins, self.groups.sizes)
        is_begin = np.zeros(self.groups.length, bool)
        is_begin[begins[begins != NONE]] = True
        return self.adding(is_begin).only(mask)


@dataclass(frozen=True, slots=True)
class Kept:
    """Two masks of rows: `alone` stay unfolded, `over` are discarded by a later row."""

    alone: np.ndarray
    over: np.ndarray


Column: TypeAlias = "pa.Array | np.ndarray"
"""One value for each key: an array, or positions of contested rows to take, NONE for null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """One row for each key: the columns by name, and which rows are tombstones.

    `taken_back`: which tombstones are of kind -U instead of -D, because no -D row deleted the key.
    """

    columns: Mapping[str, Column]
    deleted: np.ndarray
    taken_back: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class FoldEngine:
    """A merge function that by default keeps single rows unchanged, and folds the others.

    A folded row has no record of retractions, nulls and older sequences. Folding it again may give
    another row than folding all rows at once: `kept` says which rows would be lost.
    """

    chooses_rows: ClassVar = False
    fold: Callable[[Contested, MergeSpec], Folded]
    functions: Callable[[MergeSpec, Sequence[str]], Mapping[str, Fold] | None]
    """The function of each column for folding run by run when all rows add; None: not possible."""
    kept: Callable[[Contested, MergeSpec], Kept]

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        runs = oldest_first(window, spec)
        all_add = all(of_kinds(part.rows, RETRACTS) is None for part in runs)
        if all_add and runs_decide(window, spec) and not spec.complete_levels:
            functions = self.functions(spec, runs[0].rows.schema.names)
            if functions is not None and spec.lacks_older and not _associate(functions.values()):
                functions = None
            folded_runs = None if functions is None else _folded_runs(runs, functions)
            if folded_runs is not None:
                yield folded_runs
                return
        codes, order = merge_order(runs, spec)
        table = pa.concat_tables([part.rows for part in runs])
        rows = _Window(table, by_piece=spec.in_key_order)
        kinds = table.column(VALUE_KIND).to_numpy() if VALUE_KIND in rows.names else None
        groups, layers = groups_of(codes[order]), None
        if spec.lacks_older and not (all_add and _associate(_folds(spec))):
            order, groups, layers = self._in_layers(rows, order, groups, kinds, spec)
        alone = groups.sizes == 1
        if spec.folds_single:
            alone &= self._stays(spec, rows.names, order[groups.starts], kinds)
        lone = order[groups.starts[alone]]
        several, _, left = groups.only(np.repeat(~alone, groups.sizes))
        contested = Contested(rows, left, order[several], None)
        if kinds is not None:
            contested.kinds = kinds[contested.order]
        folded = _whole_row(contested, self._folded(contested, spec))
        # Positions of the returned rows, in order: single rows are numbered first, then folded
        # rows.
        keep = np.ones(groups.count, bool)
        if not spec.keep_deletions and kinds is not None:
            keep[: len(lone)] = ~_retracting(kinds[lone])
            keep[len(lone) :] = ~folded.deleted
        place = np.flatnonzero(keep)
        if spec.in_key_order:
            at = interleaved(alone)
            place = at[keep[at]]
        step = piece_rows(table, size_of(table)) if spec.in_key_order else max(1, len(place))
        for start in range(0, len(place), step):
            piece = place[start : start + step]
            merged = pa.Table.from_arrays(
                [_piece(contested, name, folded.columns[name], lone, piece) for name in rows.names],
                schema=table.schema,
            )
            if layers is not None:
                numbers = np.concatenate([layers[alone], layers[~alone]])[piece]
                merged = merged.append_column(LAYER, pa.array(numbers))
            yield merged

    def _in_layers(
        self,
        rows: _Window,
        order: np.ndarray,
        groups: Groups,
        kinds: np.ndarray | None,
        spec: MergeSpec,
    ) -> tuple[np.ndarray, Groups, np.ndarray | None]:
        """The order and the groups of the rows to fold.

        If a key has several groups, also the number of each group among those of its key.
        """
        at, _, several = groups.only(np.repeat(groups.sizes > 1, groups.sizes))
        contested = Contested(rows, several, order[at], None)
        if kinds is not None:
            contested.kinds = kinds[contested.order]
        kept = self.kept(contested, spec) if several.count else None
        if kept is None or not kept.alone.any():
            return order, groups, None
        alone, over = np.zeros(groups.length, bool), np.zeros(groups.length, bool)
        alone[at], over[at] = kept.alone, kept.over
        left, _, of_keys = groups.only(~over)
        parts = of_keys.apart(alone[left])
        keys = of_keys.numbers[parts.starts]
        return order[left], parts, np.arange(parts.count) - np.searchsorted(keys, keys)

    def _stays(
        self, spec: MergeSpec, names: Sequence[str], rows: np.ndarray, kinds: np.ndarray | None
    ) -> np.ndarray:
        """A mask of these rows, each the only one of its key: the functions leave it unchanged."""
        functions = self.functions(spec, names)
        if functions is None or any(each.changes_single for each in functions.values()):
            return np.zeros(len(rows), bool)
        if kinds is None:
            return np.ones(len(rows), bool)
        return ~_retracting(kinds[rows])

    def _folded(self, contested: Contested, spec: MergeSpec) -> Folded:
        try:
            return self.fold(contested, spec)
        except InvalidRequest:
            for aggregate in spec.aggregates:
                # A wrong option is not caused by a key, so it is raised without the search below.
                AGGREGATORS[aggregate.function](aggregate)
            first, last = 0, contested.groups.count
        # Bisect to find the key that fails.
        while last - first > 1:
            middle = (first + last) // 2
            try:
                self.fold(contested.of_groups(first, middle), spec)
            except InvalidRequest:
                last = middle
            else:
                first = middle
        one = contested.of_groups(first, last)
        try:
            return self.fold(one, spec)
        except InvalidRequest as error:
            key = {name: one.values(name, np.zeros(1, int))[0].as_py() for name in spec.key}
            raise Uncomputable(error.message, **{**error.facts, "key": key}) from None


def _retracting(kinds: np.ndarray) -> np.ndarray:
    mask: np.ndarray = np.isin(kinds, [int(kind) for kind in RETRACTS])
    return mask


def _folded_runs(runs: Sequence[Slice], functions: Mapping[str, Fold]) -> pa.Table | None:
    """The rows folded run by run; None if this fails: the general path then raises the error."""
    try:
        return fold_runs(runs, functions)
    except InvalidRequest:
        return None


def _folds(spec: MergeSpec) -> Iterator[Fold]:
    return (AGGREGATORS[each.function](each) for each in spec.aggregates)


def _associate(functions: Iterable[Fold]) -> bool:
    return all(function.associates for function in functions)


def kept_of_column(
    contested: Contested, aggregate: Aggregate, chosen: Chosen, *, late: bool = False
) -> np.ndarray:
    """A mask of the rows whose values a fold without the older rows would lose.

    `late`: an added row may count as older than the rows before it.
    """
    fold = AGGREGATORS[aggregate.function](aggregate)
    kept = np.zeros(len(chosen.rows), bool)
    takes_back = fold.retracts and not aggregate.ignore_retract
    if chosen.retract is not None and takes_back and fold.keeps is not None:
        keeps = kept_known if late else fold.keeps
        kept |= keeps(contested.valid(aggregate.column), chosen.groups, chosen.retract)
    if fold.keeps_added is not None:
        kept |= fold.keeps_added(contested.values(aggregate.column, chosen.rows), chosen.groups)
    return kept


def fold_column(contested: Contested, aggregate: Aggregate, chosen: Chosen) -> Column:
    """One value for each key, from the chosen rows of the function's column.

    Null if none is chosen.

    Raises InvalidRequest if rows must be retracted and the function cannot retract.
    """
    fold = AGGREGATORS[aggregate.function](aggregate)
    chosen = retractable(aggregate, fold, chosen)
    if fold.choice is not None:
        return choose_column(contested, aggregate.column, fold.choice, chosen)
    values = contested.values(aggregate.column, chosen.rows)
    folded = fold(values, chosen.groups, chosen.retract)
    return spread(folded, chosen.numbers, contested.groups.count)


def retractable(aggregate: Aggregate, fold: Fold, chosen: Chosen) -> Chosen:
    """The rows to fold; drops retractions if the function ignores them, else raises an error."""
    if chosen.retract is None or (fold.retracts and not aggregate.ignore_retract):
        return chosen
    if aggregate.ignore_retract:
        return chosen.only(~chosen.retract)
    raise InvalidRequest(
        "the aggregate function cannot retract rows of kind -U and -D; write no such rows, or set "
        f"fields.{aggregate.column}.ignore-retract or ignore-delete",
        column=aggregate.column,
        function=aggregate.function,
    )


def choose_column(contested: Contested, column: str, choice: Choice, chosen: Chosen) -> Column:
    """For each key, the chosen row whose value the column takes."""
    valid = contested.valid(column)
    everything = len(chosen.rows) == len(valid)
    at = choice(valid if everything else valid[chosen.rows], chosen.groups, chosen.retract)
    if everything:
        return at
    rows = np.full(contested.groups.count, NONE)
    rows[chosen.numbers] = np.where(at == NONE, NONE, chosen.rows[at])
    return rows


@dataclass(slots=True)
class _Window:
    """The rows of all runs. The columns stay chunked, because they are returned in pieces."""

    table: pa.Table
    by_piece: bool
    _columns: dict[str, pa.Array | pa.ChunkedArray] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return list(self.table.schema.names)

    def column(self, name: str) -> pa.Array | pa.ChunkedArray:
        if name not in self._columns:
            column = self.table.column(name)
            self._columns[name] = column if self.by_piece else in_one(column)
        return self._columns[name]

    def take(self, name: str, positions: np.ndarray) -> pa.Array:
        """The values of a column at these positions; null for NONE."""
        return in_one(pick(self.column(name), positions))


def _whole_row(contested: Contested, folded: Folded) -> Folded:
    """The folded rows with their sequence numbers and kinds."""
    lasts = contested.groups.lasts
    kinds = np.where(folded.deleted, np.int8(RowKind.DELETE), np.int8(RowKind.INSERT))
    if folded.taken_back is not None:
        kinds[folded.taken_back] = RowKind.UPDATE_BEFORE
    system: dict[str, Column] = {SEQUENCE_NUMBER: lasts, VALUE_KIND: pa.array(kinds, pa.int8())}
    return Folded(columns={**system, **folded.columns}, deleted=folded.deleted)


def _piece(
    contested: Contested, name: str, column: Column, lone: np.ndarray, place: np.ndarray
) -> pa.Array:
    """A column of the result at these positions.

    Rows of single-row keys come before folded rows.
    """
    window = contested.window
    if isinstance(column, np.ndarray):
        folded = np.where(column == NONE, NONE, contested.order[column])
        return window.take(name, np.concatenate([lone, folded])[place])
    is_lone = place < len(lone)
    parts = [window.take(name, lone[place[is_lone]]), column]
    if len(parts[0]) + len(column) != len(place):
        parts[1] = column.take(pa.array(place[~is_lone] - len(lone)))
    both = pa.concat_arrays(parts)
    if (place[1:] > place[:-1]).all():
        return both
    return both.take(pa.array(interleaved(is_lone)))


# --- uncomputable --------------------------------------------------------------------------------
# Errors for keys whose rows cannot be merged into one.
#
# Such a key must not make its bucket unreadable: the error names the key, and a read whose
# predicate excludes the key skips it.

KeyFilter: TypeAlias = "Callable[[pa.Table], np.ndarray]"
"""Rows of key columns -> a mask of the keys that the reader wants."""
_WAYS_OUT = (
    "other keys can be written and read; to mend this one, write a row of kind -U that takes the "
    "value back, delete the key if the table removes records on delete, widen the type of the "
    "column, or overwrite the partition"
)


def stored(error: Uncomputable, **place: object) -> Uncomputable:
    """The error of a merge of stored rows: the message says what to do.

    `place`: facts to add to the error. An error that already names a table is returned unchanged.
    """
    if "table" in error.facts:
        return error
    return Uncomputable(f"{error.message}. {_WAYS_OUT}", **place, **error.facts)


@dataclass(frozen=True, slots=True)
class Sparing:
    """A merge function that skips a key which cannot be merged, unless the key is `wanted`."""

    chooses_rows: ClassVar = False
    engine: MergeFunction
    wanted: KeyFilter

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        try:
            # All rows are folded before the first piece is returned.
            yield from self.engine(window, spec)
        except Uncomputable:
            parts = [self._spared(part, spec) for part in window]
            if all(part is given for part, given in zip(parts, window, strict=True)):
                raise
            left = [part for part in parts if part.rows.num_rows]
            if left:
                yield from self.engine(left, spec)

    def _spared(self, part: Slice, spec: MergeSpec) -> Slice:
        mask = self.wanted(part.rows.select(list(spec.key)))
        if mask.all():
            return part
        rows = part.rows.filter(pa.array(mask))
        places = None if part.places is None else np.asarray(part.places)[mask]
        keys = order_columns([rows.column(name) for name in spec.key])
        return replace(part, rows=rows, keys=keys, places=places)
