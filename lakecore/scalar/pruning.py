"""SQL conditions as predicates of lakecore's predicate language, to prune files.

INVARIANT: a node is read only if each of its parts is understood (`literals.taken`). Any other node
makes the smallest condition that contains it Unknown. An exact predicate has the same meaning in
Polars and in DuckDB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from lakecore.plan.predicate import (
    NULL,
    UNKNOWN,
    Column,
    Constant,
    IsNotNull,
    IsNull,
    Op,
    Predicate,
    all_of,
    any_of,
    at_most,
    compare,
    negate,
    one_of,
    starts_with,
)
from lakecore.scalar import engine
from lakecore.scalar.syntax import Sql, column_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.scalar.syntax_trees import Json, Node


# --- literals ------------------------------------------------------------------------------------
# SQL literals as Arrow scalars, with the types that DuckDB gives them.
#
# A number is an integer; with a point it is a decimal, and with an exponent a double. In a
# comparison with a FLOAT column, integers and decimals are rounded to FLOAT. A string takes the
# type of the column that it is compared with; `DATE '...'` and casts state their type. Only
# literals that certainly mean the same in DuckDB are read here. DuckDB itself computes a time that
# depends on the session's zone or on the current time.
#
# INVARIANT: `taken` returns parts of a node only if all its other parts are empty. If a later
# DuckDB adds a part that lakecore does not know, the condition becomes Unknown, not wrong.

_t = pa.types
_INTEGER = re.compile(r"[+-]?\d{1,38}")
_DECIMAL = re.compile(r"\d{0,38}\.\d{0,38}")
_DOUBLE = re.compile(r"(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?")
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?)?(?:(Z|[+-]\d\d)(?::?(\d\d))?)?"
)
_BLOB = re.compile(r"(?:[^\\]|\\x[0-9A-Fa-f]{2})*", re.ASCII | re.DOTALL)
_DIGITS = {"us": 6, "ns": 9}
_CASTS = {
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP WITHOUT TIME ZONE": pa.timestamp("us"),
    "DATETIME": pa.timestamp("us"),
    "TIMESTAMP_NS": pa.timestamp("ns"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
    "VARCHAR": pa.string(),
    "TEXT": pa.string(),
    "STRING": pa.string(),
    "BLOB": pa.binary(),
    "BYTEA": pa.binary(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
}
_COMPUTED = ("INTERVAL", "TIME WITH TIME ZONE", "TIMETZ", *_CASTS)
_OPERATORS = ("+", "-")
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_PLACE = {"class", "type", "query_location", "query_location_length"}


def taken(node: Node, *names: str) -> tuple[Json, ...] | None:
    """The parts of a node with these names.

    None if the node has any other part that is not empty.
    """
    others = (node[key] for key in node.keys() - _PLACE - {*names})
    if not all(map(_is_empty, others)):
        return None
    return tuple(node.get(name) for name in names)


def _is_empty(value: Json) -> bool:
    no_order = {"type": "ORDER_MODIFIER", "orders": []}
    return value is None or value is False or value in ("", no_order) or value == []


def call_of(node: Json) -> tuple[str, list[Json]] | None:
    """The name and arguments of a plain call of a function or operator; None for anything else."""
    if not isinstance(node, dict) or node.get("class") != "FUNCTION":
        return None
    parts = taken(node, "function_name", "arguments", "qualified_name", "is_operator")
    if parts is None:
        return None
    name, arguments, qualified, is_operator = parts
    if qualified != {"path": [name]} or not isinstance(is_operator, bool):
        return None
    if not isinstance(arguments, list):
        return None
    found: list[Json] = []
    for argument in arguments:
        if not isinstance(argument, dict) or argument.keys() != {"name", "expression"}:
            return None
        if argument["name"]:
            return None
        found.append(argument["expression"])
    return str(name).lower(), found


def cast_of(node: Json) -> tuple[Json, str] | None:
    """The operand of a cast, and the type's name in capitals; None for other nodes and types."""
    if not isinstance(node, dict) or node.get("class") != "CAST":
        return None
    parts = taken(node, "child", "type_expr")
    if parts is None or not isinstance(parts[1], dict) or parts[1].get("class") != "TYPE":
        return None
    named = taken(parts[1], "type_name", "qualified_name")
    if named is None or named[1] != {"path": [named[0]]}:
        return None
    return parts[0], str(named[0]).upper()


