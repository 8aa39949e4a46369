"""The closed predicate language, and what it reads of Polars and Arrow."""

from __future__ import annotations

import datetime as dt
import math
import threading
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from itertools import product
from operator import or_
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.schema import TableSchema
from lakecore.model.types import fields_from_arrow
from lakecore.plan.predicate import (
    FALSE,
    NULL,
    TRUE,
    UNKNOWN,
    And,
    Column,
    Compare,
    In,
    IsNotNull,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    StartsWith,
    all_of,
    any_of,
    as_duckdb_1_means,
    at_most,
    columns_of,
    compare,
    compares_with_null,
    condition_on,
    conjuncts,
    fixed_values,
    from_arrow,
    from_polars,
    is_and_with_null,
    is_exact,
    is_in,
    negate,
    split_by_columns,
    to_arrow,
    to_polars,
)
from lakecore.plan.predicate.language import keys_between
from lakecore.plan.predicate.literals import _as_column, range_around, starts_with
from tests.conditions import DAY, NOON, SCHEMA, c, isin
from tests.versions import KEPT_BY_DUCKDB

SCHEMA_OF_TABLE = TableSchema(id=0, fields=fields_from_arrow(list(SCHEMA)), highest_field_id=99)
INT_MAX = 2**31 - 1


def literal(column: str, op: str, value: object, kind: pa.DataType | None = None) -> Predicate:
    scalar = pa.scalar(value) if kind is None else pa.scalar(value, kind)
    return compare(Column(column, SCHEMA.field(column).type), Op(op), scalar)


# --- literals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "op", "value", "expected"),
    [
        ("i", "=", 1, c("i", "=", 1)),
        ("i", ">", 1.5, c("i", ">", 1)),
        ("i", ">=", 1.5, c("i", ">", 1)),
        ("i", "<", 1.5, c("i", "<=", 1)),
        ("i", "<=", -1.5, c("i", "<=", -2)),
        ("i", "=", 1.5, And((c("i", "<=", 1), c("i", ">", 1)))),
        ("i", "!=", Decimal("1.5"), Or((c("i", "<=", 1), c("i", ">", 1)))),
        ("i", "=", Decimal("2.00"), c("i", "=", 2)),
        ("i", "<", 2**40, c("i", "<=", INT_MAX)),
        ("i", ">", 2**40, c("i", ">", INT_MAX)),
        ("i", "<", -(2**40), c("i", "<", -(2**31))),
        ("i", "!=", -(2**40), Or((c("i", "<", -(2**31)), c("i", ">=", -(2**31))))),
        ("l", "=", 2.0**52, c("l", "=", 2**52)),
        ("l", "=", 2.0**53, UNKNOWN),
        ("i", "=", math.nan, UNKNOWN),
        ("i", "=", "1", UNKNOWN),
        ("i", "=", None, NULL),
        ("g", "<", 1, c("g", "<", 1.0)),
        ("g", "<", 1.1, c("g", "<", 1.1)),
        ("g", "<", Decimal("1.1"), c("g", "<", 1.1)),
        ("g", "<", math.inf, c("g", "<", math.inf)),
        ("g", "=", math.nan, UNKNOWN),
        ("f", "=", 1.5, c("f", "=", 1.5)),
        ("f", "!=", 1.1, UNKNOWN),
        ("f", "<", 1e300, UNKNOWN),
        ("f", "<", 3.40282346e38, UNKNOWN),  # no float is above the greatest
        ("g", "<", 2**53 + 1, at_most(c("g", "<=", 2.0**53 + 2))),
        ("g", ">=", 2**53 + 1, at_most(c("g", ">=", 2.0**53 - 1))),
        (
            "g",
            "=",
            2**53 + 1,
            at_most(And((c("g", "<=", 2.0**53 + 2), c("g", ">=", 2.0**53 - 1)))),
        ),
        ("g", "<", Decimal("0.123456789012345"), c("g", "<", 0.123456789012345)),
        (
            *("g", "<", Decimal("0.1234567890123456")),
            at_most(c("g", "<=", math.nextafter(0.1234567890123456, 1))),
        ),
        ("g", "<", Decimal("3e-22"), c("g", "<", 3e-22)),
        (
            *("g", "<", pa.scalar(Decimal("123456789012345e10"), pa.decimal128(15, -10))),
            at_most(c("g", "<=", math.nextafter(123456789012345e10, math.inf))),
        ),
        ("g", "<", Decimal("3e-23"), at_most(c("g", "<=", math.nextafter(3e-23, 1)))),
        ("f", "<=", -3.402823e38, at_most(c("f", "<=", -3.4028228579130005e38))),
        (
            "f",
            "=",
            0.1,
            at_most(And((c("f", "<=", 0.10000000894069672), c("f", ">=", 0.09999999403953552)))),
        ),
        ("f", ">", 2**24 + 1, at_most(c("f", ">=", 16777215.0))),
        ("dec", ">", Decimal("1.505"), c("dec", ">", Decimal("1.50"))),
        ("dec", "<", 10**6, c("dec", "<=", Decimal("9999.99"))),
        ("dec", "=", 1, c("dec", "=", Decimal("1.00"))),
        ("dec", ">=", 1.5, at_most(c("dec", ">", Decimal("1.49")))),
        ("dec", "<=", 1.5, at_most(c("dec", "<=", Decimal("1.50")))),
        ("dec", ">", -1.5, at_most(c("dec", ">", Decimal("-1.51")))),
        ("dec", "<", -1.5, at_most(c("dec", "<=", Decimal("-1.50")))),
        ("s", "=", "a", c("s", "=", "a")),
        ("s", "=", b"a", UNKNOWN),
        ("b", ">", b"a", c("b", ">", b"a")),
        ("q", "=", True, c("q", "=", True)),
        ("q", "=", 1, UNKNOWN),
        ("d", "<", DAY, c("d", "<", DAY)),
        ("d", "<", NOON, c("d", "<=", DAY)),
        ("d", "=", dt.datetime(2026, 1, 1), c("d", "=", DAY)),
        ("ti", "=", dt.time(1, 2), c("ti", "=", dt.time(1, 2))),
        ("ti", "=", 1, UNKNOWN),
        ("ti", "=", NOON, UNKNOWN),
        ("d", "=", dt.time(1, 2), UNKNOWN),
        ("d", "=", 1, UNKNOWN),
        ("i", "=", DAY, UNKNOWN),
        ("ti", ">", dt.time(1, 2, 3, 4), c("ti", ">", dt.time(1, 2, 3))),
        ("ti", "<", dt.time(23, 59, 59, 999_999), c("ti", "<=", dt.time(23, 59, 59, 999_000))),
        ("ms", "=", NOON, c("ms", "=", NOON)),
        ("ms", "<", NOON.replace(microsecond=1), c("ms", "<=", NOON)),
        ("ns", "=", NOON, c("ns", "=", NOON)),
        ("us", ">=", DAY, c("us", ">=", dt.datetime(2026, 1, 1))),
        ("us", "=", NOON.replace(tzinfo=dt.UTC), UNKNOWN),
        ("tz", "=", NOON.replace(tzinfo=dt.UTC), c("tz", "=", NOON.replace(tzinfo=dt.UTC))),
        ("tz", "=", NOON, UNKNOWN),
        ("tz", ">", DAY, UNKNOWN),
        ("st", "=", 1, UNKNOWN),
    ],
)
def test_a_literal_is_said_in_values_of_the_column(
    column: str, op: str, value: object, expected: Predicate
) -> None:
    assert literal(column, op, value) == expected


