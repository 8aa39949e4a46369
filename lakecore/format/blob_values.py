"""Converts the values of a BLOB column to the bytes of file entries and back.

https://paimon.apache.org/docs/master/concepts/spec/fileformat/

- BLOB: the bytes themselves.
- ARRAY<BLOB>: a magic number, a version, the number of elements, the elements, and an index of
  their lengths, with the length of the index at the end.
- MAP<K, BLOB>: the same, with all keys before all values, and an index of each.

A negative length in an index stands for null.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, cast

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.format.blob_file import decode_lengths, encode_lengths
from lakecore.format.blob_keys import key_bytes, key_of
from lakecore.model.types import Array, Map

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.model.types import DataType

_HEADER = struct.Struct("<iBi")
_VERSION = 1
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
    if any(len(lengths) != count for lengths in indexes) or min(flat, default=0) < _NULL:
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
