"""Changes of a schema, drawn: columns that come, go, come again, move, and change name or type.

What the table's options name stays, keeps its name (`differences.NOT_DRAWN`), and its type but for
a wider number: what a function folds is another thing as another type.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from tests.differential.plans import ColumnPlan, nullable, value_column
from tests.differential.shape import changed
from tests.differential.value_draws import draw_atomic, draw_value
from tests.interop import values
from tests.interop.columns import Column, parse_type

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

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
# Casts that change values; Java's are asked for by name, and so are these.
_OTHER = {
    "BOOLEAN": ("INT", "TINYINT"),
    "SMALLINT": ("TINYINT", "DOUBLE"),
    "INT": ("SMALLINT", "TINYINT", "DOUBLE", "DECIMAL(12, 2)", "TIMESTAMP(3)"),
    "BIGINT": ("INT", "SMALLINT", "DECIMAL(38, 4)"),
    "DATE": ("TIMESTAMP(3)",),
    "TIMESTAMP": ("DATE",),
    "STRING": ("VARCHAR(3)", "BYTES"),
}
# Of which both engines print every value alike, and read it back.
_TO_TEXT = frozenset({*values.INTEGERS, "BOOLEAN", "DATE", "DECIMAL", *values.TEXTS})
_KINDS = ("add", "add", "drop", "rename", "retype", "retype", "move", "nullable", "set")
# Options of files, which rows do not depend on. What ORC and Avro hold Parquet holds, too.
_OPTIONS = (
    *(("file.format", "parquet"), ("metadata.stats-mode", "none"), ("metadata.stats-mode", "full")),
    *(("data-file.thin-mode", "true"), ("data-file.thin-mode", "false")),
)
# The share of changes that are of a field inside a column, where there is one.
INSIDE = 0.4
# The share of changes of type after which some values are others.
OTHER = 0.4

# A change, and the columns after it.
Drawn: TypeAlias = "tuple[SchemaStep, list[ColumnPlan]]"


class AlterDraws:
    """Changes of one table's schema, one after another."""

    def __init__(self, dice: Dice, table: Case, fixed: Collection[str]) -> None:
        """`fixed`: columns that options name."""
        self._dice = dice
        self._keys = set(table.primary_keys)
        self._placed = {*self._keys, *table.partition_keys}
        self._placed |= set(table.options.get("bucket-key", "").split(","))
        self.fixed = {*fixed, *self._placed}
        self._unnamable = {*fixed, *table.partition_keys}
        default = "fields.default-aggregate-function" in table.options
        # A function may only be of a column in a group.
        self._grouped = default and table.options.get("merge-engine") == "partial-update"
        self._gone: list[str] = []
        self._count = 0

    def draw(self, columns: Sequence[ColumnPlan]) -> Drawn | None:
        """A change, and the columns after it; None if what was drawn cannot be."""
        chance = self._dice.chance
        verb = chance.choice(_KINDS)
        if verb == "add" and self._grouped:
            return None
        if verb in ("add", "drop", "rename", "retype") and chance.random() < INSIDE:
            inside = self._inside(verb, columns)
            if inside is not None:
                return inside
        return {
            "set": self._set,
            "add": self._add,
            "move": self._move,
            "nullable": self._nullable,
            "retype": self._retype,
            "drop": self._drop,
            "rename": self._rename,
        }[verb](columns)

    def _set(self, columns: Sequence[ColumnPlan]) -> Drawn:
        return ("set", *self._dice.chance.choice(_OPTIONS)), list(columns)

    def _move(self, columns: Sequence[ColumnPlan]) -> Drawn | None:
        moved, place = self._dice.chance.choice(columns).name, self._place(columns)
        there = columns[0] if place == ("first",) else columns[-1]
        if moved in place or (len(place) == 1 and moved == there.name):
            return None
        step: SchemaStep = ("move", moved, place)
        return step, _after(columns, step)

    def _nullable(self, columns: Sequence[ColumnPlan]) -> Drawn | None:
        named = [each for each in columns if each.name not in self._keys]
        named = [each for each in named if not each.column.type.nullable]
        if not named:
            return None
        column = self._dice.chance.choice(named)
        plan = nullable(column)
        if column.name not in self.fixed:
            plan = replace(plan, nulls=0.2)
        step: SchemaStep = ("nullable", column.name, True)
        return step, [plan if each is column else each for each in columns]

    def _drop(self, columns: Sequence[ColumnPlan]) -> Drawn | None:
        free = [column for column in columns if column.name not in self.fixed]
        if len(free) < 2:
            return None
        column = self._dice.chance.choice(free)
        self._gone.append(column.name)
        return ("drop", column.name), [each for each in columns if each is not column]

    def _add(self, columns: Sequence[ColumnPlan]) -> Drawn:
        self._count += 1
        plan = nullable(value_column(self._dice, self._name(columns, f"n{self._count}")))
        place = self._place(columns) if self._dice.chance.random() < 0.5 else None
        step: SchemaStep = ("add", plan.name, plan.column.type.text, place)
        return step, _after(columns, step, plan)

    def _rename(self, columns: Sequence[ColumnPlan]) -> Drawn | None:
        able = [column for column in columns if column.name not in self._unnamable]
        if not able:
            return None
        column = self._dice.chance.choice(able)
        self._count += 1
        name = self._name(columns, f"r{self._count}")
        for known in (self._keys, self._placed, self.fixed):
            if column.name in known:
                known.remove(column.name)
                known.add(name)
        renamed = replace(column, column=Column(name, column.column.type))
        step: SchemaStep = ("rename", column.name, name)
        return step, [renamed if each is column else each for each in columns]

    def _inside(self, verb: str, columns: Sequence[ColumnPlan]) -> Drawn | None:
        """A change of a field of a ROW, which may lie in a list or be the value of a map."""
        chance = self._dice.chance
        able = [
            (column, path, row)
            for column in columns
            if column.name not in self.fixed
            for path, row in _rows((column.name,), column.column.type)
        ]
        if not able:
            return None
        column, path, row = chance.choice(able)
        field = chance.choice(row.children)
        self._count += 1
        if verb == "add":
            kind = draw_atomic(self._dice).text
            step: SchemaStep = ("add", (*path, f"n{self._count}"), kind, None)
        elif verb == "drop":
            if len(row.children) == 1:
                return None
            step = ("drop", (*path, field.name))
        elif verb == "rename":
            step = ("rename", (*path, field.name), f"r{self._count}")
        else:
            wider = self._wider(field.type, free=False)
            if not wider:
                return None
            bare = chance.choice(wider) + ("" if field.type.nullable else " NOT NULL")
            step = ("retype", (*path, field.name), bare)
        found, _ = changed([column.column], step)
        pool = tuple(draw_value(self._dice, found[0].type) for _ in column.pool)
        plan = replace(column, column=found[0], pool=pool)
        return step, [plan if each is column else each for each in columns]

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

    def _retype(self, columns: Sequence[ColumnPlan]) -> Drawn | None:
        other = self._dice.chance.random() < OTHER
        able = [
            (column, found)
            for column in columns
            if column.name not in self._placed
            and (column.column.type.root != "DATE" or column.column.type.nullable)
            for found in (
                _other(column.column.type)
                if other and column.name not in self.fixed
                else self._wider(column.column.type, free=column.name not in self.fixed)
            )
        ]
        if not able:
            return None
        column, bare = self._dice.chance.choice(able)
        kind = parse_type(bare + ("" if column.column.type.nullable else " NOT NULL"))
        if column.name in self.fixed or bare in self._wider(column.column.type, free=True):
            pool = tuple(_again(value, column.column.type, kind) for value in column.pool)
        else:
            pool = ()
        if column.name not in self.fixed:
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


def _other(kind: Type) -> Sequence[str]:
    """Types to which this one is cast with a loss, or another meaning."""
    if kind.root == "DECIMAL" and kind.scale:
        return (f"DECIMAL({kind.precision}, {kind.scale - 1})", f"DECIMAL({kind.precision}, 0)")
    return _OTHER.get(kind.root, ())


def _rows(path: tuple[str, ...], kind: Type) -> Iterator[tuple[tuple[str, ...], Type]]:
    """The ROWs in a type, each with the path to it."""
    if kind.root == "ROW":
        yield path, kind
        for child in kind.children:
            yield from _rows((*path, child.name), child.type)
    elif kind.root == "ARRAY":
        yield from _rows((*path, "element"), kind.children[0].type)
    elif kind.root == "MAP":
        yield from _rows((*path, "value"), kind.children[1].type)


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
