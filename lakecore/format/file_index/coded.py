"""Encodes a column as a sorted dictionary of its distinct values, and for each row a *code*.

The code is the position of the row's value in the dictionary. The indexes `bitmap` and
`range-bitmap` are built from the codes. Encoding takes the memory of the distinct values of each
part of the column, and at most four bytes for each row.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lakecore.errors import CorruptTable
from lakecore.model.types import BINARIES, STRINGS, TIMESTAMPS, Atomic, DataType, Root

# --- values --------------------------------------------------------------------------------------
# Values of a column in the form that file indexes store.
#
# Numbers, booleans, dates, times and timestamps become int64 numbers that sort as the values do:
#
# - a timestamp is its milliseconds up to precision 3, else its microseconds;
# - a decimal is its unscaled number;
# - a float is its bits, converted so that they sort as in Java: -0.0 below 0.0, and NaN above all.
#
# Strings and binaries stay bytes. `pack` and `unpack` convert between this form and stored bytes.

Key: TypeAlias = "int | bytes"
"""A value of an index; all values of one index are of the same kind."""

_WIDTHS = {
    Root.BOOLEAN: 1,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 4,
    Root.DATE: 4,
    Root.TIME: 4,
    Root.FLOAT: 4,
    Root.BIGINT: 8,
    Root.DOUBLE: 8,
    Root.DECIMAL: 8,
    Root.TIMESTAMP: 8,
    Root.TIMESTAMP_LTZ: 8,
}
_LONG_DECIMAL_DIGITS = 18
_MICROS_DIGITS = 6


@dataclass(frozen=True, slots=True)
class ValueForm:
    """How the values of a column are stored: root of the type, and bytes per value (0: variable).

    `exact` is False for timestamps with more than six fraction digits: different values of such a
    column may have the same stored value.
    """

    root: Root
    width: int
    precision: int
    exact: bool

    @property
    def is_text(self) -> bool:
        """Whether values are strings or binaries, which are stored after their length."""
        return self.width == 0

    @property
    def is_float(self) -> bool:
        """Whether values are floats, where two different stored values (-0.0 and 0.0) are equal."""
        return self.root in (Root.FLOAT, Root.DOUBLE)

    def pack(self, keys: np.ndarray) -> bytes:
        """The stored bytes of these numbers, one number after another."""
        bits = _bits(keys, self) if self.is_float else keys
        return bits.astype(f">i{self.width}").tobytes()

    def unpack(self, data: bytes, count: int, offset: int = 0) -> np.ndarray:
        """`count` numbers as int64. Raises CorruptTable if there are too few bytes."""
        if offset < 0 or count < 0 or offset + count * self.width > len(data):
            raise cut_short()
        bits = np.frombuffer(data, f">i{self.width}", count, offset).astype(np.int64)
        return _ordered(bits, self) if self.is_float else bits

    def packed_key(self, key: Key) -> bytes:
        """The stored bytes of one value. A string or binary comes after its length."""
        if isinstance(key, bytes):
            return struct.pack(">i", len(key)) + key
        return self.pack(np.array([key], np.int64))

    def key_at(self, data: bytes, offset: int) -> tuple[Key, int]:
        """The value at an offset, and the offset after it."""
        if not self.is_text:
            (key,) = self.unpack(data, 1, offset).tolist()
            return key, offset + self.width
        length = int_at(data, offset)
        end = offset + 4 + length
        if length < 0 or end > len(data):
            raise cut_short()
        return bytes(data[offset + 4 : end]), end


def value_form(kind: DataType) -> ValueForm | None:
    """The form of the values of a type; None for nested types."""
    if not isinstance(kind, Atomic):
        return None
    precision = kind.digits
    if kind.root in STRINGS | BINARIES:
        return ValueForm(kind.root, 0, 0, exact=True)
    if kind.root is Root.DECIMAL and precision > _LONG_DECIMAL_DIGITS:
        return None
    exact = kind.root not in TIMESTAMPS or precision <= _MICROS_DIGITS
    return ValueForm(kind.root, _WIDTHS[kind.root], precision, exact)


def stored_values(column: pa.Array, form: ValueForm) -> pa.Array:
    """The values of a column as int64 or binary, with its nulls."""
    if form.is_text:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return column.cast(pa.large_binary())
    kind = column.type
    if pa.types.is_decimal(kind):
        return _unscaled(column)
    if pa.types.is_floating(kind):
        bits = pc.fill_null(column, 0.0).to_numpy()
        bits = np.where(np.isnan(bits), bits.dtype.type("nan"), bits)
        codes = _ordered(bits.view(f"i{form.width}").astype(np.int64), form)
        return pc.if_else(column.is_valid(), pa.array(codes), pa.scalar(None, pa.int64()))
    if pa.types.is_timestamp(kind):
        unit = "ms" if form.precision <= 3 else "us"
        plain = column.cast(pa.timestamp(kind.unit))
        return _in_unit(plain.view(pa.int64()), kind.unit, unit)
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    return column.cast(pa.int64())


def cut_short() -> CorruptTable:
    """The error for an index whose bytes end too early."""
    return CorruptTable("a file index is cut short or damaged")


def int_at(data: bytes, offset: int) -> int:
    """The 32-bit number at an offset."""
    if offset < 0 or offset + 4 > len(data):
        raise cut_short()
    (number,) = struct.unpack_from(">i", data, offset)
    return int(number)


_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def _in_unit(values: pa.Array, unit: str, wanted: str) -> pa.Array:
    """Times converted from `unit` to `wanted`; rounded down if `wanted` is coarser."""
    have, want = _PER_SECOND[unit], _PER_SECOND[wanted]
    if want >= have:
        return pc.multiply_checked(values, want // have) if want > have else values
    numbers = pc.fill_null(values, 0).to_numpy() // (have // want)
    return pc.if_else(values.is_valid(), pa.array(numbers), pa.scalar(None, pa.int64()))


def _unscaled(column: pa.Array) -> pa.Array:
    column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    words = np.frombuffer(column.buffers()[1], np.int64, 2 * len(column), 16 * column.offset)
    numbers = pa.array(np.ascontiguousarray(words.reshape(-1, 2)[:, 0]))
    return pc.if_else(column.is_valid(), numbers, pa.scalar(None, pa.int64()))


def _ordered(bits: np.ndarray, form: ValueForm) -> np.ndarray:
    """Converts the bits of floats to numbers that sort as the floats do."""
    magnitude = np.int64(0x7FFFFFFF if form.width == 4 else 0x7FFFFFFFFFFFFFFF)
    return np.where(bits < 0, bits ^ magnitude, bits)


def _bits(keys: np.ndarray, form: ValueForm) -> np.ndarray:
    """The inverse of `_ordered`, which is its own inverse."""
    return _ordered(keys, form)


# --- coded ---------------------------------------------------------------------------------------

NULL = -1
"""The code of a null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedColumn:
    """The distinct values, ascending. `codes` has the position of each row's value, or `NULL`."""

    keys: pa.Array
    codes: np.ndarray

    @property
    def key_list(self) -> list[Key]:
        """The distinct values as a list of Python values."""
        return list(self.keys.to_pylist())