@pytest.mark.parametrize(
    ("column", "prefix", "expected"),
    [
        ("s", pa.scalar("a"), StartsWith("s", pa.scalar("a"))),
        ("b", pa.scalar(b"a", pa.large_binary()), StartsWith("b", pa.scalar(b"a"))),
        ("s", pa.scalar(None, pa.string()), NULL),
        ("s", pa.scalar(b"a"), UNKNOWN),
        ("b", pa.scalar("a"), UNKNOWN),
        ("i", pa.scalar(1), UNKNOWN),
    ],
)
def test_a_prefix_is_of_the_type_of_the_column(
    column: str, prefix: pa.Scalar, expected: Predicate
) -> None:
    assert starts_with(Column(column, SCHEMA.field(column).type), prefix) == expected


@pytest.mark.parametrize("first", [None, (1, "b"), (2, "a")])
@pytest.mark.parametrize("end", [None, (2, "b"), (1, "b")])
def test_keys_between_two_keys_compare_column_by_column(
    first: tuple[int, str] | None, end: tuple[int, str] | None
) -> None:
    keys = list(product((1, 2, 3), "abc"))
    rows = pa.table(dict(zip(("i", "s"), map(list, zip(*keys, strict=True)), strict=True)))
    bounds = [None if key is None else tuple(map(pa.scalar, key)) for key in (first, end)]

    condition = to_arrow(keys_between(("i", "s"), *bounds))
    assert condition is not None
    assert [tuple(row.values()) for row in rows.filter(condition).to_pylist()] == [
        key for key in keys if (first is None or first <= key) and (end is None or key < end)
    ]


BEYOND = 2**50
"""In seconds: beyond the dates and microseconds of a column."""


