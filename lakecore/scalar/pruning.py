"""SQL conditions as predicates of lakecore's predicate language, to prune files.

INVARIANT: a node is read only if each of its parts is understood (`literals.taken`). Any other node
makes the smallest condition that contains it Unknown. An exact predicate has the same meaning in
Polars and in DuckDB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from lakecore.scalar.literals import call_of, cast_of, constant_of, literal, taken
from lakecore.scalar.syntax import column_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.scalar.engine import Json, Node
    from lakecore.scalar.syntax import Sql

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
                return _constant(tree)
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
        """The predicate of IS NOT DISTINCT FROM: null equals null, and it is never null itself."""
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


def _constant(tree: Node) -> Predicate:
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
