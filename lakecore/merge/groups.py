"""Rows in merge order, one group for each key, and operations on all groups together.

A position is the index of a row in merge order. Loops run over ranks, never over rows or groups:
step j processes the j-th row of every group that has so many rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BITS = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
NONE = -1
"""The position of a missing row."""


@dataclass(frozen=True)
class Groups:
    """Groups of rows: group g is the rows from `starts[g]` up to the next start. None is empty."""

    starts: np.ndarray
    length: int

    @property
    def count(self) -> int:
        return len(self.starts)

    @cached_property
    def sizes(self) -> np.ndarray:
        return np.diff(self.starts, append=self.length)

    @cached_property
    def lasts(self) -> np.ndarray:
        """The position of the last row of each group."""
        lasts: np.ndarray = self.starts + self.sizes - 1
        return lasts

    @cached_property
    def numbers(self) -> np.ndarray:
        """The group of each row."""
        return np.repeat(np.arange(self.count), self.sizes)

    def last(self, mask: np.ndarray) -> np.ndarray:
        """The position of the last masked row of each group, or NONE."""
        held, until = np.flatnonzero(mask), np.cumsum(mask)
        if not len(held):
            return np.full(self.count, NONE)
        ends = until[self.lasts]
        found: np.ndarray = np.where(
            ends > until[self.starts] - mask[self.starts], held[ends - 1], NONE
        )
        return found

    def first(self, mask: np.ndarray) -> np.ndarray:
        """The position of the first masked row of each group, or NONE."""
        if not self.count:
            return self.starts
        found = np.minimum.reduceat(
            np.where(mask, np.arange(self.length), self.length), self.starts
        )
        return np.where(found == self.length, NONE, found)

    def any(self, mask: np.ndarray) -> np.ndarray:
        """For each group, whether the mask is true for any of its rows."""
        if not self.count:
            return np.zeros(0, bool)
        found: np.ndarray = np.logical_or.reduceat(mask, self.starts)
        return found

    def only(self, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, Groups]:
        """The masked rows: their positions, the number of each remaining group, and the groups.

        Groups without a masked row are dropped.
        """
        rows = np.flatnonzero(mask)
        numbers = self.numbers[rows]
        fresh = np.ones(len(rows), bool)
        np.not_equal(numbers[1:], numbers[:-1], out=fresh[1:])
        starts = np.flatnonzero(fresh)
        return rows, numbers[starts], Groups(starts, len(rows))

    def apart(self, alone: np.ndarray) -> Groups:
        """The same rows in smaller groups: each row of the mask is a group of its own."""
        fresh = alone.copy()
        fresh[1:] |= alone[:-1]
        fresh[self.starts] = True
        return Groups(np.flatnonzero(fresh), self.length)

    def ranks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each rank 0, 1, ...: the groups that have a row of this rank, and its position."""
        sizes = self.sizes
        by_size = np.argsort(-sizes, kind="stable")
        sizes, starts = sizes[by_size], self.starts[by_size]
        for rank in range(int(sizes[0]) if len(sizes) else 0):
            alive = int(np.searchsorted(-sizes, -rank, side="left"))
            yield by_size[:alive], starts[:alive] + rank


def groups_of(codes: np.ndarray) -> Groups:
    """The groups of equal adjacent values in sorted codes."""
    fresh = np.ones(len(codes), bool)
    np.not_equal(codes[1:], codes[:-1], out=fresh[1:])
    return Groups(np.flatnonzero(fresh), len(codes))


def interleaved(is_first: np.ndarray) -> np.ndarray:
    """The order that interleaves two concatenated parts.

    `is_first` says where the first part goes.
    """
    order = np.empty(len(is_first), np.int64)
    order[np.append(np.flatnonzero(is_first), np.flatnonzero(~is_first))] = np.arange(len(order))
    return order


def pick(values: pa.Array | pa.ChunkedArray, positions: np.ndarray) -> pa.Array | pa.ChunkedArray:
    """The values at these positions, null for NONE. An array of one value is not copied."""
    if len(positions) == 1 and positions[0] >= 0:
        return values.slice(positions[0], 1)
    missing = positions < 0
    if missing.any():
        return values.take(pa.array(positions, mask=missing))
    return values.take(pa.array(positions))


def spread(values: pa.Array, numbers: np.ndarray, count: int) -> pa.Array:
    """One value for each of `count` groups: the given values at `numbers`, null elsewhere."""
    if np.array_equal(numbers, np.arange(count)):
        return values
    at = np.full(count, NONE)
    at[numbers] = np.arange(len(numbers))
    return pick(values, at)


def in_one(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The values as one array. Nothing is copied if all chunks are slices of one array."""
    if isinstance(values, pa.ChunkedArray) and values.num_chunks != 1:
        values = _put_together(values.chunks) or values.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks else pa.array([], values.type)
    return values


def _put_together(chunks: Sequence[pa.Array]) -> pa.Array | None:
    """The array whose consecutive slices are the chunks; None if there is no such array."""
    if not chunks or not (has_width(chunks[0].type) or _is_text(chunks[0].type)):
        return None
    first, *others = chunks
    memory = _memory_of(first)
    end = first.offset + len(first)
    for chunk in others:
        if chunk.offset != end or memory != _memory_of(chunk):
            return None
        end += len(chunk)
    return pa.Array.from_buffers(
        first.type, end - first.offset, first.buffers(), offset=first.offset
    )


def _memory_of(values: pa.Array) -> list[tuple[int, int] | None]:
    """The address and the size in bytes of each buffer of an array."""
    buffers = values.buffers()
    return [None if buffer is None else (buffer.address, buffer.size) for buffer in buffers]


def _is_text(kind: pa.DataType) -> bool:
    """Whether the values are strings or binaries with offsets."""
    return kind in {pa.string(), pa.large_string(), pa.binary(), pa.large_binary()}


def is_valid(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """A mask of the values that are not null."""
    if values.null_count == 0:
        return np.ones(len(values), bool)
    values = in_one(values)
    bitmap = values.buffers()[0]
    first, last = values.offset // 8, -(-(values.offset + len(values)) // 8)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8)[first:last], bitorder="little")
    return bits[values.offset % 8 :][: len(values)].view(bool)


def has_width(kind: pa.DataType) -> bool:
    """Whether values of the type have the width of a NumPy number."""
    return pa.types.is_primitive(kind) and kind.bit_width in _BITS


def bits_of(values: pa.Array) -> np.ndarray:
    """The values of a fixed-width type as integers; arbitrary where they are null."""
    kind = np.dtype(_BITS[values.type.bit_width])
    data = values.buffers()[1]
    if data is None:
        return np.zeros(len(values), kind)
    return np.frombuffer(data, kind, len(values), kind.itemsize * values.offset)


def blended(mask: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The integers of `left` where the mask is true, else those of `right`.

    Computed by bit operations: `numpy.where` branches, and branches on a mask of nulls are hard to
    predict.
    """
    bits = -mask.view(np.int8).astype(left.dtype)
    blend: np.ndarray = right ^ ((left ^ right) & bits)
    return blend


def with_width(values: np.ndarray, valid: np.ndarray | None, kind: pa.DataType) -> pa.Array:
    """Numbers as values of a type of the same width, null where not `valid`. Nothing is copied."""
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [nulls, pa.py_buffer(values)])


def room(length: int, dtype: np.dtype) -> np.ndarray:
    """An uninitialised array in Arrow's memory pool, which reuses memory sooner than NumPy."""
    return np.frombuffer(pa.allocate_buffer(length * dtype.itemsize), dtype)
