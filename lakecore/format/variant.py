"""Encodes JSON text as VARIANT values.

https://github.com/apache/parquet-format/blob/master/VariantEncoding.md

A value is two binaries. `metadata` is a dictionary of the names that occur in objects. `value`
begins with a byte that states its type, and refers to names by their index in the dictionary.

INVARIANT: the bytes for a JSON text are those that Java Paimon writes for it.
"""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypeAlias

VERSION = 1
_OFFSET_SIZES = (1, 2, 3, 4)
_MANY = 255
"""Objects and lists with more elements than this store their number of elements in four bytes."""
_SHORT_TEXT_MAX = 63
_INTEGER_CHARACTERS = 20
"""A longer text is no 64-bit integer. Python itself refuses to convert very long ones."""
_DIGITS = ((4, 9), (8, 18), (16, 38))
"""The sizes of a decimal in bytes, each with the number of digits that fit."""
DEPTH_MAX = 200
_PRIMITIVE, SHORT_TEXT, OBJECT, LIST = range(4)
NULL, TRUE, FALSE = 0, 1, 2
INTEGERS = {3: 1, 4: 2, 5: 4, 6: 8}
DOUBLE, DATE, TIMESTAMP, TIMESTAMP_NTZ, FLOAT, BINARY, TEXT = 7, 11, 12, 13, 14, 15, 16
DECIMALS = {8: 4, 9: 8, 10: 16}
TIMESTAMP_NANOS, TIMESTAMP_NTZ_NANOS, UUID = 18, 19, 20
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Pairs: TypeAlias = "list[tuple[str, Value]]"
Value: TypeAlias = "str | int | float | bool | Decimal | bytes | list[Value] | Object | None"
"""A value as Python objects; bytes are an encoded value."""


class Object:
    """The names and values of an object, in order."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs


def variant_of_json(text: str) -> tuple[bytes, bytes]:
    """The VARIANT value and its metadata for a JSON text.

    Raises ValueError, with the reason, if the text is not JSON, repeats a name within an object, or
    is nested too deeply.
    """
    try:
        parsed = json.loads(
            text,
            object_pairs_hook=Object,
            parse_int=_integer,
            parse_float=_fraction,
            parse_constant=_no_constant,
        )
    except RecursionError as error:
        raise ValueError("the JSON text is nested too deeply") from error
    return encoded(parsed)


def encoded(value: Value) -> tuple[bytes, bytes]:
    """The value and the metadata. Raises ValueError as `variant_of_json` does."""
    names: dict[str, int] = {}
    data = _encoded(value, names, 0)
    return data, _metadata(names)


# --- encoding -------------------------------------------------------------------------------------


def _integer(text: str) -> int | Decimal | float:
    if len(text) > _INTEGER_CHARACTERS:
        return _fraction(text)
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else _fraction(text)


def _fraction(text: str) -> Decimal | float:
    if not set(text) <= set("-0123456789."):
        return float(text)
    number = Decimal(text)
    _, digits, scale = number.as_tuple()
    assert isinstance(scale, int)
    fits = len(digits) <= _DIGITS[-1][1] and -scale <= _DIGITS[-1][1]
    return number if fits else float(text)


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _encoded(parsed: Value, names: dict[str, int], depth: int) -> bytes:
    if depth > DEPTH_MAX:
        raise ValueError("the JSON text is nested too deeply")
    match parsed:
        case None:
            return _header(NULL)
        case bool():
            return _header(TRUE if parsed else FALSE)
        case int():
            return _encoded_integer(parsed)
        case float():
            return _header(DOUBLE) + struct.pack("<d", parsed)
        case Decimal():
            return _encoded_decimal(parsed)
        case bytes():
            return parsed
        case str():
            text = parsed.encode()
            if len(text) <= _SHORT_TEXT_MAX:
                return bytes([len(text) << 2 | SHORT_TEXT]) + text
            return _header(TEXT) + struct.pack("<I", len(text)) + text
        case list():
            return _encoded_list([_encoded(part, names, depth + 1) for part in parsed])
        case _:
            return _encoded_object(parsed, names, depth)


def _encoded_integer(number: int) -> bytes:
    for kind, size in INTEGERS.items():
        if -(1 << 8 * size - 1) <= number < 1 << 8 * size - 1:
            return _header(kind) + number.to_bytes(size, "little", signed=True)
    raise AssertionError(number)


def _encoded_decimal(number: Decimal) -> bytes:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    significant = len(str(abs(unscaled)))
    for kind, (size, most) in zip(DECIMALS, _DIGITS, strict=True):
        if -exponent <= most and significant <= most:
            unscaled_bytes = unscaled.to_bytes(size, "little", signed=True)
            return _header(kind) + bytes([-exponent]) + unscaled_bytes
    raise AssertionError(number)


def _encoded_list(parts: list[bytes]) -> bytes:
    data = b"".join(parts)
    many, width = len(parts) > _MANY, _width(len(data))
    return b"".join(
        [
            bytes([many << 4 | (width - 1) << 2 | LIST]),
            len(parts).to_bytes(4 if many else 1, "little"),
            *_offsets(parts, width),
            data,
        ]
    )


def _encoded_object(parsed: Object, names: dict[str, int], depth: int) -> bytes:
    parts: list[bytes] = []
    fields: list[tuple[bytes, int, int]] = []
    offset = 0
    for name, value in parsed.pairs:
        number = names.setdefault(name, len(names))
        parts.append(_encoded(value, names, depth + 1))
        # Java sorts names by their UTF-16 units.
        fields.append((name.encode("utf-16-be", "surrogatepass"), number, offset))
        offset += len(parts[-1])
    fields.sort()
    if len({number for _, number, _ in fields}) < len(fields):
        raise ValueError("an object has a name twice")
    many = len(fields) > _MANY
    width, id_width = _width(offset), _width(max((number for _, number, _ in fields), default=0))
    return b"".join(
        [
            bytes([many << 6 | (id_width - 1) << 4 | (width - 1) << 2 | OBJECT]),
            len(fields).to_bytes(4 if many else 1, "little"),
            *(number.to_bytes(id_width, "little") for _, number, _ in fields),
            *(begin.to_bytes(width, "little") for _, _, begin in fields),
            offset.to_bytes(width, "little"),
            *parts,
        ]
    )


def _metadata(names: dict[str, int]) -> bytes:
    texts = [name.encode() for name in names]
    data = b"".join(texts)
    width = _width(max(len(data), len(texts)))
    return b"".join(
        [
            bytes([VERSION | (width - 1) << 6]),
            len(texts).to_bytes(width, "little"),
            *_offsets(texts, width),
            data,
        ]
    )


def _offsets(parts: list[bytes], width: int) -> list[bytes]:
    """The start of each part within the concatenation of the parts, and the end of the last."""
    found, at = [(0).to_bytes(width, "little")], 0
    for part in parts:
        at += len(part)
        found.append(at.to_bytes(width, "little"))
    return found


_NUMBERS = {
    "FLOAT": FLOAT,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
}


def encoded_number(kind: str, data: bytes) -> bytes:
    """The encoded form of a number whose type is in `_NUMBERS`, from its bytes."""
    return _header(_NUMBERS[kind]) + data


def encoded_binary(data: bytes) -> bytes:
    """The encoded form of a binary value."""
    return _header(BINARY) + struct.pack("<I", len(data)) + data


def _header(kind: int) -> bytes:
    return bytes([kind << 2 | _PRIMITIVE])


def _width(number: int) -> int:
    """The smallest number of bytes that hold a number."""
    return next(size for size in _OFFSET_SIZES if number < 1 << 8 * size)
