"""The columns of Debezium's messages: converts their types and values.

The schema of a message names each column's Kafka Connect type (`int32`) and maybe a logical name
(`io.debezium.time.Date`). `LOGICAL` and `_column` know every logical type of Debezium and Connect;
other names are ignored. The rules are Paimon's, except where Paimon would lose something: `float64`
is DOUBLE, times of day are TIME, nanoseconds TIMESTAMP(9), and vectors arrays.

Values arrive as strings, integers, booleans, or in the Arrow type that `hint` names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.cdc.types.mapping import (
    BYTES,
    DEFAULT_MAPPING,
    STRING,
    TypeMapping,
    TypeOption,
    array_of,
    atomic,
)
from lakecore.cdc.types.texts import (
    MessageColumn,
    base64_bytes,
    connect_decimals,
    decode_base64,
    each_text,
    from_text,
    geo_json,
    reversed_base64,
    unscaled_decimal,
)
from lakecore.errors import InvalidRequest
from lakecore.model.types import Atomic, DataType, Root, arrow_type
from lakecore.rows.casts import cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakecore.cdc.types.texts import Convert


_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_BITS = "io.debezium.data.Bits"
_DIGITS_MAX = 38
_DAY_SECONDS = 86_400
_CLOCKS = {
    "io.debezium.time.Time": 10**3,
    "org.apache.kafka.connect.data.Time": 10**3,
    "io.debezium.time.MicroTime": 10**6,
    "io.debezium.time.NanoTime": 10**9,
}
"""The types of a time of day, with their units per second."""


def _shape(_struct: Mapping[str, object], wkb: bytes) -> str:
    return geo_json(wkb)


def _digits(struct: Mapping[str, object], unscaled: bytes) -> str:
    return f"{unscaled_decimal(unscaled, int(str(struct['scale']))):f}"


STRUCTS: dict[str, tuple[str, Callable[[Mapping[str, object], bytes], str]]] = {
    "io.debezium.data.geometry.Point": ("wkb", _shape),
    "io.debezium.data.geometry.Geometry": ("wkb", _shape),
    "io.debezium.data.geometry.Geography": ("wkb", _shape),
    "io.debezium.data.VariableScaleDecimal": ("value", _digits),
}
"""The structs that become strings: the member with bytes, and the function that prints both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectField:
    """A field of a Kafka Connect schema. `name`: the logical name; None for a plain type."""

    field: str
    type: str
    name: str | None = None
    parameters: Mapping[str, str] | None = None
    comment: str | None = None


def debezium_column(field: ConnectField, mapping: TypeMapping = DEFAULT_MAPPING) -> MessageColumn:
    """The column of a field.

    Raises InvalidRequest if Connect parameters of the field, such as its scale, are not numbers.
    """
    try:
        column = _column(field)
    except ValueError as error:
        raise InvalidRequest(
            "the parameters of a field in a message's schema are not numbers",
            field=field.field,
            parameters=dict(field.parameters or {}),
        ) from error
    column = replace(column, name=field.field, comment=field.comment)
    if TypeOption.TO_STRING in mapping and column.type != STRING:
        return replace(column, type=STRING, convert=_printed(field, column))
    return column


