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
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from itertools import accumulate
from typing import TYPE_CHECKING, cast

import numpy as np

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.format.varints import decode_zigzags, encode_zigzags
from lakecore.model.types import Array, Atomic, DataType, Map, Root

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    damaged = CorruptTable("the index of a file of BLOB values does not fit the file", path=path)
    try:
        known = decode_lengths(data)
    except ValueError as error:
        raise damaged from error
    stored = np.where(known > 0, known, 0)
    whole = len(known) == row_count and int(stored.sum()) == values_bytes
    if not whole or np.any(
        (known < PLACEHOLDER) | (known > values_bytes) | ((known >= 0) & (known < _AROUND))
    ):
        raise damaged
    return BlobIndex(offsets=np.cumsum(stored) - stored, lengths=known)


def value_of(entry: bytes, path: str) -> bytes:
    """The value of an entry.

    Raises CorruptTable if the entry is damaged. The checksum covers the magic number, the value
    and, if Java wrote the entry, the length.
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
    """The bytes after the entries of a file. Lengths may be `NULL` or `PLACEHOLDER`."""
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


# --- blob keys -----------------------------------------------------------------------------------
# Converts the keys of a MAP<K, BLOB> to bytes and back.
#
# https://paimon.apache.org/docs/master/concepts/spec/fileformat/
#
# - Numbers are little-endian, of the width of their type.
# - A date is the number of days since 1970, a time the milliseconds since midnight.
# - A decimal is its unscaled value: 64 bits if its type has at most 18 digits, otherwise a
#   big-endian integer of variable length.

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
            unscaled = int(key.scaleb(kind.decimals, _EXACT))
            if kind.digits <= _COMPACT_DIGITS:
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
        if kind.digits <= _COMPACT_DIGITS:
            (unscaled,) = struct.unpack("<q", data)
        else:
            unscaled = int.from_bytes(data, "big", signed=True)
        return Decimal(unscaled).scaleb(-kind.decimals, _EXACT)
    (number,) = struct.unpack(_FORMATS[kind.root], data)
    if kind.root is Root.DATE:
        return _DAY_ZERO + timedelta(days=number)
    if kind.root is Root.TIME:
        if not 0 <= number < _DAY_MS:
            raise ValueError("a time is outside its day")
        return (datetime.combine(_DAY_ZERO, time()) + number * _MILLISECOND).time()
    return number


# --- blob values ---------------------------------------------------------------------------------
# Converts the values of a BLOB column to the bytes of file entries and back.
#
# https://paimon.apache.org/docs/master/concepts/spec/fileformat/
#
# - BLOB: the bytes themselves.
# - ARRAY<BLOB>: a magic number, a version, the number of elements, the elements, and an index of
#   their lengths, with the length of the index at the end.
# - MAP<K, BLOB>: the same, with all keys before all values, and an index of each.
#
# A negative length in an index stands for null.

_HEADER = struct.Struct("<iBi")
_ARRAY_MAGIC, _MAP_MAGIC = 1_094_861_634, 0x4D424342
_SIZE = struct.Struct("<i")
_NULL = -1


@dataclass(frozen=True, slots=True)
class Part:
    """A BLOB within the bytes of an entry: its start, end (None for a null), and key in a map."""

    begin: int
    end: int | None
    key: object


def blobs_of(value: object) -> list[bytes]:
    """The BLOBs within a non-null value of a BLOB column."""
    if isinstance(value, bytes):
        return [value]
    parts = cast("Sequence[object]", value)
    found = [part[1] if isinstance(part, tuple) else part for part in parts]
    return [part for part in found if isinstance(part, bytes)]


def with_each_blob(value: object, change: Callable[[bytes], bytes | None]) -> object:
    """A non-null value of a BLOB column, with `change(blob)` in place of each BLOB."""
    if isinstance(value, bytes):
        return change(value)
    found: list[object] = []
    for part in cast("Sequence[object]", value):
        if isinstance(part, tuple):
            key, blob = part
            found.append((key, None if blob is None else change(blob)))
        else:
            found.append(None if part is None else change(cast("bytes", part)))
    return found


def encode_value(value: object, data_type: DataType) -> list[bytes]:
    """The bytes of a value that is not null, in pieces."""
    match data_type:
        case Array():
            elements = cast("Sequence[bytes | None]", value)
            index = encode_lengths(_lengths(elements))
            head = _HEADER.pack(_ARRAY_MAGIC, _VERSION, len(elements))
            return [head, *_present(elements), index, _SIZE.pack(len(index))]
        case Map():
            pairs = cast("Sequence[tuple[object, bytes | None]]", value)
            keys = [key_bytes(key, data_type.key) for key, _ in pairs]
            if len(set(keys)) < len(keys):
                raise InvalidRequest("a map has a key twice", keys=[key for key, _ in pairs][:10])
            values = [blob for _, blob in pairs]
            indexes = encode_lengths(_lengths(keys)), encode_lengths(_lengths(values))
            head = _HEADER.pack(_MAP_MAGIC, _VERSION, len(pairs))
            sizes = b"".join(_SIZE.pack(len(index)) for index in indexes)
            return [head, *keys, *_present(values), *indexes, sizes]
        case _:
            return [cast("bytes", value)]


def parts_of(payload: bytes, data_type: DataType, path: str) -> list[Part]:
    """The BLOBs within the bytes of an entry of a list or a map.

    Raises CorruptTable for bytes that are not such an entry.
    """
    try:
        return _parts(payload, data_type)
    except (ValueError, struct.error, IndexError, OverflowError) as error:
        raise CorruptTable("a BLOB value is damaged", path=path) from error


def _parts(payload: bytes, data_type: DataType) -> list[Part]:
    magic, version, count = _HEADER.unpack_from(payload)
    is_map = isinstance(data_type, Map)
    if magic != (_MAP_MAGIC if is_map else _ARRAY_MAGIC) or count < 0:
        raise ValueError("another kind of value")
    if version != _VERSION:
        raise Unsupported("the version of a list or map of BLOB values", version=version)
    indexes: list[list[int]] = []
    end = len(payload) - _SIZE.size * (2 if is_map else 1)
    sizes = [size for (size,) in _SIZE.iter_unpack(payload[end:])]
    for size in reversed(sizes):
        if not 0 <= size <= end - _HEADER.size:
            raise ValueError("an index is outside the value")
        indexes.insert(0, decode_lengths(payload[end - size : end]).tolist())
        end -= size
    flat = [length for lengths in indexes for length in lengths]
    if any(len(each) != count for each in indexes) or any(length < _NULL for length in flat):
        raise ValueError("an index does not fit the value")
    begins = list(accumulate((max(length, 0) for length in flat), initial=_HEADER.size))
    if begins[-1] != end:
        raise ValueError("the lengths do not fit the value")
    keys: list[object] = [None] * count
    if isinstance(data_type, Map):
        if _NULL in indexes[0]:
            raise Unsupported("a map of BLOB values has a null key")
        key = data_type.key
        keys = [key_of(payload[begins[at] : begins[at + 1]], key) for at in range(count)]
    first = len(flat) - count
    return [
        Part(
            begin=begins[first + at],
            end=begins[first + at + 1] if flat[first + at] != _NULL else None,
            key=keys[at],
        )
        for at in range(count)
    ]


def _lengths(values: Sequence[bytes | None]) -> list[int]:
    return [_NULL if value is None else len(value) for value in values]


def _present(values: Sequence[bytes | None]) -> list[bytes]:
    return [value for value in values if value is not None]
