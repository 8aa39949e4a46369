"""Converts a comparison of a column with a literal of any type to the column's own type.

Both sides are compared as exact numbers if the engines do the same. A literal between two values of
the column's type (1.5 for an INT), or outside its range, is replaced by an equivalent comparison:
`x > 1.5` becomes `x > 1`, and `x = 1.5` is false, but null where x is null.

Some engines round before they compare: a DECIMAL or a large BIGINT with a float, or a FLOAT column
with a value that no FLOAT equals. In these cases the predicate is only a range, or Unknown. If the
two types are not comparable, the predicate is Unknown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.model.schema import TableSchema
from lakecore.plan.predicate.language import (
    NULL,
    UNKNOWN,
    And,
    Compare,
    In,
    Op,
    Or,
    Predicate,
    StartsWith,
    all_of,
    any_of,
    at_most,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

Schema: TypeAlias = TableSchema | pa.Schema

_t = pa.types
_WIDE = Context(prec=100)
_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
_NS_OF_DAY = 86_400_000_000_000
_DOUBLE_EXACT = 1 << 53
_FLOAT_EXACT = 1 << 24
_SLACK = Fraction(1, 1 << 50)  # relative error of a DECIMAL converted to a double, in any engine


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name and Arrow type."""

    name: str
    type: pa.DataType


def columns(schema: Schema) -> dict[str, Column]:
    """The columns of a schema by name."""
    arrow = schema.arrow if isinstance(schema, TableSchema) else schema
    return {field.name: Column(field.name, field.type) for field in arrow}


def check_columns(names: Iterable[str], known: dict[str, Column], **facts: object) -> None:
    """Raise InvalidRequest for a name that is not a column."""
    for name in names:
        if name not in known:
            raise InvalidRequest("unknown column", column=name, columns=list(known), **facts)


def compare(column: Column, op: Op, literal: pa.Scalar) -> Predicate:
    """The predicate for `column op literal`, with the literal converted to the column's type."""
    if not literal.is_valid:
        return NULL
    literal = _plain(literal)
    kind, other = column.type, literal.type
    if _is_text(kind):
        return _compare_same(column, op, literal, same=_is_text(other))
    if _is_bytes(kind):
        return _compare_same(column, op, literal, same=_is_bytes(other))
    if _t.is_boolean(kind):
        return _compare_same(column, op, literal, same=_t.is_boolean(other))
    if _t.is_floating(kind) and _t.is_floating(other) and math.isinf(literal.as_py()):
        return Compare(column.name, op, pa.scalar(literal.as_py(), kind))
    position = _position(kind, literal)
    if position is None:
        return UNKNOWN
    if _t.is_floating(kind):
        return _compare_float(column, op, position, literal)
    if _t.is_floating(other) and _t.is_decimal(kind):
        width = abs(position) * _SLACK
        return _between_bounds(column, op, position - width, position + width)
    if _t.is_floating(other) and _t.is_integer(kind):
        exact = _DOUBLE_EXACT if _t.is_float64(other) else _FLOAT_EXACT
        if abs(position) >= exact:
            return UNKNOWN  # the column would be rounded to a float
    return _fold(column, op, position)


def is_in(column: Column, literals: pa.Array) -> Predicate:
    """The predicate `column IN literals`.

    If the list contains a null, a value that is not in the list gives null instead of false.
    """
    nulls = (NULL,) if literals.null_count else ()
    literals = _as_column(column, literals.drop_null())
    if literals.type == column.type and not _t.is_floating(column.type):
        return any_of((_in(column, literals), *nulls))
    return any_of((one_of(column, list(pc.unique(literals))), *nulls))


def one_of(column: Column, literals: Iterable[pa.Scalar]) -> Predicate:
    """The predicate that the column equals one of the literals, whose types may differ."""
    found = [compare(column, Op.EQ, literal) for literal in literals]
    exact = [one.value for one in found if isinstance(one, Compare)]
    parts = [one for one in found if not isinstance(one, Compare)]
    return any_of((_in(column, pa.array(exact, column.type)), *parts))


def between(column: Column, lower: pa.Scalar, upper: pa.Scalar) -> Predicate:
    """The predicate `column BETWEEN lower AND upper`, both bounds included."""
    return all_of((compare(column, Op.GE, lower), compare(column, Op.LE, upper)))