@pytest.mark.parametrize(("column", "bits"), [("d", 31), ("us", 63)])
def test_a_time_beyond_the_type_is_said_by_its_last_values(column: str, bits: int) -> None:
    kind = SCHEMA.field(column).type
    number = pa.int32() if bits == 31 else pa.int64()
    least, greatest = pa.array([-(1 << bits), (1 << bits) - 1], number).view(kind)
    seconds = pa.timestamp("s")

    assert literal(column, "<", BEYOND, seconds) == Compare(column, Op.LE, greatest)
    assert literal(column, ">=", BEYOND, seconds) == Compare(column, Op.GT, greatest)
    assert literal(column, "<", -BEYOND, seconds) == Compare(column, Op.LT, least)
    assert literal(column, ">=", -BEYOND, seconds) == Compare(column, Op.GE, least)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("<", at_most(c("us", "<=", NOON.replace(microsecond=7)))),
        (">", at_most(c("us", ">=", NOON.replace(microsecond=3)))),
        ("!=", UNKNOWN),
    ],
)
def test_a_range_around_a_literal_has_what_may_be_shifted_to_it(
    op: str, expected: Predicate
) -> None:
    column = Column("us", SCHEMA.field("us").type)
    at, slack = pa.scalar(NOON.replace(microsecond=5)), Fraction(2_000)

    assert range_around(column, Op(op), at, slack) == expected
    assert range_around(column, Op(op), pa.scalar(None, at.type), slack) == UNKNOWN


def test_an_instant_in_another_zone_is_the_same_instant() -> None:
    there = pa.scalar(NOON, pa.timestamp("ms", "Europe/Berlin"))
    found = compare(Column("tz", SCHEMA.field("tz").type), Op.EQ, there)

    assert isinstance(found, Compare)
    assert found.value.value == there.value * 1000


def test_a_decimal_against_a_double_is_known_within_bounds_only() -> None:
    found = literal("dec", "<", 0.1)

    assert found == at_most(c("dec", "<=", Decimal("0.10")))
    assert literal("dec", "!=", 0.1) == UNKNOWN


def test_a_float_against_what_no_float_is_is_known_within_bounds_only() -> None:
    found = literal("f", ">", 1.1)

    assert not is_exact(found)
    assert isinstance(found, And)
    assert [type(part).__name__ for part in found.parts] == ["Unknown", "Compare"]


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        ("0.1", True),
        ("3E-22", True),
        ("0.123456789012345", True),
        ("0.1234567890123456", False),
        ("1E-23", False),
    ],
)
def test_a_short_decimal_is_the_same_double_everywhere(value: str, *, exact: bool) -> None:
    assert is_exact(literal("g", "=", Decimal(value))) == exact


@pytest.mark.parametrize(
    ("kind", "literals", "taken"),
    [
        (pa.int32(), pa.int64(), pa.int32()),
        (pa.int32(), pa.float64(), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(5, 1), pa.decimal128(9, 2)),
        (pa.decimal128(9, 2), pa.int32(), pa.int32()),
        (pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("us")),
        (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.timestamp("ms", "UTC")),
        (pa.timestamp("us"), pa.int64(), pa.int64()),
        (pa.string(), pa.large_string(), pa.string()),
    ],
)
def test_literals_that_fit_take_the_type_of_the_column_at_once(
    kind: pa.DataType, literals: pa.DataType, taken: pa.DataType
) -> None:
    assert _as_column(Column("c", kind), pa.array([], literals)).type == taken


def test_in_keeps_distinct_sorted_values_of_the_column() -> None:
    column = Column("i", pa.int32())

    assert is_in(column, pa.array([3, 1, 3])) == isin("i", 1, 3)
    assert is_in(column, pa.array([3])) == c("i", "=", 3)
    assert is_in(column, pa.array([1, None, 2])) == Or((isin("i", 1, 2), NULL))
    assert is_in(column, pa.array([], pa.int32())) == isin("i")
    assert is_in(column, pa.array([1, 2**40])) == Or(
        (c("i", "=", 1), And((c("i", "<=", INT_MAX), c("i", ">", INT_MAX))))
    )


# --- the language -------------------------------------------------------------------------------


def test_conjunction_and_disjunction_are_flat_and_without_needless_parts() -> None:
    a, b = c("i", "=", 1), c("s", "=", "a")

    assert all_of((a, TRUE, And((b, a)))) == And((a, b))
    assert all_of((a, FALSE)) == FALSE
    assert all_of(()) == TRUE
    assert any_of((a, FALSE, Or((b, a)))) == Or((a, b))
    assert any_of((a, TRUE)) == TRUE
    assert any_of(()) == FALSE


def test_negation_keeps_null_null_and_unknown_unknown() -> None:
    assert negate(UNKNOWN) == UNKNOWN
    assert negate(NULL) == NULL
    assert negate(TRUE) == FALSE
    assert negate(IsNull("i")) == IsNotNull("i")
    assert negate(c("i", "<", 1)) == c("i", ">=", 1)
    assert negate(negate(And((c("i", "<", 1), UNKNOWN)))) == And((c("i", "<", 1), UNKNOWN))


def test_a_predicate_is_a_value() -> None:
    assert isin("i", 1, 2) == isin("i", 1, 2)
    assert len({isin("i", 1, 2), isin("i", 1, 2), c("i", "=", 1), c("i", "=", 1)}) == 2


