"""Columns with aggregate functions, drawn: each with the types and values that it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import datasketches
from pyroaring import BitMap, BitMap64

from lakecore.merge.aggregators import sketches
from tests.differential.plans import ColumnPlan, column_of, nullable
from tests.differential.value_draws import Dice, draw_atomic, draw_type, draw_value
from tests.interop import values
from tests.interop.columns import Column, parse_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.interop.columns import Json

RETRACTING = frozenset(
    {"sum", "product", "last_value", "last_non_null_value", "collect", "merge_map", "nested_update"}
)
ORDER_FREE = frozenset({"collect", "nested_update", "nested_partial_update"})
FUNCTIONS = (
    *("sum", "product", "max", "min", "last_value", "last_non_null_value", "first_value"),
    *("first_non_null_value", "first_not_null_value", "listagg", "bool_and", "bool_or", "collect"),
    *("merge_map", "merge_map_with_keytime", "nested_update", "nested_partial_update"),
    *("rbm32", "rbm64", "hll_sketch", "theta_sketch"),
)
# A number that sums and products take back exactly; no sum of them leaves a TINYINT.
_SMALL: Mapping[str, Sequence[Json]] = {
    "sum": (0, 1, -1, 2, -3),
    "product": (1, 1, 1, -1, 2),
}
_WORDS = ("a", "b", "ab", "é", "a,b", "b;a", "中文")


@dataclass(frozen=True, slots=True)
class AggregatedColumn:
    """A column, its function, and the options that say so."""

    plan: ColumnPlan
    function: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def retracts(self) -> bool:
        ignores = self.options.get(f"fields.{self.plan.name}.ignore-retract") == "true"
        return ignores or self.function in RETRACTING

    def loses(self, *, retracting: bool) -> bool:
        """Whether a fold without the older rows may lose values, or retractions if it gets some."""
        own = f"fields.{self.plan.name}"
        if self.function == "merge_map_with_keytime" or f"{own}.count-limit" in self.options:
            return True
        if self.function == "listagg" and self.options.get(f"{own}.distinct") == "true":
            return True  # if the delimiter overlaps itself
        ignores = self.options.get(f"{own}.ignore-retract") == "true"
        return retracting and not ignores and self.function not in ("sum", "last_value")


def aggregated_column(
    dice: Dice, name: str, *, retracting: bool, grouped: bool = False
) -> AggregatedColumn:
    """A column with a function; one that takes retractions, if `retracting`.

    `grouped`: rows may be folded that are older than what is held.
    """
    function = dice.chance.choice(FUNCTIONS)
    options = {f"fields.{name}.aggregate-function": function}
    if (retracting and function not in RETRACTING) or dice.chance.random() < 0.1:
        options[f"fields.{name}.ignore-retract"] = "true"
    options |= _details(dice, name, function, grouped=grouped)
    plan = _plan(dice, name, function, options)
    if retracting and dice.chance.random() < 0.9:
        plan = nullable(plan)
    return AggregatedColumn(plan, function, options)


def _details(dice: Dice, name: str, function: str, *, grouped: bool) -> dict[str, str]:
    options: dict[str, str] = {}
    if function in ("listagg", "collect") and dice.chance.random() < 0.5:
        options[f"fields.{name}.distinct"] = "true"
    if function == "listagg" and dice.chance.random() < 0.5:
        options[f"fields.{name}.list-agg-delimiter"] = dice.chance.choice((";", "|", "--"))
    keyed = function == "nested_update" and dice.chance.random() < 0.7
    if keyed or function == "nested_partial_update":
        options[f"fields.{name}.nested-key"] = dice.chance.choice(("id", "id,part"))
    if function == "nested_update" and not keyed and not grouped and dice.chance.random() < 0.3:
        # 1.4.2 takes the first list as it is, which no limit here is shorter than.
        options[f"fields.{name}.count-limit"] = str(dice.chance.randint(3, 5))
    if function == "merge_map_with_keytime" and dice.chance.random() < 0.5:
        options[f"fields.{name}.ts-field"] = "at"
    return options


def _plan(dice: Dice, name: str, function: str, options: Mapping[str, str]) -> ColumnPlan:
    match function:
        case "sum" | "product":
            return _number(dice, name, function)
        case "max" | "min":
            kind = draw_atomic(dice)
            # 1.4.2 cannot compare truths, as 2.1 and lakecore can.
            return column_of(dice, name, parse_type("INT") if kind.root == "BOOLEAN" else kind)
        case "listagg":
            return column_of(dice, name, parse_type("STRING"), _WORDS)
        case "bool_and" | "bool_or":
            return column_of(dice, name, parse_type("BOOLEAN"))
        case "collect":
            kind = draw_atomic(dice)
            # 1.4.2 compares binaries by their place in memory, and no rows that come from a file.
            element = "STRING" if kind.root in values.BINARIES else kind.text
            return column_of(dice, name, parse_type(f"ARRAY<{element}>"))
        case "merge_map":
            key = dice.chance.choice(("STRING", "INT", "DATE"))
            return column_of(dice, name, parse_type(f"MAP<{key}, {draw_type(dice, depth=1).text}>"))
        case "merge_map_with_keytime":
            return _keytimes(dice, name, named=f"fields.{name}.ts-field" in options)
        case "rbm32" | "rbm64":
            return column_of(dice, name, parse_type("BYTES"), _bitmaps(dice, function))
        case "hll_sketch" | "theta_sketch":
            return column_of(dice, name, parse_type("BYTES"), _sketches(dice, function))
        case "nested_update" | "nested_partial_update":
            return _nested_rows(dice, name)
        case _:
            return column_of(dice, name, draw_type(dice))


def _number(dice: Dice, name: str, function: str) -> ColumnPlan:
    text = dice.chance.choice(
        (
            *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"),
            *("DECIMAL(5, 2)", "DECIMAL(18, 0)", "DECIMAL(20, 4)", "DECIMAL(38, 10)"),
        )
    )
    kind = parse_type(text)
    pool: tuple[Json, ...] = tuple(_SMALL[function])
    if kind.root in values.FLOATS:
        # Sums of quarters are exact, in whatever order they are added.
        floats = (0.25, -1.5, 2.0, 4.0) if function == "sum" else (0.5, -1.0, 2.0)
        pool = tuple(values.float_text(number, single=kind.root == "FLOAT") for number in floats)
    elif kind.root == "DECIMAL":
        pool = tuple(f"{number}{'.' + '0' * kind.scale if kind.scale else ''}" for number in pool)
        # Sums of up to 18 digits overflow unseen in Java.
        if kind.precision > 18 and dice.chance.random() < 0.4:
            pool += tuple(draw_value(dice, kind) for _ in range(2) if function == "sum")
    return column_of(dice, name, kind, pool)


def _keytimes(dice: Dice, name: str, *, named: bool) -> ColumnPlan:
    # The time is the last field, unless an option names it.
    kind = parse_type(f"MAP<STRING, ROW<{'at STRING, v INT' if named else 'v INT, at STRING'}>>")

    def drawn() -> Json:
        pairs: dict[str, Json] = {}
        for _ in range(dice.chance.randint(0, 3)):
            key = dice.chance.choice(("a", "b", "c"))
            at = dice.chance.choice((None, "2024-01-01", "2024-01-02", "2025"))
            fields: list[Json] = [dice.chance.randint(0, 9), at]
            if named:
                fields.reverse()
            value = fields if dice.chance.random() < 0.85 else None
            pairs[key] = [key, value]
        return values.sort_pairs(list(pairs.values()))

    return column_of(dice, name, kind, tuple(drawn() for _ in range(6)))


def _bitmaps(dice: Dice, function: str) -> tuple[Json, ...]:
    top = 1 << 32 if function == "rbm32" else 1 << 40
    ranges = [range(5), range(100, 70_000, 7), range(top - 3, top)]
    drawn = [dice.chance.sample(dice.chance.choice(ranges), 3) for _ in range(4)]
    if function == "rbm32":
        return tuple(BitMap(each).serialize().hex() for each in drawn)
    return tuple(sketches.encode(BitMap64(each)).hex() for each in drawn)


def _sketches(dice: Dice, function: str) -> tuple[Json, ...]:
    """Of a few values; theta sketches of many, too, which the library counts in another way.

    Of an HLL sketch of many values, Java's library estimates a little otherwise.
    """
    drawn: list[Json] = []
    hll = function == "hll_sketch"
    for _ in range(4):
        numbers = dice.chance.sample(
            range(5000), dice.chance.choice((0, 1, 3, 20 if hll else 3000))
        )
        if hll:
            counted = datasketches.hll_sketch(dice.chance.choice((10, 12)))
        else:
            counted = datasketches.update_theta_sketch()
        for number in numbers:
            counted.update(number)
        data = counted.serialize_compact() if hll else counted.compact().serialize()
        drawn.append(data.hex())
    return tuple(drawn)


def _nested_rows(dice: Dice, name: str) -> ColumnPlan:
    value = draw_atomic(dice)
    kind = parse_type(f"ARRAY<ROW<id INT, part STRING, v {value.text}, n BIGINT>>")

    def drawn() -> Json:
        # 1.4.2 takes the first list as it is; 2.1 leaves out nulls, and all but the last of a key.
        ids = dice.chance.sample((1, 2, 3), dice.chance.randint(0, 3))
        return [
            [
                each,
                dice.chance.choice(("x", "y")),
                None if dice.chance.random() < 0.3 else draw_value(dice, value),
                dice.chance.choice((None, 1, 2)),
            ]
            for each in ids
        ]

    pool = tuple(drawn() for _ in range(5))
    return ColumnPlan(Column(name, kind), pool, dice.chance.choice((0.0, 0.3)))
