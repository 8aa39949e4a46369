"""The index type `range-bitmap`: finds the rows whose values are in a range.

    int head length | head: 1 | int rows | int values | [min | max] | int dictionary length
    dictionary | slices

The distinct values, sorted, form a dictionary. For each row, the position of its value in the
dictionary is stored as bit slices. The dictionary is cut into chunks. The head of a chunk holds its
first value:

    int head length | head: 1 | int chunks | int bytes of offsets | int bytes of chunk heads
    int offset per chunk | chunk heads | values
    chunk head: 1 | first value | int its number | int offset of further values | int their count
                | numbers: int bytes, int width | texts: int bytes of offsets, int bytes of texts

The option `chunk-size` limits the values of a chunk after the first one.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.format.file_index.coded import (
    NULL,
    CodedColumn,
    CodedParts,
    Key,
    ValueForm,
    all_rows,
    bitmap_of,
    cut_short,
    decode_bitmap,
    encode_bitmap,
    int_at,
    stored_size,
    stored_values,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# --- bit slices ----------------------------------------------------------------------------------
# A number for each row, as bit slices: slice i is the bitmap of the rows whose number has bit i.
#
# Comparisons with a number go through the slices from the highest bit (O'Neil and Quass, 1997).


@dataclass(frozen=True, slots=True)
class BitSlices:
    """Bit slices of the numbers minus `least`, lowest bit first.

    `rows` are the rows with a number.
    """

    rows: BitMap
    slices: Sequence[BitMap]
    least: int = 0

    def equal(self, number: int) -> BitMap:
        return self._compared(number)[1]

    def below(self, number: int) -> BitMap:
        return self._compared(number)[0]

    def _compared(self, number: int) -> tuple[BitMap, BitMap]:
        """The rows with a smaller number, and the rows with this number."""
        number -= self.least
        if number < 0:
            return BitMap(), BitMap()
        if number.bit_length() > len(self.slices):
            return BitMap(self.rows), BitMap()
        smaller, equal = BitMap(), BitMap(self.rows)
        for bit in reversed(range(len(self.slices))):
            if number >> bit & 1:
                smaller |= equal - self.slices[bit]
                equal &= self.slices[bit]
            else:
                equal -= self.slices[bit]
        return smaller, equal


def slices_of(rows: np.ndarray, numbers: np.ndarray, count: int) -> BitSlices:
    """Bit slices of the numbers of these rows: `count` slices. No number is negative."""
    own = [bitmap_of(rows[(numbers >> bit & 1).astype(bool)]) for bit in range(min(count, 63))]
    own += [BitMap() for _ in range(count - len(own))]
    return BitSlices(bitmap_of(rows), own)


# --- range bitmap --------------------------------------------------------------------------------

_VERSION = 1
_NO_VALUES_SLICES = 64
"""The number of slices of an index without values: Java writes 64, the number of bits of -1."""


class RangeBitmapWriter:
    """Builds an index: `add` takes the values of rows in order, `finish` returns the bytes."""

    def __init__(self, form: ValueForm, chunk_bytes: int) -> None:
        self._form, self._chunk_bytes = form, chunk_bytes
        self._parts = CodedParts(form)

    def add(self, column: pa.Array) -> None:
        self._parts.add(column)

    def finish(self) -> bytes:
        column = self._parts.finish()
        count = len(column.keys)
        bounds = b""
        if count:
            ends = (column.keys[0].as_py(), column.keys[count - 1].as_py())
            bounds = b"".join(map(self._form.packed_key, ends))
        dictionary = self._dictionary(column)
        head = struct.pack(">bii", _VERSION, len(column.codes), count) + bounds
        head += struct.pack(">i", len(dictionary))
        return (
            struct.pack(">i", len(head)) + head + dictionary + _encode_slices(column.codes, count)
        )

    def _dictionary(self, column: CodedColumn) -> bytes:
        chunks = self._text_chunks(column) if self._form.is_text else self._number_chunks(column)
        offsets, heads, values = bytearray(), bytearray(), bytearray()
        count = 0
        for first, number, further, counts in chunks:
            offsets += struct.pack(">i", len(heads))
            heads += struct.pack(">b", _VERSION) + first
            heads += struct.pack(">iiiii", number, len(values), *counts)
            values += further
            count += 1
        head = struct.pack(">biii", _VERSION, count, len(offsets), len(heads))
        return struct.pack(">i", len(head)) + head + bytes(offsets + heads + values)

    def _number_chunks(
        self, column: CodedColumn
    ) -> Iterable[tuple[bytes, int, bytes, tuple[int, int, int]]]:
        """For each chunk of numbers: its first value, the position of that value, the other values.

        The last element states their count, their size in bytes, and the size of one value.
        """
        width = self._form.width
        packed = self._form.pack(column.keys.to_numpy())
        step = 1 + self._chunk_bytes // width
        for start in range(0, len(column.keys), step):
            end = min(start + step, len(column.keys))
            further = packed[(start + 1) * width : end * width]
            first = packed[start * width : (start + 1) * width]
            yield first, start, further, (end - start - 1, len(further), width)

    def _text_chunks(
        self, column: CodedColumn
    ) -> Iterable[tuple[bytes, int, bytes, tuple[int, int, int]]]:
        packed = [self._form.packed_key(key) for key in column.key_list]
        start = 0
        while start < len(packed):
            end, size = start + 1, 0
            while end < len(packed) and size + len(packed[end]) <= self._chunk_bytes:
                size += len(packed[end])
                end += 1
            further = packed[start + 1 : end]
            starts = np.cumsum([0, *map(len, further)])[:-1]
            offsets = starts.astype(">i4").tobytes()
            yield (
                packed[start],
                start,
                offsets + b"".join(further),
                (len(further), len(offsets), size),
            )
            start = end


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The head of a chunk; `start` is the offset of its further values."""

    first: Key
    number: int
    start: int
    count: int
    offsets_bytes: int