def _column(field: ConnectField) -> MessageColumn:
    parameters = field.parameters or {}
    name = field.name or ""
    if name == _BITS:
        length = int(parameters.get("length") or 0)
        data_type = atomic(Root.BINARY, length=(length + 7) // 8) if length else BYTES
        return _made(data_type, reversed_base64, pa.string())
    if name == _DECIMAL and field.type == "bytes":
        return _decimal_column(parameters)
    return LOGICAL.get(name) or _PLAIN.get(field.type, _TEXT)


def _made(data_type: DataType, convert: Convert, hint: pa.DataType | None) -> MessageColumn:
    return MessageColumn(name="", type=data_type, convert=convert, hint=hint)


def _decimal_column(parameters: Mapping[str, str]) -> MessageColumn:
    """A decimal column.

    A number is the value; a string is the Base64 form of the unscaled value.
    """
    scale = int(parameters.get("scale") or 0)
    stated = parameters.get("connect.decimal.precision")
    precision = int(stated or (20 if scale == 0 else _DIGITS_MAX))
    fits = precision <= _DIGITS_MAX and 0 <= scale <= precision
    data_type = atomic(Root.DECIMAL, precision=precision, scale=scale) if fits else STRING

    def convert(array: pa.Array, column: str) -> pa.Array:
        return connect_decimals(array.cast(pa.string()), data_type, scale, column)

    return replace(_made(data_type, convert, None), quoted=True)


def _struct_texts(name: str) -> Convert:
    member, text_of = STRUCTS[name]

    def text(given: str) -> str:
        struct = json.loads(given)
        return text_of(struct, decode_base64(struct[member]))

    return lambda array, column: each_text(array, text, pa.string(), column, f"a {name}")


def _vectors(data_type: DataType) -> Convert:
    wanted = arrow_type(data_type)
    return lambda array, column: each_text(array, json.loads, wanted, column, "a vector")


def _as(data_type: Atomic) -> Convert:
    """A conversion that accepts values of the type itself, and strings."""
    wanted = arrow_type(data_type)

    def convert(array: pa.Array, column: str) -> pa.Array:
        if array.type == wanted:
            return array
        if pa.types.is_boolean(array.type) or pa.types.is_integer(array.type):
            array = _integers(array, column) if pa.types.is_integer(wanted) else array
            if pa.types.is_integer(array.type):
                try:
                    return array.cast(wanted)
                except pa.ArrowInvalid:
                    pass
            array = array.cast(pa.string())
        return from_text(array, data_type, column)

    return convert


def _integers(array: pa.Array, column: str) -> pa.Array:
    """64-bit integers, from integers, booleans or strings."""
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64())
    if pa.types.is_boolean(array.type):
        return array.cast(pa.int64())
    return from_text(array, atomic(Root.BIGINT), column)


def _days(array: pa.Array, column: str) -> pa.Array:
    return _integers(array, column).cast(pa.int32()).cast(pa.date32())


def _timestamps(unit: str) -> Convert:
    return lambda array, column: _integers(array, column).cast(pa.timestamp(unit))


def _clock(unit: int) -> Convert:
    """Times of day, with `unit` in a second, converted to TIME in milliseconds."""

    def convert(array: pa.Array, column: str) -> pa.Array:
        numbers = _integers(array, column)
        values = numbers.fill_null(0).to_numpy(zero_copy_only=False)
        milli = unit // 1_000
        bad = (values < 0) | (values >= _DAY_SECONDS * unit) | (values % milli != 0)
        if bad.any():
            raise InvalidRequest(
                "a TIME is outside of one day, or finer than milliseconds; "
                "--type_mapping to-string keeps it as text",
                column=column,
                value=int(values[np.flatnonzero(bad)[0]]),
                units_in_a_second=unit,
            )
        return pc.divide(numbers, milli).cast(pa.int32()).cast(pa.time32("ms"))

    return convert


def _zoned(array: pa.Array, column: str) -> pa.Array:
    """Timestamps in UTC, from ISO strings with an offset."""
    try:
        return array.cast(pa.timestamp("us", tz="UTC")).view(pa.timestamp("us"))
    except pa.ArrowInvalid as error:
        raise InvalidRequest(
            "a value is not a time with an offset", column=column, cause=error
        ) from error


def _printed(field: ConnectField, column: MessageColumn) -> Convert:
    """The conversion of values to strings, for `--type_mapping to-string`."""
    if field.name == _BITS:
        return lambda array, name: each_text(array, _bits_text, pa.string(), name, "Base64")
    if field.name in _CLOCKS:
        unit = _CLOCKS[field.name]
        return lambda array, name: _clock_texts(_integers(array, name), unit)
    data_type, inner = column.type, column.convert
    if not isinstance(data_type, Atomic):
        return _to_text

    def convert(array: pa.Array, name: str) -> pa.Array:
        return cast(inner(array, name), data_type, STRING, name)

    return convert


def _bits_text(text: str) -> str:
    return "".join(f"{byte:08b}" for byte in reversed(decode_base64(text)))


