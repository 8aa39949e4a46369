"""Parses the row filter and the column masks of a table from the JSON of a REST server.

The texts are Paimon's JSON of predicates and transforms. Columns are found by their names: the
server's positions are those of its own schema.

INVARIANT: a rule that is not known here raises Unsupported. No rule is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import (
    INTEGERS,
    STRINGS,
    Atomic,
    DataType,
    Root,
    parse_type,
    with_nullable,
)
from lakecore.rows.casts import rule_of
from lakecore.rows.read_rules import (
    TESTS,
    CastOf,
    ColumnOf,
    Condition,
    Group,
    Kind,
    Leaf,
    Literal,
    Nothing,
    ReadRules,
    TextOf,
    Value,
)

if TYPE_CHECKING:
    from lakecore.model.schema import TableSchema

_Object: TypeAlias = Mapping[str, object]

_STRING = parse_type("STRING")
_COUNTS = {"BETWEEN": 2, "NOT_BETWEEN": 2, "IS_NULL": 0, "IS_NOT_NULL": 0, "TRUE": 0, "FALSE": 0}
"""The number of literals of these tests; of the others, only IN and NOT_IN may have several."""
_ANY_COUNT = ("IN", "NOT_IN")
_ONE_ROW = pa.RecordBatch.from_arrays([pa.nulls(1)], [""])
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
