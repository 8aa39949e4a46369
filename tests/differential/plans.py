"""What one history is drawn from: columns with the values they take, options, and kinds of rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.differential.value_draws import Dice, draw_atomic, draw_order_type, draw_type, draw_value
from tests.interop.columns import Column, parse_type

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from tests.interop.columns import Json, Type

ADDS = ("+I", "+U")
RETRACTS = ("-U", "-D")


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """A column, the few values it takes, and the share of nulls among them."""

    column: Column
    pool: tuple[Json, ...]
    nulls: float = 0.0

    @property
    def name(self) -> str:
        return self.column.name

    def draw(self, chance: random.Random) -> Json:
        return None if chance.random() < self.nulls else chance.choice(self.pool)


@dataclass(frozen=True, kw_only=True)
class EnginePlan:
    """What a merge engine asks of a table. `retracts`: the share of rows of kind -U and -D.

    `adds_first`: no merge begins with a row that retracts. `compacts_always`: rows show up once
    compacted.
    """

    columns: tuple[ColumnPlan, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    keyed: bool = True
    retracts: float = 0.0
    adds_first: bool = False
    # Pairs of -U and +U for keys that are there.
    pairs: bool = False
    # No -U follows a -D.
    deletes_stay: bool = False
    compacts_always: bool = False
    order_free: frozenset[str] = frozenset()
    # A -D always holds these.
    on_delete: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    # The verbs that the engine takes, and a plain rewriting of rows stands for.
    verbs: tuple[str, ...] = ()


def value_column(dice: Dice, name: str) -> ColumnPlan:
    """A column of any type, often null."""
    return column_of(dice, name, draw_type(dice))


def atomic_column(dice: Dice, name: str) -> ColumnPlan:
    """A column of any type without parts, often null."""
    return column_of(dice, name, draw_atomic(dice))


def order_column(dice: Dice, name: str) -> ColumnPlan:
    """A sequence field."""
    kind = draw_order_type(dice)
    pool = tuple(draw_value(dice, kind, plain=True) for _ in range(dice.chance.randint(2, 5)))
    return ColumnPlan(Column(name, kind), pool, dice.chance.choice((0.0, 0.0, 0.25)))


def column_of(dice: Dice, name: str, kind: Type, pool: tuple[Json, ...] = ()) -> ColumnPlan:
    """A column of this type; now and then NOT NULL."""
    found = pool or tuple(draw_value(dice, kind) for _ in range(dice.chance.randint(1, 6)))
    nulls = dice.chance.choice((0.0, 0.2, 0.2, 0.6))
    if nulls == 0.0 and dice.chance.random() < 0.3:
        kind = parse_type(f"{kind.bare_text} NOT NULL")
    return ColumnPlan(Column(name, kind), found, nulls)


def nullable(plan: ColumnPlan) -> ColumnPlan:
    """The same column without NOT NULL: what is retracted may leave null."""
    kind = parse_type(plan.column.type.bare_text)
    return ColumnPlan(Column(plan.name, kind), plan.pool, plan.nulls)
