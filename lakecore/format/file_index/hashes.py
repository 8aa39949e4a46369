"""The 64-bit hashes of the Bloom filter, for whole columns at once.

Numbers are mixed by Thomas Wang's function (with arithmetic shifts to the right); strings and
binaries are hashed by XXH64 with seed 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

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
