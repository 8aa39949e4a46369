"""The clauses of a MERGE, checked against the table and its source, and the columns they read.

Which columns the values and conditions of a clause may name:

- *matched*: columns of both sides;
- *not matched*: columns of the source;
- *not matched by source*: columns of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.frames.arrow_frames import to_frame
from lakecore.frames.source import checked_columns
from lakecore.io.spill import SpillDirectory, SpilledRun
from lakecore.model.rows import ROW_KIND
from lakecore.model.types import Atomic, Field
from lakecore.plan.row_changes import UpdateShape, deletion_columns, update_shape
from lakecore.scalar.syntax import find_name, unknown_column
from lakecore.scalar.values import LOCAL, Setting, Sql, parse_where, types_of
from lakecore.table.reads.row_values import (
    bound_values,
    check_expression,
    names_in,
    plain_value,
    setting_of,
)
from lakecore.table.verbs.row_writer import require_values, tells_before

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from lakecore.model.schema import TableSchema
    from lakecore.options import TableOptions
    from lakecore.table.context import TableContext

# --- merge sides ---------------------------------------------------------------------------------
# The two sides of a MERGE, as conditions and values name them.
#
# `source.x` is a column of the source, `target.x` one of the table. `x` alone names the column of
# the only side that has a column `x`; if both sides have one, `x` must be qualified.

SOURCE, TARGET = "source.", "target."


@dataclass(frozen=True, slots=True)
class Picked:
    """Rows of a table, selected by position. Each column is taken when it is first used."""

    rows: pa.Table
    at: np.ndarray

    def column(self, name: str) -> pa.ChunkedArray:
        return self.rows.column(name).take(pa.array(self.at))

    def table(self, names: Sequence[str]) -> pa.Table:
        return self.rows.select(list(names)).take(pa.array(self.at))

    def of(self, chosen: np.ndarray) -> Picked:
        """A subset of the rows."""
        return Picked(self.rows, self.at[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The columns that an expression may name.

    A side is None if its rows do not exist in this clause.
    """

    source: pa.Schema | None = None
    target: pa.Schema | None = None
    setting: Setting = LOCAL

    @property
    def schema(self) -> pa.Schema:
        """Every unambiguous column name, with its type."""
        return pa.schema(
            [pa.field(name, column.type) for name, (_, column) in self._names().items()]
        )

    def condition(self, condition: pl.Expr | str | None, what: str) -> pl.Expr | Sql | None:
        """The checked condition of the user; None if there is none."""
        if condition is None:
            return None
        if isinstance(condition, str):
            sql, _ = parse_where(condition, self.schema, self.setting, self._find)
            return sql
        if isinstance(condition, pl.Expr):
            self._check_names(condition)
        check_expression(condition, self.schema, what, boolean=True)
        return condition

    def values(self, values: Mapping[str, object], target: TableSchema) -> dict[str, object]:
        """The checked values.

        Raises InvalidRequest for a value that cannot be computed and for an unknown column.
        """
        for name in values:
            if name not in target.names:
                raise InvalidRequest("unknown column", column=name, columns=list(target.names))
        bound = bound_values(values, types_of(self.schema), target, self.setting, self._find)
        for name, value in bound.items():
            if isinstance(value, pl.Expr):
                self._check_names(value)
                check_expression(value, self.schema, f"the value of {name}")
            elif not isinstance(value, Sql):
                plain_value(target.arrow.field(name), value)
        return bound

    def target_columns(self, expressions: Iterable[object]) -> tuple[str, ...]:
        """The columns of the table that these expressions read."""
        return tuple(dict.fromkeys(self.of_side(expressions, TARGET).values()))

    def of_side(self, expressions: Iterable[object], side: str) -> dict[str, str]:
        """For each name in the expressions that refers to this side, the column that it means."""
        names = self._names()
        found = {root: names[root] for root in _roots(expressions)}
        return {root: column.name for root, (own, column) in found.items() if own == side}

    def rows(
        self, expressions: Collection[object], source: Picked | None, target: Picked | None
    ) -> pa.Table:
        """The rows of both sides joined horizontally, with the columns that expressions name."""
        columns: dict[str, pa.ChunkedArray] = {}
        for side, picked in ((SOURCE, source), (TARGET, target)):
            for name, column in self.of_side(expressions, side).items():
                assert picked is not None
                columns[name] = picked.column(column)
        if not columns:
            # Keep one column, so that the table knows its number of rows.
            picked = source if source is not None else target
            assert picked is not None
            columns[""] = pa.chunked_array([pa.nulls(len(picked.at))])
        return pa.table(columns)

    def _names(self) -> dict[str, tuple[str, pa.Field]]:
        found: dict[str, tuple[str, pa.Field]] = {}
        bare: dict[str, list[tuple[str, pa.Field]]] = {}
        for side, schema in ((SOURCE, self.source), (TARGET, self.target)):
            for column in schema or ():
                found[side + column.name] = (side, column)
                bare.setdefault(column.name, []).append((side, column))
        alone = {name: each[0] for name, each in bare.items() if len(each) == 1}
        return {**alone, **found}

    def _find(self, parts: list[str]) -> tuple[str, list[str]]:
        """The column that a dotted SQL name refers to, and the parts that name its fields."""
        types = types_of(self.schema)
        for side, schema in ((SOURCE, self.source), (TARGET, self.target)):
            if len(parts) == 1 or parts[0].lower() != side[:-1]:
                continue
            if schema is None:
                raise InvalidRequest(
                    f"there is no row of the {side[:-1]} here", column=".".join(parts)
                )
            own = find_name(parts[1], types_of(schema))
            if own is not None:
                return side + own, parts[2:]
            raise unknown_column(parts[1], types_of(schema))
        bare = {name: kind for name, kind in types.items() if not _is_qualified(name, self)}
        found = find_name(parts[0], bare)
        if found is not None:
            return found, parts[1:]
        if self.source is not None and self.target is not None:
            both = {*self.source.names} & {*self.target.names}
            meant = find_name(parts[0], dict.fromkeys(both))
            if meant is not None:
                raise _on_both_sides(meant)
        meant_by = [
            side + parts[1]
            for side, own in ((SOURCE, self.source), (TARGET, self.target))
            if own is not None and len(parts) > 1 and parts[1] in own.names
        ]
        if meant_by:
            raise InvalidRequest(
                "the two sides of a merge are source and target: other names of tables are unknown",
                column=".".join(parts),
                did_you_mean=" or ".join(meant_by),
            )
        raise unknown_column(parts[0], bare)

    def _check_names(self, expression: pl.Expr) -> None:
        for name in expression.meta.root_names():
            if self.source is None or self.target is None:
                absent = SOURCE if self.source is None else TARGET
                if name.startswith(absent):
                    raise InvalidRequest(f"there is no row of the {absent[:-1]} here", column=name)
            elif name in self.source.names and name in self.target.names:
                raise _on_both_sides(name)


