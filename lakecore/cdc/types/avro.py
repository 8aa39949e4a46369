"""The columns of debezium-avro: converts types of an Avro schema, and values from fastavro.

Debezium's converter keeps the Kafka Connect type in the Avro schema (`connect.name`), and with
`column.propagate.source.type` also the type of the source's column (`connect.parameters`). The
first that is present decides the type of a column: the type of the source's column, the logical
name (as in debezium-json), the Avro type.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from lakecore.cdc.types.debezium import STRUCTS, ConnectField, debezium_column
from lakecore.cdc.types.mapping import (
    BYTES,
    DEFAULT_MAPPING,
    STRING,
    TypeMapping,
    TypeOption,
    array_of,
    atomic,
)
from lakecore.cdc.types.mysql import MySqlType, mysql_type, parse_mysql_type
from lakecore.cdc.types.texts import each_text, from_text
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import Array, Atomic, DataType, Field, Map, Root, Row, arrow_type
from lakecore.rows.casts import cast

Convert: TypeAlias = Callable[["list[object]", str], pa.Array]

_PARAMETERS = "connect.parameters"
_SOURCE = "__debezium.source.column"
_CONNECT_TYPES = {"int": "int32", "long": "int64"}
_PRIMITIVES: dict[str, DataType] = {
    "boolean": atomic(Root.BOOLEAN),
    "int": atomic(Root.INT),
    "long": atomic(Root.BIGINT),
    "float": atomic(Root.FLOAT),
    "double": atomic(Root.DOUBLE),
    "bytes": BYTES,
    "fixed": BYTES,
    "string": STRING,
    "enum": STRING,
}
_LOGICAL: dict[str, DataType] = {
    "date": atomic(Root.DATE),
    "time-millis": atomic(Root.TIME, precision=3),
    "time-micros": atomic(Root.TIME, precision=6),
    "timestamp-millis": atomic(Root.TIMESTAMP, precision=3),
    "timestamp-micros": atomic(Root.TIMESTAMP, precision=6),
    "local-timestamp-millis": atomic(Root.TIMESTAMP_LTZ, precision=3),
    "local-timestamp-micros": atomic(Root.TIMESTAMP_LTZ, precision=6),
    "uuid": STRING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroColumn:
    """A column. `field` is its name in the record, `name` the name of the source's column."""

    field: str
    name: str
    type: DataType
    convert: Convert
    comment: str | None = None


def avro_columns(
    record: Mapping[str, object], mapping: TypeMapping = DEFAULT_MAPPING
) -> list[AvroColumn]:
    """The columns of a row's record. Raises Unsupported for a type without a Paimon type."""
    fields = record["fields"]
    assert isinstance(fields, list)
    return [_column(each, mapping) for each in fields]


def without_null(schema: object) -> object:
    """The other type of a union with null; any other schema unchanged."""
    if isinstance(schema, list):
        rest = [each for each in schema if each != "null"]
        if len(rest) != 1:
            raise Unsupported("a union of several types has no Paimon type", union=schema)
        return rest[0]
    return schema


def _column(field: Mapping[str, object], mapping: TypeMapping) -> AvroColumn:
    schema = without_null(field["type"])
    details = schema if isinstance(schema, Mapping) else {}
    given = details.get(_PARAMETERS)
    parameters = given if isinstance(given, Mapping) else {}
    own = str(field["name"])
    natural, convert = _natural(own, schema, parameters)
    wanted = _wanted(natural, parameters, mapping)
    doc = field.get("doc")
    is_record = details.get("type") == "record"
    return AvroColumn(
        field=own,
        name=own if is_record else str(parameters.get(f"{_SOURCE}.name", own)),
        type=wanted,
        convert=convert if wanted == natural else _recast(natural, wanted, convert),
        comment=doc if isinstance(doc, str) else None,
    )


def _wanted(
    natural: DataType, parameters: Mapping[object, object], mapping: TypeMapping
) -> DataType:
    """The type of the source's column if the schema states it; otherwise the type of the values."""
    if TypeOption.TO_STRING in mapping:
        return STRING
    name = parameters.get(f"{_SOURCE}.type")
    if name is None:
        return natural
    parsed = parse_mysql_type(str(name))
    length, scale = (parameters.get(f"{_SOURCE}.{each}") for each in ("length", "scale"))
    source = MySqlType(
        parsed.name,
        parsed.length if length is None else int(str(length)),
        parsed.scale if scale is None else int(str(scale)),
        parsed.unsigned,
    )
    try:
        return mysql_type(source, mapping)
    except Unsupported:
        return natural  # a type of another database


