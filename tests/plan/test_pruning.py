"""What statistics rule out, and what they never do."""

from __future__ import annotations

import datetime as dt
import math
import time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from lakecore.model.types import fields_from_arrow
from lakecore.options import BucketFunction
from lakecore.plan.bucketing import bucket_ids
from lakecore.plan.predicate import (
    FALSE,
    NULL,
    TRUE,
    UNKNOWN,
    And,
    Compare,
    In,
    IsNotNull,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    StartsWith,
    at_most,
)
from lakecore.plan.pruning import matches_exactly, may_match, prune_buckets

X = "x"


def compare(op: str, value: object, kind: pa.DataType) -> Compare:
    return Compare(X, Op(op), pa.scalar(value, kind))


def isin(values: list[object], kind: pa.DataType) -> In:
    return In(X, pa.array(values, kind))


def prune(
    predicate: Predicate,
    kind: pa.DataType,
    *chunks: tuple[object, object, int | None],
    rows: int = 10,
) -> list[bool]:
    """The mask over chunks of (least, greatest, nulls)."""
    low, high, nulls = zip(*chunks, strict=True)
    mask = may_match(
        predicate,
        pa.RecordBatch.from_arrays([pa.array(low, kind)], [X]),
        pa.RecordBatch.from_arrays([pa.array(high, kind)], [X]),
        pa.RecordBatch.from_arrays([pa.array(nulls, pa.int64())], [X]),
        np.full(len(chunks), rows),
    )
    return [bool(kept) for kept in mask]


