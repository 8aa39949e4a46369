"""The frame of merge engines that make a new row of the rows of a key, column by column.

1. A key with one row keeps it untouched, whatever it holds: no function sees it. (Paimon does so in
   flush, read and rewriting.)
2. The rows of the other keys, put in merge order, are the *contested* rows. The engine folds them,
   each column at once over all keys.
3. The result has the sequence number of the last row, and is a deletion or an insertion as the
   engine says. Deletions are dropped, unless they are to be kept.

A merge that begins with a row to be taken back begins with nothing: what it takes back counts
against rows that are merged later. (Paimon since 1.0 begins with the values of that row instead,
which counts them twice; see DECISIONS.md.)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.merge.aggregators import AGGREGATORS
from lakecore.merge.groups import NONE, Groups, groups_of, is_valid, pick, spread
from lakecore.merge.order import merge_order, of_kinds, oldest_first, runs_decide, split_rows
from lakecore.model.rows import RETRACTS, SEQUENCE_NUMBER, VALUE_KIND, RowKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakecore.merge.aggregators.fold import Aggregate, Fold
    from lakecore.merge.spec import MergeSpec, Slice

_PIECE_ROWS = 131_072


@dataclass(slots=True)
class Contested:
    """The rows of the keys that have several, in merge order, as one group a key.

    `kinds` is None where every row adds.
    """

    table: pa.Table
    groups: Groups
    order: np.ndarray
    kinds: np.ndarray | None
    _columns: dict[str, pa.Array] = field(default_factory=dict)

    @property
    def retract(self) -> np.ndarray | None:
        """A mask of the rows that take back; None if there are none."""
        if self.kinds is None:
            return None
        mask: np.ndarray = np.isin(self.kinds, [int(kind) for kind in RETRACTS])
        return mask if mask.any() else None

    def stored(self, name: str) -> pa.Array:
        """The values of a column, as they lie: row r is at `order[r]`."""
        if name not in self._columns:
            column = self.table.column(name).combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
            self._columns[name] = column
        return self._columns[name]

    def valid(self, name: str) -> np.ndarray:
        """A mask of the rows in which the column is not null, in merge order."""
        valid: np.ndarray = is_valid(self.stored(name))[self.order]
        return valid

    def pick(self, name: str, rows: np.ndarray) -> pa.Array:
        """The values of a column in these rows; null for NONE."""
        return pick(self.stored(name), np.where(rows == NONE, NONE, self.order[rows]))

    def values(self, name: str, chosen: Chosen) -> pa.Array:
        """The values of a column in the rows chosen."""
        return self.stored(name).take(pa.array(self.order[chosen.rows]))

    @property
    def all_rows(self) -> Chosen:
        """All rows, to fold a column of."""
        return Chosen(
            rows=np.arange(self.groups.length),
            numbers=np.arange(self.groups.count),
            groups=self.groups,
            retract=self.retract,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The rows that count for a column, in the order they are folded: `numbers` are the groups."""

    rows: np.ndarray
    numbers: np.ndarray
    groups: Groups
    retract: np.ndarray | None

    def only(self, mask: np.ndarray) -> Chosen:
        """Those of the rows for which the mask holds."""
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
        """The same rows, those of the mask never to be taken back."""
        if self.retract is None:
            return self
        retract = self.retract & ~mask
        return replace(self, retract=retract if retract.any() else None)

    def since(self, begins: np.ndarray) -> Chosen:
        """Of all rows of each group those from the position given on, which itself adds.

        NONE: all of them.
        """
        mask = np.arange(self.groups.length) >= np.repeat(begins, self.groups.sizes)
        is_begin = np.zeros(self.groups.length, bool)
        is_begin[begins[begins != NONE]] = True
        return self.adding(is_begin).only(mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """One row a key: its columns by name, and which of the rows are deletions."""

    columns: dict[str, pa.Array]
    deleted: np.ndarray


@dataclass(frozen=True, slots=True)
class FoldEngine:
    """A merge function that leaves lone rows alone and folds the others.

    A row that is folded has forgotten how it came to be: what it took back, what was null, which
    rows had an older sequence. Folding it again gives another row than folding all at once.
    """

    associative: ClassVar = False
    fold: Callable[[Contested, MergeSpec], Folded]

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """The merged rows; see `MergeFunction`."""
        runs = oldest_first(window, spec)
        codes, order = merge_order(runs, spec)
        groups = groups_of(codes[order])
        alone = groups.sizes == 1
        is_lone = np.zeros(len(codes), bool)
        is_lone[order[groups.starts[alone]]] = True
        is_contested = np.zeros(len(codes), bool)
        is_contested[order] = True
        is_contested &= ~is_lone
        merged = split_rows(runs, is_lone)
        merged_codes = [codes[is_lone]]
        if is_contested.any():
            contested = _contested(split_rows(runs, is_contested), is_contested, order, groups)
            merged.append(_row_a_key(contested, self.fold(contested, spec)))
            merged_codes.append(codes[order[groups.starts[~alone]]])
        if spec.in_key_order:
            by_key = np.argsort(np.concatenate(merged_codes), kind="stable")
            table = pa.concat_tables(merged).combine_chunks()
            merged = [
                table.take(pa.array(by_key[start : start + _PIECE_ROWS]))
                for start in range(0, len(by_key), _PIECE_ROWS)
            ]
        for table in merged:
            yield table if spec.keep_deletions else _without_deletions(table)

    def needs_sequence_numbers(self, window: Sequence[Slice], spec: MergeSpec) -> bool:
        """Whether rows must be compared one by one."""
        return not runs_decide(window, spec)


def fold_column(contested: Contested, aggregate: Aggregate, chosen: Chosen) -> pa.Array:
    """One value a key of the function's column, from the rows chosen; null where none are.

    Raises InvalidRequest if rows are to be taken back and the function cannot.
    """
    fold = AGGREGATORS[aggregate.function](aggregate)
    chosen = retractable(aggregate, fold, chosen)
    if fold.choose is not None:
        return choose_column(contested, aggregate.column, fold.choose, chosen)
    values = contested.values(aggregate.column, chosen)
    folded = fold(values, chosen.groups, chosen.retract)
    return spread(folded, chosen.numbers, contested.groups.count)


def retractable(aggregate: Aggregate, fold: Fold, chosen: Chosen) -> Chosen:
    """The rows that the function is given: those to be taken back only if it can, or must not."""
    if chosen.retract is None or (fold.retracts and not aggregate.ignore_retract):
        return chosen
    if aggregate.ignore_retract:
        return chosen.only(~chosen.retract)
    raise InvalidRequest(
        "the aggregate function cannot take back rows of kind -U and -D; hand in none, or set "
        f"fields.{aggregate.column}.ignore-retract or ignore-delete",
        column=aggregate.column,
        function=aggregate.function,
    )


def choose_column(
    contested: Contested,
    column: str,
    choose: Callable[[np.ndarray, Groups, np.ndarray | None], np.ndarray],
    chosen: Chosen,
) -> pa.Array:
    """One value a key of a column, as it stands in one of the rows chosen; null where none does."""
    valid = contested.valid(column)[chosen.rows]
    at = choose(valid, chosen.groups, chosen.retract)
    rows = np.full(contested.groups.count, NONE)
    rows[chosen.numbers] = np.where(at == NONE, NONE, chosen.rows[at])
    return contested.pick(column, rows)


def _contested(
    parts: Sequence[pa.Table], is_contested: np.ndarray, order: np.ndarray, groups: Groups
) -> Contested:
    table = pa.concat_tables(parts)
    place = np.cumsum(is_contested) - 1  # of a row, among those of the table
    rows, _, left = groups.only(is_contested[order])
    ordered = place[order[rows]]
    kinds = None
    if VALUE_KIND in table.schema.names:
        kinds = table.column(VALUE_KIND).to_numpy()[ordered]
    return Contested(table, left, ordered, kinds)


def _row_a_key(contested: Contested, folded: Folded) -> pa.Table:
    schema = contested.table.schema
    columns = dict(folded.columns)
    if SEQUENCE_NUMBER in schema.names:
        columns[SEQUENCE_NUMBER] = contested.pick(SEQUENCE_NUMBER, contested.groups.lasts)
    if VALUE_KIND in schema.names:
        kinds = np.where(folded.deleted, np.int8(RowKind.DELETE), np.int8(RowKind.INSERT))
        columns[VALUE_KIND] = pa.array(kinds)
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def _without_deletions(rows: pa.Table) -> pa.Table:
    deletes = of_kinds(rows, RETRACTS)
    return rows if deletes is None else rows.filter(pa.array(~deletes))
