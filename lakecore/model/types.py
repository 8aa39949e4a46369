"""Paimon's logical types, their text and JSON forms, and their Arrow twins.

A type is a closed sum: `Atomic`, `Array`, `Multiset`, `Map`, `Row`. Types are values: equal when
they mean the same, hashable, never changed in place.

Text form (https://paimon.apache.org/docs/master/concepts/spec/schema/): `DECIMAL(10, 2) NOT NULL`;
nested types are JSON objects in a schema file, and `ARRAY<INT>`, `MAP<STRING, INT>`,
`ROW<x INT, y STRING NOT NULL>` in text. Parsing ignores case and blanks.

Arrow twins follow the units that Paimon stores: TIME is `time32[ms]`, TIMESTAMP(p) is `s` never,
`ms` for p <= 3, `us` for p <= 6, `ns` for p <= 9; a local-zoned timestamp carries the zone UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lakecore.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LENGTH_MAX = 2_147_483_647


class Root(StrEnum):
    """The name of an atomic type, as Paimon writes it."""

    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BOOLEAN = "BOOLEAN"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
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
BINARIES = frozenset({Root.BINARY, Root.VARBINARY})
INTEGERS = (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT)
TIMESTAMPS = frozenset({Root.TIMESTAMP, Root.TIMESTAMP_LTZ})
_UNKNOWN_TO_US = frozenset({"VARIANT", "BLOB", "VECTOR", "GEOMETRY", "GEOGRAPHY"})


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
    """A column, or a field inside a ROW: found in files by `id` through the file's schema."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default_value: str | None = None

    @property
    def nullable(self) -> bool:
        """Whether null is a value of this field."""
        return self.type.nullable


def with_nullable(data_type: DataType, nullable: bool) -> DataType:
    """The same type, nullable or not."""
    return replace(data_type, nullable=nullable)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# --- text and JSON ------------------------------------------------------------------------------

Json: TypeAlias = "str | Mapping[str, Json] | Sequence[Json] | int | bool | None"

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|([A-Za-z_][A-Za-z0-9_$]*)|(\d+)|(.))", re.DOTALL)


def parse_type(source: Json, *, context: str = "") -> DataType:
    """The type that a schema file's JSON, or a type text such as `DECIMAL(10, 2)`, says.

    ROW fields in text get the ids 0, 1, ... ; creating a table numbers them anew.
    Raises InvalidRequest with the text for anything that is not a type, Unsupported for VARIANT
    and its younger siblings.
    """
    if isinstance(source, str):
        parser = _TypeText(source, context)
        data_type = parser.type()
        parser.end()
        return data_type
    if not isinstance(source, dict):
        raise InvalidRequest("a type is a text or a JSON object", type=source, column=context)
    head = str(source.get("type", "")).strip().upper()
    nullable = not re.search(r"\bNOT\s+NULL$", head)
    root = re.split(r"[\s<(]", head, maxsplit=1)[0]
    try:
        match root:
            case "ARRAY":
                element = parse_type(source["element"], context=context)
                return Array(element=element, nullable=nullable)
            case "MULTISET":
                element = parse_type(source["element"], context=context)
                return Multiset(element=element, nullable=nullable)
            case "MAP":
                key = parse_type(source["key"], context=context)
                value = parse_type(source["value"], context=context)
                return Map(key=key, value=value, nullable=nullable)
            case "ROW":
                fields = source["fields"]
                assert isinstance(fields, list)
                return Row(fields=tuple(parse_field(f) for f in fields), nullable=nullable)
            case _:
                if root in _UNKNOWN_TO_US:
                    raise Unsupported("the type is not supported", type=root, column=context)
                raise InvalidRequest("unknown type", type=source, column=context)
    except KeyError as error:
        raise InvalidRequest(
            "a nested type lacks a part", type=root, part=error.args[0], column=context
        ) from error


