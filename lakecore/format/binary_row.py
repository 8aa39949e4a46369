"""Paimon's BinaryRow: partitions, keys and statistics as bytes, and the hash that gives buckets.

Rows come from Arrow columns and go back to them; values are never Python objects on the way.
A *serialized* row, as manifests hold it, has its arity before it as four big-endian bytes.
Layout: `row_words.py`. Reading: `row_decode.py`.

INVARIANT: temporary memory does not grow with the number of rows: hashing works through
chunks of `CHUNK_ROWS`, small enough for the words at hand to stay in the processor's cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lakecore.format.row_decode import decode_rows
from lakecore.format.row_words import RowWords, row_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from lakecore.model.types import DataType

__all__ = ["BinaryRows", "decode_rows", "encode_rows", "hash_rows", "serialize_row"]

CHUNK_ROWS = 1 << 16

_State: TypeAlias = "NDArray[np.uint32]"

_SEED = 42
_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_ADD = np.uint32(0xE6546B64)


@dataclass(frozen=True, slots=True, eq=False)
class BinaryRows:
    """Rows of one arity without its prefix; row i is `data[offsets[i]:offsets[i + 1]]`."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    arity: int

    def serialized(self) -> list[bytes]:
        """Each row with its arity in front, as manifests store it."""
        prefix = self.arity.to_bytes(4, "big")
        content, offsets = self.data.tobytes(), self.offsets.tolist()
        return [prefix + content[start:end] for start, end in pairwise(offsets)]


def encode_rows(columns: Sequence[pa.Array], types: Sequence[DataType]) -> BinaryRows:
    """The BinaryRows that the columns make, of row kind +I.

    Columns are arrays or chunked arrays of any Arrow type that casts to the type's own without
    loss. InvalidRequest if one does not.
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
    """The one row that columns of length 1 make, with its arity in front."""
    if not columns:
        return bytes(12)
    (row,) = encode_rows(columns, types).serialized()
    return row


def hash_rows(columns: Sequence[pa.Array], types: Sequence[DataType]) -> NDArray[np.int32]:
    """Paimon's hash of each row: Murmur3 over all bytes of its BinaryRow."""
    chunks = [_hash(words) for words in _chunks(columns, types)]
    return np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.int32)


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


def _mix(state: _State, half_word: _State | None, scratch: _State) -> None:
    """Take 32 bits of each row into its state; None stands for zeros, which mix to nothing."""
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