def test_a_split_puts_apart_what_only_concerns_some_columns() -> None:
    key, value = c("i", "=", 1), c("s", "=", "a")
    both = Or((key, value))
    hidden = Not(Or((c("i", ">", 3), value)))
    predicate = And((key, value, both, UNKNOWN, hidden))

    assert split_by_columns(predicate, ["i"]) == (
        And((key, c("i", "<=", 3))),
        And((value, both, UNKNOWN, c("s", "!=", "a"))),
    )
    assert split_by_columns(key, []) == (TRUE, key)
    assert split_by_columns(at_most(key), ["i"]) == (key, UNKNOWN)
    assert columns_of(predicate) == {"i", "s"}
    assert conjuncts(TRUE) == ()


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (And((isin("i", 1, 2), c("s", "=", "a"))), [(1, "a"), (2, "a")]),
        (And((isin("i", 1, 2), c("s", "=", "a"), c("i", "=", 2), c("g", ">", 1.0))), [(2, "a")]),
        (And((Or((c("i", "=", 1), isin("i", 4, 5))), c("s", "=", "a"))), "1a 4a 5a"),
        (And((c("i", "=", 1), c("i", "=", 2), c("s", "=", "a"))), []),
        (c("i", "=", 1), None),
        (Or((c("i", "=", 1), c("s", "=", "a"))), None),
        (And((isin("i", 1, 2, 3), isin("s", "a", "b"))), None),
        (And((c("i", "=", 1), Not(c("s", "=", "a")))), None),
        (UNKNOWN, None),
    ],
)
def test_fixed_values_are_the_tuples_that_may_match(
    predicate: Predicate, expected: list[tuple[int, str]] | str | None
) -> None:
    found = fixed_values(predicate, SCHEMA, ["i", "s"], 5)
    if isinstance(expected, str):
        expected = [(int(one[0]), one[1]) for one in expected.split()]

    rows = None if found is None else [tuple(row.values()) for row in found.to_pylist()]
    assert rows == expected
    assert found is None or found.schema.types == [pa.int32(), pa.string()]


def test_a_float_is_never_fixed_because_zero_has_two_forms() -> None:
    assert fixed_values(c("g", "=", 0.0), SCHEMA, ["g"], 5) is None


# --- Polars -------------------------------------------------------------------------------------

POLARS: list[tuple[pl.Expr, Predicate]] = [
    (pl.col("i") > 1, c("i", ">", 1)),
    (1 > pl.col("i"), c("i", "<", 1)),  # noqa: SIM300
    (pl.lit(1) >= pl.col("i"), c("i", "<=", 1)),
    (pl.col("i") == pl.lit(1) + 2, c("i", "=", 3)),
    (pl.col("i").cast(pl.Int64) > 1, c("i", ">", 1)),
    (pl.col("i").cast(pl.Int8) > 1, UNKNOWN),
    (pl.col("i").is_in([2, 1]), isin("i", 1, 2)),
    (pl.col("i").is_in([1, 2, None]), isin("i", 1, 2)),
    (pl.col("i").is_in([1, 2, None], nulls_equal=True), Or((isin("i", 1, 2), IsNull("i")))),
    (pl.col("i").is_in([1, 2], nulls_equal=True), And((isin("i", 1, 2), IsNotNull("i")))),
    (pl.col("i").is_in(pl.col("l").implode()), UNKNOWN),
    (pl.col("i").is_between(1, 3), And((c("i", ">=", 1), c("i", "<=", 3)))),
    (pl.col("i").is_between(1, 3, closed="none"), And((c("i", ">", 1), c("i", "<", 3)))),
    (pl.col("i").eq_missing(1), And((c("i", "=", 1), IsNotNull("i")))),
    (pl.col("i").eq_missing(None), IsNull("i")),
    (pl.col("i").ne_missing(1), Or((c("i", "!=", 1), IsNull("i")))),
    (pl.col("i").ne_missing(None), IsNotNull("i")),
    (pl.col("i") == pl.lit(None), NULL),
    (pl.col("i").is_null(), IsNull("i")),
    (~pl.col("i").is_null(), IsNotNull("i")),
    (pl.col("s").str.starts_with("a"), StartsWith("s", pa.scalar("a"))),
    (pl.col("b").bin.starts_with(b"a"), StartsWith("b", pa.scalar(b"a"))),
    (pl.col("s").str.starts_with(pl.lit(None, pl.String)), NULL),
    (pl.col("b") == "a", c("b", "=", b"a")),
    ((pl.col("i") > 1).alias("x"), c("i", ">", 1)),
    (pl.col("q") ^ pl.lit(value=True), UNKNOWN),
    (pl.col("l").cast(pl.Float64) > 1.5, c("l", ">", 1)),
    (pl.col("l").cast(pl.Float64) > pl.lit(Decimal("1.5")), UNKNOWN),
    (pl.col("i").is_in(pl.lit(1)), UNKNOWN),
    (pl.col("i").is_in(pl.lit(pl.Series([None], dtype=pl.List(pl.Int64)))), UNKNOWN),
    (pl.col("tz") > pl.lit(NOON, pl.Datetime("ms")), UNKNOWN),
    (pl.col("q"), c("q", "=", True)),
    (~pl.col("q"), c("q", "!=", True)),
    (pl.col("i"), UNKNOWN),
    (pl.lit(value=True), TRUE),
    (pl.lit(value=False), FALSE),
    (pl.col("d") == DAY, c("d", "=", DAY)),
    (pl.col("d") > pl.lit("2026-01-01").str.to_date(), UNKNOWN),
    (pl.col("ti") > dt.time(1, 2), c("ti", ">", dt.time(1, 2))),
    (pl.col("ms") > NOON, c("ms", ">", NOON)),
    (pl.col("us") > DAY, c("us", ">", dt.datetime(2026, 1, 1))),
    (pl.col("dec") == Decimal("1.50"), c("dec", "=", Decimal("1.50"))),
    (pl.col("l") < 2**70, c("l", "<=", 2**63 - 1)),
    (pl.col("g") == pl.lit(math.nan), UNKNOWN),
    (pl.all_horizontal(pl.col("q"), pl.col("i") > 1), And((c("q", "=", True), c("i", ">", 1)))),
    (pl.any_horizontal(pl.col("q"), pl.col("i") > 1), Or((c("q", "=", True), c("i", ">", 1)))),
    (pl.col("i") + 1 > 2, UNKNOWN),
    (pl.col("i") > pl.col("l"), UNKNOWN),
    (pl.col("s").str.to_lowercase() == "a", UNKNOWN),
    (pl.col("st").struct.field("x") == 1, UNKNOWN),
    (pl.col("q") ^ pl.col("q"), UNKNOWN),
    (pl.when(pl.col("q")).then(pl.col("q")).otherwise(pl.col("q")), UNKNOWN),
    (pl.col("i", "l") > 1, UNKNOWN),
    (pl.all() > 1, UNKNOWN),
    (pl.len() > 1, UNKNOWN),
]


