"""Keys as integers, so that a merge compares integers whatever their types are; and groups of rows.

1. `order_columns` turns each key column of a batch into something that sorts as Paimon sorts keys
   (https://paimon.apache.org/docs/master/primary-key-table/overview/): integers, dates, times,
   timestamps, booleans and small decimals become int64; floats become int64 in Java's total order
   (-0.0 below 0.0, NaN above all); large decimals become two columns; strings and binaries are
   unchanged, because they already sort by unsigned bytes.
2. `shared_codes` gives the rows of several batches int64 codes: equal for equal keys, in key order.
   One integer column is its own code; several whose ranges multiply to less than 2^63 are packed;
   anything else is ranked by one sort.

Null sorts below every value. Keys hold no nulls, but sequence fields may (`with_nulls`).

`Groups` are rows in merge order, one group for each key. A position is the index of a row in merge
order. Loops run over ranks, never over rows or groups: step j processes the j-th row of every group
that has so many rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_SIGN = np.int64(0x7FFFFFFFFFFFFFFF)
_SMALL_DECIMAL_DIGITS = 18
_CODE_LIMIT = 1 << 63


@dataclass(frozen=True, slots=True)
class OrderColumns:
    """The key columns of a batch in sortable form: int64 arrays, or Arrow strings and binaries."""

    columns: tuple[np.ndarray | pa.Array, ...]
    length: int

    def at(self, row: int) -> tuple[object, ...]:
        """The key of a row as a tuple. Tuples compare in the order of keys."""
        return tuple(
            column[row].as_py() if isinstance(column, pa.Array) else int(column[row])
            for column in self.columns
        )

    def slice(self, start: int, length: int) -> OrderColumns:
        """The same columns for some rows; nothing is copied."""
        return OrderColumns(
            tuple(
                column.slice(start, length)
                if isinstance(column, pa.Array)
                else column[start : start + length]
                for column in self.columns
            ),
            length,
        )

    def take(self, rows: np.ndarray) -> OrderColumns:
        """The keys of these rows."""
        return OrderColumns(
            tuple(
                column.take(pa.array(rows)) if isinstance(column, pa.Array) else column[rows]
                for column in self.columns
            ),
            len(rows),
        )

    def count_up_to(self, bound: tuple[object, ...]) -> int:
        """How many rows of this sorted batch have a key at or below `bound`."""
        return self._count(bound, side="right")

    def count_below(self, bound: tuple[object, ...]) -> int:
        """How many rows of this sorted batch have a key below `bound`."""
        return self._count(bound, side="left")

    def _count(self, bound: tuple[object, ...], *, side: Literal["left", "right"]) -> int:
        if len(self.columns) == 1 and isinstance(self.columns[0], np.ndarray):
            (low_bound,) = bound
            assert isinstance(low_bound, int)
            return int(np.searchsorted(self.columns[0], np.int64(low_bound), side=side))
        low, high = 0, self.length
        while low < high:
            middle = (low + high) // 2
            key = self.at(middle)
            if key < bound or (side == "right" and key == bound):
                low = middle + 1
            else:
                high = middle
        return low


def order_columns(columns: Sequence[pa.Array | pa.ChunkedArray]) -> OrderColumns:
    """The columns, which must hold no nulls, in sortable form."""
    length = len(columns[0])
    out: list[np.ndarray | pa.Array] = []
    for column in columns:
        out += _sortable(column)
    return OrderColumns(tuple(out), length)


def shared_codes(batches: Sequence[OrderColumns]) -> list[np.ndarray]:
    """An int64 code for each row of each batch. Codes of all batches compare like the keys."""
    width = len(batches[0].columns)
    first = batches[0].columns[0]
    if width == 1 and isinstance(first, np.ndarray) and first.dtype == np.int64:
        return [batch.columns[0] for batch in batches]
    numeric = all(isinstance(column, np.ndarray) for column in batches[0].columns)
    packed = _packed(batches) if numeric else None
    return packed if packed is not None else _ranked(batches)


def sequence_codes(columns: Sequence[pa.ChunkedArray], *, descending: bool) -> np.ndarray:
    """An int64 code for each row, ascending with the sequence fields.

    Null always has the smallest code.
    """
    frame = pl.DataFrame(
        {str(index): _frame_column(column) for index, column in enumerate(columns)}
    )
    order = frame.select(
        pl.arg_sort_by(frame.columns, descending=descending, nulls_last=False)
    ).to_series()
    return _dense(frame, order.to_numpy())


def _sortable(column: pa.Array | pa.ChunkedArray) -> list[np.ndarray | pa.Array]:
    # One case for each type.
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    t = pa.types
    kind = column.type
    if t.is_string(kind) or t.is_large_string(kind):
        return [column]
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
        return [column]
    if t.is_integer(kind):
        return [np.asarray(_numbers(column), np.int64)]
    if t.is_date32(kind) or t.is_time32(kind):
        return [_numbers(column.view(pa.int32())).astype(np.int64)]
    if t.is_timestamp(kind) or t.is_time64(kind):
        return [_numbers(column.view(pa.int64()))]
    if t.is_boolean(kind):
        return [column.to_numpy(zero_copy_only=False).astype(np.int64)]
    if t.is_float32(kind):
        bits = column.to_numpy(zero_copy_only=False).view(np.int32).astype(np.int64)
        return [_total_order(bits, np.int64(0x7FFFFFFF), is_nan=column, quiet=0x7FC00000)]
    if t.is_float64(kind):
        bits = column.to_numpy(zero_copy_only=False).view(np.int64)
        return [_total_order(bits, _SIGN, is_nan=column, quiet=0x7FF8000000000000)]
    if t.is_decimal(kind):
        data, start = column.buffers()[1], 16 * column.offset
        words = np.frombuffer(data, np.int64, 2 * len(column), start).reshape(-1, 2)
        if kind.precision <= _SMALL_DECIMAL_DIGITS:
            return [np.ascontiguousarray(words[:, 0])]
        # The low word is unsigned: shift it so that signed comparison orders it.
        low = words[:, 0] ^ np.int64(-0x8000000000000000)
        return [np.ascontiguousarray(words[:, 1]), low]
    message = f"no order for keys of type {kind}"
    raise AssertionError(message)


def _numbers(column: pa.Array) -> np.ndarray:
    """The integers of a column without nulls. NOTE: the first `to_numpy` imports pandas (0.3 s)."""
    width = column.type.bit_width // 8
    data, start = column.buffers()[1] or b"", width * column.offset
    return np.frombuffer(data, f"i{width}", len(column), start)


def _total_order(
    bits: np.ndarray, magnitude: np.int64, *, is_nan: pa.Array, quiet: int
) -> np.ndarray:
    bits = np.where(pc.is_nan(is_nan).to_numpy(zero_copy_only=False), np.int64(quiet), bits)
    return np.where(bits < 0, bits ^ magnitude, bits)


def _packed(batches: Sequence[OrderColumns]) -> list[np.ndarray] | None:
    """Several integer columns packed into one code; None if their ranges do not fit 63 bits."""
    filled = [batch for batch in batches if batch.length]
    if not filled:
        return [np.empty(0, np.int64) for _ in batches]
    lows: list[int] = []
    spans: list[int] = []
    product = 1
    for index in range(len(filled[0].columns)):
        low = min(int(batch.columns[index].min()) for batch in filled)
        high = max(int(batch.columns[index].max()) for batch in filled)
        lows.append(low)
        spans.append(high - low + 1)
        product *= high - low + 1
        if product >= _CODE_LIMIT or high - low >= _CODE_LIMIT:
            return None
    out = []
    for batch in batches:
        code = np.zeros(batch.length, np.int64)
        for column, low, span in zip(batch.columns, lows, spans, strict=True):
            code *= np.int64(span)
            code += column - np.int64(low)
        out.append(code)
    return out


def _ranked(batches: Sequence[OrderColumns]) -> list[np.ndarray]:
    """Dense ranks of any columns, from one sort over all batches."""
    width = len(batches[0].columns)
    frame = pl.DataFrame(
        {
            str(index): pl.concat(
                [_frame_column(batch.columns[index]) for batch in batches], rechunk=True
            )
            for index in range(width)
        }
    )
    order = frame.select(pl.arg_sort_by(frame.columns)).to_series().to_numpy()
    codes = _dense(frame, order)
    ends = np.cumsum([batch.length for batch in batches])[:-1]
    return np.split(codes, ends)


def _frame_column(column: np.ndarray | pa.Array | pa.ChunkedArray) -> pl.Series:
    if isinstance(column, np.ndarray):
        return pl.Series(column)
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    if pa.types.is_floating(column.type):
        # Java's order of floats: NaN above all, -0.0 below 0.0.
        rows = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        (ordered,) = _sortable(pc.fill_null(rows, 0.0))
        valid = pa.array(ordered)
        return pl.from_arrow(pc.if_else(pc.is_valid(rows), valid, pa.scalar(None, pa.int64())))  # type: ignore[return-value]
    series = pl.from_arrow(column)
    assert isinstance(series, pl.Series)
    return series


def _dense(frame: pl.DataFrame, order: np.ndarray) -> np.ndarray:
    """Dense ranks from a sort order: equal rows share a rank."""
    if len(order) == 0:
        return np.empty(0, np.int64)
    changed = np.zeros(len(order), bool)
    for name in frame.columns:
        ordered = frame[name].gather(order)
        changed[1:] |= ordered.ne_missing(ordered.shift(1)).to_numpy()[1:]
    codes = np.empty(len(order), np.int64)
    codes[order] = np.cumsum(changed)
    return codes


def common_ranks(keys: Sequence[Sequence[pa.Array]]) -> list[np.ndarray]:
    """The rank of each key among the keys of all lists; equal keys have equal ranks.

    Each list of keys has one array per key column.
    """
    return list(shared_codes([order_columns(columns) for columns in keys]))


# --- groups --------------------------------------------------------------------------------------

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