def starts_with(column: Column, prefix: pa.Scalar) -> Predicate:
    """The predicate that the string or binary column starts with the prefix."""
    if not prefix.is_valid:
        return NULL
    prefix = _plain(prefix)
    same = _is_text(column.type) and _is_text(prefix.type)
    if same or (_is_bytes(column.type) and _is_bytes(prefix.type)):
        return StartsWith(column.name, prefix.cast(column.type))
    return UNKNOWN


def range_around(column: Column, op: Op, literal: pa.Scalar, slack: Fraction) -> Predicate:
    """A range that contains all matches of `column op literal`, even if values shift by `slack`."""
    position = _position(column.type, literal) if literal.is_valid else None
    if position is None:
        return UNKNOWN
    return _between_bounds(column, op, position - slack, position + slack)


def position_unit(kind: pa.DataType) -> Fraction | None:
    """The nanoseconds in one unit of a timestamp or time type; None for other types."""
    if _t.is_timestamp(kind) or _t.is_time(kind):
        return Fraction(_NS[kind.unit])
    return None


# --- positions: a value as an exact number ------------------------------------------------------


def _position(kind: pa.DataType, literal: pa.Scalar) -> Fraction | None:
    """The literal as an exact number, in the scale in which `kind` is compared.

    None if the two are not comparable.
    """
    other = literal.type
    if _is_number(kind):
        return _number(literal) if _is_number(other) else None
    if _t.is_time(kind) and _t.is_time(other):
        return Fraction(literal.value * _NS[other.unit])
    if not (_t.is_date(kind) or _t.is_timestamp(kind)):
        return None
    if _t.is_date(other):
        zoned = _t.is_timestamp(kind) and kind.tz is not None
        return None if zoned else Fraction(literal.cast(pa.date32()).value * _NS_OF_DAY)
    if not _t.is_timestamp(other):
        return None
    zoned = _t.is_timestamp(kind) and kind.tz is not None
    if zoned != (other.tz is not None):
        return None
    return Fraction(literal.value * _NS[other.unit])


def _number(literal: pa.Scalar) -> Fraction | None:
    value = literal.as_py()
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        return None
    return Fraction(value)


def _fold(column: Column, op: Op, position: Fraction) -> Predicate:
    """The comparison with the greatest value of the column's type that is not above the literal."""
    unit, least, greatest = _grid(column.type)
    step = math.floor(position / unit)
    if least <= step <= greatest:
        value = _scalar(column.type, step)
        if step * unit == position:
            return Compare(column.name, op, value)
        below, above = Compare(column.name, Op.LE, value), Compare(column.name, Op.GT, value)
    elif step > greatest:
        value = _scalar(column.type, greatest)
        below, above = Compare(column.name, Op.LE, value), Compare(column.name, Op.GT, value)
    else:
        value = _scalar(column.type, least)
        below, above = Compare(column.name, Op.LT, value), Compare(column.name, Op.GE, value)
    match op:
        case Op.LT | Op.LE:
            return below
        case Op.GT | Op.GE:
            return above
        case Op.EQ:
            return And((below, above))
        case Op.NE:
            return Or((below, above))


def _grid(kind: pa.DataType) -> tuple[Fraction, int, int]:
    """The distance between neighbouring values of a type, and the type's range in these units."""
    if _t.is_decimal(kind):
        greatest = 10**kind.precision - 1
        return Fraction(1, 10**kind.scale), -greatest, greatest
    if _t.is_integer(kind):
        return Fraction(1), -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1
    if _t.is_time(kind):
        return Fraction(_NS[kind.unit]), 0, _NS_OF_DAY // _NS[kind.unit] - 1
    unit = _NS_OF_DAY if _t.is_date(kind) else _NS[kind.unit]
    bits = 31 if _t.is_date(kind) else 63
    return Fraction(unit), -(1 << bits), (1 << bits) - 1


def _scalar(kind: pa.DataType, step: int) -> pa.Scalar:
    if _t.is_decimal(kind):
        return pa.scalar(Decimal(step).scaleb(-kind.scale, _WIDE), kind)
    if _t.is_integer(kind):
        return pa.scalar(step, kind)
    number = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.array([step], number).view(kind)[0]


# --- comparisons --------------------------------------------------------------------------------


