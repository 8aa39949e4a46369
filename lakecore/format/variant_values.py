"""Decodes VARIANT values to JSON text, or to Python lists and dicts of encoded parts.

https://github.com/apache/parquet-format/blob/master/VariantEncoding.md
"""

from __future__ import annotations

import base64
import json
import struct
import uuid
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable
from lakecore.format.variant import (
    BINARY,
    DATE,
    DECIMALS,
    DEPTH_MAX,
    DOUBLE,
    EPOCH,
    FALSE,
    FLOAT,
    INTEGERS,
    LIST,
    NULL,
    OBJECT,
    SHORT_TEXT,
    TEXT,
    TIMESTAMP,
    TIMESTAMP_NANOS,
    TIMESTAMP_NTZ,
    TIMESTAMP_NTZ_NANOS,
    TRUE,
    UUID,
    VERSION,
    Object,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.format.variant import Value


def json_of_variant(value: bytes, metadata: bytes) -> str:
    """The JSON text of a value.

    Dates, times and UUIDs become strings, and binaries Base64 strings; timestamps with a time zone
    are in UTC. Raises CorruptTable if the bytes are not a VARIANT.
    """
    try:
        return _Decoder(value, names_of(metadata)).text(0, 0)
    except (IndexError, struct.error, UnicodeDecodeError, OverflowError, ValueError) as error:
        raise CorruptTable("the bytes are not a VARIANT", problem=str(error)) from error


def decoded(value: bytes, names: list[str]) -> Value:
    """A value with its objects and lists converted to Python; other parts stay encoded.

    Raises ValueError or IndexError for bytes that are not a VARIANT.
    """
    return _Decoder(value, names).parts(0, 0)


def names_of(metadata: bytes) -> list[str]:
    """The names in the metadata of a value. Raises ValueError if the metadata is damaged."""
    header = metadata[0]
    if header & 0x0F != VERSION:
        raise ValueError(f"version {header & 0x0F} of the metadata")
    width = (header >> 6) + 1
    count = _number(metadata, 1, width)
    first = 1 + width
    begins = [_number(metadata, first + at * width, width) for at in range(count + 1)]
    data = first + (count + 1) * width
    if begins != sorted(begins) or data + begins[-1] > len(metadata):
        raise ValueError("the names end outside the metadata")
    return [metadata[data + begin : data + end].decode() for begin, end in pairwise(begins)]


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(_part(data, at, size), "little")


def _part(data: bytes, at: int, size: int) -> bytes:
    part = data[at : at + size]
    if at < 0 or len(part) < size:
        raise ValueError("the value ends early")
    return part


class _Decoder:
    def __init__(self, value: bytes, names: list[str]) -> None:
        self._value = value
        self._names = names

    def text(self, at: int, depth: int) -> str:
        """The JSON text of the value at a position."""
        if depth > DEPTH_MAX:
            raise ValueError("the value is nested too deeply")
        header = self._value[at]
        basic, rest = header & 3, header >> 2
        if basic == SHORT_TEXT:
            return _quoted(_part(self._value, at + 1, rest).decode())
        if basic == OBJECT:
            return self._object(at, rest, depth)
        if basic == LIST:
            return self._list(at, rest, depth)
        return self._primitive(at + 1, rest)

    def parts(self, at: int, depth: int) -> Value:
        """The value at a position, as `decoded` returns it."""
        if depth > DEPTH_MAX:
            raise ValueError("the value is nested too deeply")
        header = self._value[at]
        if header & 3 == OBJECT:
            fields = self._fields(at, header >> 2)
            return Object([(name, self.parts(begin, depth + 1)) for name, begin in fields])
        if header & 3 == LIST:
            return [self.parts(begin, depth + 1) for begin in self._elements(at, header >> 2)]
        return _part(self._value, at, 1 + self._size(at + 1, header >> 2, header & 3))

    def _size(self, at: int, kind: int, basic: int) -> int:
        """The number of bytes of a primitive value after its header."""
        if basic == SHORT_TEXT:
            return kind
        if kind in (BINARY, TEXT):
            return 4 + _number(self._value, at, 4)
        sizes = {**INTEGERS, **{k: 1 + size for k, size in DECIMALS.items()}}
        sizes |= {k: size for k, (size, _) in _SIZED.items()} | dict.fromkeys(_FIXED, 0)
        if kind not in sizes:
            raise ValueError(f"type {kind} of a value is not known")
        return sizes[kind]

    def _object(self, at: int, header: int, depth: int) -> str:
        fields = self._fields(at, header)
        shown = (f"{_quoted(name)}:{self.text(begin, depth + 1)}" for name, begin in fields)
        return "{" + ",".join(shown) + "}"

    def _list(self, at: int, header: int, depth: int) -> str:
        elements = self._elements(at, header)
        return "[" + ",".join(self.text(begin, depth + 1) for begin in elements) + "]"

    def _fields(self, at: int, header: int) -> list[tuple[str, int]]:
        """The field names of an object, and the positions at which their values begin."""
        width, id_width, many = (header & 3) + 1, (header >> 2 & 3) + 1, header >> 4 & 1
        size_bytes = 4 if many else 1
        count = _number(self._value, at + 1, size_bytes)
        ids = at + 1 + size_bytes
        begins = ids + count * id_width
        data = begins + (count + 1) * width
        _part(self._value, begins, (count + 1) * width)
        numbers = (_number(self._value, ids + each * id_width, id_width) for each in range(count))
        return [
            (self._names[number], data + _number(self._value, begins + each * width, width))
            for each, number in enumerate(numbers)
        ]

    def _elements(self, at: int, header: int) -> list[int]:
        """The positions at which the elements of a list begin."""
        width, many = (header & 3) + 1, header >> 2 & 1
        size_bytes = 4 if many else 1
        count = _number(self._value, at + 1, size_bytes)
        begins = at + 1 + size_bytes
        data = begins + (count + 1) * width
        _part(self._value, begins, (count + 1) * width)
        return [data + _number(self._value, begins + at * width, width) for at in range(count)]

    def _primitive(self, at: int, kind: int) -> str:
        data = self._value
        if kind in _FIXED:
            return _FIXED[kind]
        if kind in INTEGERS:
            return str(int.from_bytes(_part(data, at, INTEGERS[kind]), "little", signed=True))
        if kind in DECIMALS:
            scale, number = _part(data, at, 1)[0], _part(data, at + 1, DECIMALS[kind])
            return _plain(int.from_bytes(number, "little", signed=True), scale)
        if kind in (BINARY, TEXT):
            found = _part(data, at + 4, _number(data, at, 4))
            return _quoted(found.decode() if kind == TEXT else base64.b64encode(found).decode())
        if kind in _SIZED:
            size, shown = _SIZED[kind]
            return shown(_part(data, at, size))
        raise ValueError(f"type {kind} of a value is not known")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _plain(unscaled: int, scale: int) -> str:
    """A decimal as a string, without an exponent and without trailing zeros."""
    digits = tuple(map(int, str(abs(unscaled))))
    text = format(Decimal((int(unscaled < 0), digits, -scale)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _real(data: bytes) -> str:
    (number,) = struct.unpack("<d" if len(data) == 8 else "<f", data)
    if not isfinite(number):
        return _quoted({"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[str(number)])
    return repr(number) if len(data) == 8 else format(number, ".9g")


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _date(data: bytes) -> str:
    return _quoted((date(1970, 1, 1) + timedelta(days=_signed(data))).isoformat())


def _timestamp(data: bytes, *, nanos: bool = False, zone: str = "") -> str:
    whole, rest = divmod(_signed(data), 1_000_000_000 if nanos else 1_000_000)
    seconds = (EPOCH + timedelta(seconds=whole)).strftime("%Y-%m-%d %H:%M:%S")
    fraction = f"{rest:0{9 if nanos else 6}d}".rstrip("0")
    return _quoted(seconds + (f".{fraction}" if fraction else "") + zone)


_FIXED = {NULL: "null", TRUE: "true", FALSE: "false"}
_SIZED: dict[int, tuple[int, Callable[[bytes], str]]] = {
    DOUBLE: (8, _real),
    FLOAT: (4, _real),
    DATE: (4, _date),
    TIMESTAMP: (8, lambda data: _timestamp(data, zone="+00:00")),
    TIMESTAMP_NTZ: (8, _timestamp),
    TIMESTAMP_NANOS: (8, lambda data: _timestamp(data, nanos=True, zone="+00:00")),
    TIMESTAMP_NTZ_NANOS: (8, lambda data: _timestamp(data, nanos=True)),
    UUID: (16, lambda data: _quoted(str(uuid.UUID(bytes=data)))),
}
