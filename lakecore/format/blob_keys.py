"""Converts the keys of a MAP<K, BLOB> to bytes and back.

https://paimon.apache.org/docs/master/concepts/spec/fileformat/

- Numbers are little-endian, of the width of their type.
- A date is the number of days since 1970, a time the milliseconds since midnight.
- A decimal is its unscaled value: 64 bits if its type has at most 18 digits, otherwise a big-endian
  integer of variable length.
"""

from __future__ import annotations

import struct
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, cast

from lakecore.model.types import Root

if TYPE_CHECKING:
    from lakecore.model.types import Atomic, DataType

_FORMATS = {
    Root.BOOLEAN: "<?",
    Root.TINYINT: "<b",
    Root.SMALLINT: "<h",
    Root.INT: "<i",
    Root.DATE: "<i",
    Root.TIME: "<i",
    Root.BIGINT: "<q",
}
_BYTES = (Root.BINARY, Root.VARBINARY)
_TEXTS = (Root.CHAR, Root.VARCHAR)
_COMPACT_DIGITS = 18
_DAY_ZERO = date(1970, 1, 1)
_DAY_MS = 86_400_000
_MILLISECOND = timedelta(milliseconds=1)
_EXACT = Context(prec=76)


def key_bytes(key: object, data_type: DataType) -> bytes:
    """The bytes of a key."""
    kind = cast("Atomic", data_type)
    match key:
        case bytes():
            return key
        case str():
            return key.encode()
        case Decimal():
            unscaled = int(key.scaleb(kind.scale or 0, _EXACT))
            if (kind.precision or 0) <= _COMPACT_DIGITS:
                return struct.pack("<q", unscaled)
            # The fewest bytes that hold the two's complement number, as in Java's BigInteger.
            magnitude = unscaled if unscaled >= 0 else ~unscaled
            return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
        case date():
            return struct.pack("<i", (key - _DAY_ZERO).days)
        case time():
            since = datetime.combine(_DAY_ZERO, key) - datetime.combine(_DAY_ZERO, time())
            return struct.pack("<i", since // _MILLISECOND)
    return struct.pack(_FORMATS[kind.root], key)


def key_of(data: bytes, data_type: DataType) -> object:
    """The key of these bytes. Raises ValueError or struct.error for bytes that are no key."""
    kind = cast("Atomic", data_type)
    if kind.root in _BYTES:
        return data
    if kind.root in _TEXTS:
        return data.decode()
    if kind.root is Root.DECIMAL:
        if (kind.precision or 0) <= _COMPACT_DIGITS:
            (unscaled,) = struct.unpack("<q", data)
        else:
            unscaled = int.from_bytes(data, "big", signed=True)
        return Decimal(unscaled).scaleb(-(kind.scale or 0), _EXACT)
    (number,) = struct.unpack(_FORMATS[kind.root], data)
    if kind.root is Root.DATE:
        return _DAY_ZERO + timedelta(days=number)
    if kind.root is Root.TIME:
        if not 0 <= number < _DAY_MS:
            raise ValueError("a time is outside its day")
        return (datetime.combine(_DAY_ZERO, time()) + number * _MILLISECOND).time()
    return number
