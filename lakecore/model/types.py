"""Paimon's logical types: the type objects, their text and JSON forms, and their Arrow types.

The type objects are defined in `data_types.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.data_types import (
    BINARIES,
    INTEGERS,
    LENGTH_MAX,
    METADATA,
    STRINGS,
    TIMESTAMPS,
    VALUE,
    Array,
    Atomic,
    DataType,
    Field,
    Json,
    Map,
    Multiset,
    Root,
    Row,
    Variant,
    Vector,
    field_to_json,
    has_variant,
    has_vector,
    inner_types,
    is_blob,
    leaves,
    parse_field,
    parse_type,
    type_to_json,
    with_nullable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polars.datatypes import DataTypeClass

__all__ = [
    "BINARIES",
    "INTEGERS",
    "LENGTH_MAX",
    "METADATA",
    "STRINGS",
    "TIMESTAMPS",
    "VALUE",
    "Array",
    "Atomic",
    "DataType",
    "Field",
    "Json",
    "Map",
    "Multiset",
    "Root",
    "Row",
    "Variant",
    "Vector",
    "arrow_field",
    "arrow_schema",
    "arrow_type",
    "check_no_objects",
    "field_to_json",
    "fields_from_arrow",
    "fields_from_polars",
    "from_arrow",
    "has_variant",
    "has_vector",
    "inner_types",
    "is_blob",
    "is_in_milliseconds",
    "leaves",
    "parse_field",
    "parse_type",
    "plain_type",
    "string_array",
    "timestamp_unit",
    "type_to_json",
    "with_nullable",
]


# --- type arrow ----------------------------------------------------------------------------------
# Paimon's types and the equivalent Arrow types (their *Arrow twins*).
#
# The units are those that Paimon stores. TIME is `time32[ms]`. TIMESTAMP(p) is in `ms` for p <= 3,
# in `us` for p <= 6, in `ns` for p <= 9, and never in `s`. A timestamp with local time zone has the
# zone UTC.

_ARROW: dict[Root, pa.DataType] = {
    Root.CHAR: pa.string(),
    Root.VARCHAR: pa.string(),
    Root.BOOLEAN: pa.bool_(),
    Root.BINARY: pa.binary(),
    Root.VARBINARY: pa.binary(),
    Root.BLOB: pa.binary(),
    Root.TINYINT: pa.int8(),
    Root.SMALLINT: pa.int16(),
    Root.INT: pa.int32(),
    Root.BIGINT: pa.int64(),
    Root.FLOAT: pa.float32(),
    Root.DOUBLE: pa.float64(),
    Root.DATE: pa.date32(),
    Root.TIME: pa.time32("ms"),
}


def string_array(texts: Sequence[str]) -> pa.StringArray:
    """The strings as an Arrow array, for constants of modules.

    NOTE: the first `pa.array` or `pa.scalar` of a process imports pandas, which takes 0.3 s.
    """
    return pl.Series(texts).to_arrow().cast(pa.string())


def timestamp_unit(precision: int) -> str:
    """The Arrow unit of a timestamp of that many fraction digits: ms, us or ns."""
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def is_in_milliseconds(leaf: Atomic) -> bool:
    """Whether the values are times, with or without a day, that Paimon stores in milliseconds."""
    timed = leaf.root in TIMESTAMPS and timestamp_unit(leaf.digits) == "ms"
    return timed or leaf.root is Root.TIME


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type in which lakecore returns and accepts values of this type."""
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
    """The Arrow field of a column, including its nullability."""
    return pa.field(field.name, arrow_type(field.type), nullable=field.nullable)


def arrow_schema(fields: Sequence[Field]) -> pa.Schema:
    """The Arrow schema of these columns, in order."""
    return pa.schema([arrow_field(field) for field in fields])


def from_arrow(arrow: pa.DataType, *, nullable: bool = True, context: str = "") -> DataType:  # noqa: C901, PLR0912  one case a type, nothing else
    """The Paimon type that can hold every value of an Arrow type.

    Unsigned integers map to the next wider signed type. A timestamp with a zone maps to a
    local-zoned one, which keeps the instant but not the name of the zone. Raises Unsupported for a
    type without an equivalent.
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
    raise Unsupported("no Paimon type can hold this Arrow type", type=arrow, column=context)


def plain_type(arrow: pa.DataType) -> pa.DataType:
    """The type of the plain values, without special layouts and extension types.

    Extension types become their storage type; dictionaries, run-end encoding and list views become
    the type of their values.
    """
    t = pa.types
    if isinstance(arrow, pa.BaseExtensionType):
        return plain_type(arrow.storage_type)
    if t.is_dictionary(arrow) or t.is_run_end_encoded(arrow):
        return plain_type(arrow.value_type)
    if t.is_struct(arrow):
        return pa.struct([each.with_type(plain_type(each.type)) for each in arrow])
    if t.is_map(arrow):
        key, item = arrow.key_field, arrow.item_field
        return pa.map_(key.with_type(plain_type(key.type)), item.with_type(plain_type(item.type)))
    lists = (t.is_list, t.is_large_list, t.is_fixed_size_list, t.is_list_view, t.is_large_list_view)
    if any(is_list(arrow) for is_list in lists):
        return pa.list_(arrow.value_field.with_type(plain_type(arrow.value_type)))
    return arrow


def fields_from_arrow(fields: Sequence[pa.Field], *, context: str = "") -> tuple[Field, ...]:
    """Fields with the ids 0, 1, ... for Arrow fields; creating a table assigns new ids."""
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


def fields_from_polars(schema: Mapping[str, pl.DataType | DataTypeClass]) -> tuple[Field, ...]:
    """The fields of a Polars schema, as `fields_from_arrow` does for Arrow.

    Raises InvalidRequest for columns of Python objects.
    """
    frame = pl.DataFrame(schema=schema)
    check_no_objects(frame)
    return fields_from_arrow(list(frame.to_arrow().schema))


def check_no_objects(frame: pl.DataFrame) -> None:
    """Raise InvalidRequest for columns of Python objects or 128-bit integers.

    Arrow would get the memory addresses of the objects, and it has no 128-bit integers.
    """
    for name, kind in frame.schema.items():
        if kind == pl.Object:
            raise InvalidRequest(
                "a column of Python objects cannot be stored in a table", column=name
            )
        if _is_wide(kind):
            raise InvalidRequest(
                "a column of 128-bit integers has no Arrow type: cast it to pl.Int64 or "
                "pl.Decimal(38, 0)",
                column=name,
                type=kind,
            )


def _is_wide(kind: pl.DataType) -> bool:
    if isinstance(kind, pl.List | pl.Array):
        inner = kind.inner
        return isinstance(inner, pl.DataType) and _is_wide(inner)
    if isinstance(kind, pl.Struct):
        return any(_is_wide(f.dtype) for f in kind.fields if isinstance(f.dtype, pl.DataType))
    return isinstance(kind, pl.Int128 | pl.UInt128)


# --- types ---------------------------------------------------------------------------------------
