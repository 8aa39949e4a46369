"""Paimon's BinaryRow: partitions, keys and statistics as bytes, and the hash for buckets.

Rows are encoded from Arrow columns and decoded to them, without Python objects for values. A
*serialized* row, as in manifests, is prefixed with its arity as four big-endian bytes.

INVARIANT: temporary memory does not grow with the number of rows: hashing processes chunks of
`CHUNK_ROWS`, whose words fit in the processor's cache.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.format.row_words import RowWords, natural_width, row_words
from lakecore.model.types import (
    BINARIES,
    STRINGS,
    TIMESTAMPS,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Root,
    Row,
    arrow_type,
    inner_types,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from lakecore.model.arrow_arrays import Bools, Ints


# --- row decode ----------------------------------------------------------------------------------
# Decodes serialized BinaryRows to Arrow columns, all rows of a column at once.
#
# The rows are concatenated and viewed as 32-bit words, because every value starts at a multiple of
# 4 bytes. A column is then gathered from the starts of the rows. Only ARRAY, MAP, MULTISET and ROW
# values are decoded one by one: they are not keys or partitions, and have no bounds in statistics.
#
# INVARIANT: bytes that cannot be a row of the given fields raise CorruptTable. No value is read
# from outside its row.

_INTEGER_FORMS = {1: "<b", 2: "<h", 4: "<i", 8: "<q"}
_PADDING = bytes(32)
_MILLIS_MAX = (1 << 63) // 1_000_000 - 1
"""The largest distance from 1970 that nanoseconds in 64 bits can represent."""


def decode_rows(
    rows: Sequence[bytes], fields: Sequence[Field], wanted: Sequence[str] | None = None
) -> pa.RecordBatch:
    """The values of serialized rows as Arrow columns, in the Arrow types of the fields.

    `fields` are all fields of the rows; `wanted` names the columns to return, in order. Every
    column may contain nulls, even if its type is NOT NULL, because an unknown bound is null.
    """
    index = {field.name: place for place, field in enumerate(fields)}
    names = tuple(index) if wanted is None else tuple(wanted)
    unknown = [name for name in names if name not in index]
    if unknown:
        raise InvalidRequest("unknown column of a row", column=unknown, columns=tuple(index))
    joined = _join(rows, len(fields))
    if not names:
        # A batch without arrays does not know its number of rows.
        empty = pa.Array.from_buffers(pa.struct([]), len(rows), [None])
        return pa.RecordBatch.from_struct_array(empty)
    arrays = [joined.column(index[name], fields[index[name]].type) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _join(rows: Sequence[bytes], arity: int) -> _Joined:
    count = len(rows)
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=count)
    if (lengths & 3).any():
        rows = [row + bytes(-len(row) & 3) for row in rows]
        steps = (lengths + 3) & ~3
    else:
        steps = lengths
    content = b"".join([*rows, _PADDING])
    ends = np.cumsum(steps)
    starts = ends - steps
    words = np.frombuffer(content, "<u4", len(content) // 4)
    header = (arity + 8 + 63) // 64 * 8
    if count and int(lengths.min()) < 4 + header + 8 * arity:
        if int(lengths.min()) < 4:
            raise CorruptTable("a row is shorter than its arity", bytes=int(lengths.min()))
        _check_arity(words[starts >> 2], arity)
        raise CorruptTable("a row is truncated", bytes=int(lengths.min()), arity=arity)
    _check_arity(words[starts >> 2], arity)
    return _Joined(content, words, starts + 4, lengths - 4, header)


def _check_arity(prefixes: NDArray[np.uint32], arity: int) -> None:
    stored = prefixes.byteswap()
    if (stored != arity).any():
        wrong = int(np.argmax(stored != arity))
        raise CorruptTable(
            "a row has a different number of fields",
            row=wrong,
            stored=int(stored[wrong]),
            expected=arity,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Joined:
    """Concatenated rows. `starts` are the byte positions at which the rows begin."""

    content: bytes
    words: NDArray[np.uint32]
    starts: Ints
    lengths: Ints
    header: int

    def column(self, place: int, data_type: DataType) -> pa.Array:
        bit = place + 8
        flags = self.words[(self.starts >> 2) + bit // 32] >> np.uint32(bit % 32)
        nulls = (flags & np.uint32(1)).astype(np.bool_)
        slot_starts = self.starts + self.header + 8 * place
        low = self.words[slot_starts >> 2]
        high = self.words[(slot_starts >> 2) + 1]
        want = arrow_type(data_type)
        match data_type:
            case Atomic(root=Root.BOOLEAN):
                return _array(want, np.packbits((low & 0xFF) != 0, bitorder="little"), nulls)
            case Atomic(root=root) if root in STRINGS or root in BINARIES:
                starts, lengths = self._text_ranges(slot_starts, low, high, nulls)
                return self._texts(want, starts, lengths, nulls)
            case Atomic(root=Root.DECIMAL, precision=precision) if (precision or 0) > 18:
                return self._decimals(want, low, high, nulls)
            case Atomic(root=Root.DECIMAL):
                unscaled = _join_halves(low, high).view(np.int64)
                return _array(want, np.stack([unscaled, unscaled >> 63], axis=1), nulls)
            case Atomic(root=root, precision=precision) if root in TIMESTAMPS:
                return self._timestamps(want, precision or 0, (low, high), nulls)
            case Atomic():
                width = natural_width(data_type)
                slots = _join_halves(low, high) if width == 8 else low.astype(f"<u{width}")
                return _array(want, slots, nulls)
            case _:
                starts, lengths = self._range(low, high, nulls)
                return self._nested(data_type, starts, lengths, nulls)

    def _range(
        self, low: NDArray[np.uint32], high: NDArray[np.uint32], nulls: Bools
    ) -> tuple[Ints, Ints]:
        """The absolute starts and lengths of variable-length values. Nulls have length 0."""
        lengths = np.where(nulls, 0, low.astype(np.int64))
        offsets = np.where(nulls, 0, high.astype(np.int64))
        outside = (offsets + lengths > self.lengths) | ((offsets & 3) != 0)
        if outside.any():
            row = int(np.argmax(outside))
            raise CorruptTable(
                "a row points outside itself",
                row=row,
                offset=int(offsets[row]),
                length=int(lengths[row]),
                bytes=int(self.lengths[row]),
            )
        return self.starts + offsets, lengths

    def _text_ranges(
        self, slots: Ints, low: NDArray[np.uint32], high: NDArray[np.uint32], nulls: Bools
    ) -> tuple[Ints, Ints]:
        inline = (high & np.uint32(0x80000000)) != 0
        starts, lengths = self._range(low, high, nulls | inline)
        inline_lengths = ((high >> np.uint32(24)) & np.uint32(0x7F)).astype(np.int64)
        inline &= ~nulls
        if (inline_lengths[inline] > 7).any():
            raise CorruptTable("an inlined value is longer than 7 bytes")
        return np.where(inline, slots, starts), np.where(inline, inline_lengths, lengths)

    def _texts(self, want: pa.DataType, starts: Ints, lengths: Ints, nulls: Bools) -> pa.Array:
        offsets = np.zeros(len(starts) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        total = int(offsets[-1])
        if total > np.iinfo(np.int32).max:
            raise InvalidRequest(
                "the rows have more bytes of strings than one batch can hold", bytes=total
            )
        source = np.repeat(starts - offsets[:-1], lengths) + np.arange(total, dtype=np.int64)
        data = np.frombuffer(self.content, np.uint8)[source]
        buffers = [_validity(nulls), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        array = pa.Array.from_buffers(want, len(starts), buffers)
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorruptTable("a text in a row is not UTF-8", reason=error) from error
        return array

    def _decimals(
        self, want: pa.DataType, low: NDArray[np.uint32], high: NDArray[np.uint32], nulls: Bools
    ) -> pa.Array:
        starts, lengths = self._range(low, high, nulls)
        if (lengths > 16).any() or (lengths[~nulls] == 0).any():
            raise CorruptTable("a decimal does not have 1 to 16 bytes", lengths=np.unique(lengths))
        at = starts >> 2
        top = _join_halves(self.words[at + 1].byteswap(), self.words[at].byteswap())
        bottom = _join_halves(self.words[at + 3].byteswap(), self.words[at + 2].byteswap())
        # Big-endian and left-aligned: shift the 128 bits down, keeping the sign.
        shift = ((16 - lengths) << 3).astype(np.uint64)
        signed = top.view(np.int64)
        lower = (bottom >> shift) | (top << (np.uint64(64) - shift))
        far = np.where(shift >= 64, shift - np.uint64(64), np.uint64(0)).view(np.int64)
        lower = np.where(shift >= 64, (signed >> far).view(np.uint64), lower)
        upper = signed >> np.minimum(shift, np.uint64(63)).view(np.int64)
        return _array(want, np.stack([lower.view(np.int64), upper], axis=1), nulls)

    def _timestamps(
        self,
        want: pa.DataType,
        precision: int,
        slots: tuple[NDArray[np.uint32], NDArray[np.uint32]],
        nulls: Bools,
    ) -> pa.Array:
        low, high = slots
        if precision <= 3:
            return _array(want, _join_halves(low, high), nulls)
        starts, _ = self._range(np.full_like(low, 8), high, nulls)
        at = starts >> 2
        millis = _join_halves(self.words[at], self.words[at + 1]).view(np.int64)
        nanos = low.astype(np.int64)
        if precision <= 6:
            return _array(want, millis * 1_000 + nanos // 1_000, nulls)
        if (~nulls & ((millis > _MILLIS_MAX) | (millis < -_MILLIS_MAX))).any():
            raise Unsupported("timestamps of nanoseconds outside the years 1677 to 2262", type=want)
        return _array(want, millis * 1_000_000 + nanos, nulls)

    def _nested(self, data_type: DataType, starts: Ints, lengths: Ints, nulls: Bools) -> pa.Array:
        values: list[object] = []
        for start, length, null in zip(
            starts.tolist(), lengths.tolist(), nulls.tolist(), strict=True
        ):
            part = self.content[start : start + length]
            values.append(None if null else _checked(part, data_type))
        return pa.array(values, arrow_type(data_type))


def _join_halves(low: NDArray[np.uint32], high: NDArray[np.uint32]) -> NDArray[np.uint64]:
    return low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))


def _validity(nulls: Bools) -> pa.Buffer | None:
    if not nulls.any():
        return None
    return pa.py_buffer(np.packbits(~nulls, bitorder="little"))


def _array(want: pa.DataType, values: NDArray[Any], nulls: Bools) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(want, len(nulls), [_validity(nulls), data])


# --- nested values, one by one ------------------------------------------------------------------


def _checked(part: bytes, data_type: DataType) -> object:
    try:
        return _collection(part, data_type)
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptTable("a nested value is damaged", type=data_type, reason=error) from error


def _collection(part: bytes, data_type: DataType) -> object:
    match data_type:
        case Array(element=element):
            return _elements(part, element)
        case Row(fields=fields):
            header = (len(fields) + 8 + 63) // 64 * 8
            return {
                field.name: None
                if _bit(part, 0, place + 8)
                else _value(part, header + 8 * place, field.type)
                for place, field in enumerate(fields)
            }
        case Map() | Multiset():
            (size,) = struct.unpack_from("<i", part)
            of_keys, of_items = inner_types(data_type)
            keys = _elements(part[4 : 4 + size], of_keys)
            return list(zip(keys, _elements(part[4 + size :], of_items), strict=True))
        case Atomic():
            raise AssertionError("an atomic value is not a collection")


def _elements(part: bytes, element: DataType) -> list[object]:
    (count,) = struct.unpack_from("<i", part)
    if count < 0:
        raise ValueError("a negative count")
    first = 4 + (count + 31) // 32 * 4
    width = natural_width(element)
    return [
        None if _bit(part, 4, place) else _value(part, first + place * width, element)
        for place in range(count)
    ]


def _bit(part: bytes, start: int, bit: int) -> int:
    return part[start + bit // 8] >> (bit % 8) & 1


def _value(part: bytes, at: int, data_type: DataType) -> object:
    """A value in the form that pyarrow accepts for its type: dates and times as numbers."""
    if not isinstance(data_type, Atomic):
        return _collection(_pointed(part, at), data_type)
    root = data_type.root
    if root in STRINGS or root in BINARIES:
        inline = part[at + 7]
        raw = part[at : at + (inline & 0x7F)] if inline & 0x80 else _pointed(part, at)
        return raw.decode() if root in STRINGS else raw
    if root in {Root.FLOAT, Root.DOUBLE}:
        return struct.unpack_from("<f" if root is Root.FLOAT else "<d", part, at)[0]
    precision, scale = data_type.digits, data_type.decimals
    if root is Root.DECIMAL and precision > 18:
        return _decimal(int.from_bytes(_pointed(part, at), "big", signed=True), scale)
    if root in TIMESTAMPS and precision > 3:
        nanos, offset = struct.unpack_from("<ii", part, at)
        (millis,) = struct.unpack_from("<q", part, offset)
        return millis * 1_000 + nanos // 1_000 if precision <= 6 else millis * 1_000_000 + nanos
    (number,) = struct.unpack_from(_INTEGER_FORMS[natural_width(data_type)], part, at)
    if root is Root.DECIMAL:
        return _decimal(number, scale)
    return bool(number) if root is Root.BOOLEAN else number


def _pointed(part: bytes, at: int) -> bytes:
    length, offset = struct.unpack_from("<ii", part, at)
    if min(length, offset) < 0 or offset + length > len(part):
        raise ValueError("points outside itself")
    return part[offset : offset + length]


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


# --- binary row ----------------------------------------------------------------------------------

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

    All rows have the same arity.
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
    """The hash of a single row, from its bytes: faster than the steps that hash many rows."""
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
        size_bytes += pc.fill_null(each, 0).to_numpy()
    longest = np.argsort(-size_bytes, kind="stable")[: _LONG_ROWS_MAX + 1]
    sizes = size_bytes[longest]
    apart = np.cumsum(sizes) - sizes
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