@pytest.mark.parametrize(("expression", "expected"), POLARS)
def test_a_polars_expression_is_read(expression: pl.Expr, expected: Predicate) -> None:
    assert from_polars(expression, SCHEMA) == expected
    assert from_polars(expression, SCHEMA_OF_TABLE) == expected


def test_a_polars_timestamp_of_another_unit_is_known_within_bounds_only() -> None:
    """Polars compares in the coarser unit, so `ns == us` is true for a thousand values."""
    found = from_polars(pl.col("ns") == NOON, SCHEMA)

    assert not is_exact(found)
    assert columns_of(found) == {"ns"}
    late = from_polars(pl.col("ns") > NOON, SCHEMA)
    assert late == at_most(c("ns", ">=", NOON - dt.timedelta(microseconds=1)))
    early = from_polars(pl.col("ns") <= NOON, SCHEMA)
    assert early == at_most(c("ns", "<=", NOON + dt.timedelta(microseconds=1)))


def test_a_cast_to_float_rounds_the_column_and_the_whole_number_beside_it() -> None:
    column = pl.col("l").cast(pl.Float64)
    inside, outside = 2**53 - 1, 2**60

    assert from_polars(column >= inside, SCHEMA) == c("l", ">=", inside)
    assert from_polars(column.is_between(0, outside), SCHEMA) == all_of(
        (literal("l", ">=", 0), UNKNOWN)
    )
    for condition in (column >= outside, outside <= column, column.is_in([float(outside)])):
        assert from_polars(condition, SCHEMA) == UNKNOWN
    assert from_polars(column.eq_missing(outside), SCHEMA) == UNKNOWN
    assert not is_exact(from_polars(pl.col("dec").cast(pl.Float64) == 1, SCHEMA))


def test_a_time_finer_than_a_date_may_have_been_cut_to_its_unit() -> None:
    finer = pl.lit(NOON.replace(microsecond=1))

    assert from_polars(pl.col("d").cast(pl.Datetime("ms")) == finer, SCHEMA) == UNKNOWN
    assert from_polars(pl.col("d").cast(pl.Datetime("ms")) >= NOON, SCHEMA) == c("d", ">", DAY)


def test_expression_too_deep_to_be_read_may_match_any_row() -> None:
    deep = reduce(or_, [pl.col("i") == number for number in range(1_000)])

    assert from_polars(deep, SCHEMA) == UNKNOWN
    assert from_polars(pl.col("i") == pl.lit(pl.Series([1, 2])).min(), SCHEMA) == UNKNOWN


def test_condition_on_some_columns_is_the_part_that_needs_no_others() -> None:
    one, other = c("i", "=", 1), c("q", "=", True)

    assert condition_on(And((one, other)), ["i"]) == one
    assert condition_on(And((one, other)), ["i", "q"]) == And((one, other))
    assert condition_on(Or((one, other)), ["i"]) is None
    assert condition_on(None, ["i"]) is None


