"""Converts types of MySQL and MariaDB, given as names or column definitions, to Paimon's types.

A definition is the text in `information_schema.columns.column_type` or in Canal's `mysqlType`:
`bigint(20) unsigned`, `decimal(10,2)`, `enum('a','b')`. The rules are those of Paimon's actions;
types that they do not know raise Unsupported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.cdc.types.mapping import (
    BYTES,
    DEFAULT_MAPPING,
    STRING,
    TIME_DIGITS_MAX,
    TypeMapping,
    TypeOption,
    array_of,
    atomic,
)
from lakecore.cdc.types.texts import (
    MessageColumn,
    check_length,
    each_text,
    from_text,
    geo_json,
    zero_dates_to_null,
)
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import BINARIES, TIMESTAMPS, Array, Atomic, DataType, Root, arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.cdc.types.texts import Convert

GEOMETRIES = frozenset(
    {
        "GEOMETRY",
        "POINT",
        "LINESTRING",
        "POLYGON",
        "MULTIPOINT",
        "MULTILINESTRING",
        "MULTIPOLYGON",
        "GEOMETRYCOLLECTION",
        "GEOMCOLLECTION",
    }
)
_DECIMALS = frozenset({"DECIMAL", "NUMERIC", "FIXED", "DEC"})
_INTEGERS = {
    "SMALLINT": (Root.SMALLINT, Root.INT),
    "MEDIUMINT": (Root.INT, Root.BIGINT),
    "INT": (Root.INT, Root.BIGINT),
    "INTEGER": (Root.INT, Root.BIGINT),
}
"""The Paimon types of each integer, signed and unsigned; the unsigned need a wider type."""
_PLAIN: dict[str, DataType] = {
    "BOOLEAN": atomic(Root.BOOLEAN),
    "BOOL": atomic(Root.BOOLEAN),
    "YEAR": atomic(Root.INT),
    "LONG": atomic(Root.BIGINT),  # a type of aliyun-json
    "FLOAT": atomic(Root.FLOAT),
    "REAL": atomic(Root.DOUBLE),
    "DOUBLE": atomic(Root.DOUBLE),
    "DOUBLE PRECISION": atomic(Root.DOUBLE),
    "DATE": atomic(Root.DATE),
    "SET": array_of(STRING),
    **dict.fromkeys(("TINYTEXT", "TEXT", "MEDIUMTEXT", "JSON", "ENUM", "STRING"), STRING),
    **dict.fromkeys(("UUID", "INET4", "INET6"), STRING),  # types of MariaDB
    **dict.fromkeys(GEOMETRIES, STRING),
    **dict.fromkeys(("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"), BYTES),
}
_DIGITS_MAX = 38
_BARE_DECIMAL = (38, 18)
"""The precision and scale of a decimal whose definition states none, as in Paimon."""
_FRACTION_MAX = 9
_DISPLAY_LENGTH = 19
"""The length of `2023-03-23 17:20:00`. JDBC states the length with the point and the fraction."""

_DEFINITION = re.compile(
    r"^\s*(?P<name>[a-zA-Z][a-zA-Z0-9_ ]*?)\s*(?:\((?P<inside>.*)\)\s*(?P<more>[a-zA-Z ]*))?$",
    re.DOTALL,
)
_VALUE = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True, slots=True)
class MySqlType:
    """A parsed column definition. `name` is in upper case, without UNSIGNED and ZEROFILL."""

    name: str
    length: int | None = None
    scale: int | None = None
    unsigned: bool = False
    values: tuple[str, ...] = ()

    @property
    def is_geometry(self) -> bool:
        return self.name in GEOMETRIES


def parse_mysql_type(definition: str) -> MySqlType:
    """The parts of a column definition. Raises InvalidRequest for other text."""
    found = _DEFINITION.match(definition)
    if found is None:
        raise InvalidRequest("not a type of MySQL", type=definition)
    words = f"{found['name']} {found['more'] or ''}".upper().split()
    unsigned = "UNSIGNED" in words or "ZEROFILL" in words
    name = " ".join(word for word in words if word not in {"UNSIGNED", "SIGNED", "ZEROFILL"})
    inside = found["inside"]
    if name in {"ENUM", "SET"}:
        values = tuple(each.replace("''", "'") for each in _VALUE.findall(inside or ""))
        return MySqlType(name, values=values)
    if inside is None:
        length, scale = _BARE_DECIMAL if name in _DECIMALS else (None, None)
        return MySqlType(name, length, scale, unsigned)
    try:
        numbers = [int(part) for part in inside.split(",")]
    except ValueError:
        raise InvalidRequest("not a type of MySQL", type=definition) from None
    return MySqlType(name, numbers[0], numbers[1] if len(numbers) > 1 else None, unsigned)


def mysql_type(given: str | MySqlType, mapping: TypeMapping = DEFAULT_MAPPING) -> DataType:
    """The nullable Paimon type of a MySQL type, or of its definition.

    Raises Unsupported for a type that Paimon's actions do not know.
    """
    source = parse_mysql_type(given) if isinstance(given, str) else given
    if TypeOption.TO_STRING in mapping:
        return STRING
    name = source.name
    if name in _BY_DETAILS:
        return _BY_DETAILS[name](source, mapping)
    if name in _INTEGERS:
        signed, unsigned = _INTEGERS[name]
        return atomic(unsigned if source.unsigned else signed)
    if name in _PLAIN:
        return _PLAIN[name]
    raise Unsupported("no Paimon type for this type of MySQL", type=name)


def mysql_key_type(given: str | MySqlType, mapping: TypeMapping = DEFAULT_MAPPING) -> DataType:
    """The type of a key column, in which different values of MySQL stay different.

    The type of `mysql_type`, except for types that would map several values to one. For example,
    `mysql_key_type("tinyint(1)")` is TINYINT, because this column can hold 2 and 3.
    """
    source = parse_mysql_type(given) if isinstance(given, str) else given
    exact = replace(mapping, options=mapping.options | {TypeOption.TINYINT1_NOT_BOOL})
    kind = mysql_type(source, exact)
    match source.name:
        case "SET":
            return STRING
        case "TIME" if (source.length or 0) > TIME_DIGITS_MAX:
            return STRING
        case "DATE" | "DATETIME" | "TIMESTAMP" if TypeOption.KEY_DATES_TO_STRING in mapping:
            return STRING
        case "TIMESTAMP" if isinstance(kind, Atomic) and kind.root is Root.TIMESTAMP:
            return replace(kind, root=Root.TIMESTAMP_LTZ)
    return kind


def _bit(source: MySqlType, mapping: TypeMapping) -> DataType:  # noqa: ARG001
    length = source.length or 1
    return atomic(Root.BOOLEAN) if length == 1 else atomic(Root.BINARY, length=(length + 7) // 8)


def _tinyint(source: MySqlType, mapping: TypeMapping) -> DataType:
    if source.unsigned:
        return atomic(Root.SMALLINT)
    is_flag = source.length == 1 and TypeOption.TINYINT1_NOT_BOOL not in mapping
    return atomic(Root.BOOLEAN if is_flag else Root.TINYINT)


def _bigint(source: MySqlType, mapping: TypeMapping) -> DataType:
    unsigned = source.unsigned or source.name == "SERIAL"
    if not unsigned or TypeOption.BIGINT_UNSIGNED_TO_BIGINT in mapping:
        return atomic(Root.BIGINT)
    return atomic(Root.DECIMAL, precision=20, scale=0)


def _text(source: MySqlType, mapping: TypeMapping) -> DataType:
    if not source.length or TypeOption.CHAR_TO_STRING in mapping:
        return STRING
    return atomic(Root.CHAR if source.name == "CHAR" else Root.VARCHAR, length=source.length)


def _longtext(source: MySqlType, mapping: TypeMapping) -> DataType:  # noqa: ARG001
    return BYTES if TypeOption.LONGTEXT_TO_BYTES in mapping else STRING


def _binary(source: MySqlType, mapping: TypeMapping) -> DataType:  # noqa: ARG001
    return atomic(Root.VARBINARY, length=source.length) if source.length else BYTES


def _decimal(source: MySqlType, mapping: TypeMapping) -> DataType:  # noqa: ARG001
    if source.length is None or source.length > _DIGITS_MAX:
        return STRING
    return atomic(Root.DECIMAL, precision=source.length, scale=max(source.scale or 0, 0))


def _time(source: MySqlType, mapping: TypeMapping) -> DataType:  # noqa: ARG001
    """The type TIME. Paimon's action declares TIME(0), but stores milliseconds in it."""
    return atomic(Root.TIME, precision=TIME_DIGITS_MAX)


