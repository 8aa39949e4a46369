"""Converts the container with all file indexes of one data file to bytes and back.

    long magic | int 1 | int head length | int columns
    per column:  name | int indexes;  per index:  type | int start (-1: empty) | int length
    int 0 | bodies

Names and types are Java's modified UTF-8, prefixed with a length of two bytes. The start of an
index is counted from the start of the file. An empty index stands for a map key that no row has.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable
from lakecore.format.varints import encode_java_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAGIC = 1493475289347502
_VERSION = 1
_HEAD = struct.Struct(">qii")
_NAME = "the name of a file index"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIndex:
    """One index: its column (`map[key]` for a key of a map), its type, and its bytes.

    `body` is None if the index is empty.
    """

    column: str
    index_type: str
    body: bytes | None


def encode_container(indexes: Iterable[StoredIndex]) -> bytes:
    """The bytes of a container."""
    columns: dict[str, list[StoredIndex]] = {}
    for index in indexes:
        columns.setdefault(index.column, []).append(index)
    names = {column: encode_java_text(column, _NAME) for column in columns}
    types = {
        each.index_type: encode_java_text(each.index_type, _NAME)
        for own in columns.values()
        for each in own
    }
    head_length = _HEAD.size + 4 + 4
    for column, own in columns.items():
        head_length += len(names[column]) + 4 + sum(len(types[i.index_type]) + 8 for i in own)
    head = bytearray(_HEAD.pack(_MAGIC, _VERSION, head_length))
    head += struct.pack(">i", len(columns))
    bodies: list[bytes] = []
    start = head_length
    for column, own in columns.items():
        head += names[column] + struct.pack(">i", len(own))
        for index in own:
            body = index.body
            at, length = (-1, 0) if body is None else (start, len(body))
            head += types[index.index_type] + struct.pack(">ii", at, length)
            bodies.append(body or b"")
            start += length
    head += struct.pack(">i", 0)
    assert len(head) == head_length
    return bytes(head) + b"".join(bodies)


def decode_container(data: bytes) -> tuple[StoredIndex, ...]:
    """The indexes of a container. Raises CorruptTable if it is damaged or of a newer version."""
    return tuple(_indexes(data))


def _indexes(data: bytes) -> Iterator[StoredIndex]:
    try:
        magic, version, head_length = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise CorruptTable("these bytes are no file index")
        if version != _VERSION:
            raise CorruptTable("a file index has an unknown version", version=version)
        if not _HEAD.size + 4 <= head_length <= len(data):
            raise CorruptTable("the head of a file index is cut short", head_bytes=head_length)
        (columns,) = struct.unpack_from(">i", data, _HEAD.size)
        at = _HEAD.size + 4
        for _ in range(columns):
            column, at = _decode_name(data, at)
            (count,) = struct.unpack_from(">i", data, at)
            at += 4
            for _ in range(count):
                index_type, at = _decode_name(data, at)
                start, length = struct.unpack_from(">ii", data, at)
                at += 8
                body = None if start == -1 else _body(data, start, length, head_length)
                yield StoredIndex(column=column, index_type=index_type, body=body)
    except struct.error as error:
        raise CorruptTable("the head of a file index is cut short") from error


def _body(data: bytes, start: int, length: int, head_length: int) -> bytes:
    if start < head_length or length < 0 or start + length > len(data):
        raise CorruptTable(
            "a file index points outside of its bytes", start=start, length=length, size=len(data)
        )
    return data[start : start + length]


def _decode_name(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">H", data, at)
    end = at + 2 + length
    if end > len(data):
        raise CorruptTable("the head of a file index is cut short")
    raw = data[at + 2 : end].replace(b"\xc0\x80", b"\x00")
    try:
        halves = raw.decode("utf-8", "surrogatepass")
        return halves.encode("utf-16-be", "surrogatepass").decode("utf-16-be"), end
    except UnicodeError as error:
        raise CorruptTable("a name in a file index is no text", name=raw) from error
