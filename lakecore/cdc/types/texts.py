"""Converts strings, as sources write them, to values of a Paimon type, one column at a time.

No value is cut or rounded: too many fraction digits, too long strings and numbers out of range
raise an error. (The casts of `lakecore.rows` follow Java's casts of stored values, which cut and
round.)
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.cdc.types.mapping import STRING
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import (
    BINARIES,
    INTEGERS,
    LENGTH_MAX,
    STRINGS,
    TIMESTAMPS,
    Atomic,
    DataType,
    Root,
    arrow_type,
)
from lakecore.rows.casts import cast

if TYPE_CHECKING:
    from collections.abc import Callable

    Convert: TypeAlias = Callable[[pa.Array, str], pa.Array]
    """Converts the values of a column; the string is the column's name, for errors."""

_TRUE = pa.array(["t", "true", "y", "yes", "1"])
_FALSE = pa.array(["f", "false", "n", "no", "0"])
_PLAIN_NUMBER = r"^[+-]?[0-9]+(\.[0-9]*)?$|^[+-]?\.[0-9]+$"
_TIME = r"^([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,3}0*)?)?$"
_UNREADABLE = (ValueError, TypeError, KeyError, IndexError, RecursionError)
_FLOATS = frozenset({Root.FLOAT, Root.DOUBLE})
_ZERO_DATE = r"^(0000-\d{2}-\d{2}|\d{4}-00-\d{2}|\d{4}-\d{2}-00)"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageColumn:
    """A column of messages: its Paimon type, and `convert`, which converts values to that type.

    `hint`: the Arrow type in which a reader may return the values (None: the reader chooses).
    `quoted`: a JSON string and a JSON number of the same digits are different values.
    """

    name: str
    type: DataType
    convert: Convert
    hint: pa.DataType | None = None
    quoted: bool = False
    comment: str | None = None


def from_text(texts: pa.Array, data_type: DataType, column: str) -> pa.Array:
    """The values of the strings in the Arrow type of `data_type`.

    Raises InvalidRequest if a value does not fit the type. The error names the column and the first
    such value.
    """
    if not isinstance(data_type, Atomic):
        raise Unsupported("no rule to read this type from text", column=column, type=data_type)
    root = data_type.root
    if root in STRINGS:
        return check_length(texts, data_type, column)
    if root in BINARIES:
        return check_length(texts.cast(pa.binary()), data_type, column)
    if root is Root.BOOLEAN:
        return _booleans(texts, data_type, column)
    if root is Root.TIME:
        _check(texts, pc.match_substring_regex(texts, _TIME), data_type, column)
        return cast(texts, STRING, data_type, column)
    wanted = arrow_type(data_type)
    given = texts
    if root is Root.DECIMAL or root in INTEGERS:
        given = _numbers(texts, data_type, column)
    elif root in TIMESTAMPS:
        wanted = pa.timestamp(wanted.unit)
    try:
        values = given.cast(wanted)
    except pa.ArrowInvalid:
        raise refuse(texts, given, data_type, wanted, column) from None
    if root in TIMESTAMPS:
        return values.view(arrow_type(data_type))
    if root in _FLOATS:
        _check(texts, _kept(texts, values, root), data_type, column)
    return values


def zero_dates_to_null(texts: pa.Array) -> pa.Array:
    """The strings of dates and timestamps, with null for a zero year, month or day.

    Only MySQL stores such dates. Debezium also converts them to null.
    """
    zero = pc.match_substring_regex(texts, _ZERO_DATE).fill_null(False)
    if not pc.any(zero).as_py():
        return texts
    return pc.if_else(zero, pa.scalar(None, pa.string()), texts)


def check_length(values: pa.Array, data_type: Atomic, column: str) -> pa.Array:
    """Check that no value is longer than the type allows. Returns the values."""
    length = data_type.length or LENGTH_MAX
    if length < LENGTH_MAX:
        is_text = data_type.root in STRINGS
        sizes = pc.utf8_length(values) if is_text else pc.binary_length(values)
        _check(values, pc.less_equal(sizes, length), data_type, column)
    return values