class RangeBitmapIndex:
    """An index that was read from bytes, and is parsed only as far as a search needs it."""

    def __init__(self, body: bytes, form: ValueForm) -> None:
        self._body, self._form = body, form
        head, self._dictionary_at = _head(body, 0)
        version, self.row_count, self._count = _unpacked(">bii", head)
        if version != _VERSION:
            raise CorruptTable("a range bitmap has an unknown version", version=version)
        self._slices_at = self._dictionary_at + int_at(body, len(head))

    def not_null(self) -> BitMap:
        return BitMap(self._slices.rows) if self._count > 0 else BitMap()

    def nulls(self) -> BitMap:
        return all_rows(self.row_count) - self.not_null()

    def rows_of(self, keys: Iterable[Key]) -> BitMap:
        found = BitMap()
        for key in keys if self._count > 0 else ():
            number, is_there = self._number(key)
            if is_there:
                found |= self._slices.equal(number)
        return found

    def below(self, key: Key, *, included: bool) -> BitMap:
        """The rows whose value is below the key, or equal to it if `included`."""
        if self._count <= 0:
            return BitMap()
        number, is_there = self._number(key)
        return self._slices.below(number + (is_there and included))

    def _number(self, key: Key) -> tuple[int, bool]:
        """The number of values below the key, and whether the key is one of the values."""
        firsts = [chunk.first for chunk in self._chunks]
        at = bisect_right(firsts, key) - 1
        if at < 0:
            return 0, False
        chunk = self._chunks[at]
        if chunk.first == key:
            return chunk.number, True
        further = self._further(chunk)
        place = bisect_left(further, key)
        return chunk.number + 1 + place, place < len(further) and further[place] == key

    def _further(self, chunk: _Chunk) -> list[Key]:
        if not self._form.is_text:
            return list(self._form.unpack(self._body, chunk.count, chunk.start).tolist())
        at = chunk.start + chunk.offsets_bytes
        keys: list[Key] = []
        for _ in range(chunk.count):
            key, at = self._form.key_at(self._body, at)
            keys.append(key)
        return keys

    @cached_property
    def _chunks(self) -> list[_Chunk]:
        body = self._body
        head, at = _head(body, self._dictionary_at)
        version, count, offsets, heads = _unpacked(">biii", head)
        if version != _VERSION:
            raise CorruptTable("a range bitmap has an unknown version", version=version)
        at += offsets
        values_at = at + heads
        found = []
        for _ in range(count):
            first, at = self._form.key_at(body, at + 1)
            number, offset, own, second, _ = _unpacked(">iiiii", body, at)
            at += 20
            found.append(_Chunk(first, number, values_at + offset, own, second))
        return found

    @cached_property
    def _slices(self) -> BitSlices:
        body = self._body
        head, start = _head(body, self._slices_at)
        version, count, rows_length, _ = _unpacked(">bbii", head)
        if version != _VERSION:
            raise CorruptTable("a range bitmap has an unknown version", version=version)
        places = [
            (int_at(head, 10 + 8 * slice_), int_at(head, 14 + 8 * slice_))
            for slice_ in range(count)
        ]
        after = start + rows_length
        rows = decode_bitmap(_part(body, start, rows_length))
        slices = [decode_bitmap(_part(body, after + offset, size)) for offset, size in places]
        return BitSlices(rows, slices)


def _head(body: bytes, at: int) -> tuple[bytes, int]:
    """A head, which follows its length, and where it ends."""
    length = int_at(body, at)
    return _part(body, at + 4, length), at + 4 + length


def _unpacked(form: str, body: bytes, at: int = 0) -> tuple[int, ...]:
    return struct.unpack(form, _part(body, at, struct.calcsize(form)))


def _part(body: bytes, start: int, length: int) -> bytes:
    if start < 0 or length < 0 or start + length > len(body):
        raise cut_short()
    return body[start : start + length]


