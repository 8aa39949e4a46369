"""Encodes texts as Java's `DataOutput.writeUTF` does, in modified UTF-8.

A length of two bytes comes first. NUL takes two bytes. Characters beyond U+FFFF are surrogate
pairs.
"""

from __future__ import annotations

import struct

from lakecore.errors import InvalidRequest

__all__ = ["encode_java_text"]

_BYTES_MAX = 65_535


def encode_java_text(text: str, what: str) -> bytes:
    """The length and the bytes of a text. Raises InvalidRequest, naming `what`, for a long one."""
    pairs = text.encode("utf-16-be", "surrogatepass")
    units = struct.unpack(f">{len(pairs) // 2}H", pairs)
    data = b"".join(
        b"\xc0\x80" if unit == 0 else chr(unit).encode("utf-8", "surrogatepass") for unit in units
    )
    if len(data) > _BYTES_MAX:
        raise InvalidRequest(f"{what} is too long", bytes=len(data))
    return struct.pack(">H", len(data)) + data