def refuse(
    texts: pa.Array, given: pa.Array, data_type: DataType, wanted: pa.DataType, column: str
) -> InvalidRequest:
    """The error for the first string that cannot be cast. `given`: the strings to cast."""
    low, high = 0, len(given)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            given.slice(low, middle - low).cast(wanted)
        except pa.ArrowInvalid:
            high = middle
        else:
            low = middle
    return InvalidRequest(
        "a value does not fit the column's type",
        column=column,
        type=data_type,
        value=texts[low].as_py(),
    )


def _booleans(texts: pa.Array, data_type: DataType, column: str) -> pa.Array:
    lower = pc.utf8_lower(texts)
    true = pc.is_in(lower, _TRUE)
    _check(texts, pc.or_(true, pc.is_in(lower, _FALSE)), data_type, column)
    return pc.if_else(texts.is_valid(), true, pa.scalar(None, pa.bool_()))


def _numbers(texts: pa.Array, data_type: Atomic, column: str) -> pa.Array:
    """Numbers without a leading plus. Decimals also lose trailing zeros of the fraction."""
    if not len(texts):
        return texts
    if data_type.root in INTEGERS:
        _check(texts, pc.match_substring_regex(texts, r"^[+-]?[0-9]+$"), data_type, column)
        return pc.replace_substring_regex(texts, r"^\+", "")
    plain = pc.match_substring_regex(texts, _PLAIN_NUMBER).fill_null(True)
    if pc.all(plain).as_py():
        texts = pc.replace_substring_regex(texts, r"^\+", "")
        return pc.replace_substring_regex(texts, r"(\.[0-9]*?)0+$", r"\1")
    return texts


def _kept(texts: pa.Array, values: pa.Array, root: Root) -> pa.Array:
    """For each float, whether it equals its string: no overflow, and no digits of a FLOAT lost."""
    kept = pc.or_(pc.invert(pc.is_inf(values)), pc.match_substring_regex(texts, r"(?i)inf"))
    if root is Root.FLOAT:
        wide = texts.cast(pa.float64())
        same = pc.or_(pc.equal(wide, values.cast(pa.float64())), pc.is_nan(values))
        if not pc.all(same).as_py():
            same = pc.or_(same, pc.equal(wide.cast(pa.string()), values.cast(pa.string())))
        kept = pc.and_(kept, same)
    return kept


def _check(values: pa.Array, valid: pa.Array, data_type: DataType, column: str) -> None:
    bad = pc.and_(values.is_valid(), pc.invert(valid.fill_null(False)))
    if pc.any(bad).as_py():
        raise InvalidRequest(
            "a value does not fit the column's type",
            column=column,
            type=data_type,
            value=pc.filter(values, bad)[0].as_py(),
        )


# --- binary texts --------------------------------------------------------------------------------
# Parses bytes that formats write as text: Base64, bits, decimals, geometries.

_WKB_KINDS = {
    1: "Point",
    2: "LineString",
    3: "Polygon",
    4: "MultiPoint",
    5: "MultiLineString",
    6: "MultiPolygon",
    7: "GeometryCollection",
}
_SRID_FLAG = 0x20000000


def each_text(
    texts: pa.Array, convert: Callable[[str], object], wanted: pa.DataType, column: str, what: str
) -> pa.Array:
    """Convert each string; null stays null.

    Raises InvalidRequest for the first string that cannot be converted.
    """
    values: list[object] = []
    for text in texts.to_pylist():
        try:
            values.append(None if text is None else convert(text))
        except (*_UNREADABLE, binascii.Error, struct.error) as error:
            raise InvalidRequest(
                f"a value is not {what}", column=column, value=text, cause=error
            ) from error
    return pa.array(values, wanted)


