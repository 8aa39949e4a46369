"""Paimon's logical types as values: atomic types, and types that have other types as parts.

Types are hashable and never changed in place; two types are equal if they mean the same. Types
print as in Paimon: `DECIMAL(10, 2) NOT NULL`, `ARRAY<INT>`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from lakecore.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LENGTH_MAX = 2_147_483_647


class Root(StrEnum):
    """The name of an atomic type, as Paimon writes it."""

    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BOOLEAN = "BOOLEAN"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    BLOB = "BLOB"
    DECIMAL = "DECIMAL"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP WITH LOCAL TIME ZONE"


STRINGS = frozenset({Root.CHAR, Root.VARCHAR})
BINARIES = frozenset({Root.BINARY, Root.VARBINARY, Root.BLOB})
INTEGERS = (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT)
TIMESTAMPS = frozenset({Root.TIMESTAMP, Root.TIMESTAMP_LTZ})


@dataclass(frozen=True, slots=True, kw_only=True)
class Atomic:
    """A type without parts. `length` for strings and binaries, `precision` and `scale` for numbers.

    `precision` is also the count of fraction digits of TIME and TIMESTAMP.
    """

    root: Root
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    nullable: bool = True

    @property
    def digits(self) -> int:
        """The precision; 0 for a type without one."""
        return self.precision or 0

    @property
    def decimals(self) -> int:
        """The scale; 0 for a type without one."""
        return self.scale or 0

    def __str__(self) -> str:
        return self._bare() + ("" if self.nullable else " NOT NULL")

    def _bare(self) -> str:
        match self.root:
            case Root.VARCHAR if self.length == LENGTH_MAX:
                return "STRING"
            case Root.VARBINARY if self.length == LENGTH_MAX:
                return "BYTES"
            case Root.CHAR | Root.VARCHAR | Root.BINARY | Root.VARBINARY:
                return f"{self.root}({self.length})"
            case Root.DECIMAL:
                return f"DECIMAL({self.precision}, {self.scale})"
            case Root.TIME | Root.TIMESTAMP:
                return f"{self.root}({self.precision})"
            case Root.TIMESTAMP_LTZ:
                return f"TIMESTAMP({self.precision}) WITH LOCAL TIME ZONE"
            case _:
                return str(self.root)


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """A list of elements of one type."""

    element: DataType
    nullable: bool = True

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector(Array):
    """A list of `length` numbers or truth values, none of which is null; in Arrow a list."""

    length: int

    def __str__(self) -> str:
        return f"VECTOR<{self.element}, {self.length}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiset:
    """Elements with their counts; in Arrow a map of element to int32."""

    element: DataType
    nullable: bool = True

    def __str__(self) -> str:
        return f"MULTISET<{self.element}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """Keys with their values. A null key is never valid."""

    key: DataType
    value: DataType
    nullable: bool = True

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Named fields, each with an id of its own."""

    fields: tuple[Field, ...]
    nullable: bool = True

    def __str__(self) -> str:
        inner = ", ".join(f"{_quoted(field.name)} {field.type}" for field in self.fields)
        return f"ROW<{inner}>" + ("" if self.nullable else " NOT NULL")


DataType: TypeAlias = Atomic | Array | Multiset | Map | Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column, or a field inside a ROW, which its `id` identifies in the schema of each file."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default_value: str | None = None

    @property
    def nullable(self) -> bool:
        """Whether null is a value of this field."""
        return self.type.nullable


VALUE, METADATA = "value", "metadata"


