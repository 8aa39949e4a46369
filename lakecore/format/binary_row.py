"""Paimon's BinaryRow: partitions, keys and statistics as bytes, and the hash for buckets.

Rows are encoded from Arrow columns and decoded to them, without Python objects for values. A
*serialized* row, as in manifests, is prefixed with its arity as four big-endian bytes.
Layout: `row_words.py`. Reading: `row_decode.py`.

INVARIANT: temporary memory does not grow with the number of rows: hashing processes chunks of
`CHUNK_ROWS`, whose words fit in the processor's cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.format.row_decode import decode_rows
from lakecore.format.row_words import RowWords, row_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from lakecore.model.types import DataType

__all__ = ["BinaryRows", "decode_rows", "encode_rows", "hash_rows", "serialize_row"]

CHUNK_ROWS = 1 << 16

_State: TypeAlias = "NDArray[np.uint32]"

_SEED = 42
_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_ADD = np.uint32(0xE6546B64)
_WORD = 0xFFFF_FFFF
_LONG_BYTES, _LONG_ROWS_MAX, _STEP_COST = 16 << 10, 64, 20
_TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


@dataclass(frozen=True, slots=True, eq=False)
class BinaryRows:
    """Rows without the arity prefix; row i is `data[offsets[i]:offsets[i + 1]]`.

    All have one arity.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    arity: int

    def serialized(self) -> list[bytes]:
        """Each row with its arity prefix, as stored in manifests."""
        prefix = self.arity.to_bytes(4, "big")
        content, offsets = self.data.tobytes(), self.offsets.tolist()
        return [prefix + content[start:end] for start, end in pairwise(offsets)]


def encode_rows(columns: Sequence[pa.Array], types: Sequence[DataType]) -> BinaryRows:
    """The rows of the columns as BinaryRows of row kind +I.

    Columns are arrays or chunked arrays. Each is cast to the Arrow type of its logical type;
    raises InvalidRequest if the cast would lose values.
    """
    datas, ends, total = [], [np.zeros(1, dtype=np.int64)], 0
    for words in _chunks(columns, types):
        data, offsets = words.bytes()
        datas.append(data)
        ends.append(offsets[1:] + total)
        total += len(data)
    data = np.concatenate(datas) if datas else np.zeros(0, dtype=np.uint8)
    return BinaryRows(data, np.concatenate(ends), len(types))


def serialize_row(columns: Sequence[pa.Array], types: Sequence[DataType]) -> bytes:
    """The only row of these columns, which have length 1, prefixed with its arity."""
    if not columns:
        return bytes(12)
    (row,) = encode_rows(columns, types).serialized()
    return row


def hash_rows(columns: Sequence[pa.Array], types: Sequence[DataType]) -> NDArray[np.int32]:
    """Paimon's hash of each row: Murmur3 over all bytes of its BinaryRow."""
    if columns and len(columns[0]) == 1:
        return _hash_one(columns, types)
    long = _long_rows(columns)
    if len(long):
        return _hash_apart(columns, types, long)
    chunks = [_hash(words) for words in _chunks(columns, types)]
    return np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.int32)


def _hash_apart(
    columns: Sequence[pa.Array], types: Sequence[DataType], long: NDArray[np.int64]
) -> NDArray[np.int32]:
    """The hash of each row. The rows at the positions `long` are hashed one by one."""
    hashes = np.zeros(len(columns[0]), np.int32)
    others = np.delete(np.arange(len(hashes)), long)
    if len(others):
        hashes[others] = hash_rows([column.take(pa.array(others)) for column in columns], types)
    for row in long.tolist():
        hashes[row] = _hash_one([column.slice(row, 1) for column in columns], types)[0]
    return hashes


def _hash_one(columns: Sequence[pa.Array], types: Sequence[DataType]) -> NDArray[np.int32]:
    """The hash of a single row. Its columns are not hashed step by step, as those of many rows."""
    (words,) = _chunks(columns, types)
    data, _ = words.bytes()
    return np.array([_hash_bytes(data)], np.uint32).view(np.int32)