def test_what_cannot_be_serialized_hides_no_more_than_itself() -> None:
    lock = threading.Lock()  # Polars pickles functions that hold no such value

    def is_odd(values: pl.Series) -> pl.Series:
        with lock:
            return values % 2 == 1

    python = pl.col("l").map_batches(is_odd, return_dtype=pl.Boolean)

    assert from_polars((pl.col("i") == 1) & python, SCHEMA) == And((c("i", "=", 1), UNKNOWN))
    assert from_polars(((pl.col("i") == 1) | python) & pl.col("q"), SCHEMA) == And(
        (Or((c("i", "=", 1), UNKNOWN)), c("q", "=", True))
    )
    assert from_polars(python, SCHEMA) == UNKNOWN
    assert from_polars(python ^ pl.col("q"), SCHEMA) == UNKNOWN
    assert compares_with_null((pl.col("i") == pl.lit(None)) | python)
    assert not compares_with_null((pl.col("i") == 1) | python)


def test_an_unknown_column_is_named_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match=r"unknown column\. column=zz columns=\[i, l, f"):
        from_polars(pl.col("zz") > 1, SCHEMA)
    with pytest.raises(InvalidRequest, match="column=zz"):
        from_arrow(pc.field("zz") > 1, SCHEMA)


@pytest.mark.parametrize("values", [[0.0], [-0.0, 1.0], [0]], ids=str)
def test_arrow_finds_but_one_of_the_zeros_in_a_set(values: list[float]) -> None:
    expression = pc.field("g").isin(values)
    found = from_arrow(expression, SCHEMA)
    zeros = pa.table({"g": [0.0, -0.0]})

    assert zeros.filter(expression).num_rows == 1
    assert UNKNOWN in conjuncts(found)
    assert from_arrow(~expression, SCHEMA) == negate(found)


def test_polars_takes_back_what_was_read_of_it() -> None:
    for expression, expected in POLARS:
        if is_exact(expected):
            back = to_polars(expected)
            assert back is not None
            assert from_polars(back, SCHEMA) == expected, expression
    assert to_polars(at_most(c("i", "=", 1))) is None


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        (And((c("i", ">", 1), c("i", "<", 3))), [2]),
        (Or((c("i", "<", 2), c("i", ">", 2))), [1, 3]),
        (Not(c("i", "=", 2)), [1, 3]),
        (Not(isin("i", 1, 2)), [3]),
        (IsNull("i"), [None]),
        (IsNotNull("i"), [1, 2, 3]),
        (StartsWith("s", pa.scalar("b")), [2]),
        (StartsWith("b", pa.scalar(b"b")), [2]),
        (NULL, []),
        (And(()), [1, 2, 3, None]),
        (Or(()), []),
        (And((c("i", "=", 1), UNKNOWN)), None),
        (Or((c("i", "=", 1), UNKNOWN)), None),
        (Not(UNKNOWN), None),
    ],
)
def test_polars_keeps_the_rows_of_a_predicate(
    predicate: Predicate, rows: list[int | None] | None
) -> None:
    frame = pl.DataFrame(
        {"i": [1, 2, 3, None], "s": ["a", "b", None, "c"], "b": [b"a", b"b", None, b"c"]},
        schema_overrides={"i": pl.Int32},
    )
    expression = to_polars(predicate)

    assert (None if expression is None else frame.filter(expression)["i"].to_list()) == rows


# --- Arrow --------------------------------------------------------------------------------------

ARROW: list[tuple[pc.Expression, Predicate]] = [
    (pc.field("i") > 1, c("i", ">", 1)),
    (pc.scalar(1) > pc.field("i"), c("i", "<", 1)),
    (pc.field("i") > 1.5, c("i", ">", 1)),
    (pc.field("g") < 1.5, c("g", "<", 1.5)),
    (pc.field("g") > 1.5, at_most(c("g", ">", 1.5))),
    (~(pc.field("g") < 1.5), c("g", ">=", 1.5)),
    (pc.field("i").isin([1, 2]), And((isin("i", 1, 2), IsNotNull("i")))),
    (pc.field("i").isin(pa.array([1, 2, None])), Or((isin("i", 1, 2), IsNull("i")))),
    (pc.field("i").is_null(), IsNull("i")),
    (pc.field("g").is_null(nan_is_null=True), UNKNOWN),
    (pc.field("i").is_valid(), IsNotNull("i")),
    (pc.field("q"), c("q", "=", True)),
    (~pc.field("q"), c("q", "!=", True)),
    (pc.field("i"), UNKNOWN),
    (pc.scalar(True), TRUE),
    (pc.field("i") + 1 > 2, UNKNOWN),
    (pc.field("st", "x") == 1, UNKNOWN),
    (pc.field("i") > pc.field("l"), UNKNOWN),
    ((pc.field("i") > 1) & (pc.field("st", "x") == 1), at_most(c("i", ">", 1))),
    (pc.starts_with(pc.field("s"), pattern="a"), StartsWith("s", pa.scalar("a"))),
    (pc.starts_with(pc.field("s"), pattern="a", ignore_case=True), UNKNOWN),
    (pc.starts_with(pc.field("b"), pattern=b"\xff"), StartsWith("b", pa.scalar(b"\xff"))),
    (pc.starts_with(pc.field("s"), pattern=b"\xff"), UNKNOWN),
    (pc.field("ti") > pc.scalar(dt.time(1, 2)), c("ti", ">", dt.time(1, 2))),
    (pc.field("ms") == pc.scalar(NOON), c("ms", "=", NOON)),
    (pc.field("s") == 'it\'s "\n" fine', c("s", "=", 'it\'s "\n" fine')),
]


