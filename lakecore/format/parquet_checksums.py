"""Checksums of lakecore for the parts of a Parquet file that page checksums do not cover.

A page has a CRC of its body, as in Java. Page headers and the footer have no CRC in Parquet: a
flipped bit there can drop rows, or disable the check of a page. lakecore writes a trailer directly
before the footer, which other readers ignore as a gap. Its numbers are little-endian:

    "LakeCRC<"               8 bytes
    CRC-32 of the bytes of each column chunk, page headers included: row group by row group
    count of column chunks   4 bytes
    CRC-32 of the footer     4 bytes
    CRC-32 of the above      4 bytes
    ">LakeCRC"               8 bytes

INVARIANT: if one of the two markers is present, the file has a trailer, and the trailer must be
complete. The trailer is not stored as key-value metadata of the footer, because a program that
rewrites a file may copy that metadata.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from lakecore.errors import CorruptTable

if TYPE_CHECKING:
    from collections.abc import Sequence

_BEGIN, _END = b"LakeCRC<", b">LakeCRC"
_NUMBER_BYTES = 4


def trailer_bytes(chunks: int) -> int:
    """The length of the trailer of a file with that many column chunks."""
    return len(_BEGIN) + (chunks + 3) * _NUMBER_BYTES + len(_END)


def trailer_of(chunks: Sequence[int], footer: bytes | bytearray) -> bytes:
    """The trailer of a file with this footer; `chunks` are the checksums of its column chunks."""
    numbers = [*chunks, len(chunks), zlib.crc32(footer)]
    data = _BEGIN + np.array(numbers, "<u4").tobytes()
    return data + zlib.crc32(data).to_bytes(_NUMBER_BYTES, "little") + _END


def read_trailer(before: bytes, chunks: int, path: str, footer: bytes | None) -> np.ndarray | None:
    """The checksums of column chunks, in order; None if the file has no trailer.

    `before` are the `trailer_bytes` bytes before the footer, or fewer if the file has fewer. Raises
    CorruptTable if the trailer or the footer is damaged. With `footer` None, the footer is not
    checked.
    """
    if not (before.endswith(_END) or before.startswith(_BEGIN)):
        return None
    if len(before) != trailer_bytes(chunks) or not _is_whole(before):
        raise CorruptTable("the checksums of a Parquet file are damaged", path=path)
    numbers: np.ndarray = np.frombuffer(before, "<u4", chunks + 2, len(_BEGIN))
    if numbers[-2] != chunks:
        raise CorruptTable("the checksums of a Parquet file are of another", path=path)
    if footer is not None and numbers[-1] != zlib.crc32(footer):
        raise CorruptTable("the checksum of a Parquet footer does not match", path=path)
    return numbers[:-2]


def _is_whole(before: bytes) -> bool:
    at = len(before) - len(_END) - _NUMBER_BYTES
    own = before[at : at + _NUMBER_BYTES]
    marked = before.startswith(_BEGIN) and before.endswith(_END)
    return marked and zlib.crc32(before[:at]).to_bytes(_NUMBER_BYTES, "little") == own