def _long_rows(columns: Sequence[pa.Array]) -> NDArray[np.int64]:
    """The positions, ascending, of the few rows that are so long that hashing them alone is faster.

    Hashing all rows together takes as many steps as the longest row has words. One such step costs
    about as much as hashing twenty words of a single row.
    """
    lengths = [
        pc.binary_length(column) for column in columns if any(test(column.type) for test in _TEXTS)
    ]
    if all((pc.max(each).as_py() or 0) < _LONG_BYTES for each in lengths):
        return np.zeros(0, np.int64)
    size_bytes = np.zeros(len(columns[0]), np.int64)
    for each in lengths:
        size_bytes += pc.fill_null(each, 0).to_numpy(zero_copy_only=False)
    longest = np.argsort(-size_bytes, kind="stable")[: _LONG_ROWS_MAX + 1]
    sizes = size_bytes[longest]
    apart = np.concatenate([[0], np.cumsum(sizes)])[: len(sizes)]
    costs = apart + _STEP_COST * sizes
    if len(longest) == len(size_bytes):
        costs = np.append(costs, sizes.sum())
    return np.sort(longest[: int(costs.argmin())])


def _chunks(columns: Sequence[pa.Array], types: Sequence[DataType]) -> Iterator[RowWords]:
    assert len(columns) == len(types), "a type for each column"
    rows = len(columns[0]) if columns else 0
    for start in range(0, rows, CHUNK_ROWS):
        size = min(CHUNK_ROWS, rows - start)
        yield row_words([column.slice(start, size) for column in columns], types, size)


def _hash(words: RowWords) -> NDArray[np.int32]:
    state = np.full(words.rows, _SEED, dtype=np.uint32)
    scratch = np.empty((2, words.rows), dtype=np.uint32)
    for _, rows, word in words.parts():
        halves: tuple[_State | None, ...] = (None, None)
        if word is not None:
            halves = word.view(np.uint32)[0::2], word.view(np.uint32)[1::2]
        if rows is None:
            for half in halves:
                _mix(state, half, scratch)
        else:
            some = state[rows]
            for half in halves:
                _mix(some, half, scratch[:, : len(some)])
            state[rows] = some
    state ^= (words.lengths() * 8).astype(np.uint32)
    state ^= state >> np.uint32(16)
    state *= np.uint32(0x85EBCA6B)
    state ^= state >> np.uint32(13)
    state *= np.uint32(0xC2B2AE35)
    state ^= state >> np.uint32(16)
    return state.view(np.int32)


def _hash_bytes(row: NDArray[np.uint8]) -> int:
    """The hash of the bytes of one row.

    Steps that do not depend on the hash state are computed for all words at once.
    """
    keys = row.view(np.uint32) * _C1
    keys = ((keys << np.uint32(15)) | (keys >> np.uint32(17))) * _C2
    state, add = _SEED, int(_ADD)
    for key in keys.tolist():
        state ^= key
        state = (((state << 13) | (state >> 19)) * 5 + add) & _WORD
    state ^= len(row)
    state ^= state >> 16
    state = state * 0x85EBCA6B & _WORD
    state ^= state >> 13
    state = state * 0xC2B2AE35 & _WORD
    return state ^ (state >> 16)


def _mix(state: _State, half_word: _State | None, scratch: _State) -> None:
    """Mix 32 bits of each row into its hash state. None for the bits means zeros."""
    key, carry = scratch
    if half_word is not None:
        np.multiply(half_word, _C1, out=key)
        np.right_shift(key, np.uint32(17), out=carry)
        np.left_shift(key, np.uint32(15), out=key)
        key |= carry
        key *= _C2
        state ^= key
    np.right_shift(state, np.uint32(19), out=carry)
    np.left_shift(state, np.uint32(13), out=state)
    state |= carry
    state *= np.uint32(5)
    state += _ADD
