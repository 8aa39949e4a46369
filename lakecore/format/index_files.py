"""The index files of a table: deletion vectors, and the hash indexes of dynamic buckets."""

from __future__ import annotations

import struct
import zlib
from array import array
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from pyroaring import BitMap, BitMap64

from lakecore.errors import CorruptTable
from lakecore.format.layout import checksum_in, index_file_name
from lakecore.model.files import HASH_INDEX, IndexFile, VectorRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray


# --- deletion vector -----------------------------------------------------------------------------
# Converts deletion vectors to bytes and back.
#
# A vector holds the positions of deleted rows, from 0.
#
# An index file is the version byte 1 followed by vectors in one of two forms, which the magic
# number distinguishes. The bytes of each form:
#
#     32-bit   int n | int magic       | roaring bitmap                          | int CRC-32
#     64-bit   int n | int magic (LE)  | long count, (int high half, roaring)... | int CRC-32
#
# n is the length of magic and bitmaps, and the checksum covers the same bytes. Numbers are
# big-endian, except those inside the 64-bit form. Roaring bitmaps are in the portable format.
#
# NOTE: the range of a vector in an index manifest starts at the field n in both forms. The length
# of the range is n in the 32-bit form, and n + 8 (with the field n and the checksum) in the 64-bit
# form.

Positions: TypeAlias = "NDArray[np.int64]"

_VERSION = b"\x01"
_MAGIC_32 = struct.pack(">I", 1581511376)
_MAGIC_64 = struct.pack("<I", 1681511377)
_FRAME_SIZE = 8
_POSITION_32_MAX = 2**31 - 1


def vector_span(vector: VectorRange) -> tuple[int, int]:
    """The offset and length of bytes that contain the vector.

    The span may extend past the end of the file.
    """
    return vector.offset, vector.length + _FRAME_SIZE


def decode_vector(
    span: bytes, vector: VectorRange, path: str, rows_max: int | None = None
) -> Positions:
    """The deleted positions, ascending, of one data file. `span` begins at the vector's offset.

    Raises CorruptTable naming `path` and the data file if lengths, magic, checksum or cardinality
    contradict each other, or if there are more than `rows_max` positions. Memory for the positions
    is allocated only after these checks.
    """
    facts = {"path": path, "data_file": vector.data_file, "offset": vector.offset}
    if len(span) < _FRAME_SIZE:
        raise CorruptTable("a deletion vector is cut short", **facts)
    (size,) = struct.unpack_from(">i", span)
    body, checksum = span[4 : 4 + size], span[4 + size : _FRAME_SIZE + size]
    if size < 4 or len(checksum) < 4:
        raise CorruptTable("a deletion vector is cut short", size_bytes=size, **facts)
    magic = body[:4]
    if magic not in (_MAGIC_32, _MAGIC_64):
        raise CorruptTable("a deletion vector has an unknown magic number", magic=magic, **facts)
    if vector.length != (size if magic == _MAGIC_32 else size + _FRAME_SIZE):
        raise CorruptTable(
            "a deletion vector has another length than its range says",
            size_bytes=size,
            range_length=vector.length,
            **facts,
        )
    if zlib.crc32(body) != int.from_bytes(checksum, "big"):
        raise CorruptTable("a deletion vector fails its checksum", **facts)
    try:
        bitmap = (BitMap if magic == _MAGIC_32 else BitMap64).deserialize(body[4:])
    except (IndexError, ValueError) as error:
        raise CorruptTable("a deletion vector holds no bitmap", why=error, **facts) from error
    if vector.cardinality not in (None, len(bitmap)):
        raise CorruptTable(
            "a deletion vector has another cardinality than its range says",
            cardinality=len(bitmap),
            range_cardinality=vector.cardinality,
            **facts,
        )
    if rows_max is not None and len(bitmap) > rows_max:
        raise CorruptTable(
            "a deletion vector has more positions than its data file has rows",
            cardinality=len(bitmap),
            rows=rows_max,
            **facts,
        )
    return np.asarray(bitmap.to_array()).astype(np.int64)


def decode_vectors(
    data: bytes, ranges: Iterable[VectorRange], path: str, rows_max: int | None = None
) -> dict[str, Positions]:
    """The deleted positions by data file, from the bytes of a whole index file.

    `rows_max` is the row count of the largest data file, if known.
    """
    check_version(data, path)
    vectors: dict[str, Positions] = {}
    for vector in ranges:
        start, length = vector_span(vector)
        vectors[vector.data_file] = decode_vector(
            data[start : start + length], vector, path, rows_max
        )
    return vectors


def check_version(data: bytes, path: str) -> None:
    """Raise CorruptTable unless the bytes are the beginning of a deletion vector file."""
    if data[:1] != _VERSION:
        raise CorruptTable("the file holds no deletion vectors", path=path, begins=data[:1])