def _clock_texts(numbers: pa.Array, unit: int) -> pa.Array:
    """Times as strings `hh:mm:ss.ffffff`. MySQL's times may be negative or exceed a day."""
    digits = len(str(unit)) - 1

    def text(value: str) -> str:
        number = int(value)
        seconds, rest = divmod(abs(number), unit)
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        fraction = f".{rest:0{digits}d}".rstrip("0").rstrip(".")
        return f"{'-' if number < 0 else ''}{clock}{fraction}"

    return each_text(numbers.cast(pa.string()), text, pa.string(), "", "a time")


def _plain(root: Root, hint: pa.DataType | None) -> MessageColumn:
    data_type = atomic(root)
    return _made(data_type, _as(data_type), hint)


def _to_text(array: pa.Array, column: str) -> pa.Array:  # noqa: ARG001
    return array.cast(pa.string())


_TEXT = _made(STRING, _to_text, None)
_PLAIN: dict[str, MessageColumn] = {
    "int8": _plain(Root.TINYINT, pa.int64()),
    "int16": _plain(Root.SMALLINT, pa.int64()),
    "int32": _plain(Root.INT, pa.int64()),
    "int64": _plain(Root.BIGINT, pa.int64()),
    "float": _plain(Root.FLOAT, pa.float32()),
    "float32": _plain(Root.FLOAT, pa.float32()),
    "float64": _plain(Root.DOUBLE, pa.float64()),
    "double": _plain(Root.DOUBLE, pa.float64()),
    "boolean": _plain(Root.BOOLEAN, pa.bool_()),
    "string": _made(STRING, _to_text, pa.string()),
    "bytes": _made(BYTES, base64_bytes, pa.string()),
}
_DATE = _made(atomic(Root.DATE), _days, pa.int64())
_MILLIS = _made(atomic(Root.TIMESTAMP, precision=3), _timestamps("ms"), pa.int64())
_FLOATS, _DOUBLES = (array_of(atomic(each)) for each in (Root.FLOAT, Root.DOUBLE))
LOGICAL: dict[str, MessageColumn] = {
    "org.apache.kafka.connect.data.Date": _DATE,
    "org.apache.kafka.connect.data.Timestamp": _MILLIS,
    "io.debezium.time.Date": _DATE,
    "io.debezium.time.Timestamp": _MILLIS,
    "io.debezium.time.MicroTimestamp": _made(
        atomic(Root.TIMESTAMP, precision=6), _timestamps("us"), pa.int64()
    ),
    "io.debezium.time.NanoTimestamp": _made(
        atomic(Root.TIMESTAMP, precision=9), _timestamps("ns"), pa.int64()
    ),
    "io.debezium.time.ZonedTimestamp": _made(
        atomic(Root.TIMESTAMP, precision=6), _zoned, pa.string()
    ),
    **{
        name: _made(atomic(Root.TIME, precision=3), _clock(unit), pa.int64())
        for name, unit in _CLOCKS.items()
    },
    "io.debezium.time.Year": _PLAIN["int32"],
    "io.debezium.time.MicroDuration": _PLAIN["int64"],
    "io.debezium.time.NanoDuration": _PLAIN["int64"],
    **dict.fromkeys(
        (
            "io.debezium.time.Interval",
            "io.debezium.time.IsoDate",
            "io.debezium.time.IsoTime",
            "io.debezium.time.IsoTimestamp",
            "io.debezium.time.ZonedTime",
            "io.debezium.data.Enum",
            "io.debezium.data.EnumSet",
            "io.debezium.data.Json",
            "io.debezium.data.Ltree",
            "io.debezium.data.TsVector",
            "io.debezium.data.Uuid",
            "io.debezium.data.Xml",
        ),
        _PLAIN["string"],
    ),
    **{name: _made(STRING, _struct_texts(name), None) for name in STRUCTS},
    "io.debezium.data.FloatVector": _made(_FLOATS, _vectors(_FLOATS), None),
    "io.debezium.data.DoubleVector": _made(_DOUBLES, _vectors(_DOUBLES), None),
    "io.debezium.data.SparseVector": _TEXT,
}
