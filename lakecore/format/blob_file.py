"""Files of BLOB values.

https://paimon.apache.org/docs/master/concepts/spec/fileformat/

A file holds the values of one column. An entry is a magic number, the value, its length and a
checksum. An index follows the entries: the length of each entry, as the difference from the
previous length, in a zig-zag varint. A null and a placeholder have no entry in the file, only a
negative length in the index. The last five bytes are the length of the index and the version.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakecore.errors import CorruptTable, Unsupported
from lakecore.format.varints import decode_zigzags, encode_zigzags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

TAIL_BYTES = 5
_VERSION = 1
_MAGIC = struct.pack("<i", 1_481_511_375)
_AROUND = 16
"""The bytes of an entry in addition to its value: magic number, length and checksum."""
NULL, PLACEHOLDER = -1, -2
"""The lengths in the index that stand for a null, and for a value that an older file holds."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BlobIndex:
    """The entries of a file: the start of each, and its length (or `NULL` or `PLACEHOLDER`)."""

    offsets: np.ndarray
    lengths: np.ndarray


def index_bytes(tail: bytes, size_bytes: int, path: str) -> int:
    """The length of the index, from the last bytes of a file.

    Raises CorruptTable if the file has no index; Unsupported if it is of another version.
    """
    if len(tail) != TAIL_BYTES:
        raise CorruptTable("a file of BLOB values ends early", path=path)
    length, version = struct.unpack("<iB", tail)
    if version != _VERSION:
        raise Unsupported("the version of a file of BLOB values", version=version, path=path)
    if not 0 <= length <= size_bytes - TAIL_BYTES:
        raise CorruptTable("the index of a file of BLOB values is outside the file", path=path)
    return int(length)


def decode_index(data: bytes, values_bytes: int, row_count: int, path: str) -> BlobIndex:
    """The entries of a file. `values_bytes` is the size of the file without its index.

    Raises CorruptTable if there are not `row_count` entries, or if they do not fill these bytes.
    """
    try:
        known = decode_lengths(data)
    except ValueError:
        known = np.zeros(0, np.int64)
    stored = np.where(known > 0, known, 0)
    whole = len(known) == row_count and int(stored.sum()) == values_bytes
    if not whole or np.any(
        (known < PLACEHOLDER) | (known > values_bytes) | ((known >= 0) & (known < _AROUND))
    ):
        raise CorruptTable("the index of a file of BLOB values does not fit the file", path=path)
    return BlobIndex(offsets=np.cumsum(stored) - stored, lengths=known)


def value_of(entry: bytes, path: str) -> bytes:
    """The value of an entry.

    Raises CorruptTable if the entry is damaged. Its checksum covers the magic number, the value
    and, if Java wrote it, the length.
    """
    value = entry[4:-12]
    length, checksum = struct.unpack("<qI", entry[-12:])
    sums = (zlib.crc32(entry[:-4]), zlib.crc32(entry[:-12]))
    if entry[:4] != _MAGIC or length != len(entry) or checksum not in sums:
        raise CorruptTable("a BLOB value is damaged", path=path)
    return value


def encode_entry(pieces: Sequence[bytes]) -> tuple[bytes, ...]:
    """The bytes of the entry of a value. Value and entry are in pieces, to avoid a copy.

    As in Java, the checksum covers the magic number, the value and the length.
    """
    length = struct.pack("<q", sum(map(len, pieces)) + _AROUND)
    checksum = zlib.crc32(_MAGIC)
    for piece in (*pieces, length):
        checksum = zlib.crc32(piece, checksum)
    return (_MAGIC, *pieces, length + struct.pack("<I", checksum))


def encode_index(lengths: Sequence[int]) -> bytes:
    """What follows the entries of a file. Their lengths may be `NULL` or `PLACEHOLDER`."""
    index = encode_lengths(lengths)
    return index + struct.pack("<iB", len(index), _VERSION)


def encode_lengths(lengths: Sequence[int]) -> bytes:
    """The bytes of these lengths, stored as the differences between neighbours."""
    steps = np.array([0, *lengths], np.int64)
    content, _ = encode_zigzags(steps[1:] - steps[:-1])
    return content.tobytes()


def decode_lengths(data: bytes) -> NDArray[np.int64]:
    """The lengths that `encode_lengths` encoded. Raises ValueError for other bytes."""
    return np.cumsum(decode_zigzags(data))


def place_of_value(offset: int, length: int) -> tuple[int, int]:
    """The offset and length of a value in its file, from the offset and length of its entry."""
    return offset + len(_MAGIC), length - _AROUND
