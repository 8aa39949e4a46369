"""Sort keys along a curve: against plain loops over bits, and the rule of a Hilbert curve."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from itertools import pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest
from lakecore.merge.curves import (
    Ordering,
    curve_columns,
    incremental_ordering,
    plain_columns,
    write_ordering,
)
from lakecore.options import OrderStrategy, TableOptions, parse_options

SIGN = 1 << 63


def keys(strategy: str, rows: pa.Table, var_bytes: int = 8) -> list[tuple[int, ...]]:
    """The key of each row, as a tuple."""
    ordering = Ordering(
        strategy=OrderStrategy(strategy), columns=tuple(rows.column_names), var_bytes=var_bytes
    )
    columns = curve_columns(ordering, rows)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def key_bytes(key: tuple[int, ...]) -> bytes:
    return b"".join((word + SIGN).to_bytes(8, "big") for word in key)


def taken_in_turns(columns: list[bytes]) -> bytes:
    """The plain model: in turn, one bit of each column that has bits left, highest bit first."""
    bits = [f"{int.from_bytes(column, 'big'):0{8 * len(column)}b}" for column in columns]
    mixed = "".join(
        column[at] for at in range(max(map(len, bits))) for column in bits if at < len(column)
    )
    mixed = mixed.ljust(-(-len(mixed) // 64) * 64, "0")
    return int(mixed, 2).to_bytes(len(mixed) // 8, "big")


def int_bytes(value: int | None) -> bytes:
    return bytes(8) if value is None else (value + SIGN).to_bytes(8, "big")


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9])
def test_z_order_interleaves_the_bits_of_its_columns(count: int) -> None:
    values = [
        [7 * at - row**3, None, 2**62 + at + row][row % 3]
        for at in range(count)
        for row in range(6)
    ]
    columns = [values[6 * at : 6 * at + 6] for at in range(count)]
    rows = pa.table({f"c{at}": pa.array(column, pa.int64()) for at, column in enumerate(columns)})

    found = [key_bytes(key) for key in keys("zorder", rows)]

    wanted = [taken_in_turns([int_bytes(column[row]) for column in columns]) for row in range(6)]
    assert found == wanted


@pytest.mark.parametrize("var_bytes", [1, 5, 8, 20])
def test_string_contributes_its_first_bytes_to_a_z_order(var_bytes: int) -> None:
    texts = ["", "a", "abcdefgh", "abcdefghijklmnopqrstuvwxyz", None, "über"]
    numbers = [1, -1, 2, None, 3, 4]
    rows = pa.table({"s": texts, "n": pa.array(numbers, pa.int64())})

    found = [key_bytes(key) for key in keys("zorder", rows.slice(1), var_bytes)]

    prefixes = [(text or "").encode()[:var_bytes].ljust(var_bytes, b"\0") for text in texts]
    pairs = list(zip(prefixes, map(int_bytes, numbers), strict=True))[1:]
    assert found == [taken_in_turns(list(pair)) for pair in pairs]


ASCENDING: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tinyint": (pa.int8(), [-128, -1, 0, 1, 127]),
    "int": (pa.int32(), [-(2**31), -5, 0, 5, 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    "float": (
        pa.float32(),
        [float("-inf"), -2.5, -0.0, 0.0, 1e-40, 3.5, float("inf"), float("nan")],
    ),
    "double": (pa.float64(), [float("-inf"), -2.5, -0.0, 0.0, 1e-310, 3.5, float("nan")]),
    "boolean": (pa.bool_(), [False, True]),
    "date": (pa.date32(), [date(1900, 1, 1), date(1970, 1, 1), date(2024, 5, 6)]),
    "time": (pa.time32("ms"), [time(0), time(0, 0, 1), time(23, 59)]),
    "timestamp": (
        pa.timestamp("us"),
        [datetime(1900, 1, 1), datetime(1969, 12, 31, 23), datetime(2024, 1, 1, 0, 0, 0, 1000)],
    ),
    "timestamp of milliseconds": (
        pa.timestamp("ms"),
        [datetime(1969, 12, 31, 23), datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 0, 1000)],
    ),
    "decimal": (pa.decimal128(10, 2), [Decimal("-9.99"), Decimal("0.00"), Decimal("2.56")]),
    "wide decimal": (
        pa.decimal128(38, 2),
        [Decimal("-1e30"), Decimal("0.00"), Decimal("12345678901234567890.12"), Decimal("1e33")],
    ),
    "string": (pa.string(), ["", "a", "aa", "b", "über"]),
    "large string": (pa.large_string(), ["", "a", "aa", "b"]),
    "binary": (pa.binary(), [b"", b"\x00\x01", b"\x01", b"\xff"]),
    "fixed binary": (pa.binary(2), [b"\x00\x01", b"\x01\x00", b"\xff\x00"]),
}


@pytest.mark.parametrize("kind", ASCENDING)
def test_one_column_sorts_by_its_values(kind: str) -> None:
    arrow, values = ASCENDING[kind]
    rows = pa.table({"c": pa.array([*values, None], arrow)})

    found = keys("zorder", rows)

    assert found[:-1] == sorted(set(found[:-1]))
    assert found[-1] <= found[0]


@pytest.mark.parametrize(
    ("make", "units"), [(pa.timestamp, ["s", "ms", "us", "ns"]), (pa.time32, ["s", "ms"])]
)
def test_unit_of_a_time_does_not_change_its_key(make: Any, units: list[str]) -> None:
    seconds = pa.array([0, 1, 5_000, 86_399, None], make("s"))

    found = [keys("zorder", pa.table({"c": seconds.cast(make(unit))})) for unit in units]
    assert found == [found[0]] * len(units)
    if make is pa.time32:
        micros = seconds.cast(pa.time64("us"))
        for column in (micros, micros.cast(pa.time64("ns"))):
            assert keys("zorder", pa.table({"c": column})) == found[0]


@pytest.mark.parametrize("kind", ASCENDING)
def test_plain_order_has_null_first(kind: str) -> None:
    arrow, values = ASCENDING[kind]
    rows = pa.table({"c": pa.array([None, *values], arrow)})
    ordering = Ordering(strategy=OrderStrategy.ORDER, columns=("c",))

    columns = plain_columns(ordering, rows)

    found = [tuple(column[row] for column in columns) for row in range(rows.num_rows)]
    shown = [tuple(v.as_py() if isinstance(v, pa.Scalar) else v for v in key) for key in found]
    assert shown == sorted(shown)
    assert len(set(shown)) == len(shown)


@pytest.mark.parametrize(("dimensions", "side"), [(2, 16), (3, 8), (4, 4)])
def test_neighbours_on_a_hilbert_curve_differ_by_one_step(dimensions: int, side: int) -> None:
    points = list(product(range(side), repeat=dimensions))
    columns = np.array(points, np.int64).T
    rows = pa.table({f"c{at}": column for at, column in enumerate(columns)})

    walked = [point for _, point in sorted(zip(keys("hilbert", rows), points, strict=True))]

    steps = [np.abs(np.subtract(left, right)).sum() for left, right in pairwise(walked)]
    assert steps == [1] * (side**dimensions - 1)


def test_null_is_last_on_a_hilbert_axis_and_rows_may_be_none() -> None:
    empty = pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())})
    rows = pa.table({"a": pa.array([2**63 - 1, None]), "b": ["x", "x"]})

    first, second = keys("hilbert", rows)

    assert keys("hilbert", empty) == keys("zorder", empty) == []
    assert first == second


# --- orderings -----------------------------------------------------------------------------------


def stated(**options: str) -> TableOptions:
    named = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    return parse_options({"clustering.columns": "a,b", **named})


@pytest.mark.parametrize(
    ("columns", "strategy"),
    [("a", "order"), ("a,b", "zorder"), ("a,b,c,d", "zorder"), ("a,b,c,d,e", "hilbert")],
)
def test_the_number_of_columns_decides_the_curve(columns: str, strategy: str) -> None:
    found = write_ordering(stated(clustering__columns=columns))

    assert found is not None
    assert (found.strategy, found.columns) == (strategy, tuple(columns.split(",")))


@pytest.mark.parametrize(
    ("options", "sorts"),
    [
        ({}, True),
        ({"bucket": "2", "bucket_key": "a"}, False),
        ({"clustering__columns": ""}, False),
        ({"clustering__incremental": "true"}, False),
        (
            {
                "clustering__incremental": "true",
                "clustering__incremental__optimize_write": "true",
            },
            True,
        ),
    ],
)
def test_a_write_sorts_where_compaction_does_not(options: dict[str, str], *, sorts: bool) -> None:
    assert (write_ordering(stated(**options)) is not None) is sorts


def test_incremental_clustering_sorts_locally_if_asked_for() -> None:
    modes = {
        mode: incremental_ordering(stated(clustering__incremental__mode=mode)).strategy
        for mode in ("global-sort", "local-sort")
    }
    assert modes == {"global-sort": "zorder", "local-sort": "order"}
    with pytest.raises(InvalidRequest, match=r"needs clustering\.columns"):
        incremental_ordering(parse_options({}))
