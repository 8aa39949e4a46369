"""Reads the tail of an ORC file, and the checksums that lakecore adds to it.

https://orc.apache.org/specification/ORCv1/: Protocol Buffers messages. These fields are read:

    PostScript: footerLength = 1, compression = 2, compressionBlockSize = 3, metadataLength = 5,
                stripeStatisticsLength = 7
    FileTail: footer = 2        Footer: stripes = 3, types = 4, numberOfRows = 6
    StripeInformation: offset = 1, indexLength = 2, dataLength = 3, footerLength = 4,
                numberOfRows = 5
    StripeFooter: streams = 1, columns = 2        Stream: length = 3

ORC has no checksums. lakecore writes a trailer after the last stripe, which other readers skip as a
gap: a marker, the CRC-32 of everything before it, the CRC-32 of everything after it, the CRC-32 of
the trailer so far, and a marker.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable
from lakecore.format.varints import read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"ORC"
_FOOTER, _STRIPES, _ROWS = 2, 3, 5
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_BEGIN, _END = b"LakeCRC<", b">LakeCRC"
TRAILER_BYTES = len(_BEGIN) + 3 * 4 + len(_END)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostScript:
    """The lengths of the parts of an ORC tail, including the postscript and its length byte."""

    footer_bytes: int
    tail_bytes: int
    postscript_bytes: int
    codec: int
    block_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stripe:
    """The position of a stripe, and the lengths of its parts."""

    offset: int
    body_bytes: int
    footer_bytes: int
    rows: int


def read_postscript(end: bytes) -> PostScript:
    """The postscript in the last 256 bytes of a file, or in the whole file if it is shorter.

    Raises ValueError if there is none.
    """
    length = end[-1] if end else 0
    data = end[-1 - length : -1]
    if not length or len(data) != length or not data.endswith(MAGIC):
        message = "the file does not end with a postscript of ORC"
        raise ValueError(message)
    numbers = _numbers(data)
    footer, rest = numbers.get(1, 0), numbers.get(5, 0) + numbers.get(7, 0)
    return PostScript(
        footer_bytes=footer,
        tail_bytes=footer + rest + length + 1,
        postscript_bytes=length + 1,
        codec=numbers.get(2, 0),
        block_bytes=numbers.get(3, 0),
    )


def read_footer(footer: bytes) -> tuple[list[Stripe], int, int]:
    """The stripes, the number of types, and the number of rows, as the footer states them."""
    stripes = [_numbers(stripe) for stripe in _messages(footer, _STRIPES)]
    return (
        [
            Stripe(
                offset=stripe.get(1, 0),
                body_bytes=stripe.get(2, 0) + stripe.get(3, 0),
                footer_bytes=stripe.get(4, 0),
                rows=stripe.get(_ROWS, 0),
            )
            for stripe in stripes
        ],
        len(_messages(footer, 4)),
        _numbers(footer).get(6, 0),
    )


def read_stripe_footer(footer: bytes) -> tuple[list[int], int]:
    """The lengths of the streams of a stripe, in order, and the number of its columns."""
    lengths = [_numbers(stream).get(3, 0) for stream in _messages(footer, 1)]
    return lengths, len(_messages(footer, 2))


def trailer_of(body_crc: int, tail: bytes) -> bytes:
    """The trailer that belongs to stripes with the CRC `body_crc` and to a tail."""
    data = _BEGIN + body_crc.to_bytes(4, "little") + zlib.crc32(tail).to_bytes(4, "little")
    return data + zlib.crc32(data).to_bytes(4, "little") + _END


def read_trailer(trailer: bytes, tail: bytes, path: str) -> int | None:
    """The CRC of everything before the trailer; None if the file has no trailer.

    Raises CorruptTable if the trailer or the tail is damaged.
    """
    if not (trailer.startswith(_BEGIN) or trailer.endswith(_END)):
        return None
    body = int.from_bytes(trailer[len(_BEGIN) : len(_BEGIN) + 4], "little")
    if trailer != trailer_of(body, tail):
        raise CorruptTable("the checksum of the tail of an ORC file does not match", path=path)
    return body


def stripe_rows(tail: bytes) -> tuple[int, ...]:
    """The rows of each stripe, in order. Raises ValueError if `tail` is not an ORC tail."""
    return tuple(
        _numbers(stripe).get(_ROWS, 0)
        for footer in _messages(tail, _FOOTER)
        for stripe in _messages(footer, _STRIPES)
    )


def _numbers(message: bytes | memoryview) -> dict[int, int]:
    return {field: value for field, value in _fields(message) if isinstance(value, int)}


def _messages(message: bytes | memoryview, wanted: int) -> list[memoryview]:
    """The messages in the field number `wanted` of a message, in order."""
    parts = [value for field, value in _fields(message) if field == wanted]
    if any(isinstance(part, int) for part in parts):
        text = "expected a message but found a number in the tail of the ORC file"
        raise ValueError(text)
    return [part for part in parts if isinstance(part, memoryview)]


def _fields(data: bytes | memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """The fields of a message and their values, in order. Raises ValueError if it is damaged."""
    message, at = memoryview(data), 0
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
                text = f"unknown wire type {kind} in the tail of the ORC file"
                raise ValueError(text)
            value, at = message[at : at + length], at + length
            if at > len(message):
                raise _cut_short()
        yield number, value


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A varint, and the position after it."""
    try:
        return read_varint(message, at)
    except (IndexError, ValueError):
        raise _cut_short() from None


def _cut_short() -> ValueError:
    return ValueError("the tail of the ORC file is cut short")