def parse_field(source: Json) -> Field:
    """The field that a schema file's JSON describes."""
    if not isinstance(source, dict) or not {"id", "name", "type"} <= source.keys():
        raise InvalidRequest("a field needs id, name and type", field=source)
    name = str(source["name"])
    description, default = source.get("description"), source.get("defaultValue")
    return Field(
        id=int(str(source["id"])),
        name=name,
        type=parse_type(source["type"], context=name),
        description=None if description is None else str(description),
        default_value=None if default is None else str(default),
    )


def type_to_json(data_type: DataType) -> Json:
    """The type as a schema file stores it."""
    suffix = "" if data_type.nullable else " NOT NULL"
    match data_type:
        case Atomic():
            return str(data_type)
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

    def __init__(self, text: str, context: str) -> None:
        self.text = text
        self.context = context
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
                if not self.peek().isdigit() or len(given) == len(defaults):
                    raise self.fail("bad length, precision or scale in the type")
                given.append(int(self.peek()))
                self.at += 1
            if not given:
                raise self.fail("bad length, precision or scale in the type")
        return (*given, *defaults[len(given) :])

    def type(self) -> DataType:
        bare = self.bare()
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
                    raise self.fail("DECIMAL needs 1 <= precision <= 38 and 0 <= scale <= precision")
                return Atomic(root=Root.DECIMAL, precision=precision, scale=scale)
            case "INTEGER":
                return Atomic(root=Root.INT)
            case "DOUBLE":
                self.take("PRECISION")
                return Atomic(root=Root.DOUBLE)
            case "BOOLEAN" | "TINYINT" | "SMALLINT" | "INT" | "BIGINT" | "FLOAT" | "DATE":
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
            case "MAP":
                self.need("<")
                key = self.type()
                self.need(",")
                value = self.type()
                self.need(">")
                return Map(key=key, value=value)
            case "ROW":
                return Row(fields=self.row_fields())
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
            fields.append(Field(id=len(fields), name=name, type=self.type()))
        return tuple(fields)


# --- Arrow --------------------------------------------------------------------------------------

_ARROW: dict[Root, pa.DataType] = {
    Root.CHAR: pa.string(),
    Root.VARCHAR: pa.string(),
    Root.BOOLEAN: pa.bool_(),
    Root.BINARY: pa.binary(),
    Root.VARBINARY: pa.binary(),
    Root.TINYINT: pa.int8(),
    Root.SMALLINT: pa.int16(),
    Root.INT: pa.int32(),
    Root.BIGINT: pa.int64(),
    Root.FLOAT: pa.float32(),
    Root.DOUBLE: pa.float64(),
    Root.DATE: pa.date32(),
    Root.TIME: pa.time32("ms"),
}


