"""Converts types of PostgreSQL, named as in `pg_type.typname`, to Paimon's types.

An array type has `_` before the name of its element: `_int4`. The rules are those of Paimon's
actions, with two additions, which those actions refuse: CHAR and VARCHAR without a length become
STRING, and arrays of UUID, JSON and TIMESTAMP types are supported. NUMERIC without digits becomes
STRING, because no DECIMAL holds all of its values. TIME has at most the milliseconds that Paimon
stores.
"""

from __future__ import annotations

from lakecore.cdc.types.mapping import (
    BYTES,
    DEFAULT_MAPPING,
    STRING,
    TIME_DIGITS_MAX,
    TypeMapping,
    TypeOption,
    array_of,
    atomic,
)
from lakecore.errors import Unsupported
from lakecore.model.types import LENGTH_MAX, DataType, Root

__all__ = ["postgres_key_type", "postgres_type"]

_PLAIN: dict[str, DataType] = {
    "bool": atomic(Root.BOOLEAN),
    "bytea": BYTES,
    "int2": atomic(Root.SMALLINT),
    "smallserial": atomic(Root.SMALLINT),
    "int4": atomic(Root.INT),
    "serial": atomic(Root.INT),
    "int8": atomic(Root.BIGINT),
    "bigserial": atomic(Root.BIGINT),
    "float4": atomic(Root.FLOAT),
    "float8": atomic(Root.DOUBLE),
    "date": atomic(Root.DATE),
    "text": STRING,
    "json": STRING,
    "jsonb": STRING,
    "enum": STRING,
    "uuid": STRING,
}
_DIGITS_MAX = 38
_SCALE_DEFAULT = 18


def postgres_type(
    name: str,
    precision: int | None = None,
    scale: int | None = None,
    mapping: TypeMapping = DEFAULT_MAPPING,
) -> DataType:
    """The nullable Paimon type.

    `precision` is the length of character and bit types and the digits of numeric; `scale` is the
    scale of numeric and the fraction digits of times. Raises Unsupported for other types.
    """
    if TypeOption.TO_STRING in mapping:
        return STRING
    lower = name.lower()
    if lower.startswith("_"):
        return array_of(_element(lower[1:], precision or 0, scale or 0, mapping))
    return _element(lower, precision or 0, scale or 0, mapping)


def postgres_key_type(
    name: str,
    precision: int | None = None,
    scale: int | None = None,
    mapping: TypeMapping = DEFAULT_MAPPING,
) -> DataType:
    """The type of a key column, in which different values of PostgreSQL stay different.

    The type is that of `postgres_type`, except for types that would map several values to one. For
    example, TIME(6) is STRING: Paimon stores a TIME in milliseconds.
    """
    match name.lower():
        case "varbit":
            return STRING  # BINARY has no place for leading zeros
        case "numeric" if (precision or 0) <= 0:
            return STRING
        case "time" if (scale or 0) > TIME_DIGITS_MAX:
            return STRING
    return postgres_type(name, precision, scale, mapping)


def _element(name: str, precision: int, scale: int, mapping: TypeMapping) -> DataType:  # noqa: C901 - a case for each type
    match name:
        case "bit" | "varbit" if precision <= 1:
            return atomic(Root.BOOLEAN)
        case "bit" | "varbit":
            unbounded = precision == LENGTH_MAX
            length = precision // 8 if unbounded else (precision + 7) // 8
            return atomic(Root.BINARY, length=length)
        case "numeric" if precision <= 0 and TypeOption.BARE_NUMERIC_TO_DECIMAL not in mapping:
            return STRING
        case "numeric" if precision <= 0:
            return atomic(Root.DECIMAL, precision=_DIGITS_MAX, scale=_SCALE_DEFAULT)
        case "numeric" if precision > _DIGITS_MAX or not 0 <= scale <= precision:
            return STRING
        case "numeric":
            return atomic(Root.DECIMAL, precision=precision, scale=scale)
        case "bpchar" | "character":
            return atomic(Root.CHAR, length=precision) if 0 < precision < LENGTH_MAX else STRING
        case "varchar":
            return atomic(Root.VARCHAR, length=precision) if precision > 0 else STRING
        case "timestamp":
            return atomic(Root.TIMESTAMP, precision=scale)
        case "timestamptz":
            return atomic(Root.TIMESTAMP_LTZ, precision=scale)
        case "time":
            return atomic(Root.TIME, precision=min(scale, TIME_DIGITS_MAX))
    if name in _PLAIN:
        return _PLAIN[name]
    raise Unsupported("no Paimon type for this type of PostgreSQL", type=name)