def constant_of(node: Json) -> tuple[str, str] | None:
    """The kind and the text of a literal; None for any other node."""
    if not isinstance(node, dict) or node.get("class") != "CONSTANT":
        return None
    parts = taken(node, "literal")
    if parts is None or not isinstance(parts[0], dict) or parts[0].keys() != {"kind", "text"}:
        return None
    return str(parts[0]["kind"]), str(parts[0]["text"])


def literal(tree: Json, compared: pa.DataType, zone: str) -> pa.Scalar | None:
    """The value of a literal, compared with a column of type `compared`.

    None if the value is not certain.
    """
    constant = constant_of(tree)
    if constant is not None:
        return _constant(*constant, compared, zone)
    call = call_of(tree)
    if call is not None and call[0] == "-" and len(call[1]) == 1:
        return _negated(call[1][0], compared, zone)
    cast = cast_of(tree)
    if cast is not None:
        target = _CASTS.get(cast[1])
        found = None if target is None else _cast(cast[0], target, zone)
        if found is not None:
            return found
    return computed(tree, zone)


def computed(tree: Json, zone: str) -> pa.Scalar | None:
    """The value of a date or time expression without columns, as DuckDB computes it."""
    text = _written(tree)
    if text is None:
        return None
    try:
        value = engine.evaluate(f"SELECT {text} AS value", {}, zone).column(0)[0]
    except duckdb.Error:
        return None
    temporal = _t.is_date(value.type) or _t.is_timestamp(value.type)
    return _in_utc(value) if temporal and value.is_valid else None


def _in_utc(value: pa.Scalar) -> pa.Scalar:
    kind = value.type
    if _t.is_timestamp(kind) and kind.tz is not None:
        return pa.array([value.value], pa.int64()).cast(pa.timestamp(kind.unit, "UTC"))[0]
    return value


def _written(tree: Json) -> str | None:
    """The SQL text of an expression of literals, casts, sums and calls.

    None for other expressions.
    """
    constant = constant_of(tree)
    if constant is not None:
        kind, text = constant
        if kind == "STRING":
            return _quoted(text)
        return text if kind in ("INTEGER", "NUMERIC") else None
    cast = cast_of(tree)
    if cast is not None:
        inner = _written(cast[0])
        return f"CAST({inner} AS {cast[1]})" if inner and cast[1] in _COMPUTED else None
    call = call_of(tree)
    if call is None:
        return None
    name, arguments = call
    parts = [_written(argument) for argument in arguments]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not parts:
        return None
    if name in _OPERATORS and len(parts) == 2:
        return f"({known[0]} {name} {known[1]})"
    return f"{name}({', '.join(known)})" if _NAME.fullmatch(name) else None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _constant(kind: str, text: str, compared: pa.DataType, zone: str) -> pa.Scalar | None:
    match kind:
        case "NULL_LITERAL":
            return pa.scalar(None)
        case "BOOLEAN":
            return pa.scalar(text == "true")
        case "STRING":
            return _of_text(text, compared, zone)
        case "INTEGER" | "NUMERIC":
            number = _number(text.removeprefix("-"))
            if number is None or not text.startswith("-"):
                return _as_compared(number, compared)
            return _minus(_as_compared(number, compared))
        case _:
            return None


def _negated(tree: Json, compared: pa.DataType, zone: str) -> pa.Scalar | None:
    value = literal(tree, compared, zone)
    if value is None or not value.is_valid or not _is_number(value.type):
        return None
    return _minus(value)


def _minus(value: pa.Scalar | None) -> pa.Scalar | None:
    if value is None:
        return None
    number = value.as_py()
    # A unary minus would round to the precision of the thread's decimal context.
    negated = number.copy_negate() if isinstance(number, Decimal) else -number
    return pa.scalar(negated, value.type) if _t.is_floating(value.type) else _number_scalar(negated)


