"""Changes of a schema, drawn: columns that come, go, come again, move, and change name or type.

What the table's options name keeps its name, and its type but for a wider number: options follow a
name (both engines see to it), but what a function folds is another thing as another type.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.differential.plans import ColumnPlan, nullable, value_column
from tests.differential.shape import changed
from tests.differential.value_draws import draw_value
from tests.interop import values
from tests.interop.columns import Column, parse_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.differential.value_draws import Dice
    from tests.interop.columns import Json, Type
    from tests.interop.engines import SchemaStep
    from tests.interop.model import Case

_WIDER = {
    "TINYINT": ("SMALLINT", "INT", "BIGINT"),
    "SMALLINT": ("INT", "BIGINT"),
    "INT": ("BIGINT",),
    "FLOAT": ("DOUBLE",),
}
_TO_TEXT = frozenset({*values.INTEGERS, "BOOLEAN", "DATE", "DECIMAL", *values.TEXTS})
# Of which both engines print every value alike, and read it back.
_KINDS = ("add", "add", "drop", "rename", "retype", "retype", "move", "nullable")


class AlterDraws:
    """Changes of one table's schema, one after another."""

    def __init__(self, dice: Dice, table: Case, fixed: Sequence[str]) -> None:
        """`fixed`: columns that options name."""
        self._dice = dice
        self._table = table
        self._fixed = frozenset({*fixed, *table.primary_keys, *table.partition_keys})
        self._gone: list[str] = []
        self._count = 0

    def draw(self, columns: Sequence[ColumnPlan]) -> tuple[SchemaStep, list[ColumnPlan]] | None:
        """A change, and the columns after it; None if what was drawn cannot be."""
        chance = self._dice.chance
        free = [column for column in columns if column.name not in self._fixed]
        verb = chance.choice(_KINDS)
        if verb == "add":
            return self._add(columns)
        if verb == "move":
            moved, place = chance.choice(columns).name, self._place(columns)
            there = columns[0] if place == ("first",) else columns[-1]
            if moved in place or (len(place) == 1 and moved == there.name):
                return None
            step: SchemaStep = ("move", moved, place)
            return step, _after(columns, step)
        if verb == "nullable":
            named = [each for each in columns if each.name not in self._table.primary_keys]
            named = [each for each in named if not each.column.type.nullable]
            if not named:
                return None
            column = chance.choice(named)
            step = ("nullable", column.name, True)
            plan = replace(nullable(column), nulls=0.2)
            return step, [plan if each is column else each for each in columns]
        if verb == "retype":
            return self._retype(columns)
        if not free:
            return None
        column = chance.choice(free)
        if verb == "drop":
            if len(columns) - len(self._fixed) < 2:
                return None
            self._gone.append(column.name)
            return ("drop", column.name), [each for each in columns if each is not column]
        self._count += 1
        step = ("rename", column.name, self._name(columns, f"r{self._count}"))
        renamed = replace(column, column=Column(str(step[2]), column.column.type))
        return step, [renamed if each is column else each for each in columns]

    def _add(self, columns: Sequence[ColumnPlan]) -> tuple[SchemaStep, list[ColumnPlan]]:
        self._count += 1
        plan = nullable(value_column(self._dice, self._name(columns, f"n{self._count}")))
        place = self._place(columns) if self._dice.chance.random() < 0.5 else None
        step: SchemaStep = ("add", plan.name, plan.column.type.text, place)
        return step, _after(columns, step, plan)

    def _name(self, columns: Sequence[ColumnPlan], fresh: str) -> str:
        """A new name, or one that a column had that is gone."""
        again = set(self._gone) - {column.name for column in columns}
        if again and self._dice.chance.random() < 0.6:
            return self._dice.chance.choice(sorted(again))
        return fresh

    def _place(self, columns: Sequence[ColumnPlan]) -> tuple[str, ...]:
        chance = self._dice.chance
        kind = chance.choice(("first", "last", "after", "before"))
        beside = chance.choice(columns).name
        return (kind, beside) if kind in ("after", "before") else (kind,)

    def _retype(self, columns: Sequence[ColumnPlan]) -> tuple[SchemaStep, list[ColumnPlan]] | None:
        placed = {*self._table.primary_keys, *self._table.partition_keys}
        placed |= set(self._table.options.get("bucket-key", "").split(","))
        able = [
            (column, found)
            for column in columns
            if column.name not in placed
            for found in self._wider(column.column.type, free=column.name not in self._fixed)
        ]
        if not able:
            return None
        column, bare = self._dice.chance.choice(able)
        kind = parse_type(bare + ("" if column.column.type.nullable else " NOT NULL"))
        pool = tuple(_again(value, column.column.type, kind) for value in column.pool)
        if column.name not in self._fixed:
            pool += tuple(draw_value(self._dice, kind) for _ in range(2))
        plan = ColumnPlan(Column(column.name, kind), pool, column.nulls)
        step: SchemaStep = ("retype", column.name, kind.text)
        return step, [plan if each is column else each for each in columns]

    def _wider(self, kind: Type, *, free: bool) -> list[str]:
        """Types that hold every value of this one."""
        found = list(_WIDER.get(kind.root, ()))
        if kind.root == "DECIMAL":
            found += [f"DECIMAL({p}, {kind.scale})" for p in (18, 38) if p > kind.precision]
        if not free:
            return found
        if kind.root in ("CHAR", "VARCHAR"):
            found.append(f"VARCHAR({kind.length + 4})")
        if kind.root in ("BINARY", "VARBINARY"):
            found.append("BYTES")
        if kind.root in values.TIMESTAMPS and kind.precision < 6:
            zone = " WITH LOCAL TIME ZONE" if kind.root == "TIMESTAMP_LTZ" else ""
            found.append(f"TIMESTAMP(6){zone}")
        if kind.root in _TO_TEXT and kind.root != "STRING":
            found.append("STRING")
        return found


def _after(
    columns: Sequence[ColumnPlan], step: SchemaStep, added: ColumnPlan | None = None
) -> list[ColumnPlan]:
    _, at = changed([column.column for column in columns], step)
    found: list[ColumnPlan] = []
    for index in at:
        plan = added if index is None else columns[index]
        assert plan is not None
        found.append(plan)
    return found


def _again(value: Json, kind: Type, target: Type) -> Json:
    """A value as one of a wider type."""
    if target.root == "STRING" and kind.root not in values.TEXTS:
        return str(value).lower()
    if target.root in values.TIMESTAMPS:
        return values.timestamp_text(values.timestamp_nanos(str(value)), target)
    return value
