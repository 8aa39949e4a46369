"""The index type `bloom-filter`: whether a column of a file may hold a value.

    int number of hash functions | bits, the lowest bit of each byte first

Nulls are not added. The options are `items`, the number of values that the filter is sized for, and
`fpp`, its false-positive rate with that number of values.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import numpy as np

from lakecore.errors import CorruptTable
from lakecore.format.file_index.hashes import hash_numbers, hash_texts
from lakecore.format.file_index.values import stored_values
from lakecore.model.types import Root

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecore.format.file_index.values import ValueForm

_BITS_MAX = (1 << 31) - 8
_ADDED_ROWS = 65_536
_FUNCTIONS_MAX = 1_000
"""A false-positive rate of 1e-9 takes 30 functions."""


def filter_size(items: int, fpp: float) -> tuple[int, int] | None:
    """The numbers of bits and of hash functions; None if the filter would be too large."""
    wanted = int(-items * math.log(fpp) / (math.log(2) * math.log(2)))
    bits = wanted + 8 - wanted % 8
    if bits > _BITS_MAX:
        return None
    # Java rounds halves up.
    return bits, max(1, math.floor(bits / items * math.log(2) + 0.5))


class BloomFilterWriter:
    """Builds a filter: `add` takes values, `finish` returns the bytes."""

    def __init__(self, form: ValueForm, items: int, fpp: float) -> None:
        size = filter_size(items, fpp)
        assert size is not None, "checked where the options are read"
        self._form = form
        self._bits, self._functions = size
        self._set = np.zeros(self._bits, bool) if self._bits < 1 << 20 else None
        self._bytes = np.zeros(self._bits // 8, np.uint8)

    def add(self, column: pa.Array) -> None:
        """Add the values of some rows."""
        hashes = _hashes(column.drop_null().unique(), self._form)
        for start in range(0, len(hashes), _ADDED_ROWS):
            places = _places(hashes[start : start + _ADDED_ROWS], self._bits, self._functions)
            if self._set is not None:
                self._set[places] = True
            else:
                marks = np.left_shift(1, places & 7).astype(np.uint8)
                np.bitwise_or.at(self._bytes, places >> 3, marks)

    def finish(self) -> bytes:
        """The stored filter."""
        if self._set is not None:
            self._bytes = np.packbits(self._set, bitorder="little")
        return struct.pack(">i", self._functions) + self._bytes.tobytes()


def may_hold(body: bytes, values: pa.Array, form: ValueForm) -> np.ndarray:
    """For each value, whether the filter may hold it. No value is null."""
    if len(values) == 0:
        return np.zeros(0, bool)
    bits = 8 * (len(body) - 4)
    if bits <= 0:
        raise CorruptTable("a Bloom filter has no bits", size_bytes=len(body))
    (functions,) = struct.unpack_from(">i", body)
    if not 1 <= functions <= _FUNCTIONS_MAX:
        raise CorruptTable("a Bloom filter has no such hash functions", functions=functions)
    data = np.frombuffer(body, np.uint8, offset=4)
    places = _places(_hashes(values, form), bits, functions).reshape(functions, len(values))
    set_ = (data[places >> 3] >> (places & 7).astype(np.uint8)) & 1
    held: np.ndarray = set_.all(axis=0)
    return held


def _hashes(column: pa.Array, form: ValueForm) -> np.ndarray:
    """The hash of each value of a column without nulls."""
    values = stored_values(column, form)
    if form.is_text:
        return hash_texts(values)
    numbers = values.to_numpy(zero_copy_only=False)
    if form.root is Root.FLOAT:
        numbers = np.frombuffer(form.pack(numbers), ">i4").astype(np.int64)
    elif form.root is Root.DOUBLE:
        numbers = np.frombuffer(form.pack(numbers), ">i8").astype(np.int64)
    return hash_numbers(numbers)


def _places(hashes: np.ndarray, bits: int, functions: int) -> np.ndarray:
    """The bit positions of the hashes: all those of the first hash function, then of the next."""
    low, high = hashes.astype(np.int32), (hashes >> 32).astype(np.int32)
    with np.errstate(over="ignore"):
        each = [low + np.int32(turn) * high for turn in range(1, functions + 1)]
    return np.concatenate([np.where(mixed < 0, ~mixed, mixed) for mixed in each]) % np.int32(bits)
