"""Types and values, drawn: every type of Paimon, nested ones too, as the file format can hold them.

What no engine can do, or what a peer is known to spoil (`tests.interop.limits`), is not drawn: each
exception says why where it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.interop import values
from tests.interop.columns import Json, Type, parse_type

if TYPE_CHECKING:
    import random

NESTING_MAX = 2
TEXTS = (
    "",
    " ",
    "a",
    "b",
    "B",
    "é",
    "中文😀",
    "a,b",
    "a somewhat longer text",
    "x" * 40,
    "\u0000\n",
)
_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_FLOATS = (0.0, -0.0, 1.5, -2.25, 0.1, 1e10, float("nan"), float("inf"), float("-inf"))
# 1969-12-31T23:59:58, some days in between, and the year 2199; ORC ends in 2262.
_SECONDS = (-2, 0, 1, 86_399, 951_826_399, 1_709_251_199, 1_735_689_600, 7_258_118_399)
_DAYS = (0, -1, 19782, 11016, 20000, -141_428, 2_932_896)


@dataclass(frozen=True, slots=True)
class Dice:
    """What values are drawn with, and the format of the files that are to hold them."""

    chance: random.Random
    file_format: str


def draw_type(dice: Dice, *, depth: int = 0) -> Type:
    """Any type for a value column, nullable."""
    if depth < NESTING_MAX and dice.chance.random() < (0.3 if depth == 0 else 0.35):
        return parse_type(_nested(dice, depth))
    return draw_atomic(dice)


def draw_atomic(dice: Dice) -> Type:
    """Any type without parts."""
    return parse_type(
        dice.chance.choice(
            (
                *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE"),
                *("STRING", "STRING", "BYTES", "INT", "BIGINT"),
                f"CHAR({dice.chance.randint(1, 8)})",
                f"VARCHAR({dice.chance.randint(1, 12)})",
                f"BINARY({dice.chance.randint(1, 9)})",
                f"VARBINARY({dice.chance.randint(1, 20)})",
                *(_decimal(dice) for _ in range(2)),
                f"TIME({dice.chance.choice((0, 3))})",
                *(_timestamp(dice) for _ in range(2)),
            )
        )
    )


def draw_key_type(dice: Dice) -> Type:
    """Any type that a key may have, NOT NULL."""
    return parse_type(f"{draw_atomic(dice).text} NOT NULL")


def draw_order_type(dice: Dice) -> Type:
    """A type that a sequence field is likely to have."""
    return parse_type(
        dice.chance.choice(
            (
                *("INT", "BIGINT", "BIGINT", "SMALLINT", "DATE", "STRING", "DOUBLE"),
                *("TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
                *("DECIMAL(10, 2)", "DECIMAL(30, 3)"),
            )
        )
    )


def draw_value(dice: Dice, kind: Type, *, plain: bool = False) -> Json:
    """A value of the type in canonical form; null only inside it. `plain`: it equals itself alone.

    NaN, and the two zeros, are not plain: Java compares keys by `<`, and NaN equals none of them.
    """
    root = kind.root
    if root in values.INTEGERS:
        return _integer(dice, _INTEGER_BITS[root])
    if root == "BOOLEAN":
        return dice.chance.random() < 0.5
    if root in values.FLOATS:
        # Java reads a batch of both zeros from ORC as the first: they are equal by `==`.
        one_zero = [found for found in _FLOATS if str(found) != "-0.0"]
        floats = _FLOATS[2:6] if plain else one_zero if dice.file_format == "orc" else _FLOATS
        found = dice.chance.choice(floats)
        return values.float_text(found, single=root == "FLOAT")
    if root in values.TEXTS:
        return _text(dice, kind)
    if root in values.BINARIES:
        most = kind.length or 30
        length = most if root == "BINARY" else min(most, dice.chance.choice((0, 1, 3, most)))
        return bytes(dice.chance.randrange(256) for _ in range(length)).hex()
    if root == "DECIMAL":
        return _decimal_value(dice, kind)
    if root == "DATE":
        return values.date_text(dice.chance.choice(_DAYS))
    if root == "TIME":
        millis = dice.chance.randrange(86_400_000)
        return values.time_text(millis if kind.precision else millis // 1000 * 1000)
    if root in values.TIMESTAMPS:
        return _timestamp_value(dice, kind)
    return _nested_value(dice, kind)


def _nested(dice: Dice, depth: int) -> str:
    def inner() -> str:
        found = draw_type(dice, depth=depth + 1).text
        return f"{found} NOT NULL" if dice.chance.random() < 0.2 else found

    match dice.chance.choice(("ARRAY", "ARRAY", "MAP", "ROW", "ROW", "MULTISET")):
        case "ARRAY":
            return f"ARRAY<{inner()}>"
        case "MAP":
            return f"MAP<{_map_key(dice)}, {inner()}>"
        case "MULTISET":
            # Java casts the elements to text when it writes Avro.
            return f"MULTISET<{'STRING' if dice.file_format == 'avro' else _map_key(dice)}>"
        case _:
            fields = ", ".join(f"f{i} {inner()}" for i in range(dice.chance.randint(1, 4)))
            return f"ROW<{fields}>"


def _map_key(dice: Dice) -> str:
    return dice.chance.choice(("STRING", "INT", "BIGINT", "DATE", "VARCHAR(12)", "BOOLEAN"))


def _decimal(dice: Dice) -> str:
    precision = dice.chance.choice((1, 5, 9, 10, 18, 19, 30, 38))
    return f"DECIMAL({precision}, {dice.chance.choice((0, min(2, precision), precision))})"


def _timestamp(dice: Dice) -> str:
    # Avro has no timestamps finer than microseconds.
    finer = () if dice.file_format == "avro" else (7, 9)
    precision = dice.chance.choice((0, 1, 3, 4, 6, *finer))
    return f"TIMESTAMP({precision}){dice.chance.choice(('', ' WITH LOCAL TIME ZONE'))}"


def _integer(dice: Dice, bits: int) -> int:
    half = 1 << (bits - 1)
    return dice.chance.choice((0, 1, -1, 2, 7, half - 1, -half, dice.chance.randrange(-half, half)))


def _text(dice: Dice, kind: Type) -> str:
    text = dice.chance.choice(TEXTS)
    if kind.root == "STRING":
        return text
    # Java takes the blanks at the end of a CHAR in ORC for padding.
    text = text[: kind.length]
    return text.replace(" ", "_") if kind.root == "CHAR" else text


def _decimal_value(dice: Dice, kind: Type) -> str:
    digits = dice.chance.choice((1, max(1, kind.precision // 2), kind.precision))
    unscaled = dice.chance.choice((0, 1, 10**digits - 1, dice.chance.randrange(10**digits)))
    sign = "-" if unscaled and dice.chance.random() < 0.5 else ""
    padded = str(unscaled).rjust(kind.scale + 1, "0")
    whole, fraction = padded[: len(padded) - kind.scale], padded[len(padded) - kind.scale :]
    return f"{sign}{whole}.{fraction}" if kind.scale else f"{sign}{whole}"


def _timestamp_value(dice: Dice, kind: Type) -> str:
    second = dice.chance.choice(_SECONDS)
    unit = 10 ** (9 - kind.precision)
    # What engines make of fractions before 1970 is among the limits of the interop suite.
    fraction = dice.chance.randrange(1_000_000_000) // unit * unit if second >= 0 else 0
    return values.timestamp_text(second * 1_000_000_000 + fraction, kind)


def _nested_value(dice: Dice, kind: Type) -> Json:
    types = [child.type for child in kind.children]

    def part(of: Type) -> Json:
        # Arrow's ORC writer misplaces what follows a null ROW inside a ROW, so lakecore refuses it.
        spoiled = kind.root == "ROW" and of.root == "ROW"
        if of.nullable and not spoiled and dice.chance.random() < 0.3:
            return None
        return draw_value(dice, of)

    if kind.root == "ROW":
        return [part(of) for of in types]
    size = dice.chance.choice((0, 1, 2, 3))
    if kind.root == "ARRAY":
        return [part(types[0]) for _ in range(size)]
    pairs: dict[str, Json] = {}
    for _ in range(size):
        key = draw_value(dice, types[0], plain=True)
        value = dice.chance.randint(1, 3) if kind.root == "MULTISET" else part(types[1])
        pairs[repr(key)] = [key, value]
    return values.sort_pairs(list(pairs.values()))