def _cast(tree: Json, target: pa.DataType, zone: str) -> pa.Scalar | None:
    constant = constant_of(tree)
    if constant is not None and constant[0] == "STRING":
        return _of_text(constant[1], target, zone)
    value = literal(tree, target, zone)
    if value is None or not value.is_valid or not _is_number(value.type):
        return None
    if _t.is_floating(target):
        return pa.scalar(float(value.as_py()), target)
    exact = _t.is_integer(target) and _t.is_integer(value.type)
    bits = target.bit_width if exact else 0
    return value if exact and -(1 << bits - 1) <= value.as_py() < 1 << bits - 1 else None


def _number(text: str) -> pa.Scalar | None:
    if _INTEGER.fullmatch(text):
        return _number_scalar(int(text))
    if _DECIMAL.fullmatch(text) and len(text) <= 39 and text != ".":
        return _number_scalar(Decimal(text))
    return pa.scalar(float(text)) if _DOUBLE.fullmatch(text) else None


def _as_compared(value: pa.Scalar | None, column: pa.DataType) -> pa.Scalar | None:
    """The number as DuckDB compares it: rounded for a FLOAT column, unless it is a double."""
    if value is None or not _t.is_float32(column) or _t.is_floating(value.type):
        return value
    return pa.scalar(_to_float(value.as_py()), column)


def _to_float(value: Decimal | int) -> float:
    """A non-negative number rounded to FLOAT as in DuckDB."""
    if isinstance(value, int):
        return float(np.float32(np.int64(value)))
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits)))
    return float(np.float32(unscaled / 10**-exponent))


def _number_scalar(value: Decimal | float) -> pa.Scalar:
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return pa.scalar(Decimal(value), pa.decimal128(38, 0))
    return pa.scalar(value)


def _of_text(text: str, target: pa.DataType, zone: str) -> pa.Scalar | None:
    if _t.is_string(target):
        return pa.scalar(text)
    if _t.is_binary(target):
        return _blob(text)
    if _t.is_integer(target) and _INTEGER.fullmatch(text):
        return _number_scalar(int(text))
    if _t.is_boolean(target) and text.lower() in ("true", "false"):
        return pa.scalar(text.lower() == "true")
    try:
        if _t.is_date(target) and _DATE.fullmatch(text):
            return pa.scalar(text).cast(target)
        if _t.is_time(target) and (match := _TIME.fullmatch(text)):
            return _time(match)
        if _t.is_timestamp(target):
            return _timestamp(text, target) or _computed_timestamp(text, target, zone)
    except pa.ArrowInvalid:
        return None  # for example, month 13
    return None


def _time(match: re.Match[str]) -> pa.Scalar | None:
    hours, minutes, seconds, fraction = match.groups(default="")
    if len(fraction) > 6:
        return None
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return pa.scalar(whole * 10**9 + int(fraction.ljust(9, "0")), pa.time64("ns"))


def _timestamp(text: str, target: pa.DataType) -> pa.Scalar | None:
    # DuckDB reads microseconds also when it compares with a column of milliseconds.
    unit = "ns" if target.unit == "ns" else "us"
    match = _TIMESTAMP.fullmatch(text)
    if match is None or len(match[3] or "") > _DIGITS[unit]:
        return None
    date, time, fraction, zone, minutes = match.groups()
    if bool(zone) != bool(target.tz):
        return None
    plain = f"{date} {time or '00:00:00'}" + (f".{fraction}" if fraction else "")
    offset = "" if zone is None else "Z" if zone == "Z" else f"{zone}:{minutes or '00'}"
    return pa.scalar(plain + offset).cast(pa.timestamp(unit, target.tz))


def _computed_timestamp(text: str, target: pa.DataType, zone: str) -> pa.Scalar | None:
    """The timestamp that DuckDB reads in a text: with the zone of the session, in any format."""
    name = "TIMESTAMP_NS" if target.unit == "ns" else "TIMESTAMP"
    if target.tz:
        name = "TIMESTAMPTZ"
    if target.unit == "ns" and target.tz:
        return None
    try:
        query = f"SELECT CAST({_quoted(text)} AS {name}) AS value"
        value = engine.evaluate(query, {}, zone).column(0)[0]
    except duckdb.Error:
        return None
    return _in_utc(value) if value.is_valid else None


