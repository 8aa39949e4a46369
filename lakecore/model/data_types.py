"""Paimon's logical types as values: atomic types, and types that have other types as parts.

Types are hashable and never changed in place; two types are equal if they mean the same. Their text
is Paimon's: `DECIMAL(10, 2) NOT NULL`, `ARRAY<INT>`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """A column, or a field inside a ROW. Its `id` identifies it in the schema of each file."""

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