def _binary(number: int, name: str) -> Field:
    kind = Atomic(root=Root.VARBINARY, length=LENGTH_MAX, nullable=False)
    return Field(id=number, name=name, type=kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant(Row):
    """A type whose values each have their own type, such as a number, a text, a list or an object.

    A value is stored as two binaries: `metadata` has the names that occur in objects, `value` the
    rest (https://github.com/apache/parquet-format/blob/master/VariantEncoding.md).
    """

    fields: tuple[Field, ...] = (_binary(0, VALUE), _binary(1, METADATA))

    def __str__(self) -> str:
        return "VARIANT" + ("" if self.nullable else " NOT NULL")


def with_nullable(data_type: DataType, nullable: bool) -> DataType:  # noqa: FBT001
    """The same type, nullable or not."""
    return replace(data_type, nullable=nullable)


_COUNT = Atomic(root=Root.INT, nullable=False)
"""The type of the count of a MULTISET element."""


def inner_types(data_type: DataType) -> tuple[DataType, ...]:
    """The element types of a type, in the order of the children of its Arrow array."""
    match data_type:
        case Atomic():
            return ()
        case Array():
            return (data_type.element,)
        case Multiset():
            return (data_type.element, _COUNT)
        case Map():
            return (data_type.key, data_type.value)
        case Row():
            return tuple(field.type for field in data_type.fields)


def has_variant(data_type: DataType) -> bool:
    """Whether a type is VARIANT, or has a part of this type."""
    return isinstance(data_type, Variant) or any(map(has_variant, inner_types(data_type)))


def has_vector(data_type: DataType) -> bool:
    """Whether a type is VECTOR, or has a part of this type."""
    return isinstance(data_type, Vector) or any(map(has_vector, inner_types(data_type)))


def is_blob(data_type: DataType) -> bool:
    """Whether the values of a column of this type are stored in separate files.

    The type is BLOB, a list of BLOB, or a map to BLOB.
    """
    match data_type:
        case Array(element=inner) | Map(value=inner):
            return isinstance(inner, Atomic) and inner.root is Root.BLOB
        case Atomic():
            return data_type.root is Root.BLOB
        case _:
            return False


def leaves(data_type: DataType) -> Iterator[Atomic]:
    """The atomic types inside a type; the type itself, if it is atomic."""
    match data_type:
        case Atomic():
            yield data_type
        case Array() | Multiset():
            yield from leaves(data_type.element)
        case Map():
            yield from leaves(data_type.key)
            yield from leaves(data_type.value)
        case Row():
            for field in data_type.fields:
                yield from leaves(field.type)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# --- type text -----------------------------------------------------------------------------------
# Parses and prints Paimon's types as text and as the JSON of a schema file.
#
# Text form (https://paimon.apache.org/docs/master/concepts/spec/schema/): `DECIMAL(10, 2) NOT
# NULL`. Nested types are JSON objects in a schema file, and `ARRAY<INT>`, `MAP<STRING, INT>`,
# `ROW<x INT, y STRING NOT NULL COMMENT 'name'>` in text. The parser ignores case and blanks.

_IDS = range(-(1 << 31), 1 << 31)
_DEPTH_MAX = 100
"""The deepest nesting that the recursion limit of Python allows. New tables have a lower limit."""
_DIGITS_MAX = 10
_UNKNOWN_TO_US = frozenset({"GEOMETRY", "GEOGRAPHY"})
_VECTOR_ROOTS = frozenset(
    {Root.BOOLEAN, Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT, Root.FLOAT, Root.DOUBLE}
)

Json: TypeAlias = "str | Mapping[str, Json] | Sequence[Json] | int | bool | None"

_TOKEN = re.compile(
    r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^']|'')*')|([A-Za-z_][A-Za-z0-9_$]*)|(\d+)|(.))", re.DOTALL
)


def parse_type(source: Json, *, context: str = "", depth: int = 0) -> DataType:
    """The type that a schema file's JSON, or a type text such as `DECIMAL(10, 2)`, describes.

    ROW fields in text get the ids 0, 1, ... ; creating a table assigns new ids. `depth` is the
    number of types around this one. Raises InvalidRequest for anything that is not a type;
    Unsupported for types without support, and for types nested too deeply.
    """
    check_depth(depth, context)
    if isinstance(source, str):
        parser = _TypeText(source, context, depth)
        data_type = parser.type()
        parser.end()
        return data_type
    if not isinstance(source, dict):
        raise InvalidRequest("a type is a string or a JSON object", type=source, column=context)
    head = str(source.get("type", "")).strip().upper()
    nullable = not re.search(r"\bNOT\s+NULL$", head)
    root = re.split(r"[\s<(]", head, maxsplit=1)[0]
    try:
        match root:
            case "ARRAY":
                element = parse_type(source["element"], context=context, depth=depth + 1)
                return Array(element=element, nullable=nullable)
            case "VECTOR":
                element = parse_type(source["element"], context=context, depth=depth + 1)
                return vector(element, source["length"], context, nullable=nullable)
            case "MULTISET":
                element = parse_type(source["element"], context=context, depth=depth + 1)
                return Multiset(element=element, nullable=nullable)
            case "MAP":
                key = parse_type(source["key"], context=context, depth=depth + 1)
                value = parse_type(source["value"], context=context, depth=depth + 1)
                return Map(key=key, value=value, nullable=nullable)
            case "ROW":
                fields = source["fields"]
                if not isinstance(fields, list):
                    raise InvalidRequest("the fields of a ROW are a list", column=context)
                inner = tuple(parse_field(each, depth=depth + 1) for each in fields)
                return Row(fields=inner, nullable=nullable)
            case _:
                if root in _UNKNOWN_TO_US:
                    raise Unsupported("the type is not supported", type=root, column=context)
                raise InvalidRequest("unknown type", type=source, column=context)
    except KeyError as error:
        raise InvalidRequest(
            "a nested type lacks an inner type", type=root, part=error.args[0], column=context
        ) from error


