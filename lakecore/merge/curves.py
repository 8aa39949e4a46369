"""Sort keys along a curve: rows with similar values in several columns become neighbours.

https://paimon.apache.org/docs/master/append-table/incremental-clustering/

- *order*: the columns one after another; null is smallest.
- *zorder*: the bits of the columns, interleaved. Each column contributes 8 bytes that sort as its
  values do; a string or binary contributes its first `var_bytes` bytes. Null sorts with the
  smallest value.
- *hilbert*: the position on a Hilbert curve through 8 bytes of each column; a string contributes
  its first 8. Null is greatest.

The bytes are Paimon's, except where Paimon's bytes do not sort as the values do: decimals, the last
bits of floats, and on the Hilbert curve also negative numbers and strings. Keys are never stored in
a table. A key is a list of int64 columns that compare as its bytes do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.merge.keys import in_one, order_columns
from lakecore.options import OrderStrategy, TableOptions
from lakecore.options.writing import LOCAL_SORT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


_SIGN = np.uint64(1 << 63)
_ONE = np.uint64(1)
_WORD_BYTES = 8
_PER_MILLISECOND = {"ms": 1, "us": 10**3, "ns": 10**6}
_WORD_BITS = 64
_STEP_ROWS = 16_384
"""Rows whose bits are in memory at the same time, one byte for each bit."""
_WIDE_DECIMAL_DIGITS = 18

Words = np.ndarray
"""An array of uint64 that sorts as the values of a column do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """The sort order of clustering. `var_bytes`: how many bytes of a string a Z-order uses."""

    strategy: OrderStrategy
    columns: tuple[str, ...]
    var_bytes: int = _WORD_BYTES

    @property
    def is_curve(self) -> bool:
        """Whether the rows are sorted along a curve, not column by column."""
        return self.strategy is not OrderStrategy.ORDER


def curve_columns(ordering: Ordering, rows: pa.Table) -> list[np.ndarray]:
    """The int64 columns by which rows sort along a curve; the first column decides first."""
    columns = [in_one(rows.column(name)) for name in ordering.columns]
    parts: list[np.ndarray] = []
    for start in range(0, max(1, rows.num_rows), _STEP_ROWS):
        step = [column.slice(start, _STEP_ROWS) for column in columns]
        if ordering.strategy is OrderStrategy.HILBERT:
            parts.append(_interleaved([_bytes_of(word) for word in _hilbert(step)]))
        else:
            parts.append(_interleaved([_z_bytes(column, ordering.var_bytes) for column in step]))
    bits = np.concatenate(parts)
    return [np.ascontiguousarray(bits[:, at]) for at in range(bits.shape[1])]


def plain_columns(ordering: Ordering, rows: pa.Table) -> list[np.ndarray | pa.Array]:
    """The columns by which rows sort column by column, in sortable form; null is smallest."""
    out: list[np.ndarray | pa.Array] = []
    for name in ordering.columns:
        column = in_one(rows.column(name))
        if rows.schema.field(name).nullable:
            out.append(np.asarray(pc.is_valid(column)).astype(np.int64))
        out += order_columns([_filled(column)]).columns
    return out


def _filled(column: pa.Array) -> pa.Array:
    """The column with an arbitrary value in place of null."""
    if not column.null_count:
        return column
    kind = column.type
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if texts or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pc.fill_null(column, pa.scalar("" if texts else b"", kind))
    if pa.types.is_fixed_size_binary(kind):
        return pc.fill_null(column, pa.scalar(bytes(kind.byte_width), kind))
    if pa.types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64()
        return pc.fill_null(column.view(width), 0).view(kind)
    if pa.types.is_decimal(kind):
        return pc.fill_null(column, pa.scalar(Decimal(0), kind))
    return pc.fill_null(column, pa.scalar(0).cast(kind))


# --- bytes of a column ----------------------------------------------------------------------------


def _z_bytes(column: pa.Array, var_bytes: int) -> np.ndarray:
    """The bytes of each value for a Z-order, as rows of a matrix; null is all zeros."""
    if _is_text(column.type):
        return _prefixes(column, var_bytes)
    words = _words(column)
    return _bytes_of(np.where(_valid(column), words, np.uint64(0)))