def _natural(
    name: str, schema: object, parameters: Mapping[object, object]
) -> tuple[DataType, Convert]:
    """The natural type of the values by their Avro schema, and the conversion to it."""
    if isinstance(schema, Mapping):
        connect = schema.get("connect.name")
        if connect in STRUCTS:
            return STRING, _struct_texts(str(connect))
        base = schema["type"]
        if isinstance(connect, str) and "logicalType" not in schema and isinstance(base, str):
            texts = {str(key): str(value) for key, value in parameters.items()}
            column = debezium_column(
                ConnectField(
                    field=name,
                    type=_CONNECT_TYPES.get(base, base),
                    name=connect,
                    parameters=texts,
                )
            )
            if isinstance(column.type, Atomic) and column.type not in {STRING, BYTES}:
                return column.type, lambda values, at: column.convert(_given(values), at)
    data_type = _type(schema)
    return data_type, lambda values, at: _values(values, data_type, at)


def _given(values: list[object]) -> pa.Array:
    """The values in the form of debezium-json: bytes as Base64."""
    if all(value is None for value in values):
        return pa.nulls(len(values), pa.string())
    texts = [base64.b64encode(v).decode() if isinstance(v, bytes) else v for v in values]
    return pa.array(texts)


def _type(schema: object) -> DataType:
    inner = without_null(schema)
    if isinstance(inner, str):
        if inner in _PRIMITIVES:
            return _PRIMITIVES[inner]
        raise Unsupported("no Paimon type for this Avro type", type=inner)
    assert isinstance(inner, Mapping)
    logical, base = inner.get("logicalType"), inner["type"]
    if logical == "decimal":
        precision, scale = int(str(inner.get("precision", 0))), int(str(inner.get("scale", 0)))
        fits = 0 < precision <= 38 and 0 <= scale <= precision
        return atomic(Root.DECIMAL, precision=precision, scale=scale) if fits else STRING
    if logical is not None:
        if logical in _LOGICAL:
            return _LOGICAL[str(logical)]
        raise Unsupported("no Paimon type for this logical type of Avro", type=logical)
    match base:
        case "record":
            fields = inner["fields"]
            assert isinstance(fields, list)
            return Row(
                fields=tuple(
                    Field(id=at, name=each["name"], type=_type(each["type"]))
                    for at, each in enumerate(fields)
                )
            )
        case "array":
            return array_of(_type(inner["items"]))
        case "map":
            return Map(
                key=Atomic(root=Root.VARCHAR, length=STRING.length, nullable=False),
                value=_type(inner["values"]),
            )
    return _type(base)


def _values(values: list[object], data_type: DataType, column: str) -> pa.Array:
    wanted = arrow_type(data_type)
    try:
        if data_type == STRING:
            return pa.array([_text(value) for value in values], wanted)
        if pa.types.is_timestamp(wanted) and wanted.tz is None:
            zoned = pa.array(values, pa.timestamp(wanted.unit, tz="UTC"))
            return zoned.cast(pa.timestamp(wanted.unit, tz="UTC")).view(wanted)
        return pa.array(values, wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise InvalidRequest(
            "a value does not fit the column's type", column=column, type=data_type, cause=error
        ) from error


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    return f"{value:f}" if hasattr(value, "as_tuple") else str(value)


def _struct_texts(name: str) -> Convert:
    member, text_of = STRUCTS[name]

    def text(value: object) -> str | None:
        if not isinstance(value, Mapping):
            return None
        return text_of(value, value[member])

    def convert(values: list[object], column: str) -> pa.Array:
        try:
            return pa.array(map(text, values), pa.string())
        except (ValueError, KeyError, IndexError, TypeError, struct.error) as error:
            raise InvalidRequest(f"a value is not a {name}", column=column, cause=error) from error

    return convert


def _recast(natural: DataType, wanted: DataType, convert: Convert) -> Convert:
    """A conversion to `wanted` through strings, as in Paimon, without rounding."""

    def recast(values: list[object], column: str) -> pa.Array:
        array = convert(values, column)
        if array.type == arrow_type(wanted) and not isinstance(wanted, Atomic):
            return array
        if not isinstance(natural, Atomic):
            texts = pa.array([_text(value) for value in values], pa.string())
        elif natural.root is Root.VARBINARY or natural.root is Root.BINARY:
            if isinstance(wanted, Atomic) and wanted.root in {Root.BINARY, Root.VARBINARY}:
                return array
            texts = array.cast(pa.string())
        else:
            texts = array if natural == STRING else cast(array, natural, STRING, column)
        if isinstance(wanted, Array):
            return each_text(
                texts,
                lambda text: text.split(",") if text else [],
                arrow_type(wanted),
                column,
                "a list of texts",
            )
        return from_text(texts, wanted, column)

    return recast
