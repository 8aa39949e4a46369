"""The index type `bsi`: numbers as bit slices. Negative numbers have separate slices.

    1 | int rows | bool has positive, [slices] | bool has negative, [slices]
    slices: 1 | long min | long max | rows | int slices | bitmap per bit, the lowest first

A stored number is the absolute value minus `min`. The length of a bitmap is not stored; it follows
from the header of the bitmap. The least BIGINT has no absolute value: Java cannot write it, and
lakecore raises an error for it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.format.file_index.bit_slices import BitSlices, slices_of
from lakecore.format.file_index.coded import all_rows, decode_bitmap, encode_bitmap, stored_size
from lakecore.format.file_index.values import cut_short, stored_values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakecore.format.file_index.values import Key, ValueForm

_VERSION = 1
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
        """The stored index."""
        column = pa.chunked_array(self._parts, pa.int64()).combine_chunks()
        self._parts.clear()
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
        numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
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
        """The rows with a value."""
        return self._positive.rows | self._negative.rows

    def nulls(self) -> BitMap:
        """The rows with null."""
        return all_rows(self.row_count) - self.not_null()

    def rows_of(self, keys: Iterable[Key]) -> BitMap:
        """The rows with one of these values."""
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