def distinct(positions: Positions) -> Positions:
    """The positions in ascending order, without duplicates."""
    # NOTE: `np.unique` hashes integers, which takes 50 times as long for positions of a file.
    ordered = np.sort(positions, kind="stable")
    first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def encode_vectors(
    vectors: Mapping[str, Positions], *, bitmap64: bool = False
) -> tuple[bytes, tuple[VectorRange, ...]]:
    """The bytes of an index file, and the range of each data file's vector in it.

    Positions need no order and may repeat; without `bitmap64` they must be below 2**31.
    """
    parts, at = [_VERSION], len(_VERSION)
    ranges: list[VectorRange] = []
    for data_file, positions in vectors.items():
        part, vector = _encoded(data_file, positions, at, bitmap64=bitmap64)
        ranges.append(vector)
        parts.append(part)
        at += len(part)
    return b"".join(parts), tuple(ranges)


def encode_rolling(
    vectors: Mapping[str, Positions], *, bitmap64: bool = False, target_bytes: int
) -> list[tuple[bytes, tuple[VectorRange, ...]]]:
    """Index files with these vectors; a new file begins after one has more than `target_bytes`."""
    files: list[tuple[bytes, tuple[VectorRange, ...]]] = []
    held: dict[str, Positions] = {}
    held_bytes = len(_VERSION)
    for data_file, positions in vectors.items():
        part, _ = _encoded(data_file, positions, 0, bitmap64=bitmap64)
        held[data_file] = positions
        held_bytes += len(part)
        if held_bytes > target_bytes:
            files.append(encode_vectors(held, bitmap64=bitmap64))
            held, held_bytes = {}, len(_VERSION)
    return [*files, encode_vectors(held, bitmap64=bitmap64)] if held else files


def _encoded(
    data_file: str, positions: Positions, at: int, *, bitmap64: bool
) -> tuple[bytes, VectorRange]:
    """The bytes of a vector, and its range if they begin at offset `at`."""
    unique = distinct(np.asarray(positions, dtype=np.int64))
    assert unique.size == 0 or unique[0] >= 0, "a position is a row number"
    assert bitmap64 or unique.size == 0 or unique[-1] <= _POSITION_32_MAX, "needs bitmap64"
    # An `array` avoids one Python object for each position.
    bitmap = (
        BitMap64(array("Q", unique.astype("u8").tobytes()))
        if bitmap64
        else BitMap(array("I", unique.astype("u4").tobytes()))
    )
    bitmap.run_optimize()
    body = (_MAGIC_64 if bitmap64 else _MAGIC_32) + bitmap.serialize()
    part = b"".join((struct.pack(">i", len(body)), body, struct.pack(">I", zlib.crc32(body))))
    length = len(part) if bitmap64 else len(body)
    return part, VectorRange(
        data_file=data_file, offset=at, length=length, cardinality=int(unique.size)
    )


# --- hash index ----------------------------------------------------------------------------------
# Converts the hash index of a dynamic bucket to bytes and back.
#
# The index has the hash of every key that was ever put in the bucket. The file consists of
# big-endian 32-bit integers; their order has no meaning. A damaged hash would silently put a stored
# key into a second bucket. The format has no checksum, and other programs would read a trailer as
# hashes. Therefore lakecore puts the CRC-32 of the file into its name.

_STORED = np.dtype(">i4")


def decode_hashes(data: bytes, file: IndexFile, path: str) -> NDArray[np.int32]:
    """The hashes that an index file holds, in the order of the file.

    Raises CorruptTable naming `path` if the bytes are not those that the index manifest and the
    name of the file describe. The name has a checksum only if lakecore wrote the file.
    """
    if len(data) != file.size_bytes or len(data) != file.row_count * _STORED.itemsize:
        raise CorruptTable(
            "a hash index has another size than its manifest says",
            path=path,
            size_bytes=len(data),
            manifest_size_bytes=file.size_bytes,
            manifest_hashes=file.row_count,
        )
    if checksum_in(file.name) not in (None, zlib.crc32(data)):
        raise CorruptTable("a hash index fails its checksum", path=path)
    return np.frombuffer(data, dtype=_STORED).astype(np.int32)


def encode_hashes(hashes: NDArray[np.int32], writer: str) -> tuple[bytes, IndexFile]:
    """The bytes of an index file with these hashes, and its entry.

    `writer` is a part of the file name, and makes it unique.
    """
    data = hashes.astype(_STORED).tobytes()
    return data, IndexFile(
        index_type=HASH_INDEX,
        name=index_file_name(writer, 0, zlib.crc32(data)),
        size_bytes=len(data),
        row_count=len(hashes),
    )
