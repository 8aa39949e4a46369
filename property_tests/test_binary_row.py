"""Rows survive their bytes, and hash and bytes are those of a plain reference, value by value."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.format import binary_row
from lakecore.format.binary_row import decode_rows, encode_rows, hash_rows
from lakecore.model.types import Atomic, DataType, Field, Root, arrow_type, parse_type

MASK = 0xFFFFFFFF


def murmur(data: bytes) -> int:
    """Paimon's hash of the bytes of a row, by the book."""
    state = 42
    for (word,) in struct.iter_unpack("<I", data):
        key = word * 0xCC9E2D51 & MASK
        key = (key << 15 | key >> 17) & MASK
        state ^= key * 0x1B873593 & MASK
        state = (state << 13 | state >> 19) & MASK
        state = (state * 5 + 0xE6546B64) & MASK
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & MASK
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


FORMS = {
    Root.BOOLEAN: "<b",
    Root.TINYINT: "<b",
    Root.SMALLINT: "<h",
    Root.INT: "<i",
    Root.DATE: "<i",
    Root.TIME: "<i",
    Root.BIGINT: "<q",
    Root.FLOAT: "<f",
    Root.DOUBLE: "<d",
}


def encode_one(values: tuple[Any, ...], types: list[Atomic]) -> bytes:
    """One BinaryRow, value by value. Decimals and times come as whole numbers."""
    header = bytearray((len(values) + 8 + 63) // 64 * 8)
    fixed = len(header) + 8 * len(values)
    slots, variable = b"", b""
    for index, (value, data_type) in enumerate(zip(values, types, strict=True)):
        root, precision = data_type.root, data_type.precision or 0
        if value is None:
            header[(index + 8) // 8] |= 1 << (index + 8) % 8
        offset = fixed + len(variable)
        if root is Root.DECIMAL and precision > 18:
            size = (
                0
                if value is None
                else max((~value if value < 0 else value).bit_length() // 8 + 1, 1)
            )
            slots += struct.pack("<ii", size, offset)
            variable += (value or 0).to_bytes(size, "big", signed=True).ljust(16, b"\0")
        elif root in {Root.TIMESTAMP, Root.TIMESTAMP_LTZ} and precision > 3:
            unit = 1_000 if precision <= 6 else 1_000_000
            millis, rest = divmod(value or 0, unit)
            slots += struct.pack("<ii", rest * (1_000_000 // unit), offset)
            variable += struct.pack("<q", millis)
        elif value is None:
            slots += bytes(8)
        elif isinstance(value, str | bytes):
            raw = value.encode() if isinstance(value, str) else value
            if len(raw) <= 7:
                slots += raw.ljust(7, b"\0") + bytes([0x80 + len(raw)])
            else:
                slots += struct.pack("<ii", len(raw), offset)
                variable += raw + bytes(-len(raw) % 8)
        else:
            slots += struct.pack(FORMS.get(root, "<q"), value).ljust(8, b"\0")
    return bytes(header) + slots + variable


def column_of(values: list[Any], data_type: DataType) -> pa.Array:
    """The column whose values the reference takes as whole numbers, texts and floats."""
    want = arrow_type(data_type)
    if pa.types.is_decimal(want):
        limbs = b"".join((value or 0).to_bytes(16, "little", signed=True) for value in values)
        valid = np.packbits([value is not None for value in values], bitorder="little")
        buffers = [pa.py_buffer(valid.tobytes()), pa.py_buffer(limbs)]
        return pa.Array.from_buffers(want, len(values), buffers)
    return pa.array(values, want)


def whole(bits: int) -> st.SearchStrategy[int]:
    """Signed numbers of so many bits, of every size in bytes."""
    widths = st.integers(1, bits)
    return widths.flatmap(lambda width: st.integers(-(1 << width - 1), (1 << width - 1) - 1))


def decimals(precision: int) -> st.SearchStrategy[int]:
    most = 10**precision - 1
    return whole(127).filter(lambda value: -most <= value <= most) | st.integers(-most, most)


# A zoned time is a whole number in Arrow too, and pyarrow takes it as one.
STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": whole(8),
    "SMALLINT": whole(16),
    "INT": whole(32),
    "BIGINT": whole(64),
    "FLOAT": st.floats(width=32, allow_nan=False),
    "DOUBLE": st.floats(allow_nan=False),
    "DATE": st.integers(-700_000, 2_900_000),
    "TIME(3)": st.integers(0, 86_399_999),
    "TIMESTAMP(3)": whole(60),
    "TIMESTAMP(6)": whole(64),
    "TIMESTAMP(9)": whole(64),
    "TIMESTAMP_LTZ(6)": whole(64),
    "DECIMAL(9, 2)": decimals(9),
    "DECIMAL(18, 0)": decimals(18),
    "DECIMAL(19, 3)": decimals(19),
    "DECIMAL(38, 10)": decimals(38),
    "STRING": st.text(max_size=40),
    "BYTES": st.binary(max_size=40),
}


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Atomic], list[tuple[Any, ...]], list[pa.Array]]:
    """Types, rows, and the same rows as columns: slices of longer ones."""
    texts = draw(st.lists(st.sampled_from(sorted(STRATEGIES)), min_size=1, max_size=6))
    types = [parse_type(text) for text in texts]
    values = st.tuples(*[st.none() | STRATEGIES[text] for text in texts])
    rows = draw(st.lists(values, min_size=1, max_size=12))
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 3))
    columns = []
    for index, data_type in enumerate(types):
        column = [row[index] for row in rows]
        padded = [column[0]] * before + column + [column[-1]] * after
        columns.append(column_of(padded, data_type)[before : before + len(rows)])
    return [t for t in types if isinstance(t, Atomic)], rows, columns


