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

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.merge.keys import order_columns
from lakecore.model.types import (
    INTEGERS,
    STRINGS,
    Atomic,
    DataType,
    Root,
    parse_type,
    with_nullable,
)
from lakecore.rows.casts import cast, rule_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.model.schema import TableSchema

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

    def keeps(self, rows: pa.RecordBatch) -> pa.Array:
        """For each row, whether the filter keeps it; false if it cannot be computed."""
        if self.row_filter is None:
            return pa.array(np.ones(rows.num_rows, np.bool_))
        return judged(self.row_filter, rows)

    def apply(self, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """The rows that the filter keeps, with the columns of `schema`, masked.

        The filter does not keep rows for which it cannot be computed. Raises InvalidRequest if a
        mask cannot be computed for a row.
        """
        if self.row_filter is not None:
            rows = rows.filter(self.keeps(rows))
        columns = [
            _as_type(_computed(self.masks[each.name], rows), each.type)
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


def _as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    return values if values.type == kind else values.cast(kind)


# --- text functions -------------------------------------------------------------------------------


def _concat(texts: Sequence[pa.Array], count: int) -> pa.Array:
    if not texts:
        return pa.repeat(pa.scalar(""), count)
    return pc.binary_join_element_wise(*texts, pa.scalar(""), null_handling="emit_null")


def _concat_ws(texts: Sequence[pa.Array], count: int) -> pa.Array:
    """The texts after the first one, joined by it, without nulls; null if the first one is null."""
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
        """Values that compare in Arrow as these compare in Java."""
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


# --- read rules json -----------------------------------------------------------------------------
# Parses the row filter and the column masks of a table from the JSON of a REST server.
#
# The texts are Paimon's JSON of predicates and transforms. Columns are found by their names: the
# server's positions are those of its own schema.
#
# INVARIANT: a rule that is not known here raises Unsupported. No rule is skipped.

_Object: TypeAlias = Mapping[str, object]

_STRING = parse_type("STRING")
_COUNTS = {"BETWEEN": 2, "NOT_BETWEEN": 2, "IS_NULL": 0, "IS_NOT_NULL": 0, "TRUE": 0, "FALSE": 0}
"""The number of literals of these tests; of the others, only IN and NOT_IN may have several."""
_ANY_COUNT = ("IN", "NOT_IN")
_ONE_ROW = pa.RecordBatch.from_pydict({"": [None]})
_TEXT_TESTS = ("STARTS_WITH", "ENDS_WITH", "CONTAINS", "LIKE")
_INPUTS_MAX = 1 << 16
_TEXT_INPUTS = {
    "UPPER": range(1, 2),
    "LOWER": range(1, 2),
    "CONCAT": range(_INPUTS_MAX),
    "CONCAT_WS": range(2, _INPUTS_MAX),
}
"""How many inputs a text function has."""
_BITS = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}


@dataclass(frozen=True, slots=True)
class StatedRules:
    """What a server states: JSON texts of filters, all of which must be true, and of masks."""

    filters: tuple[str, ...] = ()
    masks: Mapping[str, str] | None = None


def parse_rules(stated: StatedRules, schema: TableSchema, table: str) -> ReadRules:
    """The rules for a read with the columns of `schema`.

    Raises Unsupported for a rule that is not known, or that does not fit the columns.
    """
    reader = _Reader(schema, table)
    # Java skips empty texts and nulls.
    try:
        filters = [
            reader.condition(each)
            for text in stated.filters
            if (each := reader.parsed(text)) is not None
        ]
        masks = {
            name: reader.mask(name, each)
            for name, text in (stated.masks or {}).items()
            if (each := reader.parsed(text)) is not None
        }
    except RecursionError:
        raise Unsupported(
            "the catalog's rules for readers are nested too deep", table=table
        ) from None
    if not filters:
        return ReadRules(masks=masks)
    return ReadRules(row_filter=Group(all_true=True, parts=tuple(filters)), masks=masks)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the rules of one table."""

    schema: TableSchema
    table: str

    def parsed(self, text: str) -> _Object | None:
        if not text:
            return None
        try:
            found = json.loads(text)
        except ValueError as error:
            raise self._refusal("a text that is not JSON") from error
        return None if found is None else self._object(found)

    def condition(self, given: object) -> Condition:
        found = self._object(given)
        match found.get("kind"):
            case "COMPOUND":
                self._only(found, "kind", "function", "children")
                function, children = found.get("function"), found.get("children")
                if function not in ("AND", "OR") or not isinstance(children, list):
                    raise self._refusal("a compound predicate", function)
                if not children:
                    raise self._refusal("a compound predicate without parts", function)
                parts = tuple(map(self.condition, children))
                return Group(all_true=function == "AND", parts=parts)
            case "LEAF":
                self._only(found, "kind", "transform", "function", "literals")
                return self._leaf(found)
            case kind:
                raise self._refusal("a kind of predicate", kind)

    def mask(self, column: str, given: _Object) -> Value:
        """The value that replaces a column. A column that the table lacks is checked elsewhere."""
        value, kind = self._value(given)
        field = self.schema.by_name.get(column)
        if field is None or kind is None:
            return value
        own = with_nullable(field.type, nullable=True)
        texts = _is_text(own) and _is_text(kind)
        if not texts and with_nullable(kind, nullable=True) != own:
            raise self._refusal(
                f"a mask of another type than its column {column}", given.get("name")
            )
        return value

    def _leaf(self, found: _Object) -> Leaf:
        test, stated = found.get("function"), found.get("literals")
        if not isinstance(test, str) or test not in TESTS:
            raise self._refusal("a test", test)
        literals = [] if stated is None else stated
        if not isinstance(literals, list):
            raise self._refusal("literals", test)
        count = _COUNTS.get(test, 1)
        if test not in _ANY_COUNT and len(literals) != count:
            raise self._refusal(f"a number of literals ({len(literals)})", test)
        if test in _ANY_COUNT and stated is None:
            raise self._refusal("a list without literals", test)
        transform = self._object(found.get("transform"))
        value, kind = self._value(transform)
        if count == 0:
            return Leaf(value=value, kind=Kind.OTHER, test=test)
        compared = Kind.TRUTH if kind is None else _kind_of(kind)
        if test in _TEXT_TESTS and compared is not Kind.TEXT:
            raise self._refusal("a test of values that are not text", test)
        if compared is Kind.OTHER:
            raise self._refusal(f"a literal of type {kind}", test)
        if transform.get("name") == "FIELD_REF":
            self._same_type(transform.get("fieldRef"))
        kept = tuple(self._literal(each, kind, test) for each in literals)
        if compared is Kind.TEXT:
            probe = Leaf(value=TextOf("CONCAT", ("",)), kind=compared, test=test, literals=kept)
            try:
                probe.mask(_ONE_ROW)
            except pa.ArrowInvalid as error:
                raise self._refusal("a pattern that is too long", test) from error
        return Leaf(value=value, kind=compared, test=test, literals=kept)

    def _value(self, given: object) -> tuple[Value, DataType | None]:
        """A value and its type; the type of null is None."""
        found = self._object(given)
        match name := found.get("name"):
            case "FIELD_REF":
                self._only(found, "name", "fieldRef")
                column = self._column(found.get("fieldRef"))
                return ColumnOf(column), self.schema.field(column).type
            case "NULL":
                self._only(found, "name")
                return Nothing(), None
            case "CAST":
                self._only(found, "name", "fieldRef", "type")
                return self._cast(found)
            case str() if name in _TEXT_INPUTS:
                self._only(found, "name", "inputs")
                inputs = found.get("inputs")
                if not isinstance(inputs, list) or len(inputs) not in _TEXT_INPUTS[name]:
                    raise self._refusal("the inputs of a transform", name)
                return TextOf(name, tuple(map(self._input, inputs))), _STRING
            case _:
                raise self._refusal("a transform", name)

    def _cast(self, found: _Object) -> tuple[Value, DataType]:
        column = self._column(found.get("fieldRef"))
        self._same_type(found.get("fieldRef"))
        source, target = self.schema.field(column).type, self._type(found.get("type"))
        if not isinstance(source, Atomic) or not isinstance(target, Atomic):
            raise self._refusal("a cast of nested values", "CAST")
        if with_nullable(source, nullable=True) != with_nullable(target, nullable=True):
            try:
                rule_of(source, target, column)
            except Unsupported as error:
                raise self._refusal(f"a cast to {target}", source) from error
        return CastOf(column, source, target), target

    def _input(self, given: object) -> ColumnOf | str | None:
        if given is None or isinstance(given, str):
            return given
        column = self._column(given)
        if not _is_text(self.schema.field(column).type):
            raise self._refusal(
                f"a text function of the column {column}", self.schema.field(column).type
            )
        return ColumnOf(column)

    def _column(self, given: object) -> str:
        found = self._object(given)
        self._only(found, "index", "name", "type")
        name = found.get("name")
        if not isinstance(name, str) or name not in self.schema.by_name:
            raise Unsupported(
                "a rule of the catalog for readers names a column that this state of the table "
                "does not have",
                column=name,
                columns=self.schema.names,
                table=self.table,
            )
        return name

    def _same_type(self, given: object) -> None:
        """Raise Unsupported unless the server states the type that the column has.

        Literals are values of the stated type.
        """
        found = self._object(given)
        stated, own = self._type(found.get("type")), self.schema.field(str(found["name"])).type
        if _is_text(stated) and _is_text(own):
            return
        if with_nullable(stated, nullable=True) != with_nullable(own, nullable=True):
            raise self._refusal(f"another type of the column {found['name']} ({own})", stated)

    def _type(self, given: object) -> DataType:
        if not isinstance(given, str):
            raise self._refusal("a type", given)
        try:
            return parse_type(given)
        except (InvalidRequest, Unsupported) as error:
            raise self._refusal("a type", given) from error

    def _literal(self, given: object, kind: DataType | None, test: str) -> Literal:
        if given is None:
            return None
        root = kind.root if isinstance(kind, Atomic) else None
        whole = isinstance(given, int) and not isinstance(given, bool)
        if root in (Root.BOOLEAN, None) and isinstance(given, bool):
            return given
        if root in INTEGERS and isinstance(given, int) and whole:
            bits = _BITS[root]
            if -(1 << bits - 1) <= given < 1 << bits - 1:
                return given
        if root in (Root.FLOAT, Root.DOUBLE) and (whole or isinstance(given, float)):
            assert isinstance(given, int | float)
            with np.errstate(over="ignore"):
                return float(np.float32(given)) if root is Root.FLOAT else float(given)
        if root in STRINGS and isinstance(given, str) and not (test == "LIKE" and "\\" in given):
            return given
        raise self._refusal(f"a literal for values of type {kind}", test)

    def _object(self, given: object) -> _Object:
        if not isinstance(given, dict):
            raise self._refusal("a part that is no object", type(given).__name__)
        return given

    def _only(self, found: _Object, *keys: str) -> None:
        """Raise Unsupported if a rule has a key that is not one of `keys`."""
        for key in found:
            if key not in keys:
                raise self._refusal("a key", key)

    def _refusal(self, what: str, found: object = None) -> Unsupported:
        return Unsupported(
            f"the catalog filters or masks the rows of this table by a rule with {what} that is "
            "not supported; reading without it would show hidden values",
            found=found,
            table=self.table,
        )


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, Atomic) and kind.root in STRINGS


def _kind_of(kind: DataType) -> Kind:
    if not isinstance(kind, Atomic):
        return Kind.OTHER
    if kind.root in STRINGS:
        return Kind.TEXT
    if kind.root in INTEGERS:
        return Kind.INTEGER
    if kind.root in (Root.FLOAT, Root.DOUBLE):
        return Kind.NUMBER
    return Kind.TRUTH if kind.root is Root.BOOLEAN else Kind.OTHER
