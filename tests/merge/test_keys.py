"""Keys of every type as numbers that sort as Paimon sorts them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from math import inf, nan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakecore.merge.keys import (
    NONE,
    bits_of,
    in_one,
    order_columns,
    pick,
    sequence_codes,
    shared_codes,
    spread,
)

ASCENDING: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tinyint": (pa.int8(), [-128, -1, 0, 127]),
    "smallint": (pa.int16(), [-32768, 0, 32767]),
    "int": (pa.int32(), [-(2**31), -1, 0, 1, 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    "boolean": (pa.bool_(), [False, True]),
    "date": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    "time": (pa.time32("ms"), [time(0), time(0, 0, 0, 1000), time(23, 59, 59)]),
    "timestamp 3": (pa.timestamp("ms"), [datetime(1, 1, 1), datetime(1970, 1, 1)]),
    "timestamp 6": (pa.timestamp("us"), [datetime(1969, 12, 31), datetime(1970, 1, 1, 0, 0, 0, 1)]),
    "timestamp 9": (pa.timestamp("ns"), [datetime(1969, 12, 31), datetime(2262, 1, 1)]),
    "local-zoned": (
        pa.timestamp("us", "UTC"),
        [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)],
    ),
    "decimal 18": (
        pa.decimal128(18, 2),
        [Decimal("-9999999999999999.99"), Decimal("-0.01"), Decimal(0), Decimal("0.01")],
    ),
    "decimal 38": (
        pa.decimal128(38, 0),
        [Decimal(n) for n in (-(10**37), -(2**64) - 1, -(2**64), -1, 0, 1, 2**63, 2**64, 10**37)],
    ),
    # Unsigned bytes: U+FFFD before U+1F600, though UTF-16 has them the other way round.
    "string": (pa.string(), ["", "Z", "a", "a\0", "aa", "b", "\u00e9", "\ufffd", "\U0001f600"]),
    "large string": (pa.large_string(), ["", "a"]),
    "bytes": (pa.binary(), [b"", b"\0", b"\0\0", b"\x7f", b"\x80", b"\xff", b"\xff\0"]),
    "binary": (pa.binary(2), [b"\0\0", b"\x7f\xff", b"\x80\0", b"\xff\xff"]),
    # Java's order: minus zero below zero, NaN above all.
    "float": (pa.float32(), [-inf, -1.5, -0.0, 0.0, 1e-45, 1.5, inf, nan]),
    "double": (pa.float64(), [-inf, -1.5, -0.0, 0.0, 5e-324, 1.5, inf, nan]),
}  # fmt: skip


@pytest.fixture(params=ASCENDING)
def ascending(request: pytest.FixtureRequest) -> pa.Array:
    """All values of one type, each greater than the one before."""
    kind, values = ASCENDING[request.param]
    return pa.array(values, kind)


def test_keys_compare_as_their_values(ascending: pa.Array) -> None:
    keys = order_columns([ascending])
    found = [keys.at(row) for row in range(len(ascending))]

    assert found == sorted(set(found))


def test_codes_rise_with_the_values_of_all_batches(ascending: pa.Array) -> None:
    mixed = np.random.default_rng(1).permutation(len(ascending))
    codes = shared_codes(
        [order_columns([ascending.take(pa.array(mixed))]), order_columns([ascending])]
    )

    assert (np.diff(codes[1]) > 0).all()
    assert codes[0].tolist() == codes[1][mixed].tolist()


def test_count_up_to_counts_rows_at_and_below_the_bound(ascending: pa.Array) -> None:
    keys = order_columns([ascending])

    for row in range(len(ascending)):
        assert keys.count_up_to(keys.at(row)) == row + 1
        assert keys.slice(0, row).count_up_to(keys.at(row)) == row
        assert keys.slice(row, len(ascending) - row).count_up_to(keys.at(row)) == 1


def test_count_below_leaves_out_the_bound(ascending: pa.Array) -> None:
    twice = order_columns([ascending.take(_twice(len(ascending)))])

    for row in range(len(ascending)):
        assert twice.count_below(twice.at(2 * row)) == 2 * row
        assert twice.count_up_to(twice.at(2 * row)) == 2 * row + 2


def _twice(length: int) -> pa.Array:
    return pa.array(np.repeat(np.arange(length), 2))


def test_columns_may_be_slices_chunks_and_empty(ascending: pa.Array) -> None:
    half = len(ascending) // 2
    whole = order_columns([ascending])
    chunks = pa.chunked_array([ascending[:half], ascending[half:half], ascending[half:]])
    slices = [order_columns([column]) for column in (ascending[half:], chunks, ascending[:0])]
    codes = shared_codes([whole, *slices])

    assert codes[1].tolist() == codes[0][half:].tolist()
    assert codes[2].tolist() == codes[0].tolist()
    assert codes[3].tolist() == []
    assert slices[2].count_up_to(whole.at(0)) == 0
    assert shared_codes([slices[2]])[0].tolist() == []


def test_composite_keys_compare_column_by_column(ascending: pa.Array) -> None:
    low, high = ascending[0].as_py(), ascending[len(ascending) - 1].as_py()
    numbers = pa.array([2, 1, 2, 1], pa.int32())
    others = pa.array([low, high, high, low], ascending.type)
    keys = order_columns([numbers, others])
    (codes,) = shared_codes([keys])

    assert np.argsort(codes).tolist() == [3, 1, 0, 2]
    assert sorted(range(4), key=keys.at) == [3, 1, 0, 2]
    assert (
        order_columns([numbers.take([3, 1, 0, 2]), others.take([3, 1, 0, 2])]).count_up_to(
            keys.at(1)
        )
        == 2
    )


def test_all_nan_are_one_key() -> None:
    bits = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000], np.uint64)
    (codes,) = shared_codes([order_columns([pa.array(bits.view(np.float64))])])

    assert len(set(codes.tolist())) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([0, 1], [0, 2**62 - 1]),
        ([0, 1], [-(2**63), 2**63 - 1]),
        ([-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        ([5, 5], [7, 7]),
    ],
    ids=["packed", "too wide to pack", "both of the widest range", "one value"],
)
def test_several_integers_are_one_code(first: list[int], second: list[int]) -> None:
    pairs = sorted({(a, b) for a in first for b in second})
    columns = [pa.array(list(column), pa.int64()) for column in zip(*pairs, strict=True)]
    batches = [order_columns(columns), order_columns([column[::-1] for column in columns])]
    codes = shared_codes(batches)

    assert (np.diff(codes[0]) > 0).all()
    assert codes[1].tolist() == codes[0][::-1].tolist()


@pytest.mark.parametrize("descending", [False, True])
def test_null_is_the_smallest_sequence_in_either_direction(*, descending: bool) -> None:
    column = pa.chunked_array([[3, None], [1, 3]], pa.int64())
    codes = sequence_codes([column], descending=descending)

    order = ["null", "3", "1"] if descending else ["null", "1", "3"]
    ranked = {"3": codes[0], "null": codes[1], "1": codes[2]}
    assert sorted(ranked, key=lambda name: int(ranked[name])) == order
    assert codes[0] == codes[3]


@pytest.mark.parametrize("descending", [False, True])
def test_sequence_fields_compare_one_after_another(*, descending: bool) -> None:
    first = pa.chunked_array([pa.array(["a", "a", None, "b", "a"])])
    second = pa.chunked_array([pa.array([None, 2.5, 9.0, 0.0, nan])])
    codes = sequence_codes([first, second], descending=descending)

    assert np.argsort(codes).tolist() == ([2, 3, 0, 4, 1] if descending else [2, 0, 1, 4, 3])


def test_sequences_of_every_type_have_an_order(ascending: pa.Array) -> None:
    column = pa.chunked_array([pa.concat_arrays([ascending, pa.nulls(1, ascending.type)])])
    rising = sequence_codes([column], descending=False)
    falling = sequence_codes([column], descending=True)

    last = len(ascending)
    assert np.argsort(rising).tolist() == [last, *range(last)]
    assert np.argsort(falling).tolist() == [last, *reversed(range(last))]


@pytest.mark.parametrize("name", [name for name in ASCENDING if "decimal" in name])
def test_a_buffer_may_be_longer_than_its_keys(name: str) -> None:
    kind, values = ASCENDING[name]
    keys = pa.array(values, kind)
    nulls, data = keys.buffers()
    longer = pa.Array.from_buffers(kind, len(keys), [nulls, pa.py_buffer(data.to_pybytes() + b"-")])

    (codes,) = shared_codes([order_columns([longer.slice(1)])])
    (expected,) = shared_codes([order_columns([keys.slice(1)])])
    assert codes.tolist() == expected.tolist()


ARRAYS = [
    pa.array(range(100), pa.int64()),
    pa.array([None if i % 3 == 0 else i for i in range(100)], pa.int32()),
    pa.array([None if i % 5 == 0 else f"text {i}" for i in range(100)]),
    pa.array([f"text {i}" for i in range(100)], pa.large_string()),
    pa.array(range(100), pa.timestamp("us")),
]


def cut(array: pa.Array, *lengths: int) -> pa.ChunkedArray:
    """The first values in chunks of these lengths."""
    starts = [sum(lengths[:at]) for at in range(len(lengths))]
    return pa.chunked_array(
        [array.slice(start, length) for start, length in zip(starts, lengths, strict=True)]
    )


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.type))
def test_what_was_cut_from_one_array_is_that_array_again(array: pa.Array) -> None:
    later = array.slice(7)
    whole = in_one(cut(later, 20, 0, 30, 40))
    whole.validate(full=True)
    assert whole.equals(later.slice(0, 90))
    assert whole.buffers()[-1].address == array.buffers()[-1].address


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.type))
def test_chunks_that_do_not_follow_each_other_are_put_together_in_their_order(
    array: pa.Array,
) -> None:
    for chunks in (
        [array.slice(50), array.slice(0, 50)],
        [array.slice(0, 20), array.slice(21)],
        [array.slice(0, 20), pa.array(array.slice(20).to_pylist(), array.type)],
        [pa.array([], array.type), pa.array([None], array.type), array],
    ):
        whole = in_one(pa.chunked_array(chunks))
        whole.validate(full=True)
        assert whole.to_pylist() == [value for chunk in chunks for value in chunk.to_pylist()]


def test_columns_of_parts_are_put_together_too() -> None:
    lists = pa.array([[1], None, [2, 3]])
    assert in_one(cut(lists, 1, 2)).equals(lists)
    flags = pa.array([True, None, False])
    assert in_one(cut(flags, 1, 2)).equals(flags)


def test_a_buffer_may_be_longer_than_its_values() -> None:
    values = pa.array([1, 2, 3])
    data = pa.py_buffer(values.buffers()[1].to_pybytes() + b"-")
    longer = pa.Array.from_buffers(values.type, len(values), [None, data])

    assert bits_of(longer.slice(1)).tolist() == [2, 3]


def test_an_array_without_rows_may_have_no_buffer() -> None:
    bits = bits_of(pa.Array.from_buffers(pa.int16(), 0, [None, None]))

    assert (bits.tolist(), bits.dtype.itemsize) == ([], 2)


@pytest.mark.parametrize("at", [0, 1])
def test_an_array_of_one_value_is_not_copied(at: int) -> None:
    values = pa.array(["a", "b"])
    found = pick(values, np.array([at]))

    assert found.to_pylist() == ["ab"[at]]
    assert found.buffers()[2].address == values.buffers()[2].address
    assert pick(values, np.array([NONE])).to_pylist() == [None]


@pytest.mark.parametrize(
    ("numbers", "spread_values"),
    [([0, 1], ["a", "b"]), ([1, 0], ["b", "a"]), ([0, 2], ["a", None, "b"]), ([], [None])],
)
def test_values_are_spread_to_their_groups(
    numbers: list[int], spread_values: list[str | None]
) -> None:
    values = pa.array(["a", "b"][: len(numbers)], pa.string())

    found = spread(values, np.array(numbers, np.int64), len(spread_values))
    assert found.to_pylist() == spread_values
