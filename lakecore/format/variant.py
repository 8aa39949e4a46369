"""Encodes JSON text as VARIANT values.

https://github.com/apache/parquet-format/blob/master/VariantEncoding.md

A value is two binaries. `metadata` is a dictionary of the names that occur in objects. `value`
begins with a byte that states its type, and refers to names by their index in the dictionary.

INVARIANT: the bytes for a JSON text are those that Java Paimon writes for it.
"""

from __future__ import annotations

import base64
import json
import struct
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from lakecore.errors import CorruptTable, Unsupported
from lakecore.model.types import METADATA, VALUE, Variant, arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable

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


_NUMBERS = {"FLOAT": FLOAT, "DATE": DATE, "TIMESTAMP": TIMESTAMP, "TIMESTAMP_NTZ": TIMESTAMP_NTZ}


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


# --- variant values ------------------------------------------------------------------------------
# Decodes VARIANT values to JSON text, or to Python lists and dicts of encoded parts.
#
# https://github.com/apache/parquet-format/blob/master/VariantEncoding.md


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
        _part(self._value, begins, data - begins)
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
        _part(self._value, begins, data - begins)
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


# --- variant arrays ------------------------------------------------------------------------------
# VARIANT columns: to and from JSON text, and from their shredded form.
#
# https://github.com/apache/parquet-format/blob/master/VariantShredding.md
#
# In a shredded column, `typed_value` holds the values of the most common type, and nested parts are
# shredded in the same way. `value` holds all other values, and the fields of an object that have no
# column.

TYPED = "typed_value"


def variants_of_json(texts: pa.Array) -> pa.Array:
    """The JSON texts as VARIANT values.

    Raises ValueError for the first text that is not JSON, with its position as second argument.
    """
    values: list[bytes | None] = []
    names: list[bytes | None] = []
    for at, text in enumerate(texts.to_pylist()):
        try:
            value, metadata = (b"", b"") if text is None else variant_of_json(text)
        except ValueError as error:
            raise ValueError(str(error), at) from error
        values.append(value)
        names.append(metadata)
    return _variants(values, names, texts)


def _variants(values: list[bytes | None], names: list[bytes | None], nulls: pa.Array) -> pa.Array:
    children = [pa.array(values, pa.binary()), pa.array(names, pa.binary())]
    missing = nulls.is_null() if nulls.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(Variant())), mask=missing)


def json_of_variants(variants: pa.Array) -> pa.Array:
    """VARIANT values as JSON texts; null stays null."""
    pairs = zip(variants.field(VALUE), variants.field(METADATA), variants, strict=True)
    return pa.array(
        [
            json_of_variant(value.as_py(), metadata.as_py()) if whole.is_valid else None
            for value, metadata, whole in pairs
        ],
        pa.string(),
    )


def whole_variants(column: pa.Array, path: str) -> pa.Array:
    """The values of a shredded column, reassembled. `path` is the path of the file.

    Raises Unsupported for a type of parts that Java does not shred; CorruptTable for damage.
    """
    read = _reader(column.type)
    values: list[bytes | None] = []
    names: list[bytes | None] = []
    for row in column.to_pylist():
        if row is None:
            values.append(b"")
            names.append(b"")
            continue
        try:
            whole = read(row, names_of(row[METADATA]))
            value, metadata = encoded(_present(whole))
        except (ValueError, IndexError, TypeError, struct.error) as error:
            raise CorruptTable("a shredded VARIANT is damaged", path=path) from error
        values.append(value)
        names.append(metadata)
    return _variants(values, names, column)


def _present(part: Value | _Missing) -> Value:
    if isinstance(part, _Missing):
        raise ValueError("a part is missing")  # noqa: TRY004  the data is wrong, not a call
    return part


class _Missing:
    """Stands for a field that an object does not have."""


_MISSING = _Missing()
_Read: TypeAlias = "Callable[[dict[str, Any], list[str]], Value | _Missing]"


def _reader(kind: pa.StructType) -> _Read:
    """The function that reassembles values from a struct of `value` and perhaps `typed_value`."""
    at = kind.get_field_index(TYPED)
    typed = None if at < 0 else kind.field(at).type
    if typed is None:
        return _plain_array
    if pa.types.is_struct(typed):
        fields = {field.name: _reader(field.type) for field in typed}
        return lambda row, names: _object(row, names, fields)
    if pa.types.is_list(typed) or pa.types.is_large_list(typed):
        element = _reader(typed.value_type)
        return lambda row, names: _list(row, names, element)
    encode = _scalar(typed)

    def scalar(row: dict[str, Any], names: list[str]) -> Value | _Missing:
        return _plain_array(row, names) if row[TYPED] is None else encode(row[TYPED])

    return scalar


def _plain_array(row: dict[str, Any], names: list[str]) -> Value | _Missing:
    value = row.get(VALUE)
    return _MISSING if value is None else decoded(value, names)


def _object(row: dict[str, Any], names: list[str], fields: dict[str, _Read]) -> Value | _Missing:
    typed = row[TYPED]
    if typed is None:
        return _plain_array(row, names)
    pairs: list[tuple[str, Value]] = []
    for name, read in fields.items():
        part = read(typed[name], names)
        if not isinstance(part, _Missing):
            pairs.append((name, part))
    rest = _plain_array(row, names)
    if not isinstance(rest, _Missing):
        if not isinstance(rest, Object) or not fields.keys().isdisjoint(dict(rest.pairs)):
            raise ValueError("the rest of an object is no object, or repeats a name")
        pairs += rest.pairs
    return Object(pairs)


def _list(row: dict[str, Any], names: list[str], element: _Read) -> Value | _Missing:
    typed = row[TYPED]
    if typed is None:
        return _plain_array(row, names)
    return [_present(element(each, names)) for each in typed]


def _scalar(kind: pa.DataType) -> Callable[[Any], Value]:
    """The function that encodes values of a typed column.

    Strings, integers and booleans are encoded as from JSON.
    """
    t = pa.types
    is_text = t.is_string(kind) or t.is_large_string(kind)
    if t.is_boolean(kind) or t.is_integer(kind) or t.is_decimal(kind) or is_text:
        return lambda value: value
    if t.is_float64(kind):
        return float
    if t.is_float32(kind):
        return lambda value: encoded_number("FLOAT", struct.pack("<f", value))
    if t.is_binary(kind) or t.is_large_binary(kind):
        return encoded_binary
    if t.is_date32(kind):
        return lambda value: encoded_number("DATE", struct.pack("<i", (value - _DAY).days))
    if t.is_timestamp(kind):
        root, zero = ("TIMESTAMP", EPOCH) if kind.tz else ("TIMESTAMP_NTZ", _EPOCH_NTZ)
        return lambda value: encoded_number(root, struct.pack("<q", (value - zero) // _MICRO))
    raise Unsupported("a VARIANT that is shredded by this type is not read", type=kind)


_DAY = date(1970, 1, 1)
_EPOCH_NTZ = datetime(1970, 1, 1)
_MICRO = timedelta(microseconds=1)
