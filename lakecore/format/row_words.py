"""Arrow columns as the 64-bit words of BinaryRows; shared by encoding and hashing.

A BinaryRow has a header with null bits, a slot of one word for each field, and a variable part in
which each value takes whole words. A column becomes `ColumnWords`: its slots, and a *tail* with the
words that each row puts into the variable part. Everything is computed for all rows at once. Only
ARRAY, MAP and MULTISET are encoded value by value, because they are never keys or partitions.

INVARIANT: a null has the slot 0 and no tail, except DECIMAL(p>18) and TIMESTAMP(p>3), for which
space in the variable part is reserved with zeros: bucket hashes cover it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.model.arrow_arrays import (
    Bools,
    Bytes,
    Ints,
    Words,
    byte_ranges,
    conform,
    decimal_limbs,
    fixed_width,
)
from lakecore.model.types import (
    BINARIES,
    INTEGERS,
    STRINGS,
    TIMESTAMPS,
    Array,
    Atomic,
    DataType,
    Map,
    Multiset,
    Root,
    Row,
    inner_types,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


INLINE_BYTES_MAX = 7
"""Strings and binaries up to this length are stored in the slot itself."""

_U32 = np.uint64(32)
_KEEP = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)
_NATURAL_WIDTH = {
    Root.BOOLEAN: 1,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 4,
    Root.FLOAT: 4,
    Root.DATE: 4,
    Root.TIME: 4,
}


@dataclass(frozen=True, slots=True, eq=False)
class FixedTail:
    """A tail with the same number of words in each row.

    `words[j]` holds the j-th word of all rows.
    """

    words: tuple[Words, ...]

    @property
    def counts(self) -> int:
        return len(self.words)

    def parts(self, rows: int) -> Iterator[tuple[int, Ints | None, Words]]:
        """For each word: its position in the tail, its rows (None: all), its values."""
        del rows
        for place, word in enumerate(self.words):
            yield place, None, word


@dataclass(frozen=True, slots=True, eq=False)
class BytesTail:
    """A tail of byte strings from `source`; `counts` is the number of words in each row."""

    source: Words
    starts: Ints
    lengths: Ints
    counts: Ints

    def parts(self, rows: int) -> Iterator[tuple[int, Ints | None, Words]]:
        """For each word: its position in the tail, its rows (None: all), its values."""
        if not rows:
            return
        starts, lengths, counts = self.starts, self.lengths, self.counts
        active: Ints | None = None
        everywhere = int(counts.min())
        for place in range(int(counts.max())):
            if place >= everywhere:
                has = np.flatnonzero(counts > place)
                starts, lengths, counts = starts[has], lengths[has], counts[has]
                active = has if active is None else active[has]
            yield place, active, gather_word(self.source, starts, lengths, place)


Tail: TypeAlias = FixedTail | BytesTail


@dataclass(frozen=True, slots=True, eq=False)
class ColumnWords:
    """One column: its null mask (None: no nulls), its slots, and the tail that the slots point to.

    The slots do not contain the offset of the tail yet, because it depends on earlier columns. The
    offset is added later: to the slots marked in `pointing`, or to all slots.
    """

    nulls: Bools | None
    slots: Words
    tail: Tail | None = None
    pointing: Bools | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RowWords:
    """The columns of some rows; `parts` yields all words of the rows."""

    rows: int
    columns: tuple[ColumnWords, ...]

    @property
    def header_words(self) -> int:
        """The number of words in the header, which holds the row kind and the null bits."""
        return (len(self.columns) + 8 + 63) // 64

    def header(self, place: int) -> Words | None:
        """One word of the header for all rows; None if it is 0 in all rows."""
        word: Words | None = None
        for index, column in enumerate(self.columns):
            bit = index + 8 - 64 * place
            if column.nulls is not None and 0 <= bit < 64:
                flags = column.nulls.astype(np.uint64) << np.uint64(bit)
                word = flags if word is None else word | flags
        return word

    def parts(self, *, long: bool = True) -> Iterator[tuple[int | Ints, Ints | None, Words | None]]:
        """Each word of the rows: its position in the row, the rows (None: all), values (None: 0).

        Without `long`, long values are left out: `bytes` copies them row by row instead.
        """
        for place in range(self.header_words):
            yield place, None, self.header(place)
        fixed = self.header_words + len(self.columns)
        before: int | Ints = fixed
        for index, column in enumerate(self.columns):
            yield self.header_words + index, None, _with_offset(column, before)
            if column.tail is not None:
                before = before + column.tail.counts
        before = fixed
        for column in self.columns:
            if column.tail is None:
                continue
            if long or not _is_long(column.tail, self.rows):
                for place, rows, word in column.tail.parts(self.rows):
                    at = before if rows is None or isinstance(before, int) else before[rows]
                    yield at + place, rows, word
            before = before + column.tail.counts

    def _copy_long(self, out: Bytes, starts: Ints) -> None:
        """Copy long values row by row, which is faster than word by word for few rows."""
        before: int | Ints = self.header_words + len(self.columns)
        for column in self.columns:
            tail = column.tail
            if tail is None:
                continue
            if isinstance(tail, BytesTail) and _is_long(tail, self.rows):
                source = tail.source.view(np.uint8)
                targets = (starts + before) * 8
                for row in np.flatnonzero(tail.counts).tolist():
                    at, length, target = tail.starts[row], tail.lengths[row], targets[row]
                    out[target : target + length] = source[at : at + length]
            before = before + tail.counts

    def lengths(self) -> Ints:
        """The number of words of each row."""
        length: int | Ints = self.header_words + len(self.columns)
        for column in self.columns:
            if column.tail is not None:
                length = length + column.tail.counts
        return np.broadcast_to(np.asarray(length, dtype=np.int64), (self.rows,))

    def bytes(self) -> tuple[Bytes, Ints]:
        """The rows concatenated, and their n + 1 byte offsets."""
        ends = np.cumsum(self.lengths())
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), ends])
        out = np.zeros(int(offsets[-1]), dtype=np.uint64)
        starts = offsets[:-1]
        for place, rows, word in self.parts(long=False):
            if word is not None:
                out[(starts if rows is None else starts[rows]) + place] = word
        self._copy_long(out.view(np.uint8), starts)
        return out.view(np.uint8), offsets * 8


def _is_long(tail: Tail, rows: int) -> bool:
    """Whether a value of the tail has more words than there are rows.

    Then copying row by row is faster.
    """
    return isinstance(tail, BytesTail) and rows < int(tail.counts.max(initial=0))


def row_words(columns: Sequence[pa.Array], types: Sequence[DataType], rows: int) -> RowWords:
    """The words of the rows with these columns."""
    assert all(len(column) == rows for column in columns), "columns of one length"
    words = tuple(column_words(*pair) for pair in zip(columns, types, strict=True))
    return RowWords(rows, words)


def column_words(column: pa.Array, data_type: DataType) -> ColumnWords:
    """The words of one column."""
    array = conform(column, data_type)
    nulls = None
    if array.null_count:
        nulls = pc.is_null(array).to_numpy(zero_copy_only=False)
    match data_type:
        case Atomic(root=root) if root in STRINGS or root in BINARIES:
            return _text_words(array, nulls)
        case Atomic(root=Root.DECIMAL, precision=precision):
            return _decimal_words(array, nulls, wide=(precision or 0) > 18)
        case Atomic(root=root, precision=precision) if root in TIMESTAMPS:
            return _timestamp_words(array, nulls, precision or 0)
        case Atomic():
            return ColumnWords(nulls, _zeroed(_plain_slots(array, data_type), nulls))
        case _:
            return _nested_words(array, nulls, data_type)


def padded_words(content: Bytes) -> Words:
    """A copy of the bytes as words, with two words of zeros after them for reads beyond the end."""
    out = np.zeros(len(content) // 8 + 3, dtype=np.uint64)
    out.view(np.uint8)[: len(content)] = content
    return out


def gather_word(source: Words, starts: Ints, lengths: Ints, place: int) -> Words:
    """The word at index `place` of each byte string: bytes 8*place to 8*place+7.

    Bytes after the end of a string are zeros.
    """
    at = starts + 8 * place if place else starts
    index = at >> 3
    shift = ((at & 7) << 3).astype(np.uint64)
    # If the start is aligned, the shift is by 64, which gives 0 in NumPy, as is needed here.
    word: Words = source[index] >> shift
    word |= source[index + 1] << (np.uint64(64) - shift)
    word &= _KEEP[np.clip(lengths - 8 * place, 0, 8)]
    return word


def _with_offset(column: ColumnWords, before: int | Ints) -> Words:
    if column.tail is None:
        return column.slots
    if isinstance(before, int):
        offset: Words | np.uint64 = np.uint64((before * 8) << 32)
    else:
        offset = (before * 8).astype(np.uint64) << _U32
    if column.pointing is None:
        return column.slots | offset
    return np.where(column.pointing, column.slots | offset, column.slots)


def _zeroed(values: Words, nulls: Bools | None) -> Words:
    return values if nulls is None else np.where(nulls, np.uint64(0), values)


def _plain_slots(array: pa.Array, data_type: Atomic) -> Words:
    root = data_type.root
    if root is Root.BOOLEAN:
        return fixed_width(array.cast(pa.uint8()), "u1").astype(np.uint64)
    width = natural_width(data_type)
    assert root in INTEGERS or root in {Root.FLOAT, Root.DOUBLE, Root.DATE, Root.TIME}
    return np.asarray(fixed_width(array, f"u{width}"), np.uint64)


def _text_words(array: pa.Array, nulls: Bools | None) -> ColumnWords:
    content, starts, lengths = byte_ranges(array)
    source = padded_words(content)
    if nulls is not None:
        lengths = np.where(nulls, 0, lengths)
    long = lengths > INLINE_BYTES_MAX
    if long.all():
        return ColumnWords(
            nulls, lengths.view(np.uint64), BytesTail(source, starts, lengths, (lengths + 7) >> 3)
        )
    inline = gather_word(source, starts, np.minimum(lengths, INLINE_BYTES_MAX), 0)
    inline |= (lengths.view(np.uint64) + np.uint64(0x80)) << np.uint64(56)
    slots = _zeroed(inline, nulls)
    if not long.any():
        return ColumnWords(nulls, slots)
    slots = np.where(long, lengths.view(np.uint64), slots)
    counts = np.where(long, (lengths + 7) >> 3, 0)
    return ColumnWords(nulls, slots, BytesTail(source, starts, lengths, counts), long)


def _timestamp_words(array: pa.Array, nulls: Bools | None, precision: int) -> ColumnWords:
    values = np.asarray(fixed_width(array, "i8"), np.int64)
    if nulls is not None:
        values = np.where(nulls, 0, values)
    if precision <= 3:
        return ColumnWords(nulls, values.view(np.uint64))
    per_ms, nanos_each = (1_000, 1_000) if precision <= 6 else (1_000_000, 1)
    millis = np.floor_divide(values, per_ms)
    nanos = (values - millis * per_ms) * nanos_each
    return ColumnWords(nulls, nanos.view(np.uint64), FixedTail((millis.view(np.uint64),)))


def _decimal_words(array: pa.Array, nulls: Bools | None, *, wide: bool) -> ColumnWords:
    low, high = decimal_limbs(array)
    low = _zeroed(low, nulls)
    if not wide:
        return ColumnWords(nulls, np.ascontiguousarray(low))
    if nulls is not None:
        high = np.where(nulls, 0, high)
    # The fewest bytes in two's complement: one more than the whole bytes of significant bits.
    sign = high >> 63
    high_bits, low_bits = (high ^ sign).view(np.uint64), low ^ sign.view(np.uint64)
    length = np.ones(len(low), dtype=np.uint64)
    for size in range(1, 16):
        bits = 8 * size - 1
        if bits < 64:
            length += (high_bits > 0) | (low_bits >= np.uint64(1 << bits))
        else:
            length += high_bits >= np.uint64(1 << (bits - 64))
    # Big-endian and left-aligned: shift the 128 bits up, then swap bytes.
    shift = (np.uint64(16) - length) << np.uint64(3)
    up = high.view(np.uint64)
    upper: Words = np.bitwise_or(up << shift, low >> (np.uint64(64) - shift))
    far = shift >= np.uint64(64)
    upper = np.where(far, low << (shift - np.uint64(64)), upper)
    lower = np.where(far, np.uint64(0), low << shift)
    slots = _zeroed(length, nulls)
    return ColumnWords(nulls, slots, FixedTail((upper.byteswap(), lower.byteswap())))


def _nested_words(
    array: pa.Array, nulls: Bools | None, data_type: Array | Map | Multiset | Row
) -> ColumnWords:
    if isinstance(data_type, Row):
        types = [field.type for field in data_type.fields]
        content, offsets = row_words(array.flatten(), types, len(array)).bytes()
    else:
        parts = [_collection(value, data_type) if value.is_valid else b"" for value in array]
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        content = np.frombuffer(b"".join(parts), np.uint8)
    lengths = np.diff(offsets)
    if nulls is not None:
        lengths = np.where(nulls, 0, lengths)
    tail = BytesTail(padded_words(content), offsets[:-1], lengths, (lengths + 7) >> 3)
    return ColumnWords(nulls, lengths.view(np.uint64), tail, None if nulls is None else ~nulls)


def _collection(value: pa.Scalar, data_type: Array | Map | Multiset) -> bytes:
    if isinstance(data_type, Array):
        return _array_bytes(value.values, data_type.element)
    parts = zip(range(2), inner_types(data_type), strict=True)
    keys, items = (_array_bytes(value.values.field(at), kind) for at, kind in parts)
    return len(keys).to_bytes(4, "little") + keys + items


def _array_bytes(values: pa.Array, element: DataType) -> bytes:
    """The bytes of a nested array: count, null bits in 4-byte words, elements, variable parts."""
    count = len(values)
    column = column_words(values, element)
    width = natural_width(element)
    null_bytes = (count + 31) // 32 * 4
    fixed = (4 + null_bytes + count * width + 7) // 8 * 8
    flags = np.zeros(null_bytes * 8, dtype=np.bool_)
    if column.nulls is not None:
        flags[:count] = column.nulls
    starts = np.zeros(count + 1, dtype=np.int64)
    if column.tail is not None:
        counts = np.broadcast_to(np.asarray(column.tail.counts, dtype=np.int64), (count,))
        np.cumsum(counts, out=starts[1:])
    slots = _with_offset(column, fixed // 8 + starts[:-1]).astype(f"<u{width}")
    variable = np.zeros(int(starts[-1]), dtype=np.uint64)
    if column.tail is not None:
        for place, rows, word in column.tail.parts(count):
            variable[(starts[:-1] if rows is None else starts[rows]) + place] = word
    head = count.to_bytes(4, "little") + np.packbits(flags, bitorder="little").tobytes()
    return (head + slots.tobytes()).ljust(fixed, b"\0") + variable.tobytes()


def natural_width(data_type: DataType) -> int:
    """The number of bytes of an element of that type in a nested array."""
    return _NATURAL_WIDTH.get(data_type.root, 8) if isinstance(data_type, Atomic) else 8