def _is_qualified(name: str, sides: Sides) -> bool:
    """Whether the name consists of the name of a side and of one of its columns."""
    for side, schema in ((SOURCE, sides.source), (TARGET, sides.target)):
        if name.startswith(side) and schema is not None and name[len(side) :] in schema.names:
            return True
    return False


def _on_both_sides(name: str) -> InvalidRequest:
    return InvalidRequest(
        "both sides have this column: say which is meant",
        column=name,
        columns=(SOURCE + name, TARGET + name),
    )


def _roots(expressions: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(name for each in expressions for name in names_in(each)))


# --- merge plan ----------------------------------------------------------------------------------


class Match(StrEnum):
    """The rows that a clause applies to."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    NOT_MATCHED_BY_SOURCE = "not matched by source"


class Action(StrEnum):
    """The action of a clause on its rows."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """A clause as the user stated it. If `values` is None, all columns are set from the source."""

    match: Match
    action: Action
    condition: pl.Expr | str | None = None
    values: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A checked clause.

    `first`: the table's columns that the condition reads; `rest`: the columns that the action
    reads. Key columns in `same` exist in the source too and must be equal: an update cannot set
    them.
    """

    action: Action
    sides: Sides
    condition: pl.Expr | Sql | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    shape: UpdateShape | None = None
    first: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()
    same: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """The steps of a merge, and the columns that it reads from the table.

    The sides are joined on the columns `on`, or by `condition`. The columns `first` are read for
    every row that may match; the columns `rest` are read later, for rows that do match.
    """

    on: tuple[str, ...]
    condition: pl.Expr | Sql | None
    sides: Sides
    steps: Mapping[Match, tuple[Step, ...]]
    first: tuple[str, ...]
    rest: tuple[str, ...]

    @property
    def set_columns(self) -> tuple[str, ...]:
        """The columns that updates of rows of the table set."""
        steps = (*self.steps[Match.MATCHED], *self.steps[Match.NOT_MATCHED_BY_SOURCE])
        updates = [step for step in steps if step.action is Action.UPDATE]
        return tuple(dict.fromkeys(name for step in updates for name in step.values))