def _timestamp(source: MySqlType, mapping: TypeMapping) -> DataType:  # noqa: ARG001
    """A timestamp type.

    The definition states the number of fraction digits, or the length of the printed form.
    """
    length = source.length or 0
    if length >= _DISPLAY_LENGTH:
        length = max(length - _DISPLAY_LENGTH - 1, 0)
    if length > _FRACTION_MAX:
        raise InvalidRequest(
            "a timestamp has at most 9 fraction digits", type=source.name, length=length
        )
    return atomic(Root.TIMESTAMP, precision=max(length, 0))


_BY_DETAILS: dict[str, Callable[[MySqlType, TypeMapping], DataType]] = {
    "BIT": _bit,
    "TINYINT": _tinyint,
    "BIGINT": _bigint,
    "SERIAL": _bigint,
    "CHAR": _text,
    "VARCHAR": _text,
    "LONGTEXT": _longtext,
    "BINARY": _binary,
    "VARBINARY": _binary,
    "DATETIME": _timestamp,
    "TIMESTAMP": _timestamp,
    "TIME": _time,
    **dict.fromkeys(_DECIMALS, _decimal),
}


# --- canal ---------------------------------------------------------------------------------------
# The columns of canal-json and aliyun-json: converts MySQL's types and the values in messages.
#
# Canal writes every value as a string: bytes as Latin-1, bits as a number, an ENUM as the position
# of its value, a SET as a bit mask of its values, a geometry in MySQL's storage form. Aliyun writes
# dates as milliseconds since 1970.