def _bytes_of(words: Words) -> np.ndarray:
    """Words as rows of 8 bytes, the most significant byte first."""
    big = np.ascontiguousarray(words, dtype=">u8")
    return big.view(np.uint8).reshape(-1, _WORD_BYTES)


def _prefixes(column: pa.Array, length: int) -> np.ndarray:
    """The first bytes of strings or binaries, filled up with zeros; null is all zeros."""
    flat = column.cast(pa.large_binary())
    count = len(flat)
    offsets = np.frombuffer(flat.buffers()[1], np.int64, count + 1, 8 * flat.offset)
    data = flat.buffers()[2]
    values = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)
    sizes = np.where(_valid(column), np.diff(offsets), 0)
    place = np.arange(length)
    inside = place < sizes[:, None]
    at = np.where(inside, offsets[:-1, None] + place, 0)
    return np.where(inside, values[at], np.uint8(0))


def _words(column: pa.Array) -> Words:
    """Unsigned 64-bit words that sort as the values do; the word of a null is arbitrary."""
    kind = column.type
    if _is_text(kind):
        prefixes = np.ascontiguousarray(_prefixes(column, _WORD_BYTES))
        return prefixes.view(">u8").reshape(-1).astype(np.uint64)
    if pa.types.is_boolean(kind):
        # Paimon's byte for true is 0x81.
        true = np.uint64(0x81 << 56)
        return np.where(np.asarray(pc.fill_null(column, fill_value=False)), true, np.uint64(0))
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return _signed(_milliseconds(column))
    if pa.types.is_decimal(kind) and kind.precision > _WIDE_DECIMAL_DIGITS:
        # The leading digits of a wide decimal decide.
        wide = np.asarray(pc.fill_null(column.cast(pa.float64()), 0.0))
        return _floats(wide)
    if pa.types.is_floating(kind):
        return _floats(np.asarray(pc.fill_null(column, 0.0)).astype(np.float64))
    (plain,) = order_columns([_filled(column)]).columns
    assert isinstance(plain, np.ndarray), f"no order for columns of type {kind}"
    return _signed(plain)


def _milliseconds(column: pa.Array) -> np.ndarray:
    width = pa.int32() if pa.types.is_time32(column.type) else pa.int64()
    count = np.asarray(pc.fill_null(column.view(width), 0)).astype(np.int64)
    unit = column.type.unit
    return count * 1000 if unit == "s" else count // _PER_MILLISECOND[unit]


def _signed(values: np.ndarray) -> Words:
    return values.astype(np.int64).view(np.uint64) ^ _SIGN


def _floats(values: npt.NDArray[np.float64]) -> Words:
    """Words in Java's order of floats: -0.0 below 0.0, NaN above all."""
    bits = np.where(np.isnan(values), np.float64("nan"), values).view(np.int64)
    return np.where(bits < 0, ~bits, bits | np.int64(-(1 << 63))).view(np.uint64)


def _is_text(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_string(kind)
        or t.is_large_string(kind)
        or t.is_binary(kind)
        or t.is_large_binary(kind)
        or t.is_fixed_size_binary(kind)
    )


def _valid(column: pa.Array) -> np.ndarray:
    return np.asarray(pc.is_valid(column))


# --- curves ---------------------------------------------------------------------------------------


def _interleaved(columns: Sequence[np.ndarray]) -> np.ndarray:
    """The bits of all columns, interleaved, as int64 columns that compare as the bits do.

    A column that has no bits left is skipped.
    """
    few = len(columns) <= _WORD_BYTES
    if few and all(column.shape[1] == _WORD_BYTES for column in columns):
        mixed = _interleaved_bytes(columns)
    else:
        bits = np.concatenate([np.unpackbits(column, axis=1) for column in columns], axis=1)
        turns = _turns([8 * column.shape[1] for column in columns])
        mixed = np.packbits(bits[:, turns], axis=1)
    missing = -mixed.shape[1] % _WORD_BYTES
    if missing:
        mixed = np.pad(mixed, ((0, 0), (0, missing)))
    words = np.ascontiguousarray(mixed).view(">u8").astype(np.uint64)
    return (words ^ _SIGN).view(np.int64)


