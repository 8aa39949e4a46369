"""Paimon schemas as Iceberg schemas and partition specs.

Field ids are those of Paimon, because data files state them. The parts of lists and maps have the
ids that `io/files/parquet_types.py` writes.

TIME and TIMESTAMP(0..6) are in microseconds in Iceberg. TIMESTAMP(7..9) is refused: Paimon stores
it as INT96, which Iceberg does not allow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakecore.errors import Unsupported
from lakecore.model.types import (
    Array,
    Atomic,
    Map,
    Multiset,
    Root,
    Row,
    Variant,
    Vector,
    inner_types,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.schema import TableSchema
    from lakecore.model.types import DataType, Field

Json = dict[str, Any]

PARTITION_FIELD_ID = 1000
"""The id of the first partition field; the others follow."""

_ELEMENT_ID = 536_870_911
_IDS_PER_COLUMN = 1024
_MICROS = 6
_NAMES = {
    Root.CHAR: "string",
    Root.VARCHAR: "string",
    Root.BOOLEAN: "boolean",
    Root.BINARY: "binary",
    Root.VARBINARY: "binary",
    Root.TINYINT: "int",
    Root.SMALLINT: "int",
    Root.INT: "int",
    Root.BIGINT: "long",
    Root.FLOAT: "float",
    Root.DOUBLE: "double",
    Root.DATE: "date",
    Root.TIME: "time",
    Root.TIMESTAMP: "timestamp",
    Root.TIMESTAMP_LTZ: "timestamptz",
}
_WIDENED = frozenset({("int", "long"), ("float", "double")})


def iceberg_schema(schema: TableSchema) -> Json:
    """The Iceberg schema. Raises Unsupported, naming the column, for a type without a twin."""
    return {
        "type": "struct",
        "schema-id": schema.id,
        "fields": [_column(field, field.name) for field in schema.fields],
    }


def partition_spec(schema: TableSchema) -> Json:
    """The partition spec: the values of the partition keys as they are."""
    return {
        "spec-id": 0,
        "fields": [
            {
                "name": field.name,
                "transform": "identity",
                "source-id": field.id,
                "field-id": PARTITION_FIELD_ID + place,
            }
            for place, field in enumerate(schema.partition_fields)
        ],
    }


def atomic_name(data_type: DataType) -> str | None:
    """The Iceberg name of an atomic type; None for other types, and for those without a twin."""
    match data_type:
        case Atomic(root=Root.DECIMAL, precision=precision, scale=scale):
            return f"decimal({precision}, {scale})"
        case Atomic(root=Root.TIMESTAMP | Root.TIMESTAMP_LTZ, precision=precision) if (
            precision or 0
        ) > _MICROS:
            return None
        case Atomic(root=root):
            return _NAMES.get(root)
    return None


def reads_as(stored: object, now: object) -> bool:
    """Whether Iceberg reads files of the schema or type `stored` with the schema or type `now`."""
    if not (isinstance(stored, dict) and isinstance(now, dict)):
        return stored == now or _widens(str(stored), str(now))
    if stored["type"] != now["type"]:
        return False
    if stored["type"] == "struct":
        before = {field["id"]: field["type"] for field in stored["fields"]}
        return all(
            reads_as(before[field["id"]], field["type"])
            for field in now["fields"]
            if field["id"] in before
        )
    parts = {"element", "key", "value"} & now.keys()
    return all(reads_as(stored[part], now[part]) for part in parts)


def _widens(stored: str, now: str) -> bool:
    decimals = [text.removeprefix("decimal(").rstrip(")").split(", ") for text in (stored, now)]
    if all(len(parts) == 2 for parts in decimals):
        (before, scale), (after, scale_now) = decimals
        return scale == scale_now and int(before) <= int(after)
    return (stored, now) in _WIDENED


def _column(field: Field, path: str) -> Json:
    column: Json = {
        "id": field.id,
        "name": field.name,
        "required": not field.type.nullable,
        "type": _type(field.type, field.id, 1, path),
    }
    if field.description is not None:
        column["doc"] = field.description
    return column


def _type(data_type: DataType, column: int, depth: int, path: str) -> str | Json:
    """The type; `column` is the id of the enclosing field, `depth` counts lists and maps in it."""
    offset = column * _IDS_PER_COLUMN + depth
    match data_type:
        case Variant() | Vector():
            pass  # both are special forms of other types
        case Row(fields=fields):
            parts = [_column(field, f"{path}.{field.name}") for field in fields]
            return {"type": "struct", "fields": parts}
        case Multiset() | Map():
            key, value = inner_types(data_type)
            return {
                "type": "map",
                "key-id": _ELEMENT_ID - offset,
                "key": _type(key, column, depth + 1, path),
                "value-id": _ELEMENT_ID + offset,
                "value-required": not value.nullable,
                "value": _type(value, column, depth + 1, path),
            }
        case Array(element=element):
            return {
                "type": "list",
                "element-id": _ELEMENT_ID + offset,
                "element-required": not element.nullable,
                "element": _type(element, column, depth + 1, path),
            }
    if (name := atomic_name(data_type)) is None:
        raise Unsupported("Iceberg has no type for this column", column=path, type=str(data_type))
    return name


def partition_types(schema: TableSchema) -> Sequence[str]:
    """The Iceberg names of the types of the partition keys."""
    names = [atomic_name(field.type) for field in schema.partition_fields]
    return [name for name in names if name is not None]
