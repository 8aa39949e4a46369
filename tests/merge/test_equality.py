"""Values that are equal as Java compares what a row was with what it became."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakecore.merge.changelog import equal_rows, equal_values

NAN = float("nan")
FLAT = pa.struct([("x", pa.int32()), ("y", pa.float64())])


def equal(left: list[Any], right: list[Any], kind: pa.DataType) -> list[bool]:
    """What is said of the values at each place, however the arrays are cut."""
    arrays = pa.array(left, kind), pa.array(right, kind)
    found = equal_values(*arrays).tolist()
    cut = [pa.array([*values[:1], *values], kind).slice(1) for values in (left, right)]
    assert equal_values(*cut).tolist() == found
    assert equal_values(arrays[1], arrays[0]).tolist() == found
    return list(found)


def test_no_column_is_compared_once_all_rows_differ() -> None:
    left, right = pa.table({"a": [1, 2]}), pa.table({"a": [2, 1]})

    assert equal_rows(left, right, ["a", "gone"]).tolist() == [False, False]


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.int32(), 1, 2),
        (pa.string(), "a", "b"),
        (pa.binary(), b"a", b"b"),
        (pa.bool_(), True, False),
        (pa.decimal128(30, 2), Decimal("1.10"), Decimal("1.11")),
        (pa.timestamp("us"), 1, 2),
        (pa.time32("ms"), 1, 2),
        (pa.date32(), 1, 2),
        (pa.float32(), 1.5, 2.5),
        (pa.list_(pa.int32()), [1, 2], [2, 1]),
        (pa.list_(pa.int32()), [1], [1, 1]),
        (pa.list_(pa.int32()), [], [None]),
        (FLAT, {"x": 1, "y": 1.0}, {"x": 1, "y": 2.0}),
        (FLAT, {"x": None, "y": None}, {"x": None, "y": 0.0}),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)], [("a", 2)]),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)], [("b", 1)]),
        (pa.list_(FLAT), [{"x": 1, "y": None}], [{"x": 1, "y": 1.0}]),
    ],
)
def test_value_equals_itself_and_no_other_nor_null(kind: pa.DataType, one: Any, other: Any) -> None:
    assert equal([one, one, None, None, one], [one, other, None, one, one], kind) == [
        True,
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_floats_are_equal_as_java_orders_them(kind: pa.DataType) -> None:
    left = [NAN, NAN, 0.0, -0.0, None, NAN]
    right = [NAN, 1.0, -0.0, -0.0, NAN, None]

    assert equal(left, right, kind) == [True, False, False, True, False, False]
    nested = [[{"x": 1, "y": value}] for value in left]
    others = [[{"x": 1, "y": value}] for value in right]
    assert equal(nested, others, pa.list_(FLAT)) == [True, False, False, True, False, False]


def test_nan_equals_nan_of_other_bits() -> None:
    odd = pa.array(np.array([0x7FF8000000000001], np.int64)).view(pa.float64())

    assert equal_values(odd, pa.array([NAN])).tolist() == [True]


def test_maps_are_equal_in_whatever_order() -> None:
    kind = pa.map_(pa.string(), pa.list_(pa.int32()))
    left = [[("a", [1]), ("b", None)], [("a", [1]), ("b", None)], [("a", [1]), ("b", [2])]]
    right = [[("b", None), ("a", [1])], [("b", [1]), ("a", None)], [("a", [1])]]

    assert equal(left, right, kind) == [True, False, False]


def test_rows_are_equal_in_the_columns_that_count() -> None:
    left = pa.table({"a": [1, 2, 3], "b": ["x", "y", None]})
    right = pa.table({"a": [1, 2, 4], "b": ["x", "z", None]})

    assert equal_rows(left, right, ["a", "b"]).tolist() == [True, False, False]
    assert equal_rows(left, right, ["b"]).tolist() == [True, False, True]
    assert equal_rows(left, right, []).tolist() == [True, True, True]
    assert equal_rows(left.slice(0, 0), right.slice(0, 0), ["a"]).tolist() == []
