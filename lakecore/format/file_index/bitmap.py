"""The index type `bitmap`: for each value of a column, the rows that have it.

Version 1, of Paimon up to 0.9:

    1 | int rows | int values | bool nulls, [int offset] | (value, int offset) per value | bitmaps

Version 2, which is written unless the option `version` says 1, sorts the values and cuts them into
blocks of at most `index-block-size`, so that a search reads one block:

    2 | int rows | int values | bool nulls, [int offset, int length] | int blocks
    | (first value, int offset) per block | int bytes of all blocks
    | per block: int entries, (value, int offset, int length) each | bitmaps

A negative offset -1 - r stands for the single row r, and no bitmap is stored.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap

from lakecore.errors import CorruptTable
from lakecore.format.file_index.coded import (
    NULL,
    CodedParts,
    Key,
    ValueForm,
    all_rows,
    bitmap_of,
    cut_short,
    decode_bitmap,
    encode_bitmap,
    int_at,
    rows_by_code,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa


BLOCK_BYTES = 16 << 10
VERSIONS = (1, 2)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A value and the position of its bitmap.

    `length` is -1 if it is unknown or for a single row.
    """

    packed: bytes
    offset: int
    length: int


class BitmapWriter:
    """Builds an index: `add` takes the values of rows in order, `finish` returns the bytes."""

    def __init__(self, form: ValueForm, version: int, block_bytes: int) -> None:
        self._form, self._version, self._block_bytes = form, version, block_bytes
        self._parts = CodedParts(form)

    def add(self, column: pa.Array) -> None:
        self._parts.add(column)

    def finish(self) -> bytes:
        column = self._parts.finish()
        rows, codes = rows_by_code(column.codes)
        starts = np.searchsorted(codes, np.arange(len(column.keys) + 1))
        nulls = rows[: int(starts[0])] if len(codes) and codes[0] == NULL else rows[:0]
        bodies: list[bytes] = []
        end = 0
        null_part = encode_bitmap(bitmap_of(nulls)) if len(nulls) else b""
        if len(nulls) > 1:
            bodies.append(null_part)
            end = len(null_part)
        entries: list[_Entry] = []
        for number, key in enumerate(column.key_list):
            own = rows[starts[number] : starts[number + 1]]
            packed = self._form.packed_key(key)
            if len(own) == 1:
                entries.append(_Entry(packed, -1 - int(own[0]), -1))
                continue
            bodies.append(encode_bitmap(bitmap_of(own)))
            entries.append(_Entry(packed, end, len(bodies[-1])))
            end += len(bodies[-1])
        head = struct.pack(">biib", self._version, len(column.codes), len(entries), len(nulls) > 0)
        if len(nulls):
            head += struct.pack(">i", -1 - int(nulls[0]) if len(nulls) == 1 else 0)
        if self._version == 1:
            listed = b"".join(each.packed + struct.pack(">i", each.offset) for each in entries)
            return head + listed + b"".join(bodies)
        if len(nulls):
            head += struct.pack(">i", len(null_part))
        return head + self._blocks(entries) + b"".join(bodies)

    def _blocks(self, entries: Iterable[_Entry]) -> bytes:
        blocks: list[list[_Entry]] = []
        size = 0
        for entry in entries:
            entry_bytes = len(entry.packed) + 8
            if not blocks or size + entry_bytes > self._block_bytes:
                blocks.append([])
                size = 4
            blocks[-1].append(entry)
            size += entry_bytes
        heads = bytearray(struct.pack(">i", len(blocks)))
        body = bytearray()
        for block in blocks:
            heads += block[0].packed + struct.pack(">i", len(body))
            body += struct.pack(">i", len(block))
            for entry in block:
                body += entry.packed + struct.pack(">ii", entry.offset, entry.length)
        return bytes(heads) + struct.pack(">i", len(body)) + bytes(body)


class BitmapIndex:
    """An index that was read from bytes, and is parsed only as far as a search needs it."""

    def __init__(self, body: bytes, form: ValueForm) -> None:
        self._body, self._form = body, form
        if len(body) < 10:
            raise cut_short()
        version, self.row_count, count, has_nulls = struct.unpack_from(">biib", body)
        if version not in VERSIONS:
            raise CorruptTable("a bitmap index has an unknown version", version=version)
        self._version, self._count = version, count
        at = 10
        self._null: _Entry | None = None
        if has_nulls:
            offset = int_at(body, at)
            at += 4
            length = -1
            if version > 1:
                length = int_at(body, at)
                at += 4
            self._null = _Entry(b"", offset, length)
        self._at = at

    def nulls(self) -> BitMap:
        return BitMap() if self._null is None else self._rows(self._null)

    def rows_of(self, keys: Iterable[Key]) -> BitMap:
        found = BitMap()
        for key in keys:
            entry = self._find(key)
            if entry is not None:
                found |= self._rows(entry)
        return found

    def not_null(self) -> BitMap:
        return all_rows(self.row_count) - self.nulls()

    def _rows(self, entry: _Entry) -> BitMap:
        if entry.offset < 0:
            return BitMap([-1 - entry.offset])
        start = self._bodies_at + entry.offset
        end = len(self._body) if entry.length < 0 else start + entry.length
        if start > len(self._body) or end > len(self._body):
            raise cut_short()
        return decode_bitmap(self._body[start:end])

    def _find(self, key: Key) -> _Entry | None:
        if self._version == 1:
            return self._listed.get(key)
        number = bisect_right(self._first_keys, key) - 1
        if number < 0:
            return None
        keys, entries = self._block(self._blocks[number][1])
        place = bisect_left(keys, key)
        return entries[place] if place < len(keys) and keys[place] == key else None

    def _block(self, offset: int) -> tuple[list[Key], list[_Entry]]:
        at = self._blocks_at + offset
        keys: list[Key] = []
        entries: list[_Entry] = []
        count = int_at(self._body, at)
        at += 4
        for _ in range(count):
            key, at = self._form.key_at(self._body, at)
            keys.append(key)
            entries.append(_Entry(b"", int_at(self._body, at), int_at(self._body, at + 4)))
            at += 8
        return keys, entries

    @cached_property
    def _listed(self) -> dict[Key, _Entry]:
        """All values of an index of version 1. A bitmap ends where the next one begins."""
        found: dict[Key, _Entry] = {}
        at = self._at
        for _ in range(self._count):
            key, at = self._form.key_at(self._body, at)
            found[key] = _Entry(b"", int_at(self._body, at), -1)
            at += 4
        return found

    @cached_property
    def _head(self) -> tuple[list[tuple[Key, int]], int, int]:
        """For version 2: first value and offset of each block; the start of blocks, and of bitmaps.

        Offsets count from the start of the index.
        """
        at = self._at
        count = int_at(self._body, at)
        at += 4
        blocks: list[tuple[Key, int]] = []
        for _ in range(count):
            key, at = self._form.key_at(self._body, at)
            blocks.append((key, int_at(self._body, at)))
            at += 4
        size = int_at(self._body, at)
        at += 4
        return blocks, at, at + size

    @property
    def _blocks(self) -> list[tuple[Key, int]]:
        return self._head[0]

    @cached_property
    def _first_keys(self) -> list[Key]:
        return [key for key, _ in self._blocks]

    @property
    def _blocks_at(self) -> int:
        return self._head[1]

    @cached_property
    def _bodies_at(self) -> int:
        if self._version > 1:
            return self._head[2]
        at = self._at
        for _ in range(self._count):
            _, at = self._form.key_at(self._body, at)
            at += 4
        return at