def base64_bytes(texts: pa.Array, column: str) -> pa.Array:
    """The bytes that Base64 strings encode."""
    return each_text(texts, decode_base64, pa.binary(), column, "Base64")


def reversed_base64(texts: pa.Array, column: str) -> pa.Array:
    """The bytes that Base64 strings encode, reversed: Debezium writes bits little-endian."""
    return each_text(texts, lambda text: decode_base64(text)[::-1], pa.binary(), column, "Base64")


def connect_decimals(texts: pa.Array, data_type: Atomic, scale: int, column: str) -> pa.Array:
    """Decimals from their text form; for a string type, their digits.

    A string that begins with a quote is the Base64 form of the unscaled value, a big-endian
    integer. Any other string is the number itself.
    """
    as_text = data_type.root in STRINGS

    def number(text: str) -> Decimal | str:
        if not text.startswith('"'):
            return text if as_text else Decimal(text)
        exact = unscaled_decimal(decode_base64(text[1:]), scale)
        return f"{exact:f}" if as_text else exact

    try:
        return each_text(texts, number, arrow_type(data_type), column, "a decimal")
    except (pa.ArrowInvalid, InvalidOperation) as error:
        raise InvalidRequest(
            "a value does not fit the column's type", column=column, type=data_type, cause=error
        ) from error


def unscaled_decimal(data: bytes, scale: int) -> Decimal:
    """The number of a big-endian integer and its scale."""
    unscaled = int.from_bytes(data, "big", signed=True)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def geo_json(wkb: bytes, srid: int = 0) -> str:
    """The GeoJSON text, as Paimon writes it, of a geometry in well-known binary (WKB).

    An SRID in the WKB overrides `srid`.
    """
    shape, stated, rest = _geometry(wkb)
    if rest:
        raise ValueError("bytes after the geometry")
    body = {key: value for key, value in shape.items() if key != "type"}
    shown = {**body, "type": shape["type"], "srid": stated or srid}
    return json.dumps(shown, separators=(",", ":"))


def decode_base64(text: str) -> bytes:
    """The bytes; raises ValueError for other text."""
    return base64.b64decode(text, validate=True)


def _geometry(data: bytes) -> tuple[dict[str, object], int, bytes]:
    """The geometry at the start of the bytes, its SRID, and the remaining bytes."""
    order = "<" if data[0] == 1 else ">"
    (kind,) = struct.unpack_from(f"{order}I", data, 1)
    rest, srid = data[5:], 0
    if kind & _SRID_FLAG:
        (srid,) = struct.unpack_from(f"{order}I", rest)
        rest, kind = rest[4:], kind & ~_SRID_FLAG
    name = _WKB_KINDS[kind]
    if name == "Point":
        point, rest = _point(rest, order)
        return {"type": name, "coordinates": point}, srid, rest
    if name == "LineString":
        line, rest = _line(rest, order)
        return {"type": name, "coordinates": line}, srid, rest
    count, rest = _count(rest, order)
    parts: list[object] = []
    for _ in range(count):
        if name == "Polygon":
            part, rest = _line(rest, order)
            parts.append(part)
        else:
            shape, _srid, rest = _geometry(rest)
            parts.append(shape if name == "GeometryCollection" else shape["coordinates"])
    key = "geometries" if name == "GeometryCollection" else "coordinates"
    return {"type": name, key: parts}, srid, rest


def _count(data: bytes, order: str) -> tuple[int, bytes]:
    (count,) = struct.unpack_from(f"{order}I", data)
    return count, data[4:]


def _point(data: bytes, order: str) -> tuple[list[float], bytes]:
    numbers = struct.unpack_from(f"{order}2d", data)
    return [int(each) if each.is_integer() else each for each in numbers], data[16:]


def _line(data: bytes, order: str) -> tuple[list[list[float]], bytes]:
    count, rest = _count(data, order)
    points: list[list[float]] = []
    for _ in range(count):
        point, rest = _point(rest, order)
        points.append(point)
    return points, rest
