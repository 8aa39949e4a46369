"""Row filters and column masks that a catalog states for the readers of a table.

A filter keeps the rows for which it is true; a mask replaces the values of a column. Both read the
stored values: a mask never changes what a filter, or another mask, sees.

Values compare as in Java:

- a condition on a null is false, except IS_NULL;
- text compares by its UTF-8 bytes;
- NaN is equal to itself and above all other numbers, and -0.0 is below 0.0.

`read_rules_json.py` makes these values from the texts of a server.
https://paimon.apache.org/docs/master/concepts/rest/overview/
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.merge.keys import order_columns
from lakecore.rows.casts import cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.model.types import Atomic

Literal: TypeAlias = bool | int | float | str | None

_ANY_CHARACTER = r"[^\n\r\x{85}\x{2028}\x{2029}]"


class Kind(Enum):
    """How the values of an operand compare; values of kind OTHER are only tested for null."""

    TRUTH = "truth"
    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ColumnOf:
    """The value of a column."""

    name: str


@dataclass(frozen=True, slots=True)
class CastOf:
    """The value of a column, cast to a type."""

    name: str
    source: Atomic
    target: Atomic


@dataclass(frozen=True, slots=True)
class TextOf:
    """A text function (a key of `_TEXT_FUNCTIONS`) of columns and fixed texts."""

    function: str
    inputs: tuple[ColumnOf | str | None, ...]


@dataclass(frozen=True, slots=True)
class Nothing:
    """Null for every row."""


Value: TypeAlias = ColumnOf | CastOf | TextOf | Nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A test (a key of `TESTS`) of one value."""

    value: Value
    kind: Kind
    test: str
    literals: tuple[Literal, ...] = ()

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """For each row, whether the test is true; never null."""
        found = TESTS[self.test](_Operand(_computed(self.value, rows), self.kind), self.literals)
        return pc.fill_null(found, fill_value=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Conditions of which all, or one, must be true."""

    all_true: bool
    parts: tuple[Condition, ...]

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """For each row, whether the group is true; never null."""
        join = pc.and_ if self.all_true else pc.or_
        none = pa.array(np.full(rows.num_rows, self.all_true))
        return reduce(join, (part.mask(rows) for part in self.parts), none)


Condition: TypeAlias = Leaf | Group


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRules:
    """What a reader of a table must apply: a filter of rows, and the masks of columns by name."""

    row_filter: Condition | None = None
    masks: Mapping[str, Value] = field(default_factory=dict)

    def inputs(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns to read so that the rules can be applied to a read of `columns`."""
        found = [] if self.row_filter is None else list(inputs_of(self.row_filter))
        for name in columns:
            if name in self.masks:
                found += inputs_of(self.masks[name])
        return tuple(dict.fromkeys(found))

    def apply(self, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """The rows that the filter keeps, with the columns of `schema`, masked.

        The filter does not keep rows for which it cannot be computed. Raises InvalidRequest if a
        mask cannot be computed for a row.
        """
        if self.row_filter is not None:
            rows = rows.filter(judged(self.row_filter, rows))
        columns = [
            _computed(self.masks[each.name], rows).cast(each.type)
            if each.name in self.masks
            else rows.column(each.name)
            for each in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def judged(condition: Condition, rows: pa.RecordBatch) -> pa.Array:
    """For each row, whether the condition is true; false if it cannot be computed."""
    try:
        return condition.mask(rows)
    except InvalidRequest:
        if rows.num_rows <= 1:
            return pa.array(np.zeros(rows.num_rows, np.bool_))
        half = rows.num_rows // 2
        return pa.concat_arrays(
            [judged(condition, part) for part in (rows.slice(0, half), rows.slice(half))]
        )


def inputs_of(rule: Condition | Value) -> tuple[str, ...]:
    """The columns that a condition or a value reads."""
    match rule:
        case Group():
            return tuple(name for part in rule.parts for name in inputs_of(part))
        case Leaf():
            return inputs_of(rule.value)
        case ColumnOf() | CastOf():
            return (rule.name,)
        case TextOf():
            return tuple(each.name for each in rule.inputs if isinstance(each, ColumnOf))
        case Nothing():
            return ()


def _computed(value: Value, rows: pa.RecordBatch) -> pa.Array:
    match value:
        case ColumnOf(name):
            return rows.column(name)
        case CastOf(name, source, target):
            return cast(rows.column(name), source, target, name)
        case TextOf(function, inputs):
            texts = [
                rows.column(each.name).cast(pa.string())
                if isinstance(each, ColumnOf)
                else pa.repeat(pa.scalar(each, pa.string()), rows.num_rows)
                for each in inputs
            ]
            return _TEXT_FUNCTIONS[function](texts, rows.num_rows)
        case Nothing():
            return pa.nulls(rows.num_rows)


# --- text functions -------------------------------------------------------------------------------


def _concat(texts: Sequence[pa.Array], count: int) -> pa.Array:
    if not texts:
        return pa.repeat(pa.scalar(""), count)
    return pc.binary_join_element_wise(*texts, pa.scalar(""), null_handling="emit_null")


def _concat_ws(texts: Sequence[pa.Array], count: int) -> pa.Array:
    """Join the other texts by the first one, skipping nulls; null if the first text is null."""
    del count
    separator, first, *rest = texts
    # Arrow has no result for a row without any text; in Java, it is empty.
    held = reduce(pc.or_, (each.is_valid() for each in texts[1:]))
    parts = (pc.if_else(held, first, ""), *rest)
    joined = pc.binary_join_element_wise(*parts, pc.fill_null(separator, ""), null_handling="skip")
    return pc.if_else(separator.is_valid(), joined, pa.scalar(None, pa.string()))


def _upper(texts: Sequence[pa.Array], count: int) -> pa.Array:
    del count
    return _by_polars(texts[0], pl.col("text").str.to_uppercase())


def _lower(texts: Sequence[pa.Array], count: int) -> pa.Array:
    del count
    return _by_polars(texts[0], pl.col("text").str.to_lowercase())


def _by_polars(texts: pa.Array, expression: pl.Expr) -> pa.Array:
    """Apply a Polars expression to texts: as in Java, the capital of ß is SS, unlike in Arrow."""
    frame = pl.DataFrame({"text": pl.Series(texts, dtype=pl.String)})
    return frame.select(expression).to_series().to_arrow().cast(pa.string())


_TEXT_FUNCTIONS: Mapping[str, Callable[[Sequence[pa.Array], int], pa.Array]] = {
    "CONCAT": _concat,
    "CONCAT_WS": _concat_ws,
    "UPPER": _upper,
    "LOWER": _lower,
}


# --- tests ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Operand:
    """The values that a test reads, and how they compare."""

    values: pa.Array
    kind: Kind

    @property
    def ordered(self) -> pa.Array:
        """The values in a form that Arrow compares as Java compares the values."""
        match self.kind:
            case Kind.TRUTH:
                return self.values.cast(pa.int8())
            case Kind.INTEGER:
                return self.values.cast(pa.int64())
            case Kind.NUMBER:
                return _in_total_order(self.values.cast(pa.float64()))
            case Kind.TEXT:
                return self.values.cast(pa.string())
            case Kind.OTHER:
                raise AssertionError("these values are only tested for null")

    def literal(self, value: Literal) -> pa.Scalar:
        """A literal that compares with `ordered`."""
        match self.kind:
            case Kind.TRUTH:
                return pa.scalar(None if value is None else int(value), pa.int8())
            case Kind.INTEGER:
                return pa.scalar(value, pa.int64())
            case Kind.NUMBER:
                return _in_total_order(pa.array([value], pa.float64()))[0]
            case _:
                return pa.scalar(value, pa.string())

    def literals(self, values: Sequence[Literal]) -> pa.Array:
        """The literals that are not null."""
        found = [self.literal(value).as_py() for value in values if value is not None]
        return pa.array(found, self.ordered.type)


def _in_total_order(values: pa.Array) -> pa.Array:
    """Integers in the order of the numbers: -0.0 below 0.0, and NaN above all others."""
    keys = order_columns([pc.fill_null(values, 0.0)]).columns[0]
    return pa.array(keys, pa.int64(), mask=~values.is_valid().to_numpy(zero_copy_only=False))


def _comparison(name: str) -> Callable[[_Operand, tuple[Literal, ...]], pa.Array]:
    def test(of: _Operand, literals: tuple[Literal, ...]) -> pa.Array:
        return pc.call_function(name, [of.ordered, of.literal(literals[0])])

    return test


def _between(of: _Operand, literals: tuple[Literal, ...]) -> pa.Array:
    values = of.ordered
    low = pc.greater_equal(values, of.literal(literals[0]))
    return pc.and_(low, pc.less_equal(values, of.literal(literals[1])))


def _not_between(of: _Operand, literals: tuple[Literal, ...]) -> pa.Array:
    values = of.ordered
    # With a null bound, both comparisons must count as false: `and` of nulls is null.
    below = pc.less(values, of.literal(literals[0]))
    return pc.or_(below, pc.greater(values, of.literal(literals[1])))


def _is_in(of: _Operand, literals: tuple[Literal, ...]) -> pa.Array:
    return pc.is_in(of.ordered, value_set=of.literals(literals))


def _not_in(of: _Operand, literals: tuple[Literal, ...]) -> pa.Array:
    if None in literals:
        return _never(of, ())
    return pc.and_(of.values.is_valid(), pc.invert(_is_in(of, literals)))


def _like(of: _Operand, literals: tuple[Literal, ...]) -> pa.Array:
    pattern = literals[0]
    if pattern is None:
        return _never(of, ())
    parts = {"%": "(?s:.*)", "_": _ANY_CHARACTER}
    text = "".join(parts.get(char) or _quoted(char) for char in str(pattern))
    return pc.match_substring_regex(of.ordered, rf"\A(?:{text})\z")


def _quoted(char: str) -> str:
    return char if char.isalnum() or ord(char) > 127 else rf"\x{{{ord(char):x}}}"


def _text_test(name: str) -> Callable[[_Operand, tuple[Literal, ...]], pa.Array]:
    find = getattr(pc, name)

    def test(of: _Operand, literals: tuple[Literal, ...]) -> pa.Array:
        pattern = literals[0]
        return _never(of, ()) if pattern is None else find(of.ordered, str(pattern))

    return test


def _always(of: _Operand, literals: tuple[Literal, ...]) -> pa.Array:
    del literals
    return pa.array(np.ones(len(of.values), np.bool_))


def _never(of: _Operand, literals: tuple[Literal, ...]) -> pa.Array:
    del literals
    return pa.array(np.zeros(len(of.values), np.bool_))


TESTS: Mapping[str, Callable[[_Operand, tuple[Literal, ...]], pa.Array]] = {
    "EQUAL": _comparison("equal"),
    "NOT_EQUAL": _comparison("not_equal"),
    "LESS_THAN": _comparison("less"),
    "LESS_OR_EQUAL": _comparison("less_equal"),
    "GREATER_THAN": _comparison("greater"),
    "GREATER_OR_EQUAL": _comparison("greater_equal"),
    "BETWEEN": _between,
    "NOT_BETWEEN": _not_between,
    "IN": _is_in,
    "NOT_IN": _not_in,
    "IS_NULL": lambda of, _: of.values.is_null(),
    "IS_NOT_NULL": lambda of, _: of.values.is_valid(),
    "STARTS_WITH": _text_test("starts_with"),
    "ENDS_WITH": _text_test("ends_with"),
    "CONTAINS": _text_test("match_substring"),
    "LIKE": _like,
    "TRUE": _always,
    "FALSE": _never,
}
