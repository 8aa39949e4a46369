"""Converts Polars expressions to predicates, and back.

`from_polars` walks the JSON form of an expression. An unknown node makes the smallest condition
that contains it Unknown. A part without columns is a literal, and Polars evaluates it.
Polars compares timestamps in the coarser unit of the two sides. The predicate is therefore exact
only if the literal is a whole number of the column's units; otherwise it is a range.
"""

from __future__ import annotations

import io
import json
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import polars as pl
import pyarrow as pa

from lakecore.plan.predicate.language import (
    UNKNOWN,
    And,
    Compare,
    Constant,
    In,
    IsNotNull,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    all_of,
    any_of,
    negate,
)
from lakecore.plan.predicate.literals import (
    Column,
    Schema,
    check_columns,
    columns,
    compare,
    is_in,
    position_unit,
    range_around,
    starts_with,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


Json: TypeAlias = "str | dict[str, Json] | list[Json] | int | float | bool | None"

_t = pa.types
_OPS = {
    "Eq": Op.EQ,
    "NotEq": Op.NE,
    "Lt": Op.LT,
    "LtEq": Op.LE,
    "Gt": Op.GT,
    "GtEq": Op.GE,
}
_ANDS = ("And", "LogicalAnd")
_CLOSED = {
    "Both": (Op.GE, Op.LE),
    "Left": (Op.GE, Op.LT),
    "Right": (Op.GT, Op.LE),
    "None": (Op.GT, Op.LT),
}
_OF_EACH_ROW = {"Not", "AllHorizontal", "AnyHorizontal", "IsNull", "IsNotNull"}
_LITERAL_NODES = {"Literal", "Cast", "Agg", "Alias", "BinaryExpr"}
_WIDER = {  # casts that keep the order of these columns, and so can be ignored
    "Int8": _t.is_int8,
    "Int16": lambda kind: kind in (pa.int8(), pa.int16()),
    "Int32": lambda kind: kind in (pa.int8(), pa.int16(), pa.int32()),
    "Int64": _t.is_integer,
    "Int128": _t.is_integer,
    "Float32": _t.is_float32,
    "Float64": lambda kind: _t.is_integer(kind) or _t.is_floating(kind) or _t.is_decimal(kind),
}


def from_polars(expression: pl.Expr, schema: Schema) -> Predicate:
    """The predicate for a Polars expression. Raises InvalidRequest for an unknown column."""
    known = columns(schema)
    check_columns(expression.meta.root_names(), known)
    try:
        return _from_expression(expression, known)
    except RecursionError:  # thousands of nested nodes
        return UNKNOWN


def to_polars(predicate: Predicate) -> pl.Expr | None:
    """The expression that matches the same rows; None if part of the predicate is Unknown."""
    match predicate:
        case And(parts=parts) | Or(parts=parts):
            inner = [to_polars(part) for part in parts]
            known = [one for one in inner if one is not None]
            if len(known) < len(inner):
                return None
            join = pl.all_horizontal if isinstance(predicate, And) else pl.any_horizontal
            return join(known) if known else pl.lit(isinstance(predicate, And))
        case Not(part=part):
            negated = to_polars(part)
            return None if negated is None else ~negated
        case Unknown():
            return None
        case Constant(value=value):
            return pl.lit(value, dtype=pl.Boolean)
        case Compare(column=column, op=op, value=value):
            return _compared(pl.col(column), op, _literal(value))
        case In(column=column, values=values):
            return pl.col(column).is_in(pl.lit(pl.Series(values)).implode())
        case IsNull(column=column):
            return pl.col(column).is_null()
        case IsNotNull(column=column):
            return pl.col(column).is_not_null()
        case StartsWith(column=column, prefix=prefix):
            of = pl.col(column).bin if _t.is_binary(prefix.type) else pl.col(column).str
            return of.starts_with(pl.lit(prefix.as_py()))


def operands(expression: pl.Expr) -> list[pl.Expr] | None:
    """The operands of an elementwise operation (a comparison, sum, `not`, cast and the like).

    Operands that are single values are left out. None for any other expression.
    """
    match _tree_of(expression):
        case {"BinaryExpr": _} | {"Alias": _} | {"Cast": _}:
            pass
        case {"Function": {"function": {"Boolean": str(name)}}} if name in _OF_EACH_ROW:
            pass
        case _:
            return None
    return [part for part in expression.meta.pop() if _value_of(part) is None]


def compares_with_null(expression: pl.Expr) -> bool:
    """Whether the expression compares something with a literal null, which is never true."""
    return any(op in _OPS for op in _with_null(expression))


def is_and_with_null(expression: pl.Expr) -> bool:
    """Whether the expression has an `and` with a literal null, by which no scan can filter."""
    return any(op in _ANDS for op in _with_null(expression))


def _with_null(expression: pl.Expr) -> Iterator[str]:
    """The operators in the expression that have a literal null as an operand."""
    waiting = [expression] if _may_hold_null(expression) else []
    while waiting:
        each = waiting.pop()
        parts = each.meta.pop()
        match _tree_of(each):
            case {"BinaryExpr": {"op": str(op)}}:
                pass
            case {"Function": {"function": {"Boolean": {"IsBetween": _}}}}:
                op = "LtEq"  # two comparisons
            case _:
                op = ""
        values = map(_value_of, parts if op else ())
        if any(value is not None and not value.is_valid for value in values):
            yield op
        waiting += parts


def _may_hold_null(expression: pl.Expr) -> bool:
    """Whether the JSON form contains a null, or does not exist: a cheap first check."""
    try:
        return '"Null"' in expression.meta.serialize(format="json")
    except (pl.exceptions.PolarsError, ValueError):
        return True


def _compared(left: pl.Expr, op: Op, right: pl.Expr) -> pl.Expr:
    match op:
        case Op.EQ:
            return left == right
        case Op.NE:
            return left != right
        case Op.LT:
            return left < right
        case Op.LE:
            return left <= right
        case Op.GT:
            return left > right
        case Op.GE:
            return left >= right


def _literal(value: pa.Scalar) -> pl.Expr:
    series = pl.Series(pa.array([value], value.type))
    if series.dtype.is_temporal():  # Python's own datetimes end at microseconds
        return pl.lit(series.to_physical().item()).cast(series.dtype)
    return pl.lit(series.item(), dtype=series.dtype)


# --- from Polars --------------------------------------------------------------------------------


def _from_expression(expression: pl.Expr, known: dict[str, Column]) -> Predicate:
    tree = _tree_of(expression)
    return _from_parts(expression, known) if tree is None else _predicate(tree, known)


def _tree_of(expression: pl.Expr) -> Json:
    """The JSON form of an expression; None if it has none (a Python function inside)."""
    try:
        tree: Json = json.loads(expression.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, ValueError):
        return None
    return tree


def _from_parts(expression: pl.Expr, known: dict[str, Column]) -> Predicate:
    """The predicate of an `and` or `or` without a JSON form, from its two sides."""
    inputs = expression.meta.pop()
    if len(inputs) == 2:
        right, left = inputs
        if (left & right).meta.eq(expression):
            return all_of((_from_expression(left, known), _from_expression(right, known)))
        if (left | right).meta.eq(expression):
            return any_of((_from_expression(left, known), _from_expression(right, known)))
    return UNKNOWN


def _predicate(tree: Json, known: dict[str, Column]) -> Predicate:
    """The predicate of a boolean expression; Unknown if it is not understood."""
    match tree:
        case {"BinaryExpr": {"left": left, "op": op, "right": right}}:
            return _binary(str(op), left, right, known)
        case {"Function": {"input": [*inputs], "function": function}}:
            return _function(function, inputs, known)
        case {"Alias": [inner, _]}:
            return _predicate(inner, known)
        case {"Column": str(name)} if name in known and _t.is_boolean(known[name].type):
            return compare(known[name], Op.EQ, pa.scalar(True))
    value = _value(tree)
    if value is not None and (_t.is_boolean(value.type) or _t.is_null(value.type)):
        return Constant(value.as_py())
    return UNKNOWN


def _binary(op: str, left: Json, right: Json, known: dict[str, Column]) -> Predicate:
    if op in _ANDS:
        return all_of((_predicate(left, known), _predicate(right, known)))
    if op in ("Or", "LogicalOr"):
        return any_of((_predicate(left, known), _predicate(right, known)))
    side, column, value = left, _column(left, known), _value(right)
    mirrored = column is None
    if mirrored:
        side, column, value = right, _column(right, known), _value(left)
    if column is None or value is None:
        return UNKNOWN
    if op in _OPS:
        return _against(side, column, _OPS[op].mirrored if mirrored else _OPS[op], value)
    if _rounds(side, column):
        return UNKNOWN
    if op == "EqValidity":
        if not value.is_valid:
            return IsNull(column.name)
        return all_of((_compare(column, Op.EQ, value), IsNotNull(column.name)))
    if op == "NotEqValidity":
        if not value.is_valid:
            return IsNotNull(column.name)
        return any_of((_compare(column, Op.NE, value), IsNull(column.name)))
    return UNKNOWN


def _function(function: Json, inputs: list[Json], known: dict[str, Column]) -> Predicate:
    match function, inputs:
        case {"Boolean": "Not"}, [inner]:
            return negate(_predicate(inner, known))
        case {"Boolean": "AllHorizontal"}, _:
            return all_of(_predicate(one, known) for one in inputs)
        case {"Boolean": "AnyHorizontal"}, _:
            return any_of(_predicate(one, known) for one in inputs)
        case {"Boolean": "IsNull"}, [{"Column": str(name)}]:
            return IsNull(name)
        case {"Boolean": "IsNotNull"}, [{"Column": str(name)}]:
            return IsNotNull(name)
        case {"Boolean": {"IsIn": {"nulls_equal": nulls_equal}}}, [inner, collection]:
            column, value = _column(inner, known), _value(collection)
            if column is not None and value is not None and not _rounds(inner, column):
                return _is_in(column, value, nulls_equal=nulls_equal is True)
        case {"Boolean": {"IsBetween": {"closed": str(closed)}}}, [inner, lower, upper]:
            column, least, greatest = _column(inner, known), _value(lower), _value(upper)
            if column is not None and least is not None and greatest is not None:
                above, below = _CLOSED[closed]
                over, under = (above, least), (below, greatest)
                return all_of(_against(inner, column, op, bound) for op, bound in (over, under))
        case {"StringExpr": "StartsWith"} | {"BinaryExpr": "StartsWith"}, [inner, prefix]:
            column, value = _column(inner, known), _value(prefix)
            if column is not None and value is not None:
                return starts_with(column, value)
    return UNKNOWN


def _against(side: Json, column: Column, op: Op, value: pa.Scalar) -> Predicate:
    """The comparison of a column, perhaps cast to Float64, with a literal.

    If the column is cast to Float64, the literal is rounded in the same way, because the cast maps
    different integers to the same float: 2**60 - 1 and 2**60 compare as equal.
    """
    if value.is_valid and _rounds(side, column):
        if _t.is_integer(value.type):
            value = pa.scalar(float(value.as_py()))
        elif not _t.is_floating(value.type):
            return UNKNOWN
    if _t.is_date(column.type) and not _is_of_milliseconds(value):
        return UNKNOWN  # a cast of the column may have cut the literal to its unit
    return _compare(column, op, value)


def _is_of_milliseconds(value: pa.Scalar) -> bool:
    """Whether a timestamp is a whole number of milliseconds; True for any other type."""
    unit = position_unit(value.type)
    return unit is None or not value.is_valid or Fraction(value.value) * unit % 1_000_000 == 0


def _compare(column: Column, op: Op, value: pa.Scalar) -> Predicate:
    if _t.is_binary(column.type) and _t.is_large_string(value.type):
        value = value.cast(pa.large_binary())
    own, other = position_unit(column.type), position_unit(value.type)
    if _t.is_timestamp(column.type) and own is not None and other is not None and value.is_valid:
        whole = Fraction(value.value) * other % own == 0
        if other > own or not whole:
            return range_around(column, op, value, max(own, other))
    if _t.is_timestamp(column.type) and _t.is_date(value.type):
        value = value.cast(pa.timestamp("s"))
    return compare(column, op, value)


def _is_in(column: Column, value: pa.Scalar, *, nulls_equal: bool) -> Predicate:
    """The predicate of `is_in`.

    Nulls in the list match null rows if `nulls_equal`, else nothing.
    """
    if not _t.is_large_list(value.type) or not value.is_valid:
        return UNKNOWN
    values = value.values
    found = is_in(column, values.drop_null())
    if not nulls_equal:
        return found
    if values.null_count:
        return any_of((found, IsNull(column.name)))
    return all_of((found, IsNotNull(column.name)))


def _rounds(tree: Json, column: Column) -> bool:
    """Whether the expression casts a column to Float64, which may round its values."""
    match tree:
        case {"Cast": {"dtype": {"Literal": "Float64"}}}:
            return not _t.is_floating(column.type)
        case _:
            return False


def _column(tree: Json, known: dict[str, Column]) -> Column | None:
    """The column that the expression reads, alone or under a cast that keeps values and order."""
    match tree:
        case {"Column": str(name)}:
            return known.get(name)
        case {"Cast": {"expr": {"Column": str(name)}, "dtype": {"Literal": target}}}:
            column = known.get(name)
            return column if column is not None and _keeps_values(column.type, target) else None
        case _:
            return None


def _keeps_values(kind: pa.DataType, target: Json) -> bool:
    match target:
        case str(name):
            wider = _WIDER.get(name)
            return wider is not None and bool(wider(kind))
        case {"Datetime": ["Milliseconds" | "Microseconds", None]}:
            return bool(_t.is_date(kind))
        case _:
            return False


def _value(tree: Json) -> pa.Scalar | None:
    """The value of an expression without columns; None for any other expression.

    JSON has no infinity and no NaN: such a literal is null in it, and is not known here.
    """
    if not _is_literal(tree):
        return None
    try:
        expression = pl.Expr.deserialize(io.StringIO(json.dumps(tree)), format="json")
    except (pl.exceptions.PolarsError, ValueError):
        return None
    return _value_of(expression)


def _value_of(expression: pl.Expr) -> pa.Scalar | None:
    if not _is_literal(_tree_of(expression)):
        return None
    try:
        values = pl.select(expression).to_series()
        if values.dtype in (pl.Int128, pl.UInt128, pl.UInt64):
            values = values.cast(pl.Decimal(38, 0))
        return values.to_arrow()[0] if len(values) == 1 else None
    except (pl.exceptions.PolarsError, pa.ArrowException, ValueError, TypeError):
        return None


def _is_literal(tree: Json) -> bool:
    """Whether an expression consists only of literals, casts and arithmetic."""
    if not isinstance(tree, dict) or len(tree) != 1:
        return False
    ((node, parts),) = tree.items()
    if node not in _LITERAL_NODES:
        return False
    match parts:
        case _ if node == "Literal":
            return True
        case {"expr": inner} | [inner, _] | {"Implode": {"input": inner} | inner}:
            return _is_literal(inner)
        case {"left": left, "right": right}:
            return _is_literal(left) and _is_literal(right)
        case _:
            return False