def _encode_slices(codes: np.ndarray, count: int) -> bytes:
    width = max(1, (count - 1).bit_length()) if count else _NO_VALUES_SLICES
    rows = np.flatnonzero(codes != NULL)
    sliced = slices_of(rows, codes[rows], width)
    all_rows = encode_bitmap(sliced.rows)
    parts = [encode_bitmap(each) for each in sliced.slices]
    places = bytearray()
    offset = 0
    for part in parts:
        places += struct.pack(">ii", offset, len(part))
        offset += len(part)
    head = struct.pack(">bbii", _VERSION, width, len(all_rows), len(places)) + bytes(places)
    return struct.pack(">i", len(head)) + head + all_rows + b"".join(parts)


# --- bsi -----------------------------------------------------------------------------------------
# The index type `bsi`: numbers as bit slices. Negative numbers have separate slices.
#
#     1 | int rows | bool has positive, [slices] | bool has negative, [slices]
#     slices: 1 | long min | long max | rows | int slices | bitmap per bit, the lowest first
#
# A stored number is the absolute value minus `min`. The length of a bitmap is not stored; it
# follows from the header of the bitmap. The least BIGINT has no absolute value: Java cannot write
# it, and lakecore raises an error for it.

_LEAST = -(1 << 63)


class BsiWriter:
    """Builds an index: `add` takes the values of rows in order, `finish` returns the bytes."""

    def __init__(self, form: ValueForm) -> None:
        self._form = form
        self._parts: list[pa.Array] = []

    def add(self, column: pa.Array) -> None:
        """Add the values of some rows. Raises InvalidRequest for the least BIGINT."""
        values = stored_values(column, self._form)
        if pc.any(pc.equal(values, _LEAST)).as_py():
            raise InvalidRequest("an index of type bsi cannot hold this value", value=_LEAST)
        self._parts.append(values)

    def finish(self) -> bytes:
        column = pa.chunked_array(self._parts, pa.int64()).combine_chunks()
        self._parts.clear()
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
        numbers = pc.fill_null(column, 0).to_numpy()
        positive = np.flatnonzero(valid & (numbers >= 0))
        negative = np.flatnonzero(valid & (numbers < 0))
        parts = [struct.pack(">bi", _VERSION, len(numbers))]
        for rows, own in ((positive, numbers[positive]), (negative, -numbers[negative])):
            parts.append(struct.pack(">b", len(rows) > 0))
            if len(rows):
                parts.append(_encode(rows, own))
        return b"".join(parts)


class BsiIndex:
    """An index that was read from bytes."""

    def __init__(self, body: bytes) -> None:
        if len(body) < 6:
            raise cut_short()
        version, self.row_count = struct.unpack_from(">bi", body)
        _check(version)
        self._positive, at = _decode(body, 5)
        self._negative, _ = _decode(body, at)

    def not_null(self) -> BitMap:
        return self._positive.rows | self._negative.rows

    def nulls(self) -> BitMap:
        return all_rows(self.row_count) - self.not_null()

    def rows_of(self, keys: Iterable[Key]) -> BitMap:
        found = BitMap()
        for key in keys:
            assert isinstance(key, int)
            found |= self._negative.equal(-key) if key < 0 else self._positive.equal(key)
        return found

    def below(self, key: Key, *, included: bool) -> BitMap:
        """The rows whose value is below the key, or equal to it if `included`."""
        assert isinstance(key, int)
        if key >= 0:
            return self._negative.rows | self._positive.below(key + included)
        absolute = -key
        return self._negative.rows - self._negative.below(absolute + (not included))


def _encode(rows: np.ndarray, numbers: np.ndarray) -> bytes:
    greatest = int(numbers.max())
    sliced = slices_of(rows, numbers, greatest.bit_length())
    head = struct.pack(">bqq", _VERSION, 0, greatest)
    parts = b"".join(encode_bitmap(each) for each in sliced.slices)
    return head + encode_bitmap(sliced.rows) + struct.pack(">i", len(sliced.slices)) + parts


def _decode(body: bytes, at: int) -> tuple[BitSlices, int]:
    """The bit slices at an offset, and where they end. A flag of 0 at the start means none."""
    if at >= len(body):
        raise cut_short()
    if not body[at]:
        return BitSlices(BitMap(), ()), at + 1
    if at + 18 > len(body):
        raise cut_short()
    version, least, _ = struct.unpack_from(">bqq", body, at + 1)
    _check(version)
    rows, at = _bitmap_at(body, at + 18)
    if at + 4 > len(body):
        raise cut_short()
    (count,) = struct.unpack_from(">i", body, at)
    at += 4
    slices = []
    for _ in range(count):
        each, at = _bitmap_at(body, at)
        slices.append(each)
    return BitSlices(rows, slices, least), at


def _bitmap_at(body: bytes, at: int) -> tuple[BitMap, int]:
    if at >= len(body):
        raise cut_short()
    found = decode_bitmap(body[at:])
    return found, at + stored_size(body, at)


def _check(version: int) -> None:
    if version != _VERSION:
        raise CorruptTable("a bsi index has an unknown version", version=version)
