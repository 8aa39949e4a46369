"""Low-level encodings: integers of variable length, and Java's modified UTF-8."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BYTES_MAX = 10
"""The largest number of bytes of a 64-bit number."""
_GREATEST = 2**64 - 1


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at a position, and the position after it.

    Raises IndexError if the data ends within the number, ValueError if it has more than 64 bits.
    """
    value = 0
    for place in range(_BYTES_MAX):
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if value > _GREATEST:
                break
            return value, at + place + 1
    raise ValueError("a number has more than 64 bits")


def append_varint(out: bytearray, value: int) -> None:
    """Append a number that is not negative."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def zigzag(value: int) -> int:
    """The zigzag number of a signed 64-bit integer."""
    return (value << 1) ^ (value >> 63)


def unzigzag(number: int) -> int:
    """The signed integer of a zigzag number."""
    return (number >> 1) ^ -(number & 1)


def encode_zigzags(values: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of signed numbers, one after another, and how many bytes each of them has."""
    rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
    most = int(rest.max(initial=0))
    width = max(1, -(-most.bit_length() // 7))
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    digits = rest[:, None] >> shifts
    there = digits != 0
    there[:, 0] = True
    more = np.zeros_like(there)
    more[:, :-1] = there[:, 1:]
    content = ((digits & np.uint64(0x7F)) | (more * np.uint64(0x80))).astype(np.uint8)[there]
    return content, there.sum(axis=1)


def decode_zigzags(data: bytes) -> NDArray[np.int64]:
    """The signed numbers that the bytes encode, one after another.

    Raises ValueError if the data ends within a number, or if one has more than 64 bits.
    """
    content = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(content < 0x80) + 1
    if not len(content):
        return np.zeros(0, np.int64)
    if content[-1] >= 0x80:
        raise ValueError("the last number is cut short")
    starts = np.concatenate([[0], ends[:-1]])
    sizes = ends - starts
    if sizes.max() > _BYTES_MAX or np.any(content[ends[sizes == _BYTES_MAX] - 1] > 1):
        raise ValueError("a number has more than 64 bits")
    places = (np.arange(len(content)) - np.repeat(starts, sizes)).astype(np.uint64)
    digits = (content & 0x7F).astype(np.uint64) << (places * np.uint64(7))
    numbers = np.bitwise_or.reduceat(digits, starts)
    signs = (numbers & np.uint64(1)).view(np.int64)
    return (numbers >> np.uint64(1)).view(np.int64) ^ -signs


# --- java text -----------------------------------------------------------------------------------
# Encodes texts as Java's `DataOutput.writeUTF` does, in modified UTF-8.
#
# A length of two bytes comes first. NUL takes two bytes. Characters beyond U+FFFF are surrogate
# pairs.

_JAVA_TEXT_BYTES_MAX = 65_535


def encode_java_text(text: str, what: str) -> bytes:
    """The length and the bytes of a string. Raises InvalidRequest, naming `what`, if too long."""
    pairs = text.encode("utf-16-be", "surrogatepass")
    units = struct.unpack(f">{len(pairs) // 2}H", pairs)
    data = b"".join(
        b"\xc0\x80" if unit == 0 else chr(unit).encode("utf-8", "surrogatepass") for unit in units
    )
    if len(data) > _JAVA_TEXT_BYTES_MAX:
        raise InvalidRequest(f"{what} is too long", bytes=len(data))
    return struct.pack(">H", len(data)) + data