def _compare_same(column: Column, op: Op, literal: pa.Scalar, *, same: bool) -> Predicate:
    return Compare(column.name, op, literal.cast(column.type)) if same else UNKNOWN


def _compare_float(column: Column, op: Op, position: Fraction, literal: pa.Scalar) -> Predicate:
    """A comparison with a FLOAT or DOUBLE column.

    An engine may round the literal to the column's type, or widen the column.
    """
    single = _t.is_float32(column.type)
    nearest = _nearest(position, single=single)
    if nearest is None:
        return UNKNOWN
    if nearest == position or (not single and _rounds_alike(literal)):
        return Compare(column.name, op, pa.scalar(float(nearest), column.type))
    cast = np.float32 if single else np.float64
    below = np.nextafter(cast(float(nearest)), cast(-math.inf))
    above = np.nextafter(cast(float(nearest)), cast(math.inf))
    lower, upper = pa.scalar(below, column.type), pa.scalar(above, column.type)
    return _bounded(column, op, lower, upper)


def _nearest(position: Fraction, *, single: bool) -> Fraction | None:
    try:
        nearest = float(position)
    except OverflowError:
        return None
    if single:
        with np.errstate(over="ignore"):
            nearest = float(np.float32(nearest))
        if abs(nearest) >= float(np.finfo(np.float32).max):
            return None
    return Fraction(nearest)


def _rounds_alike(literal: pa.Scalar) -> bool:
    """Whether every engine converts the literal to the same double, as for short decimals."""
    if not _t.is_decimal(literal.type):
        return False
    _, digits, exponent = literal.as_py().as_tuple()
    return len(digits) <= 15 and -22 <= exponent <= 0


def _between_bounds(column: Column, op: Op, lower: Fraction, upper: Fraction) -> Predicate:
    match op:
        case Op.LT | Op.LE:
            return at_most(_fold(column, Op.LE, upper))
        case Op.GT | Op.GE:
            return at_most(_fold(column, Op.GE, lower))
        case Op.EQ:
            return at_most(all_of((_fold(column, Op.GE, lower), _fold(column, Op.LE, upper))))
        case Op.NE:
            return UNKNOWN


def _bounded(column: Column, op: Op, lower: pa.Scalar, upper: pa.Scalar) -> Predicate:
    below, above = Compare(column.name, Op.LE, upper), Compare(column.name, Op.GE, lower)
    match op:
        case Op.LT | Op.LE:
            return at_most(below)
        case Op.GT | Op.GE:
            return at_most(above)
        case Op.EQ:
            return at_most(And((below, above)))
        case Op.NE:
            return UNKNOWN


def _in(column: Column, values: pa.Array) -> Predicate:
    if len(values) == 1:
        return Compare(column.name, Op.EQ, values[0])
    distinct = pc.unique(values)
    return In(column.name, distinct.take(pc.sort_indices(distinct)))


def _as_column(column: Column, literals: pa.Array) -> pa.Array:
    """The literals in the column's type if all of them fit it exactly, else in their own type."""
    kind, other = column.type, _plain(literals).type
    alike = (
        (_t.is_integer(kind) and _t.is_integer(other))
        or (_t.is_decimal(kind) and _t.is_decimal(other))
        or (_t.is_timestamp(kind) and _t.is_timestamp(other) and bool(kind.tz) == bool(other.tz))
    )
    if not alike:
        return _plain(literals)
    try:
        return literals.cast(kind)
    except pa.ArrowInvalid:
        return _plain(literals)


def _plain(value: pa.Scalar | pa.Array) -> pa.Scalar | pa.Array:
    """The same value without dictionary encoding, in the plain string or binary layout."""
    kind = value.type
    if _t.is_dictionary(kind):
        value = value.cast(kind.value_type)
        kind = value.type
    if _is_text(kind) and kind != pa.string():
        return value.cast(pa.string())
    if _is_bytes(kind) and kind != pa.binary():
        return value.cast(pa.binary())
    return value


def _is_text(kind: pa.DataType) -> bool:
    return bool(_t.is_string(kind) or _t.is_large_string(kind) or _t.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        _t.is_binary(kind)
        or _t.is_large_binary(kind)
        or _t.is_binary_view(kind)
        or _t.is_fixed_size_binary(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(_t.is_integer(kind) or _t.is_floating(kind) or _t.is_decimal(kind))