@pytest.mark.parametrize(("expression", "expected"), ARROW)
def test_an_arrow_expression_is_read(expression: pc.Expression, expected: Predicate) -> None:
    assert set(conjuncts(from_arrow(expression, SCHEMA))) == set(conjuncts(expected))


@pytest.mark.parametrize(
    "predicate",
    [
        c("i", "=", 1),
        isin("s", "a", "b"),
        And((IsNull("i"), Not(isin("d", dt.date(1969, 1, 1), DAY)))),
        StartsWith("b", pa.scalar(b"\xff")),
        c("dec", "<=", Decimal("1.50")),
        NULL,
    ],
)
def test_arrow_takes_back_what_was_read_of_it(predicate: Predicate) -> None:
    expression = to_arrow(predicate)

    assert expression is not None
    assert conjuncts(from_arrow(expression, SCHEMA)) == conjuncts(predicate)


def test_a_filter_that_arrow_does_not_write_is_refused() -> None:
    chunks = pa.chunked_array([[1], [2]], pa.int32())
    with pytest.raises(Unsupported, match=r"combine_chunks\(\)"):
        from_arrow(pc.is_in(pc.field("i"), value_set=chunks), SCHEMA)

    assert from_arrow(pc.field("i").isin(chunks), SCHEMA) == And((isin("i", 1, 2), IsNotNull("i")))


def test_a_nan_is_above_all_numbers_in_arrow_too() -> None:
    rows = pa.table({"g": [1.0, math.nan, None, 3.0]})
    above = to_arrow(c("g", ">", 2.0))
    below = to_arrow(Not(c("g", "<=", 2.0)))

    assert above is not None
    assert below is not None
    assert [str(g) for g in rows.filter(above)["g"].to_pylist()] == ["nan", "3.0"]
    assert [str(g) for g in rows.filter(below)["g"].to_pylist()] == ["nan", "3.0"]


FLOATS = pa.table(
    {
        "n": range(6),
        "g": [1.0, math.nan, None, 3.0, -0.0, 0.0],
        "i": [0, 1, 2, 3, None, 5],
        "d": [DAY, None, dt.date(2026, 1, 2), DAY, DAY, DAY],
        "st": [{"x": x} for x in (1.0, math.nan, None, 3.0, -1.0, 0.0)],
    }
)
PLAIN = FLOATS.drop_columns("st").schema


@pytest.mark.parametrize(
    ("filter_", "found"),
    [
        (pc.field("g") > 2, [1, 3]),
        (pc.field("g") >= 3, [1, 3]),
        (pc.field("g") < 2, [0, 4, 5]),
        (pc.field("g") == 3, [3]),
        (pc.field("i") > 2, [3, 5]),
        (pc.field("st", "x") > 2, [1, 3]),
        (pc.field("g").isin([0.0, 3.0]), [3, 4, 5]),
        (pc.field("g").isin([3.0]), [3]),
        (pc.field("i").isin([0, 3]), [0, 3]),
        (pc.field("d").isin([DAY]), [0, 3, 4, 5]),
        (pc.field("g").is_valid() & (pc.field("i") < 2), [0, 1]),
        (pc.field("g").is_null() | pc.is_nan(pc.field("g")), [1, 2]),
        (~(pc.field("g") > 2), [0, 4, 5]),
        (pc.scalar(False), []),
        (pc.scalar(pa.scalar(None, pa.bool_())), []),
    ],
)
def test_a_filter_of_duckdb_1_means_what_it_does_in_duckdb(
    filter_: pc.Expression, found: list[int]
) -> None:
    meant = as_duckdb_1_means(filter_, FLOATS.schema)

    assert FLOATS.filter(meant)["n"].to_pylist() == found


def test_true_of_duckdb_1_is_a_comparison_with_nan_of_the_only_float() -> None:
    meant = as_duckdb_1_means(pc.scalar(True), PLAIN)

    assert FLOATS.filter(meant)["n"].to_pylist() == [0, 1, 3, 4, 5]


