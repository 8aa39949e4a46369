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
from lakecore.format.file_index.coded import ValueForm, stored_values
from lakecore.model.types import Root

if TYPE_CHECKING:
    import pyarrow as pa


# --- hashes --------------------------------------------------------------------------------------
# The 64-bit hashes of the Bloom filter, for whole columns at once.
#
# Numbers are mixed by Thomas Wang's function (with arithmetic shifts to the right); strings and
# binaries are hashed by XXH64 with seed 0.

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_STRIPE = 32


def hash_numbers(numbers: np.ndarray) -> np.ndarray:
    """The hashes of int64 numbers, as int64."""
    with np.errstate(over="ignore"):
        x = numbers.astype(np.int64)
        x = ~x + (x << 21)
        x ^= x >> 24
        x = x + (x << 3) + (x << 8)
        x ^= x >> 14
        x = x + (x << 2) + (x << 4)
        x ^= x >> 28
        mixed: np.ndarray = x + (x << 31)
        return mixed


def hash_texts(texts: pa.Array) -> np.ndarray:
    """The XXH64 hashes of a large_binary array without nulls, as int64."""
    offsets = np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1, 8 * texts.offset)
    body = texts.buffers()[2]
    data = (
        np.frombuffer(body, np.uint8) if body is not None and body.size else np.empty(0, np.uint8)
    )
    data = np.concatenate([data, np.zeros(8, np.uint8)])
    starts, lengths = offsets[:-1].copy(), np.diff(offsets)
    with np.errstate(over="ignore"):
        return _xxh64(data, starts, lengths).view(np.int64)


def _xxh64(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    hashes = np.full(len(starts), _P5)
    ends = starts + lengths
    at = starts.copy()
    long = np.flatnonzero(lengths >= _STRIPE)
    if len(long):
        hashes[long], at[long] = _stripes(data, starts[long], lengths[long])
    hashes += lengths.astype(np.uint64)
    left = np.flatnonzero(ends - at >= 8)
    while len(left):
        hashes[left] ^= _round(np.zeros(len(left), np.uint64), _words(data, at[left], 8))
        hashes[left] = _rotated(hashes[left], 27) * _P1 + _P4
        at[left] += 8
        left = left[ends[left] - at[left] >= 8]
    left = np.flatnonzero(ends - at >= 4)
    hashes[left] ^= _words(data, at[left], 4) * _P1
    hashes[left] = _rotated(hashes[left], 23) * _P2 + _P3
    at[left] += 4
    left = np.flatnonzero(ends > at)
    while len(left):
        hashes[left] ^= data[at[left]].astype(np.uint64) * _P5
        hashes[left] = _rotated(hashes[left], 11) * _P1
        at[left] += 1
        left = left[ends[left] > at[left]]
    hashes ^= hashes >> np.uint64(33)
    hashes *= _P2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _P3
    hashes ^= hashes >> np.uint64(32)
    return hashes


def _stripes(
    data: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each string, the hash state after its complete 32-byte stripes, and where the rest is."""
    zero = np.uint64(0)
    lanes = [np.full(len(starts), seed) for seed in (_P1 + _P2, _P2, zero, zero - _P1)]
    at = starts.copy()
    ends = starts + lengths
    left = np.arange(len(starts))
    while len(left):
        for number, lane in enumerate(lanes):
            lane[left] = _round(lane[left], _words(data, at[left] + 8 * number, 8))
        at[left] += _STRIPE
        left = left[ends[left] - at[left] >= _STRIPE]
    turns = (1, 7, 12, 18)
    state = sum(
        (_rotated(lane, turn) for lane, turn in zip(lanes, turns, strict=True)),
        np.zeros(len(starts), np.uint64),
    )
    for lane in lanes:
        state = (state ^ _round(np.zeros(len(starts), np.uint64), lane)) * _P1 + _P4
    return state, at


def _round(state: np.ndarray, words: np.ndarray) -> np.ndarray:
    return _rotated(state + words * _P2, 31) * _P1


def _rotated(values: np.ndarray, turn: int) -> np.ndarray:
    return (values << np.uint64(turn)) | (values >> np.uint64(64 - turn))


def _words(data: np.ndarray, at: np.ndarray, width: int) -> np.ndarray:
    """The little-endian words of `width` bytes at these offsets."""
    picked = data[at[:, None] + np.arange(width)]
    return np.ascontiguousarray(picked).view(f"<u{width}")[:, 0].astype(np.uint64)


# --- bloom filter --------------------------------------------------------------------------------

_BITS_MAX = (1 << 31) - 8
_SET_BITS_MAX = 1 << 20
"""A larger filter is built in its final bytes: a byte for each bit would take much memory."""
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
        self._set = np.zeros(self._bits, bool) if self._bits < _SET_BITS_MAX else None
        self._bytes = np.zeros(self._bits // 8, np.uint8)

    def add(self, column: pa.Array) -> None:
        hashes = _hashes(column.drop_null().unique(), self._form)
        for start in range(0, len(hashes), _ADDED_ROWS):
            places = _places(hashes[start : start + _ADDED_ROWS], self._bits, self._functions)
            if self._set is not None:
                self._set[places] = True
            else:
                marks = np.left_shift(1, places & 7).astype(np.uint8)
                np.bitwise_or.at(self._bytes, places >> 3, marks)

    def finish(self) -> bytes:
        if self._set is not None:
            self._bytes = np.packbits(self._set, bitorder="little")
        return struct.pack(">i", self._functions) + self._bytes.tobytes()


def may_hold(body: bytes, values: pa.Array, form: ValueForm) -> np.ndarray:
    """For each value, whether the filter may hold it. No value is null."""
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
    numbers = values.to_numpy()
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