def on_fields(schema: TableSchema, on: Sequence[str] | pl.Expr | str) -> tuple[Field, ...]:
    """The table's columns to join on; empty if `on` is a condition."""
    if isinstance(on, str | pl.Expr):
        return ()
    fields = tuple(schema.field(name) for name in dict.fromkeys(checked_columns(on, schema)))
    if not fields:
        raise InvalidRequest("name the columns to merge on, or a condition")
    for each in fields:
        if not isinstance(each.type, Atomic):
            raise InvalidRequest(
                "a column with parts cannot be merged on", column=each.name, type=each.type
            )
    return fields


def plan_merge(
    context: TableContext,
    source: pa.Schema,
    on: Sequence[str] | pl.Expr | str,
    clauses: Sequence[Clause],
) -> MergePlan:
    """The clauses as steps. Raises InvalidRequest for names and values that do not fit."""
    schema, options, setting = context.schema, context.options, setting_of(context)
    both = Sides(source=source, target=schema.arrow, setting=setting)
    names = tuple(each.name for each in on_fields(schema, on))
    condition = None
    if isinstance(on, str | pl.Expr):
        condition = both.condition(on, "the condition to merge on")
    sides = {
        Match.MATCHED: both,
        Match.NOT_MATCHED: Sides(source=source, setting=setting),
        Match.NOT_MATCHED_BY_SOURCE: Sides(target=schema.arrow, setting=setting),
    }
    planner = _Planner(schema=schema, options=options, source=source, on=names)
    steps = {
        match: tuple(planner.step(each, sides[match]) for each in clauses if each.match is match)
        for match in Match
    }
    if ROW_KIND in source.names:
        _check_kinds_used(both, condition, (step for each in steps.values() for step in each))
    of_target = (*steps[Match.MATCHED], *steps[Match.NOT_MATCHED_BY_SOURCE])
    values = (step.sides.target_columns(step.values.values()) for step in of_target)
    conditions = (*names, *both.target_columns([condition]), *chain(*(s.first for s in of_target)))
    require_values(context, (*conditions, *chain.from_iterable(values)))
    first = (
        _in_order(
            schema,
            (
                *(schema.primary_keys if of_target else ()),
                *names,
                *both.target_columns([condition]),
                *(name for step in of_target for name in step.first),
            ),
        )
        or schema.names[:1]
    )
    rest = _in_order(schema, (name for step in of_target for name in step.rest))
    rest = tuple(name for name in rest if name not in first)
    # The second read keeps the pairs of the first in memory: at most one for each source row.
    bounded = set(names) >= set(schema.primary_keys) and not steps[Match.NOT_MATCHED_BY_SOURCE]
    if not bounded:
        first, rest = _in_order(schema, (*first, *rest)), ()
    return MergePlan(on=names, condition=condition, sides=both, steps=steps, first=first, rest=rest)