@dataclass(slots=True)
class CodedParts:
    """Collects the parts of a column, in order."""

    form: ValueForm
    _parts: list[tuple[pa.Array, np.ndarray]] = field(default_factory=list)

    def add(self, column: pa.Array) -> None:
        """Add the values of further rows."""
        coded = stored_values(column, self.form).dictionary_encode()
        codes = pc.fill_null(coded.indices, NULL).to_numpy()
        self._parts.append((coded.dictionary, _narrow(codes, len(coded.dictionary))))

    def finish(self) -> CodedColumn:
        """The dictionary and the codes of the whole column."""
        kind = pa.large_binary() if self.form.is_text else pa.int64()
        keys = pa.chunked_array([part for part, _ in self._parts], kind).unique()
        keys = keys.take(pc.sort_indices(keys))
        codes = [np.empty(0, np.int64)]
        for part, own in self._parts:
            numbers = pc.index_in(part, value_set=keys).to_numpy()
            numbers = np.append(numbers.astype(np.int64), NULL)
            codes.append(numbers[own])
        self._parts.clear()
        return CodedColumn(keys=keys, codes=np.concatenate(codes))


def rows_by_code(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows sorted by the code of their value, and these codes, which ascend."""
    rows = np.argsort(codes, kind="stable")
    return rows.astype(np.uint32), codes[rows]


def bitmap_of(rows: np.ndarray) -> BitMap:
    """A bitmap of these rows."""
    return BitMap(np.asarray(rows, np.uint32))


def encode_bitmap(rows: BitMap) -> bytes:
    """The bitmap's bytes in the portable format, with run containers where they are smaller."""
    rows.run_optimize()
    return bytes(rows.serialize())


def all_rows(count: int) -> BitMap:
    """The bitmap of all rows of a file. Raises CorruptTable for a negative count."""
    if count < 0:
        raise CorruptTable("a file index has a negative number of rows", rows=count)
    rows = BitMap()
    rows.add_range(0, count)
    return rows


def decode_bitmap(data: bytes) -> BitMap:
    """The bitmap that these bytes begin with. Raises CorruptTable if they are not a bitmap."""
    if stored_size(data, 0) > len(data):
        raise cut_short()
    try:
        return BitMap.deserialize(data)
    except (ValueError, MemoryError, OverflowError) as error:
        raise CorruptTable("a bitmap of a file index is damaged") from error


def stored_size(body: bytes, at: int) -> int:
    """The length in bytes of the roaring bitmap at offset `at`, computed from its header.

    https://github.com/RoaringBitmap/RoaringFormatSpec
    """
    start = at
    try:
        (cookie,) = struct.unpack_from("<I", body, at)
        runs = cookie & 0xFFFF == 12347
        if runs:
            count = (cookie >> 16) + 1
            flags = body[at + 4 : at + 4 + (count + 7) // 8]
            at += 4 + len(flags)
        else:
            (count,) = struct.unpack_from("<I", body, at + 4)
            flags = b""
            at += 8
        sizes = [struct.unpack_from("<HH", body, at + 4 * n)[1] + 1 for n in range(count)]
        at += 4 * count
        if not runs or count >= 4:
            at += 4 * count
        for number, size in enumerate(sizes):
            if flags and flags[number // 8] >> (number % 8) & 1:
                (own,) = struct.unpack_from("<H", body, at)
                at += 2 + 4 * own
            else:
                at += 2 * size if size <= 4096 else 8192
    except (struct.error, IndexError) as error:
        raise cut_short() from error
    return at - start


def _narrow(codes: np.ndarray, count: int) -> np.ndarray:
    for kind in (np.int8, np.int16):
        if count <= np.iinfo(kind).max:
            return codes.astype(kind)
    return codes.astype(np.int32)
