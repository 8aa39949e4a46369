"""What the tail of an ORC file says of its stripes.

https://orc.apache.org/specification/ORCv1/: Protocol Buffers, of which three messages are walked:

    FileTail: footer = 2        Footer: stripes = 3        StripeInformation: numberOfRows = 5
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOOTER, _STRIPES, _ROWS = 2, 3, 5
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}


def stripe_rows(tail: bytes) -> tuple[int, ...]:
    """The rows of each stripe, in order. ValueError if these are no such messages."""
    try:
        return tuple(
            sum(rows for rows in _of(stripe, _ROWS) if isinstance(rows, int))
            for footer in _of(memoryview(tail), _FOOTER)
            for stripe in _of(footer, _STRIPES)
        )
    except IndexError as error:
        message = "the tail of the ORC file is cut short"
        raise ValueError(message) from error


def _of(message: memoryview | int, wanted: int) -> Iterator[memoryview | int]:
    """The values of a field of a message, in order."""
    assert isinstance(message, memoryview)
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        value: memoryview | int
        if kind == _VARINT:
            value, at = _varint(message, at)
        else:
            if kind == _BYTES:
                length, at = _varint(message, at)
            elif kind in _FIXED_BYTES:
                length = _FIXED_BYTES[kind]
            else:
                text = f"unknown kind {kind} in the tail of the ORC file"
                raise ValueError(text)
            value, at = message[at : at + length], at + length
            if at > len(message):
                raise IndexError
        if number == wanted:
            yield value


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number, and where what follows it begins."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