def _interleaved_bytes(columns: Sequence[np.ndarray]) -> np.ndarray:
    """The interleaved bits of at most 8 columns of equal width, byte by byte."""
    count = len(columns)
    spread = _spread(count)
    mixed = spread[columns[0]] << np.uint64(count - 1)
    for at, column in enumerate(columns[1:], 2):
        mixed |= spread[column] << np.uint64(count - at)
    length, width = columns[0].shape
    octets = mixed.astype(">u8").view(np.uint8).reshape(length, width, _WORD_BYTES)
    taken: np.ndarray = octets[:, :, _WORD_BYTES - count :].reshape(length, width * count)
    return taken


@cache
def _spread(count: int) -> np.ndarray:
    """For each byte value, a word that has the bits of the byte `count` positions apart."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.uint64)
    places = np.uint64(count) * np.arange(7, -1, -1, dtype=np.uint64)
    words: np.ndarray = np.bitwise_or.reduce(bits << places, axis=1)
    return words


def _turns(widths: Sequence[int]) -> np.ndarray:
    """The positions of the bits of columns of these widths, in interleaved order."""
    starts = np.concatenate([[0], np.cumsum(widths)[:-1]])
    return np.array(
        [
            start + bit
            for bit in range(max(widths))
            for start, width in zip(starts.tolist(), widths, strict=True)
            if bit < width
        ]
    )


def _hilbert(columns: Sequence[pa.Array]) -> list[Words]:
    """Words whose interleaved bits are the positions of rows on a Hilbert curve.

    The algorithm is Skilling's transform ("Programming the Hilbert curve", 2004), for all rows at
    once.
    """
    points = [
        np.where(_valid(column), _words(column), np.uint64(0xFFFFFFFFFFFFFFFF))
        for column in columns
    ]
    first = points[0]
    for at in range(_WORD_BITS - 1, 0, -1):
        low = np.uint64((1 << at) - 1)
        for number, point in enumerate(points):
            # All ones below the bit if the bit is set, else zero.
            mask = (np.uint64(0) - ((point >> np.uint64(at)) & _ONE)) & low
            if number:
                swap = (first ^ point) & (low ^ mask)
                np.bitwise_xor(point, swap, out=point)
                mask ^= swap
            first ^= mask
    for at in range(1, len(points)):
        points[at] ^= points[at - 1]
    last, turn = points[-1], np.zeros_like(first)
    for at in range(_WORD_BITS - 1, 0, -1):
        turn ^= (np.uint64(0) - ((last >> np.uint64(at)) & _ONE)) & np.uint64((1 << at) - 1)
    return [point ^ turn for point in points]


# --- orderings -----------------------------------------------------------------------------------
# The sort order of the rows of append tables, from their options.

_ZORDER_COLUMNS_MAX = 4


def write_ordering(options: TableOptions) -> Ordering | None:
    """The sort order of a batch write into a table without a primary key; None if it does not sort.

    As in Paimon, only tables without buckets are sorted. With incremental clustering, compaction
    sorts and writes do not, unless an option of the table says otherwise.
    """
    if options.bucket != -1 or not options.clustering_columns:
        return None
    if options.clustering_incremental and not options.clustering_incremental_optimize_write:
        return None
    return _stated(options)


def incremental_ordering(options: TableOptions) -> Ordering:
    """The sort order of incremental clustering.

    Raises InvalidRequest if the table names no columns to sort by.
    """
    if not options.clustering_columns:
        raise InvalidRequest("clustering.incremental needs clustering.columns", table=options.table)
    if options.clustering_incremental_mode == LOCAL_SORT:
        return replace(_stated(options), strategy=OrderStrategy.ORDER)
    return _stated(options)


def _stated(options: TableOptions) -> Ordering:
    columns, strategy = options.clustering_columns, options.clustering_strategy
    if strategy == "auto":
        few = len(columns) <= _ZORDER_COLUMNS_MAX
        strategy = OrderStrategy.ZORDER if few else OrderStrategy.HILBERT
        strategy = OrderStrategy.ORDER if len(columns) == 1 else strategy
    return Ordering(
        strategy=OrderStrategy(strategy),
        columns=columns,
        var_bytes=options.zorder_var_length_contribution,
    )
