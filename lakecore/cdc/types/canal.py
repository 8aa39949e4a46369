"""The columns of canal-json and aliyun-json: converts MySQL's types and the values in messages.

Canal writes every value as a string: bytes as Latin-1, bits as a number, an ENUM as the position of
its value, a SET as a bit mask of its values, a geometry in MySQL's storage form. Aliyun writes
dates as milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from lakecore.cdc.types.binary_texts import each_text, geo_json
from lakecore.cdc.types.mapping import DEFAULT_MAPPING, STRING, TypeMapping, TypeOption
from lakecore.cdc.types.mysql import MySqlType, mysql_type, parse_mysql_type
from lakecore.cdc.types.texts import check_length, from_text, zero_dates_to_null
from lakecore.errors import InvalidRequest
from lakecore.model.types import BINARIES, TIMESTAMPS, Array, Atomic, Root, arrow_type

if TYPE_CHECKING:
    from lakecore.model.types import DataType

__all__ = ["MySqlColumn", "aliyun_column", "canal_column"]

Convert: TypeAlias = Callable[[pa.Array, str], pa.Array]

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MySqlColumn:
    """A column, and the conversion of its values from strings, integers or booleans."""

    name: str
    type: DataType
    convert: Convert
    hint: pa.DataType | None = None
    quoted: bool = False
    comment: str | None = None


def canal_column(name: str, definition: str, mapping: TypeMapping = DEFAULT_MAPPING) -> MySqlColumn:
    """The column of a member of `mysqlType`. Raises InvalidRequest or Unsupported for its type."""
    source = parse_mysql_type(definition)
    data_type = mysql_type(source, mapping)
    return MySqlColumn(name=name, type=data_type, convert=_canal(source, data_type, mapping))


def aliyun_column(
    name: str, definition: str, mapping: TypeMapping = DEFAULT_MAPPING
) -> MySqlColumn:
    """The column of a member of `schema.dataColumn`. Raises InvalidRequest or Unsupported."""
    source = parse_mysql_type(definition)
    data_type = mysql_type(source, mapping)
    convert = _plain(data_type)
    if isinstance(data_type, Atomic) and data_type.root in {Root.DATE, *TIMESTAMPS}:
        convert = _moments(data_type, convert)
    elif isinstance(data_type, Array):
        convert = _sets(source)
    return MySqlColumn(name=name, type=data_type, convert=convert)


def _canal(source: MySqlType, data_type: DataType, mapping: TypeMapping) -> Convert:
    if source.name == "SET":
        return _joined_sets(source) if TypeOption.TO_STRING in mapping else _sets(source)
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
