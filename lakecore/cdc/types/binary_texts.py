"""Parses bytes that formats write as text: Base64, bits, decimals, geometries."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.model.types import STRINGS, arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.model.types import Atomic

__all__ = [
    "base64_bytes",
    "connect_decimals",
    "decode_base64",
    "each_text",
    "geo_json",
    "reversed_base64",
    "unscaled_decimal",
]

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
        except (ValueError, binascii.Error, struct.error, KeyError, IndexError) as error:
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

    A text that begins with a quote is the Base64 form of the unscaled value, a big-endian integer.
    Any other text is the number itself.
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
