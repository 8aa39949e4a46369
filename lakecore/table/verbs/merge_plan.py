"""The clauses of a MERGE, checked against the table and its source, and the columns they read.

Which columns the values and conditions of a clause may name (`merge_sides.py`):

- *matched*: columns of both sides;
- *not matched*: columns of the source;
- *not matched by source*: columns of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

import polars as pl

from lakecore.errors import InvalidRequest
from lakecore.frames.source import checked_columns
from lakecore.model.rows import ROW_KIND
from lakecore.model.types import Atomic
from lakecore.plan.row_changes import deletion_columns, update_shape
from lakecore.table.reads.row_values import setting_of
from lakecore.table.verbs.merge_sides import SOURCE, Sides
from lakecore.table.verbs.row_writer import require_values, tells_before

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field
    from lakecore.options import TableOptions
    from lakecore.plan.row_changes import UpdateShape
    from lakecore.scalar.values import Sql
    from lakecore.table.context import TableContext


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

    `first` are the table's columns that the condition reads, `rest` those that the action reads.
    Key columns in `same` exist in the source too and must be equal: an update cannot set them.
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
        """Check a clause and return it as a step."""
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