_DAY_MS = 86_400_000


def canal_column(
    name: str, definition: str, mapping: TypeMapping = DEFAULT_MAPPING, *, in_key: bool = False
) -> MessageColumn:
    """The column of a member of `mysqlType`. Raises InvalidRequest or Unsupported for its type."""
    source = parse_mysql_type(definition)
    data_type = _message_type(source, mapping, in_key=in_key)
    return MessageColumn(name=name, type=data_type, convert=_canal(source, data_type))


def aliyun_column(
    name: str, definition: str, mapping: TypeMapping = DEFAULT_MAPPING, *, in_key: bool = False
) -> MessageColumn:
    """The column of a member of `schema.dataColumn`. Raises InvalidRequest or Unsupported."""
    source = parse_mysql_type(definition)
    data_type = _message_type(source, mapping, in_key=in_key)
    convert = _plain(data_type)
    if isinstance(data_type, Atomic) and data_type.root in {Root.DATE, *TIMESTAMPS}:
        convert = _moments(data_type, convert)
    elif isinstance(data_type, Array):
        convert = _sets(source)
    return MessageColumn(name=name, type=data_type, convert=convert)


def _message_type(source: MySqlType, mapping: TypeMapping, *, in_key: bool) -> DataType:
    """The type of a column of a message. A zero date is null, which a key cannot be."""
    if in_key and source.name not in {"DATE", "DATETIME", "TIMESTAMP"}:
        return mysql_key_type(source, mapping)
    return mysql_type(source, mapping)