def vector(element: DataType, length: Json, column: str, *, nullable: bool = True) -> Vector:
    """The type VECTOR with these parts. Raises InvalidRequest for invalid parts."""
    is_length = isinstance(length, int) and not isinstance(length, bool)
    if not is_length or not 1 <= length <= LENGTH_MAX:  # type: ignore[operator]
        raise InvalidRequest(
            f"the length of a VECTOR is a number from 1 to {LENGTH_MAX}",
            length=length,
            column=column,
        )
    if not isinstance(element, Atomic) or element.root not in _VECTOR_ROOTS:
        raise InvalidRequest(
            "the elements of a VECTOR are numbers or truth values", element=element, column=column
        )
    assert isinstance(length, int)
    return Vector(element=element, length=length, nullable=nullable)


def check_depth(depth: int, column: str) -> None:
    """Raise Unsupported for a type that is nested too deeply to read its values."""
    if depth > _DEPTH_MAX:
        raise Unsupported("the type is nested too deeply", most=_DEPTH_MAX, column=column)


def parse_field(source: Json, *, depth: int = 0) -> Field:
    """The field that a schema file's JSON describes; `depth` is the number of types around it."""
    if not isinstance(source, dict) or not {"id", "name", "type"} <= source.keys():
        raise InvalidRequest("a field needs id, name and type", field=source)
    name, number = source["name"], source["id"]
    if not isinstance(name, str):
        raise InvalidRequest("the name of a field must be a string", name=name)
    if not isinstance(number, int) or isinstance(number, bool) or number not in _IDS:
        raise InvalidRequest("the id of a field must be a number", column=name, id=number)
    description, default = source.get("description"), source.get("defaultValue")
    return Field(
        id=number,
        name=name,
        type=parse_type(source["type"], context=name, depth=depth),
        description=None if description is None else str(description),
        default_value=None if default is None else str(default),
    )


def type_to_json(data_type: DataType) -> Json:
    """The type as a schema file stores it."""
    suffix = "" if data_type.nullable else " NOT NULL"
    match data_type:
        case Atomic() | Variant():
            return str(data_type)
        case Vector():
            return {
                "type": "VECTOR" + suffix,
                "element": type_to_json(data_type.element),
                "length": data_type.length,
            }
        case Array():
            return {"type": "ARRAY" + suffix, "element": type_to_json(data_type.element)}
        case Multiset():
            return {"type": "MULTISET" + suffix, "element": type_to_json(data_type.element)}
        case Map():
            return {
                "type": "MAP" + suffix,
                "key": type_to_json(data_type.key),
                "value": type_to_json(data_type.value),
            }
        case Row():
            return {"type": "ROW" + suffix, "fields": [field_to_json(f) for f in data_type.fields]}


def field_to_json(field: Field) -> Json:
    """The field as a schema file stores it; absent parts are left out."""
    out: dict[str, Json] = {"id": field.id, "name": field.name, "type": type_to_json(field.type)}
    if field.description is not None:
        out["description"] = field.description
    if field.default_value is not None:
        out["defaultValue"] = field.default_value
    return out


