"""Encodes a column as a sorted dictionary of its distinct values, and for each row a *code*.

The code is the position of the row's value in the dictionary. The indexes `bitmap` and
`range-bitmap` are built from the codes. Encoding takes the memory of the distinct values of each
part of the column, and at most four bytes for each row.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lakecore.errors import CorruptTable
from lakecore.format.file_index.values import cut_short, stored_values

if TYPE_CHECKING:
    from lakecore.format.file_index.values import Key, ValueForm

NULL = -1
"""The code of a null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedColumn:
    """The distinct values, ascending. `codes` has the position of each row's value, or `NULL`."""

    keys: pa.Array
    codes: np.ndarray

    @property
    def key_list(self) -> list[Key]:
        """The distinct values as a list of Python values."""
        return list(self.keys.to_pylist())


@dataclass(slots=True)
class CodedParts:
    """Collects the parts of a column, in order."""

    form: ValueForm
    _parts: list[tuple[pa.Array, np.ndarray]] = field(default_factory=list)

    def add(self, column: pa.Array) -> None:
        """Add the values of further rows."""
        coded = stored_values(column, self.form).dictionary_encode()
        codes = pc.fill_null(coded.indices, NULL).to_numpy(zero_copy_only=False)
        self._parts.append((coded.dictionary, _narrow(codes, len(coded.dictionary))))

    def finish(self) -> CodedColumn:
        """The dictionary and the codes of the whole column."""
        kind = pa.large_binary() if self.form.is_text else pa.int64()
        keys = pa.chunked_array([part for part, _ in self._parts], kind).unique()
        keys = keys.take(pc.sort_indices(keys))
        codes = [np.empty(0, np.int64)]
        for part, own in self._parts:
            numbers = pc.index_in(part, value_set=keys).to_numpy(zero_copy_only=False)
            numbers = np.append(numbers.astype(np.int64), NULL)
            codes.append(numbers[own])
        self._parts.clear()
        return CodedColumn(keys=keys, codes=np.concatenate(codes))


def rows_by_code(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows sorted by the code of their value, and these codes, which ascend."""
    rows = np.argsort(codes, kind="stable")
    return rows.astype(np.uint32), codes[rows]


def bitmap_of(rows: np.ndarray) -> BitMap:
    """A bitmap of these rows."""
    return BitMap(rows.astype(np.uint32, copy=False))


def encode_bitmap(rows: BitMap) -> bytes:
    """The bitmap's bytes in the portable format, with run containers where they are smaller."""
    rows.run_optimize()
    return bytes(rows.serialize())


def all_rows(count: int) -> BitMap:
    """The bitmap of all rows of a file. Raises CorruptTable for a negative count."""
    if count < 0:
        raise CorruptTable("a file index has a negative number of rows", rows=count)
    rows = BitMap()
    rows.add_range(0, count)
    return rows


def decode_bitmap(data: bytes) -> BitMap:
    """The bitmap that these bytes begin with. Raises CorruptTable if they are not a bitmap."""
    if stored_size(data, 0) > len(data):
        raise cut_short()
    try:
        return BitMap.deserialize(data)
    except (ValueError, MemoryError, OverflowError) as error:
        raise CorruptTable("a bitmap of a file index is damaged") from error


def stored_size(body: bytes, at: int) -> int:
    """The length in bytes of the roaring bitmap at offset `at`, computed from its header.

    https://github.com/RoaringBitmap/RoaringFormatSpec
    """
    start = at
    try:
        (cookie,) = struct.unpack_from("<I", body, at)
        runs = cookie & 0xFFFF == 12347
        if runs:
            count = (cookie >> 16) + 1
            flags = body[at + 4 : at + 4 + (count + 7) // 8]
            at += 4 + len(flags)
        else:
            (count,) = struct.unpack_from("<I", body, at + 4)
            flags = b""
            at += 8
        sizes = [struct.unpack_from("<HH", body, at + 4 * n)[1] + 1 for n in range(count)]
        at += 4 * count
        if not runs or count >= 4:
            at += 4 * count
        for number, size in enumerate(sizes):
            if flags and flags[number // 8] >> (number % 8) & 1:
                (own,) = struct.unpack_from("<H", body, at)
                at += 2 + 4 * own
            else:
                at += 2 * size if size <= 4096 else 8192
    except (struct.error, IndexError) as error:
        raise cut_short() from error
    return at - start


def _narrow(codes: np.ndarray, count: int) -> np.ndarray:
    for kind in (np.int8, np.int16):
        if count <= np.iinfo(kind).max:
            return codes.astype(kind)
    return codes.astype(np.int32)