DAYS = [dt.date(2026, 1, day) for day in (1, 2, 3, 4, 5)]
TIMES = [dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in (1, 2, 3, 4, 5)]
TYPES: list[tuple[pa.DataType, list[object]]] = [
    (pa.int8(), [1, 2, 3, 4, 5]),
    (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    (pa.float64(), [-math.inf, -1.5, 0.0, 1.5, math.inf]),
    (pa.string(), ["", "a", "ab", "é", "\U0001f600"]),
    (pa.binary(), [b"", b"\x00", b"a", b"\x80", b"\xff"]),
    (pa.decimal128(38, 2), [Decimal(text) for text in ("-9.99", "-1", "0", "1", "1e30")]),
    (pa.date32(), [*DAYS]),
    (pa.time32("ms"), [dt.time(hour) for hour in (0, 1, 2, 3, 4)]),
    (pa.timestamp("ms"), [one.replace(tzinfo=None) for one in TIMES]),
    (pa.timestamp("ns"), [one.replace(tzinfo=None) for one in TIMES]),
    (pa.timestamp("us", "UTC"), [*TIMES]),
]


@pytest.mark.parametrize(("kind", "values"), TYPES, ids=lambda one: str(one)[:20])
def test_each_type_is_pruned_by_its_bounds(kind: pa.DataType, values: list[object]) -> None:
    a, b, c, d, e = values
    floating = pa.types.is_floating(kind)

    def kept(predicate: Predicate) -> list[bool]:
        return prune(predicate, kind, (b, b, 0), (b, d, 0), (d, d, 0))

    assert kept(compare("=", b, kind)) == [True, True, False]
    assert kept(compare("=", c, kind)) == [False, True, False]
    assert kept(compare("=", a, kind)) == [False, False, False]
    assert kept(compare("<", b, kind)) == [False, False, False]
    assert kept(compare("<=", b, kind)) == [True, True, False]
    hull = pa.types.is_decimal(kind)  # a set of decimals is pruned by its ends alone
    assert kept(isin([a, c, e], kind)) == [hull, True, hull]
    # A float column may hold a NaN, which is above all and in no statistics.
    assert kept(compare(">", d, kind)) == [floating] * 3
    assert kept(compare(">=", c, kind)) == [floating, True, True]
    assert kept(compare("!=", b, kind)) == [floating, True, True]
    assert kept(Not(isin([b, c], kind))) == [floating, True, True]
    assert kept(Not(compare(">=", c, kind))) == [True, True, False]


def test_a_value_between_the_values_of_a_set_is_ruled_out() -> None:
    wanted = isin([1, 5, 9], pa.int32())

    assert prune(wanted, pa.int32(), (2, 4, 0), (2, 5, 0), (0, 0, 0), (10, 11, 0), (9, 20, 0)) == [
        False,
        True,
        False,
        False,
        True,
    ]
    assert prune(isin([], pa.int32()), pa.int32(), (1, 2, 0)) == [False]
    assert prune(Not(isin([], pa.int32())), pa.int32(), (1, 2, 0)) == [True]


def test_booleans_are_pruned() -> None:
    true = Compare(X, Op.EQ, pa.scalar(True))

    assert prune(true, pa.bool_(), (False, False, 0), (False, True, 0), (True, True, 1)) == [
        False,
        True,
        True,
    ]


def test_truncated_bounds_are_bounds() -> None:
    """A long string's least value is cut, its greatest is cut and raised."""
    long = "a somewhat longer text"
    chunk = ("a somewhat longe", "a somewhat longf", 0)

    assert prune(compare("=", long, pa.string()), pa.string(), chunk) == [True]
    assert prune(compare("!=", long, pa.string()), pa.string(), chunk) == [True]
    assert prune(StartsWith(X, pa.scalar(long)), pa.string(), chunk) == [True]
    assert prune(StartsWith(X, pa.scalar("a s")), pa.string(), chunk) == [True]
    assert prune(Not(StartsWith(X, pa.scalar("a s"))), pa.string(), chunk) == [False]
    assert prune(Not(StartsWith(X, pa.scalar(long))), pa.string(), chunk) == [True]


def test_prefixes_are_pruned_by_bytes() -> None:
    kept = prune(
        StartsWith(X, pa.scalar("b")), pa.string(), ("a", "az", 0), ("a", "b", 0), ("c", "d", 0)
    )
    high = StartsWith(X, pa.scalar(b"\xff"))

    assert kept == [False, True, False]
    assert prune(StartsWith(X, pa.scalar("ab")), pa.string(), ("ad", "ae", 0)) == [False]
    assert prune(high, pa.binary(), (b"\xfe", b"\xfe\xff", 0), (b"\xff", b"\xff\x01", 0)) == [
        False,
        True,
    ]


def test_nulls_match_no_comparison_and_are_counted() -> None:
    kind = pa.int32()
    chunks = ((None, None, 10), (1, 1, 0), (1, 1, 5), (None, None, None))

    assert prune(compare("=", 1, kind), kind, *chunks) == [False, True, True, True]
    assert prune(compare("!=", 1, kind), kind, *chunks) == [False, False, False, True]
    assert prune(Not(compare("=", 1, kind)), kind, *chunks) == [False, False, False, True]
    assert prune(IsNull(X), kind, *chunks) == [True, False, True, True]
    assert prune(IsNotNull(X), kind, *chunks) == [False, True, True, True]
    assert prune(Not(IsNull(X)), kind, *chunks) == [False, True, True, True]


def test_what_is_not_known_may_match() -> None:
    kind = pa.int32()

    assert (
        prune(compare("=", 5, kind), kind, (None, 9, 0), (1, None, 0), (None, None, 0))
        == [True] * 3
    )
    assert prune(compare("=", 5, kind), kind, (None, 4, 0), (6, None, 0), (1, 9, None)) == [
        False,
        False,
        True,
    ]
    assert prune(UNKNOWN, kind, (1, 1, 0)) == [True]
    assert prune(Not(UNKNOWN), kind, (1, 1, 0)) == [True]
    assert prune(at_most(compare("=", 5, kind)), kind, (1, 1, 0), (5, 5, 0)) == [False, True]
    assert prune(Not(at_most(compare("=", 5, kind))), kind, (1, 1, 0), (5, 5, 0)) == [True, True]
    missing = Compare("y", Op.EQ, pa.scalar(1))
    assert prune(missing, kind, (1, 1, 0)) == [True]
    assert prune(IsNull("y"), kind, (1, 1, 0)) == [True]


def test_a_nan_in_the_statistics_makes_them_unknown() -> None:
    kind = pa.float64()

    assert prune(compare("=", 5.0, kind), kind, (math.nan, 1.0, 0), (1.0, math.nan, 0)) == [
        False,
        True,
    ]
    assert prune(compare("=", 5.0, kind), kind, (math.nan, math.nan, 0)) == [True]


def test_constants_hold_for_each_chunk() -> None:
    kind = pa.int32()

    assert prune(TRUE, kind, (1, 1, 0)) == [True]
    assert prune(FALSE, kind, (1, 1, 0)) == [False]
    assert prune(NULL, kind, (1, 1, 0)) == [False]
    assert prune(Not(NULL), kind, (1, 1, 0)) == [False]


def test_connectives_combine_what_may_be_true_and_what_may_be_false() -> None:
    kind = pa.int32()
    low, high = compare("<", 3, kind), compare(">", 7, kind)
    chunks = ((0, 1, 0), (4, 5, 0), (8, 9, 0), (0, 9, 0))

    assert prune(And((low, high)), kind, *chunks) == [False, False, False, True]
    assert prune(Or((low, high)), kind, *chunks) == [True, False, True, True]
    assert prune(Not(Or((low, high))), kind, *chunks) == [False, True, False, True]
    assert prune(Not(And((low, high))), kind, *chunks) == [True, True, True, True]
    assert prune(And((low, UNKNOWN)), kind, *chunks) == [True, False, False, True]
    assert prune(Or((low, UNKNOWN)), kind, *chunks) == [True] * 4


def test_partitions_match_exactly_nulls_and_nans_too() -> None:
    values = pa.RecordBatch.from_pydict(
        {"dt": ["a", "b", None], "g": pa.array([1.0, math.nan, None])}
    )
    is_a = Compare("dt", Op.EQ, pa.scalar("a"))
    above = Compare("g", Op.GT, pa.scalar(5.0))

    assert matches_exactly(is_a, values).tolist() == [True, False, False]
    assert matches_exactly(Not(is_a), values).tolist() == [False, True, False]
    assert matches_exactly(IsNull("dt"), values).tolist() == [False, False, True]
    assert matches_exactly(above, values).tolist() == [False, True, False]
    assert matches_exactly(Or((is_a, UNKNOWN)), values).tolist() == [True, True, True]
    assert matches_exactly(And((is_a, UNKNOWN)), values).tolist() == [True, False, False]
    assert matches_exactly(TRUE, values).tolist() == [True] * 3
    assert matches_exactly(is_a, values.slice(0, 0)).tolist() == []


@pytest.mark.parametrize("function", [BucketFunction.DEFAULT, BucketFunction.HIVE])
def test_buckets_are_those_of_the_fixed_keys(function: BucketFunction) -> None:
    fields = fields_from_arrow([pa.field("id", pa.int64()), pa.field("s", pa.string())])
    ids = In("id", pa.array([1, 2]))
    text = Compare("s", Op.EQ, pa.scalar("a"))
    expected = bucket_ids(
        [pa.array([1, 2]), pa.array(["a", "a"])], [field.type for field in fields], 64, function
    )

    assert prune_buckets(And((ids, text)), fields, 64, function) == set(expected.tolist())
    assert prune_buckets(ids, fields, 64, function) is None
    assert prune_buckets(And((ids, text, FALSE)), fields, 64, function) is not None
    nothing = And((ids, text, Compare("id", Op.EQ, pa.scalar(7))))
    assert prune_buckets(nothing, fields, 64, function) == set()
    many = In("id", pa.array(range(20_000)))
    assert prune_buckets(And((many, text)), fields, 64, function) is None


def test_ten_thousand_files_are_pruned_in_a_few_milliseconds() -> None:
    count = 10_000
    low = np.arange(count, dtype=np.int64) * 10
    names = [f"k{index:08d}" for index in low]
    minimum = pa.RecordBatch.from_pydict({"id": low, "s": names})
    maximum = pa.RecordBatch.from_pydict({"id": low + 9, "s": [f"{name}~" for name in names]})
    nulls = pa.RecordBatch.from_pydict({"id": np.zeros(count, int), "s": np.zeros(count, int)})
    predicate = And(
        (
            In("id", pa.array(range(0, 100_000, 100))),
            Compare("s", Op.GE, pa.scalar("k")),
            Not(StartsWith("s", pa.scalar("kk"))),
        )
    )

    def run() -> float:
        start = time.process_time()
        mask = may_match(predicate, minimum, maximum, nulls, np.full(count, 100))
        assert mask.sum() == 1000
        return time.process_time() - start

    assert min(run() for _ in range(5)) < 0.03