def _check_kinds_used(both: Sides, on: object, steps: Iterable[Step]) -> None:
    """Raise InvalidRequest if the source has row kinds that neither `on` nor a clause reads.

    Otherwise a -D row would be merged like a row that exists.
    """
    if ROW_KIND in both.of_side([on], SOURCE).values():
        return
    for each in steps:
        read = [each.condition, *each.values.values()]
        if ROW_KIND in each.sides.of_side(read, SOURCE).values():
            return
    raise InvalidRequest(
        "the source has row kinds, which a merge does not follow: name the column in conditions, "
        "as in when_matched_delete(\"source._row_kind = '-D'\"), or leave it out",
        column=ROW_KIND,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planner:
    schema: TableSchema
    options: TableOptions
    source: pa.Schema
    on: tuple[str, ...]

    def step(self, clause: Clause, sides: Sides) -> Step:
        condition = sides.condition(clause.condition, f"a condition of {clause.match}")
        first = sides.target_columns([condition])
        if clause.action is Action.DELETE:
            rest = deletion_columns(self.schema, self.options)
            return Step(
                action=clause.action, sides=sides, condition=condition, first=first, rest=rest
            )
        values = self._from_source(clause.action) if clause.values is None else clause.values
        values = sides.values(values, self.schema)
        if clause.values is not None and not values:
            raise InvalidRequest("name the columns to set, and their values", clause=clause.match)
        shape = None
        rest = sides.target_columns(values.values())
        if clause.action is Action.UPDATE:
            shape = update_shape(self.schema, self.options, values)
            rest = self.schema.names if tells_before(self.options) else (*rest, *shape.carried)
        elif self.options.rowkind_field in values:
            raise InvalidRequest(
                "the column of rowkind.field is set by the verb: leave it out",
                column=self.options.rowkind_field,
            )
        by_source = clause.values is None and clause.action is Action.UPDATE
        return Step(
            action=clause.action,
            sides=sides,
            condition=condition,
            values=values,
            shape=shape,
            first=first,
            rest=rest,
            same=tuple(k for k in self.schema.primary_keys if by_source and k not in self.on),
        )

    def _from_source(self, action: Action) -> dict[str, pl.Expr]:
        """For every column, the source column of the same name."""
        wanted = [name for name in self.schema.names if name != self.options.rowkind_field]
        missing = [name for name in wanted if name not in self.source.names]
        if missing:
            raise InvalidRequest(
                "the source lacks columns of the table: name the columns and their values",
                clause=f"{action} all",
                columns=missing,
            )
        keys = self.schema.primary_keys if action is Action.UPDATE else ()
        return {name: pl.col(SOURCE + name) for name in wanted if name not in keys}


def _in_order(schema: TableSchema, names: Iterable[str]) -> tuple[str, ...]:
    chosen = set(names)
    return tuple(name for name in schema.names if name in chosen)


# --- row parts -----------------------------------------------------------------------------------
# Rows that do not fit in memory, hash-partitioned to local disk by some columns.
#
# If two sets of rows are partitioned by columns of the same types, rows with equal values are in
# parts of the same number. A join then needs only one part of one set in memory.
#
# Each run on disk holds its rows in `FAN` small parts, one after another. A part consists of
# adjacent small parts, so it is read without the other parts. Rows that match nothing are in `FAN`
# more small parts of their run, in their order.

FAN = 256
"""The maximum number of parts."""


class RowParts:
    """Rows on disk; a context manager that releases the disk space.

    With `nulls_anywhere`, rows with a null in one of the columns are spread over all parts, in
    their order: there may be many such rows, and none of them matches.
    """

    def __init__(self, on: Sequence[str], *, nulls_anywhere: bool = False) -> None:
        self._on = tuple(on)
        self._nulls_anywhere = nulls_anywhere
        self._spills = SpillDirectory()
        self._runs: list[tuple[SpilledRun, np.ndarray]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """The number of runs on disk."""
        return len(self._runs)

    def add(self, rows: pa.Table) -> None:
        """Write rows to disk."""
        parts = small_parts(rows, self._on)
        if self._nulls_anywhere:
            absent = np.zeros(rows.num_rows, bool)
            for name in self._on:
                absent |= rows.column(name).is_null().to_numpy()
            ordinals = np.cumsum(absent)
            spread = FAN + (ordinals - 1) * FAN // max(1, absent.sum())
            parts = np.where(absent, spread, parts)
        rows = rows.take(pa.array(np.argsort(parts, kind="stable")))
        begins = np.concatenate([[0], np.cumsum(np.bincount(parts, minlength=2 * FAN))])
        numbers: list[int] = []

        def pieces() -> Iterator[pa.Table]:
            for number in np.flatnonzero(np.diff(begins)):
                piece = rows.slice(begins[number], begins[number + 1] - begins[number])
                batches = piece.to_batches()
                numbers.extend([int(number)] * len(batches))
                yield pa.Table.from_batches(batches)

        run = self._spills.write(rows.schema, pieces(), 0, 0)
        self._runs.append((run, np.array(numbers, np.int64)))

    def part(self, number: int, count: int) -> Iterator[pa.Table]:
        """The rows of part `number` of `count`; one table for each run that has some."""
        for place, (run, numbers) in enumerate(self._runs):
            unmatched = (place * FAN + numbers - FAN) * count // (FAN * len(self._runs))
            parts = np.where(numbers < FAN, numbers * count // FAN, unmatched)
            wanted = np.flatnonzero(parts == number)
            if len(wanted):
                yield pa.Table.from_batches(self._spills.read(run, wanted.tolist()))

    def close(self) -> None:
        self._runs = []
        self._spills.close()


def small_parts(rows: pa.Table, on: Sequence[str]) -> np.ndarray:
    """For each row, the number of its small part (see the module).

    Rows with equal values have the same number. If `on` is empty, the rows are spread evenly.
    """
    if not on:
        return np.arange(rows.num_rows) % FAN
    frame = to_frame(rows.select(list(on)))
    return (
        frame.select((pl.struct(pl.all()).hash(seed=0) % FAN).cast(pl.Int64)).to_series().to_numpy()
    )


def in_part(rows: pa.Table, on: Sequence[str], number: int, count: int) -> pa.Table:
    """The rows of part `number` of `count`."""
    if count == 1:
        return rows
    return rows.filter(pa.array(small_parts(rows, on) * count // FAN == number))