def _blob(text: str) -> pa.Scalar | None:
    """DuckDB's text form of a BLOB: ASCII unchanged, any byte as a backslash and `xAB`."""
    if not text.isascii() or not _BLOB.fullmatch(text):
        return None
    return pa.scalar(
        re.sub(
            rb"\\x([0-9A-Fa-f]{2})", lambda match: bytes.fromhex(match[1].decode()), text.encode()
        )
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(_t.is_integer(kind) or _t.is_floating(kind) or _t.is_decimal(kind))


# --- pruning -------------------------------------------------------------------------------------

_OPS = {
    "COMPARE_EQUAL": Op.EQ,
    "COMPARE_NOTEQUAL": Op.NE,
    "COMPARE_LESSTHAN": Op.LT,
    "COMPARE_LESSTHANOREQUALTO": Op.LE,
    "COMPARE_GREATERTHAN": Op.GT,
    "COMPARE_GREATERTHANOREQUALTO": Op.GE,
}
_LIKE, _NOT_LIKE = "~~", "!~~"
_PREFIX = ("starts_with", "prefix", "^@")


def predicate_of(sql: Sql, types: Mapping[str, pa.DataType]) -> Predicate:
    """The predicate for the rows where the condition is true."""
    columns = tuple(Column(name, types[name]) for name in sql.columns)
    try:
        return _Reader(columns, sql.zone).read(sql.tree)
    except RecursionError:
        return UNKNOWN


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the tree of a condition; columns are referred to by number."""

    columns: tuple[Column, ...]
    zone: str

    def read(self, tree: Json) -> Predicate:
        """The predicate of a node; Unknown unless each of its parts is understood."""
        if not isinstance(tree, dict):
            return UNKNOWN
        match tree.get("class"):
            case "CONJUNCTION":
                return self._conjunction(tree)
            case "OPERATOR":
                return self._operator(tree)
            case "COMPARISON":
                return self._comparison(tree)
            case "BETWEEN":
                return self._between(tree)
            case "CONSTANT":
                return _pruned_constant(tree)
            case "COLUMN_REF":
                column = self._column(tree)
                truth = column is not None and pa.types.is_boolean(column.type)
                return compare(column, Op.EQ, pa.scalar(True)) if column and truth else UNKNOWN
            case "FUNCTION":
                return self._call(tree)
            case _:
                return UNKNOWN

    def _conjunction(self, tree: Node) -> Predicate:
        parts = taken(tree, "children")
        if parts is None or not isinstance(parts[0], list):
            return UNKNOWN
        join = {"CONJUNCTION_AND": all_of, "CONJUNCTION_OR": any_of}.get(str(tree["type"]))
        return UNKNOWN if join is None else join(map(self.read, parts[0]))

    def _operator(self, tree: Node) -> Predicate:
        parts = taken(tree, "children")
        if parts is None or not isinstance(parts[0], list):
            return UNKNOWN
        first, *rest = parts[0]
        if tree["type"] == "OPERATOR_NOT" and not rest:
            return negate(self.read(first))
        column = self._column(first)
        if column is None:
            return UNKNOWN
        match tree["type"], rest:
            case "OPERATOR_IS_NULL", []:
                return IsNull(column.name)
            case "OPERATOR_IS_NOT_NULL", []:
                return IsNotNull(column.name)
            case "COMPARE_IN", [_, *_]:
                return self._in(column, rest)
            case _:
                return UNKNOWN

    def _in(self, column: Column, trees: Sequence[Json]) -> Predicate:
        values = _of_one_type(column, [self._literal(tree, column) for tree in trees])
        known = [value for value in values if value is not None]
        return one_of(column, known) if len(known) == len(values) else UNKNOWN

    def _comparison(self, tree: Node) -> Predicate:
        parts = taken(tree, "left", "right")
        if parts is None:
            return UNKNOWN
        left, right = parts
        op = _OPS.get(str(tree["type"]))
        if op is None:
            alike = self._alike(left, right)
            match tree["type"]:
                case "COMPARE_NOT_DISTINCT_FROM":
                    return alike
                case "COMPARE_DISTINCT_FROM":
                    return negate(alike)
                case _:
                    return UNKNOWN
        one, other = self._column(left), self._column(right)
        if one is not None and other is None:
            return self._against(one, op, right)
        if other is not None and one is None:
            return self._against(other, op.mirrored, left)
        return UNKNOWN

    def _alike(self, left: Json, right: Json) -> Predicate:
        """The predicate of IS NOT DISTINCT FROM: null equals null, and no row gives null."""
        cast, constant = cast_of(left), constant_of(right)
        if cast is not None and cast[1] == "BOOLEAN" and constant and constant[0] == "BOOLEAN":
            return self._is_truth(cast[0], wanted=constant[1] == "true")
        column, other = self._column(left), right
        if column is None:
            column, other = self._column(right), left
        value = None if column is None else self._literal(other, column)
        if column is None or value is None:
            return UNKNOWN
        if not value.is_valid:
            return IsNull(column.name)
        return all_of((compare(column, Op.EQ, value), IsNotNull(column.name)))

    def _is_truth(self, tree: Json, *, wanted: bool) -> Predicate:
        column = self._column(tree)
        if column is not None and pa.types.is_boolean(column.type):
            is_value = compare(column, Op.EQ, pa.scalar(wanted))
            return all_of((is_value, IsNotNull(column.name)))
        inner = self.read(tree)
        return at_most(inner if wanted else negate(inner))

    def _between(self, tree: Node) -> Predicate:
        parts = taken(tree, "input", "lower", "upper")
        column = None if parts is None else self._column(parts[0])
        if parts is None or column is None:
            return UNKNOWN
        bounds = [self._literal(bound, column) for bound in parts[1:]]
        low, high = _of_one_type(column, bounds)
        if low is None or high is None:
            return UNKNOWN
        return all_of((compare(column, Op.GE, low), compare(column, Op.LE, high)))

    def _call(self, tree: Node) -> Predicate:
        call = call_of(tree)
        if call is None or len(call[1]) != 2:
            return UNKNOWN
        name, (first, second) = call
        column = self._column(first)
        if column is None:
            return UNKNOWN
        if name in _PREFIX:
            value = self._literal(second, column)
            return UNKNOWN if value is None else starts_with(column, value)
        if name in (_LIKE, _NOT_LIKE):
            found = _like(column, second)
            return negate(found) if name == _NOT_LIKE else found
        return UNKNOWN

    def _against(self, column: Column, op: Op, tree: Json) -> Predicate:
        value = self._literal(tree, column)
        return UNKNOWN if value is None else compare(column, op, value)

    def _literal(self, tree: Json, column: Column) -> pa.Scalar | None:
        return literal(tree, column.type, self.zone)

    def _column(self, tree: Json) -> Column | None:
        if not isinstance(tree, dict) or tree.get("class") != "COLUMN_REF":
            return None
        parts = taken(tree, "column_names")
        if parts is None or not isinstance(parts[0], list) or len(parts[0]) != 1:
            return None
        number = column_number(str(parts[0][0]))
        return self.columns[number] if 0 <= number < len(self.columns) else None


def _pruned_constant(tree: Node) -> Predicate:
    match constant_of(tree):
        case ("BOOLEAN", text):
            return Constant(text == "true")
        case ("NULL_LITERAL", _):
            return NULL
        case _:
            return UNKNOWN


def _of_one_type(column: Column, values: list[pa.Scalar | None]) -> list[pa.Scalar | None]:
    """The literals of a list, converted to one type: if one is a double, all become doubles.

    None for a literal that cannot become a double.
    """
    kinds = [value.type for value in values if value is not None]
    if pa.types.is_floating(column.type) or not any(map(pa.types.is_floating, kinds)):
        return values
    return [
        value
        if value is None or not value.is_valid or pa.types.is_floating(value.type)
        else pa.scalar(float(value.as_py()))
        if pa.types.is_integer(value.type) or pa.types.is_decimal(value.type)
        else None
        for value in values
    ]


def _like(column: Column, pattern: Json) -> Predicate:
    """The predicate of LIKE: exact if the only wildcard is a `%` at the end; else by the prefix."""
    constant = constant_of(pattern)
    if constant is None or constant[0] != "STRING":
        return UNKNOWN
    text = constant[1]
    stop = min((at for at in (text.find("%"), text.find("_")) if at >= 0), default=len(text))
    if stop == len(text):
        return compare(column, Op.EQ, pa.scalar(text))
    found = starts_with(column, pa.scalar(text[:stop]))
    return found if text[stop:] == "%" else at_most(found)
