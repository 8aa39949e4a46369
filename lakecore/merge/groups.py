"""Rows in the order they merge in, as one group a key; and what can be said of all groups at once.

Positions are those of the rows in that order. Whatever loops here loops over ranks, never over
rows or groups: step j takes the j-th row of every group that has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

NONE = -1
"""The position of a row that is not there."""


@dataclass(frozen=True)
class Groups:
    """Group g is the rows `starts[g]` up to the start of the next, or `length`; none is empty."""

    starts: np.ndarray
    length: int

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.starts)

    @cached_property
    def sizes(self) -> np.ndarray:
        """The rows of each group."""
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
        """The position of the last row of each group for which the mask holds, or NONE."""
        held, until = np.flatnonzero(mask), np.cumsum(mask)
        if not len(held):
            return np.full(self.count, NONE)
        ends = until[self.lasts]
        found: np.ndarray = np.where(
            ends > until[self.starts] - mask[self.starts], held[ends - 1], NONE
        )
        return found

    def first(self, mask: np.ndarray) -> np.ndarray:
        """The position of the first row of each group for which the mask holds, or NONE."""
        if not self.count:
            return self.starts
        found = np.minimum.reduceat(
            np.where(mask, np.arange(self.length), self.length), self.starts
        )
        return np.where(found == self.length, NONE, found)

    def any(self, mask: np.ndarray) -> np.ndarray:
        """Whether the mask holds for a row of each group."""
        if not self.count:
            return np.zeros(0, bool)
        found: np.ndarray = np.logical_or.reduceat(mask, self.starts)
        return found

    def only(self, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, Groups]:
        """The rows for which the mask holds: their positions, and what groups are left of them.

        The second array says which group each of those was.
        """
        rows = np.flatnonzero(mask)
        numbers = self.numbers[rows]
        fresh = np.ones(len(rows), bool)
        np.not_equal(numbers[1:], numbers[:-1], out=fresh[1:])
        starts = np.flatnonzero(fresh)
        return rows, numbers[starts], Groups(starts, len(rows))

    def ranks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For rank 0, 1, ...: the groups that have a row of that rank, and its position."""
        sizes = self.sizes
        by_size = np.argsort(-sizes, kind="stable")
        sizes, starts = sizes[by_size], self.starts[by_size]
        for rank in range(int(sizes[0]) if len(sizes) else 0):
            alive = int(np.searchsorted(-sizes, -rank, side="left"))
            yield by_size[:alive], starts[:alive] + rank


def groups_of(codes: np.ndarray) -> Groups:
    """The groups of equal neighbours among codes in order."""
    fresh = np.ones(len(codes), bool)
    np.not_equal(codes[1:], codes[:-1], out=fresh[1:])
    return Groups(np.flatnonzero(fresh), len(codes))


def interleaved(is_first: np.ndarray) -> np.ndarray:
    """The order that brings two parts, laid end to end, together: which places are the first's."""
    order = np.empty(len(is_first), np.int64)
    order[np.append(np.flatnonzero(is_first), np.flatnonzero(~is_first))] = np.arange(len(order))
    return order


def pick(values: pa.Array | pa.ChunkedArray, positions: np.ndarray) -> pa.Array | pa.ChunkedArray:
    """The values at these positions; null for NONE."""
    missing = positions < 0
    if missing.any():
        return values.take(pa.array(positions, mask=missing))
    return values.take(pa.array(positions))


def spread(values: pa.Array, numbers: np.ndarray, count: int) -> pa.Array:
    """The values at the groups of these numbers; null for the other groups."""
    if len(numbers) == count and (numbers[1:] > numbers[:-1]).all():
        return values
    at = np.full(count, NONE)
    at[numbers] = np.arange(len(numbers))
    return pick(values, at)


def in_one(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The values as one array."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks else pa.array([], values.type)
    return values


def is_valid(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """A mask of the values that are not null."""
    if values.null_count == 0:
        return np.ones(len(values), bool)
    valid = values.is_valid()
    mask: np.ndarray = in_one(valid).to_numpy(zero_copy_only=False)
    return mask