@pytest.mark.parametrize(
    ("filter_", "schema"),
    [
        (pc.scalar(True), FLOATS.schema),
        (pc.scalar(True), PLAIN.append(pa.field("f", pa.float32()))),
        (pc.scalar(True), PLAIN.remove(1)),
        (pc.field("i") + 1 > 2, PLAIN),
        (pc.is_finite(pc.field("g")), PLAIN),
        (pc.field("d").isin([dt.datetime(2026, 1, 1)]), PLAIN),
        (pc.field("d").isin([dt.date.max]), PLAIN),
    ],
)
def test_a_filter_that_duckdb_1_does_not_state_exactly_is_refused(
    filter_: pc.Expression, schema: pa.Schema
) -> None:
    with pytest.raises(Unsupported, match=r"DuckDB 1 does not pass on .* exactly"):
        as_duckdb_1_means(filter_, schema)


# --- what DuckDB pushes into a dataset ----------------------------------------------------------


class Recorder(ds.Dataset):  # type: ignore[misc]
    """An empty dataset that keeps the filters it is asked for."""

    def __init__(self) -> None:
        self.filters: list[pc.Expression] = []

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def scanner(self, columns: list[str], filter: Any = None, **_: object) -> Any:  # noqa: A002
        self.filters.append(filter)
        rows = SCHEMA.empty_table().select(columns)
        return ds.Scanner.from_batches(rows.to_reader())


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("i = 1", c("i", "=", 1)),
        ("i + 1 = 2", c("i", "=", 1)),
        ("i BETWEEN 1 AND 3", And((c("i", ">=", 1), c("i", "<=", 3)))),
        ("i <> 1", c("i", "!=", 1)),
        ("i IN (1, 3, 5)", isin("i", 1, 3, 5)),
        ("i NOT IN (1, 3)", Not(isin("i", 1, 3))),
        ("s IN ('a', 'b')", isin("s", "a", "b")),
        ("i IS NULL", IsNull("i")),
        ("i IS NOT NULL", IsNotNull("i")),
        ("i = 1 OR s = 'a'", Or((c("i", "=", 1), c("s", "=", "a")))),
        ("i = 1 OR i IS NULL", Or((c("i", "=", 1), IsNull("i")))),
        ("s >= 'a' AND s < 'b'", And((c("s", ">=", "a"), c("s", "<", "b")))),
        ("b = '\\x61'::BLOB", c("b", "=", b"a")),
        ("q = true", c("q", "=", True)),
        ("dec = 1.5", c("dec", "=", Decimal("1.50"))),
        ("d = DATE '2026-01-01'", c("d", "=", DAY)),
        ("year(d) = 2026", And((c("d", ">=", DAY), c("d", "<=", dt.date(2026, 12, 31))))),
        ("ti > TIME '01:02:00'", c("ti", ">", dt.time(1, 2))),
        ("us > TIMESTAMP '2026-01-01 12:00:00'", c("us", ">", NOON)),
        ("tz > '2026-01-01 12:00:00+00'", c("tz", ">", NOON.replace(tzinfo=dt.UTC))),
        ("g < 5", c("g", "<", 5.0)),
        ("st.x = 1", UNKNOWN),
    ],
)
def test_what_duckdb_pushes_into_a_dataset_is_read(condition: str, expected: Predicate) -> None:
    rows = Recorder()
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.from_arrow(rows).filter(condition).count("*").fetchall()
    (pushed,) = rows.filters

    assert (pushed is None) == (condition in KEPT_BY_DUCKDB)
    if pushed is not None:
        found = set(map(spelled, conjuncts(from_arrow(pushed, SCHEMA))))
        wanted = set(map(spelled, conjuncts(expected)))
        assert wanted <= found <= wanted | {IsNotNull(name) for name in columns_of(expected)}


def spelled(predicate: Predicate) -> object:
    """The predicate, with IN as the comparisons that DuckDB 1 makes of it."""
    if isinstance(predicate, In):
        return frozenset(Compare(predicate.column, Op.EQ, value) for value in predicate.values)
    return frozenset(predicate.parts) if isinstance(predicate, Or) else predicate


@pytest.mark.parametrize(
    ("expression", "compares", "is_and"),
    [
        (pl.col("i") == pl.lit(None), True, False),
        (~(pl.col("i") < pl.lit(None)), True, False),
        ((pl.col("i") > 1) | (pl.lit(None) >= pl.col("i")), True, False),
        (pl.col("i").is_between(pl.lit(None), 3), True, False),
        ((pl.col("i") > 1) & pl.lit(None), False, True),
        (~((pl.col("i") > 1) & pl.lit(None)), False, True),
        ((pl.col("i") > 1) & (pl.col("i") < 3), False, False),
        (pl.col("i").is_between(1, 3), False, False),
        (pl.col("i").fill_null(1) == 1, False, False),
        (pl.col("i").eq_missing(pl.lit(None)), False, False),
        (pl.lit(None), False, False),
        (pl.col("i").is_in([None, 1]), False, False),
    ],
)
def test_a_literal_null_beside_an_operator_is_found(
    expression: pl.Expr, *, compares: bool, is_and: bool
) -> None:
    assert compares_with_null(expression) == compares
    assert is_and_with_null(expression) == is_and