def _canal(source: MySqlType, data_type: DataType) -> Convert:
    if source.name == "SET":
        return _sets(source) if isinstance(data_type, Array) else _joined_sets(source)
    if source.name == "ENUM":
        return lambda array, column: each_text(
            array.cast(pa.string()), _enum(source), pa.string(), column, "a number of its ENUM"
        )
    if source.is_geometry:
        return lambda array, column: each_text(
            array.cast(pa.string()), _mysql_geometry, pa.string(), column, "a geometry"
        )
    if isinstance(data_type, Atomic) and data_type.root in BINARIES:
        if source.name == "BIT":
            return _bits(data_type)
        encoding = "utf-8" if source.name == "LONGTEXT" else "latin-1"
        return _bytes(data_type, encoding)
    return _plain(data_type)


def _plain(data_type: DataType) -> Convert:
    is_date = isinstance(data_type, Atomic) and data_type.root in {Root.DATE, *TIMESTAMPS}

    def convert(array: pa.Array, column: str) -> pa.Array:
        texts = array.cast(pa.string())
        return from_text(zero_dates_to_null(texts) if is_date else texts, data_type, column)

    return convert


def _moments(data_type: Atomic, from_texts: Convert) -> Convert:
    """Converts milliseconds since 1970 to dates or timestamps, and parses strings."""

    def convert(array: pa.Array, column: str) -> pa.Array:
        if not pa.types.is_integer(array.type):
            return from_texts(array, column)
        moments = array.cast(pa.timestamp("ms"))
        if data_type.root is not Root.DATE:
            return moments.cast(arrow_type(data_type))
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
        late = np.flatnonzero(numbers % _DAY_MS)
        if len(late):
            raise InvalidRequest(
                "a DATE has a time of day; --type_mapping to-string keeps it",
                column=column,
                milliseconds=int(numbers[late[0]]),
            )
        return moments.cast(pa.date32())

    return convert


def _enum(source: MySqlType) -> Callable[[str], str]:
    def value(text: str) -> str:
        if not text.isdecimal():
            if text in source.values or not text:
                return text
            raise ValueError("not one of the values")
        number = int(text)
        if number > len(source.values):
            raise ValueError("beyond the last value")
        return source.values[number - 1] if number else ""

    return value


def _members(source: MySqlType, text: str) -> list[str]:
    number = int(text)
    if number < 0 or number >> len(source.values):
        raise ValueError("beyond the last value")
    return [value for at, value in enumerate(source.values) if number >> at & 1]


def _sets(source: MySqlType) -> Convert:
    def convert(array: pa.Array, column: str) -> pa.Array:
        return each_text(
            array.cast(pa.string()),
            lambda text: _members(source, text),
            arrow_type(Array(element=STRING)),
            column,
            "a number of its SET",
        )

    return convert


def _joined_sets(source: MySqlType) -> Convert:
    def convert(array: pa.Array, column: str) -> pa.Array:
        return each_text(
            array.cast(pa.string()),
            lambda text: ",".join(_members(source, text)),
            pa.string(),
            column,
            "a number of its SET",
        )

    return convert


def _bytes(data_type: Atomic, encoding: str) -> Convert:
    def convert(array: pa.Array, column: str) -> pa.Array:
        values = each_text(
            array.cast(pa.string()),
            lambda text: text.encode(encoding),
            pa.binary(),
            column,
            f"bytes in {encoding}",
        )
        return check_length(values, data_type, column)

    return convert


def _bits(data_type: Atomic) -> Convert:
    length = data_type.length or 1

    def value(text: str) -> bytes:
        try:
            return int(text).to_bytes(length, "big")
        except OverflowError as error:
            raise ValueError(str(error)) from error

    return lambda array, column: each_text(
        array.cast(pa.string()), value, pa.binary(), column, "a number of its bits"
    )


def _mysql_geometry(text: str) -> str:
    """The GeoJSON text of a geometry as MySQL stores it: an SRID (4 bytes), then WKB."""
    data = text.encode("latin-1")
    srid = int.from_bytes(data[:4], "little")
    return geo_json(data[4:], srid)