class _TypeText:
    """A cursor over the tokens of one type text."""

    def __init__(self, text: str, context: str, depth: int) -> None:
        self.text = text
        self.context = context
        self.depth = depth
        self.tokens: list[str] = [
            next(part for part in match.groups() if part is not None)
            for match in _TOKEN.finditer(text.strip())
        ]
        self.at = 0

    def fail(self, why: str = "unknown type") -> InvalidRequest:
        return InvalidRequest(why, type=self.text, column=self.context)

    def peek(self) -> str:
        return self.tokens[self.at].upper() if self.at < len(self.tokens) else ""

    def take(self, *expected: str) -> bool:
        ahead = [token.upper() for token in self.tokens[self.at : self.at + len(expected)]]
        if ahead != list(expected):
            return False
        self.at += len(expected)
        return True

    def need(self, token: str) -> None:
        if not self.take(token):
            raise self.fail(f"expected {token!r} in the type")

    def end(self) -> None:
        if self.at != len(self.tokens):
            raise self.fail("unexpected text after the type")

    def numbers(self, *defaults: int) -> tuple[int, ...]:
        given: list[int] = []
        if self.take("("):
            while not self.take(")"):
                if given:
                    self.need(",")
                digits = self.peek()
                is_number = digits.isdecimal() and len(digits) <= _DIGITS_MAX
                if not is_number or len(given) == len(defaults):
                    raise self.fail("invalid length, precision or scale in the type")
                given.append(int(digits))
                self.at += 1
            if not given:
                raise self.fail("invalid length, precision or scale in the type")
        return (*given, *defaults[len(given) :])

    def type(self) -> DataType:
        check_depth(self.depth, self.context)
        self.depth += 1
        bare = self.bare()
        self.depth -= 1
        if self.take("NOT", "NULL"):
            return with_nullable(bare, nullable=False)
        self.take("NULL")
        return bare

    def bare(self) -> DataType:  # noqa: C901, PLR0912  one case a type, nothing else
        name = self.peek()
        self.at += 1
        match name:
            case "STRING":
                return Atomic(root=Root.VARCHAR, length=LENGTH_MAX)
            case "BYTES":
                return Atomic(root=Root.VARBINARY, length=LENGTH_MAX)
            case "CHAR" | "VARCHAR" | "BINARY" | "VARBINARY":
                (length,) = self.numbers(1)
                limit = LENGTH_MAX
                if not 1 <= length <= limit:
                    raise self.fail(f"the length must be between 1 and {limit}")
                return Atomic(root=Root(name), length=length)
            case "DECIMAL" | "DEC" | "NUMERIC":
                precision, scale = self.numbers(10, 0)
                if not (1 <= precision <= 38 and 0 <= scale <= precision):
                    raise self.fail(
                        "DECIMAL needs 1 <= precision <= 38 and 0 <= scale <= precision"
                    )
                return Atomic(root=Root.DECIMAL, precision=precision, scale=scale)
            case "INTEGER":
                return Atomic(root=Root.INT)
            case "DOUBLE":
                self.take("PRECISION")
                return Atomic(root=Root.DOUBLE)
            case "BOOLEAN" | "TINYINT" | "SMALLINT" | "INT" | "BIGINT" | "FLOAT" | "DATE" | "BLOB":
                return Atomic(root=Root(name))
            case "TIME":
                (precision,) = self.fraction_digits(0)
                self.take("WITHOUT", "TIME", "ZONE")
                return Atomic(root=Root.TIME, precision=precision)
            case "TIMESTAMP" | "TIMESTAMP_LTZ":
                (precision,) = self.fraction_digits(6)
                zoned = self.take("WITH", "LOCAL", "TIME", "ZONE") or name == "TIMESTAMP_LTZ"
                self.take("WITHOUT", "TIME", "ZONE")
                root = Root.TIMESTAMP_LTZ if zoned else Root.TIMESTAMP
                return Atomic(root=root, precision=precision)
            case "ARRAY" | "MULTISET":
                self.need("<")
                element = self.type()
                self.need(">")
                return Array(element=element) if name == "ARRAY" else Multiset(element=element)
            case "VECTOR":
                self.need("<")
                element = self.type()
                self.need(",")
                digits = self.peek()
                self.at += 1
                self.need(">")
                is_number = digits.isdecimal() and len(digits) <= _DIGITS_MAX
                return vector(element, int(digits) if is_number else None, self.context)
            case "MAP":
                self.need("<")
                key = self.type()
                self.need(",")
                value = self.type()
                self.need(">")
                return Map(key=key, value=value)
            case "ROW":
                return Row(fields=self.row_fields())
            case "VARIANT":
                return Variant()
            case _ if name in _UNKNOWN_TO_US:
                raise Unsupported("the type is not supported", type=name, column=self.context)
            case _:
                raise self.fail()

    def fraction_digits(self, default: int) -> tuple[int, ...]:
        (precision,) = self.numbers(default)
        if precision > 9:
            raise self.fail("TIME and TIMESTAMP take a precision of 0 to 9")
        return (precision,)

    def row_fields(self) -> tuple[Field, ...]:
        close = ">" if self.take("<") else ")"
        if close == ")":
            self.need("(")
        fields: list[Field] = []
        while not self.take(close):
            if fields:
                self.need(",")
            if self.at >= len(self.tokens):
                raise self.fail("unfinished ROW type")
            raw = self.tokens[self.at]
            name = raw[1:-1].replace("``", "`") if raw.startswith("`") else raw
            self.at += 1
            kind = self.type()
            field = Field(id=len(fields), name=name, type=kind, description=self.comment())
            fields.append(field)
        return tuple(fields)

    def comment(self) -> str | None:
        if not self.take("COMMENT"):
            return None
        raw = self.tokens[self.at] if self.at < len(self.tokens) else ""
        if not raw.startswith("'"):
            raise self.fail("expected a string after COMMENT in the type")
        self.at += 1
        return raw[1:-1].replace("''", "'")