def timestamp_unit(precision: int) -> str:
    """The Arrow unit of a timestamp of that many fraction digits: ms, us or ns."""
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type in which lakecore gives out and takes in values of this type."""
    match data_type:
        case Atomic(root=Root.DECIMAL, precision=precision, scale=scale):
            assert precision is not None
            assert scale is not None
            return pa.decimal128(precision, scale)
        case Atomic(root=Root.TIMESTAMP | Root.TIMESTAMP_LTZ as root, precision=precision):
            assert precision is not None
            zone = "UTC" if root is Root.TIMESTAMP_LTZ else None
            return pa.timestamp(timestamp_unit(precision), tz=zone)
        case Atomic(root=root):
            return _ARROW[root]
        case Array(element=element):
            inner = pa.field("element", arrow_type(element), nullable=element.nullable)
            return pa.list_(inner)
        case Multiset(element=element):
            return pa.map_(
                pa.field("key", arrow_type(element), nullable=False),
                pa.field("value", pa.int32(), nullable=False),
            )
        case Map(key=key, value=value):
            return pa.map_(
                pa.field("key", arrow_type(key), nullable=False),
                pa.field("value", arrow_type(value), nullable=value.nullable),
            )
        case Row(fields=fields):
            return pa.struct([arrow_field(field) for field in fields])


def arrow_field(field: Field) -> pa.Field:
    """The Arrow field of a column, nullability included."""
    return pa.field(field.name, arrow_type(field.type), nullable=field.nullable)


def arrow_schema(fields: Sequence[Field]) -> pa.Schema:
    """The Arrow schema of these columns, in order."""
    return pa.schema([arrow_field(field) for field in fields])


def from_arrow(arrow: pa.DataType, *, nullable: bool = True, context: str = "") -> DataType:  # noqa: C901, PLR0912  one case a type, nothing else
    """The Paimon type that holds every value of an Arrow type.

    Unsigned integers take the next wider signed type; a zoned timestamp becomes a local-zoned one
    (the instant stays, the zone's name does not). Raises Unsupported for a type without a twin.
    """
    t = pa.types

    def atomic(root: Root, **parts: int) -> Atomic:
        return Atomic(
            root=root,
            length=parts.get("length"),
            precision=parts.get("precision"),
            scale=parts.get("scale"),
            nullable=nullable,
        )

    if t.is_dictionary(arrow):
        return from_arrow(arrow.value_type, nullable=nullable, context=context)
    if t.is_string(arrow) or t.is_large_string(arrow) or t.is_string_view(arrow):
        return atomic(Root.VARCHAR, length=LENGTH_MAX)
    if t.is_fixed_size_binary(arrow):
        return atomic(Root.BINARY, length=arrow.byte_width)
    if t.is_binary(arrow) or t.is_large_binary(arrow) or t.is_binary_view(arrow):
        return atomic(Root.VARBINARY, length=LENGTH_MAX)
    if t.is_boolean(arrow):
        return atomic(Root.BOOLEAN)
    if t.is_int8(arrow):
        return atomic(Root.TINYINT)
    if t.is_int16(arrow) or t.is_uint8(arrow):
        return atomic(Root.SMALLINT)
    if t.is_int32(arrow) or t.is_uint16(arrow):
        return atomic(Root.INT)
    if t.is_int64(arrow) or t.is_uint32(arrow):
        return atomic(Root.BIGINT)
    if t.is_uint64(arrow):
        return atomic(Root.DECIMAL, precision=20, scale=0)
    if t.is_float32(arrow) or t.is_float16(arrow):
        return atomic(Root.FLOAT)
    if t.is_float64(arrow):
        return atomic(Root.DOUBLE)
    if t.is_decimal(arrow) and arrow.precision <= 38 and arrow.scale >= 0:
        return atomic(Root.DECIMAL, precision=arrow.precision, scale=arrow.scale)
    if t.is_date32(arrow) or t.is_date64(arrow):
        return atomic(Root.DATE)
    if t.is_time(arrow):
        return atomic(Root.TIME, precision=0 if arrow.unit == "s" else 3)
    if t.is_timestamp(arrow):
        precision = {"s": 0, "ms": 3, "us": 6, "ns": 9}[arrow.unit]
        return atomic(Root.TIMESTAMP_LTZ if arrow.tz else Root.TIMESTAMP, precision=precision)
    if t.is_map(arrow):
        value_field = arrow.item_field
        return Map(
            key=from_arrow(arrow.key_type, nullable=False, context=context),
            value=from_arrow(arrow.item_type, nullable=value_field.nullable, context=context),
            nullable=nullable,
        )
    if t.is_list(arrow) or t.is_large_list(arrow) or t.is_fixed_size_list(arrow):
        inner = arrow.value_field
        element = from_arrow(inner.type, nullable=inner.nullable, context=context)
        return Array(element=element, nullable=nullable)
    if t.is_struct(arrow):
        return Row(fields=fields_from_arrow(list(arrow), context=context), nullable=nullable)
    raise Unsupported("no Paimon type holds this Arrow type", type=arrow, column=context)


def fields_from_arrow(fields: Sequence[pa.Field], *, context: str = "") -> tuple[Field, ...]:
    """Fields with the ids 0, 1, ... for Arrow fields; creating a table numbers them anew."""
    return tuple(
        Field(
            id=index,
            name=field.name,
            type=from_arrow(
                field.type,
                nullable=field.nullable,
                context=f"{context}.{field.name}" if context else field.name,
            ),
        )
        for index, field in enumerate(fields)
    )