@given(batches(), st.integers(1, 12))
@settings(deadline=None)
def test_rows_are_those_of_the_reference(
    batch: tuple[list[Atomic], list[tuple[Any, ...]], list[pa.Array]], chunk_rows: int
) -> None:
    types, rows, columns = batch
    expected = [encode_one(row, types) for row in rows]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binary_row, "CHUNK_ROWS", chunk_rows)
        encoded = encode_rows(columns, types).serialized()
        hashes = hash_rows(columns, types)

    assert [row[4:] for row in encoded] == expected
    assert hashes.tolist() == [murmur(row) for row in expected]


@given(batches())
@settings(deadline=None)
def test_decoding_gives_back_what_was_encoded(
    batch: tuple[list[Atomic], list[tuple[Any, ...]], list[pa.Array]],
) -> None:
    types, _, columns = batch
    fields = [Field(id=i, name=f"f{i}", type=t) for i, t in enumerate(types)]

    decoded = decode_rows(encode_rows(columns, types).serialized(), fields)

    decoded.validate(full=True)
    assert decoded.columns == columns


NESTED = {
    "ARRAY<BIGINT>": st.lists(st.none() | whole(64), max_size=70),
    "ARRAY<ARRAY<STRING>>": st.lists(st.none() | st.lists(st.none() | st.text(max_size=12))),
    "MAP<STRING, DOUBLE>": st.lists(
        st.tuples(st.text(max_size=12), st.none() | st.floats(allow_nan=False)), max_size=5
    ),
    "MULTISET<INT>": st.lists(st.tuples(whole(32), st.integers(1, 9)), max_size=5),
    "ROW<a TIMESTAMP(9), b ARRAY<BOOLEAN>, c DECIMAL(38, 0)>": st.fixed_dictionaries(
        {
            "a": st.none() | whole(63),
            "b": st.none() | st.lists(st.none() | st.booleans(), max_size=40),
            "c": st.none(),
        }
    ),
}


@pytest.mark.parametrize("text", NESTED)
@given(data=st.data())
@settings(deadline=None, max_examples=30)
def test_nested_values_survive_their_bytes(text: str, data: st.DataObject) -> None:
    data_type = parse_type(text)
    values = data.draw(st.lists(st.none() | NESTED[text], min_size=1, max_size=6))
    column = pa.array([values[0], *values], arrow_type(data_type))[1:]

    rows = encode_rows([column, column], [data_type] * 2).serialized()
    decoded = decode_rows(rows, [Field(id=i, name=str(i), type=data_type) for i in range(2)])

    assert decoded.columns == [column, column]
    assert all(len(row) % 8 == 4 for row in rows)


@given(st.lists(st.floats(width=32)))
@settings(deadline=None)
def test_floats_keep_nan_and_the_sign_of_zero(values: list[float]) -> None:
    types: list[DataType] = [parse_type("FLOAT")]
    column = pa.array(values, pa.float32())

    rows = encode_rows([column], types).serialized()
    decoded = decode_rows(rows, [Field(id=0, name="f", type=types[0])]).column(0).to_pylist()

    assert [math.isnan(value) for value in decoded] == [math.isnan(value) for value in values]
    assert [math.copysign(1, value) for value in decoded if value == 0] == [
        math.copysign(1, value) for value in values if value == 0
    ]
