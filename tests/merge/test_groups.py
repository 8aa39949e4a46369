"""What the merge functions share: arrays in one, and what is taken of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakecore.merge.groups import NONE, bits_of, in_one, pick, spread

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
