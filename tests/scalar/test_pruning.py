"""What a SQL condition says for pruning: never more than DuckDB does."""

from __future__ import annotations

import copy
import datetime as dt
import math
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from lakecore.plan.predicate import (
    NULL,
    TRUE,
    UNKNOWN,
    And,
    Compare,
    IsNotNull,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    StartsWith,
    at_most,
    to_polars,
)
from lakecore.scalar import pruning
from lakecore.scalar.values import Setting, parse_where, types_of
from tests.conditions import DAY, NOON, SCHEMA, c, from_sql, isin, kept

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i > 1", c("i", ">", 1)),
        ("1 < i", c("i", ">", 1)),
        ("I = -1", c("i", "=", -1)),
        ('"I" = 1', c("i", "=", 1)),
        ("mixed = 1", c("Mixed", "=", 1)),
        ("ORDERS.i = 1", c("i", "=", 1)),
        ("shop.orders.i = 1", c("i", "=", 1)),
        ("i = 1.5", And((c("i", "<=", 1), c("i", ">", 1)))),
        ("i = '5'", c("i", "=", 5)),
        ("i IN (2, 1)", isin("i", 1, 2)),
        ("i NOT IN (1, NULL)", Not(Or((c("i", "=", 1), NULL)))),
        ("i BETWEEN 1 AND 3", And((c("i", ">=", 1), c("i", "<=", 3)))),
        ("i BETWEEN 1e0 AND 3", And((c("i", ">=", 1), c("i", "<=", 3)))),
        (f"l <= {'9' * 38}", c("l", "<=", 2**63 - 1)),
        ("i BETWEEN l AND 3", UNKNOWN),
        ("i BETWEEN 1 AND l", UNKNOWN),
        ("i + 1 BETWEEN 1 AND 3", UNKNOWN),
        ("l IN (1e0, 1152921504606846976)", Or((c("l", "=", 1), UNKNOWN))),
        ("i IS NOT DISTINCT FROM 1", And((c("i", "=", 1), IsNotNull("i")))),
        ("i IS NOT DISTINCT FROM NULL", IsNull("i")),
        ("i = NULL", NULL),
        ("NOT (i > 1 OR s = 'a')", Not(Or((c("i", ">", 1), c("s", "=", "a"))))),
        ("i IS NOT NULL", IsNotNull("i")),
        ("q", c("q", "=", True)),
        ("q = 'TRUE'", c("q", "=", True)),
        ("q = 'False'", c("q", "=", False)),
        ("i = -CAST('1' AS INTEGER)", c("i", "=", -1)),
        ("i = -CAST(NULL AS INTEGER)", UNKNOWN),
        ("i = CAST(127 AS TINYINT)", c("i", "=", 127)),
        ("i = CAST(-128 AS TINYINT)", c("i", "=", -128)),
        ("i = CAST(128 AS TINYINT)", UNKNOWN),
        ("i = CAST(-129 AS TINYINT)", UNKNOWN),
        ("isnan(g)", UNKNOWN),
        ("regexp_matches(s, 'a', 'i')", UNKNOWN),
        ("i = -(2 + 3)", UNKNOWN),
        ("coalesce(q, true)", UNKNOWN),
        ("NOT q", c("q", "!=", True)),
        ("q IS NOT TRUE", Not(And((c("q", "=", True), IsNotNull("q"))))),
        ("true", TRUE),
        ("s LIKE 'ab%'", StartsWith("s", pa.scalar("ab"))),
        ("s LIKE 'ab'", c("s", "=", "ab")),
        ("s LIKE 'a_%'", at_most(StartsWith("s", pa.scalar("a")))),
        ("s NOT LIKE 'a%'", Not(StartsWith("s", pa.scalar("a")))),
        ("starts_with(s, 'a')", StartsWith("s", pa.scalar("a"))),
        ("prefix(s, 'a')", StartsWith("s", pa.scalar("a"))),
        ("b = '\\x61b'::BLOB", c("b", "=", b"ab")),
        ("b = 'ab'", c("b", "=", b"ab")),
        ("d = '2026-01-01'", c("d", "=", DAY)),
        ("d > DATE '2026-01-01'", c("d", ">", DAY)),
        ("d > TIMESTAMP '2026-01-01 12:00:00'", c("d", ">", DAY)),
        ("ms > '2026-01-01 12:00'", c("ms", ">", NOON)),
        ("ms > '2026-01-01 12:00:00.0001'", c("ms", ">", NOON)),
        ("ms = '2026-01-01 12:00:00.0000000'", c("ms", "=", NOON)),
        ("us = '2026-01-01 12:00:00.0000001'", c("us", "=", NOON)),  # microseconds, as DuckDB reads
        ("us > '2026-01-01'", c("us", ">", dt.datetime(2026, 1, 1))),
        ("us > 'epoch'", c("us", ">", dt.datetime(1970, 1, 1))),
        ("f BETWEEN 1.5 AND 2", And((c("f", ">=", 1.5), c("f", "<=", 2.0)))),
        ("s BETWEEN 'a' AND 'b'", And((c("s", ">=", "a"), c("s", "<=", "b")))),
        ("i BETWEEN NULL AND 3", And((NULL, c("i", "<=", 3)))),
        ("tz >= '2026-01-01 13:00'", c("tz", ">=", NOON.replace(tzinfo=dt.UTC))),
        ("d > current_date - 7", c("d", ">", DAY - dt.timedelta(7))),
        ("tz > now() - INTERVAL 1 HOUR", c("tz", ">", dt.datetime(2026, 1, 1, 11, tzinfo=dt.UTC))),
        ("i + 0 = 1", UNKNOWN),
        ("i > 1 AND i + 1 > 2", And((c("i", ">", 1), UNKNOWN))),
        ("ns = TIMESTAMP_NS '2026-01-01 12:00:00'", c("ns", "=", NOON)),
        ("tz = '2026-01-01 13:00:00+01'", c("tz", "=", NOON.replace(tzinfo=dt.UTC))),
        ("tz = TIMESTAMP '2026-01-01 12:00:00'", UNKNOWN),
        ("ti = '01:02:00.500'", c("ti", "=", dt.time(1, 2, 0, 500_000))),
        ("dec >= 1.505", c("dec", ">", Decimal("1.50"))),
        ("g < 1.1", c("g", "<", 1.1)),
        ("l = 5::BIGINT", c("l", "=", 5)),
        ("st.x = 1", UNKNOWN),
        ("lower(s) = 'a'", UNKNOWN),
        ("i = l", UNKNOWN),
    ],
)
def test_an_sql_condition_is_read(text: str, expected: Predicate) -> None:
    noon_ms = int(NOON.replace(tzinfo=dt.UTC).timestamp() * 1000)
    setting = Setting(now_ms=lambda: noon_ms, zone="Europe/Berlin", table="shop.orders")

    assert parse_where(text, SCHEMA, setting)[1] == expected


_NANOS = pa.timestamp("ns", "UTC")


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("2026-01-01 13:00:00.000000001+01", 1),
        ("2026-01-01T12:00:00.0000001Z", 100),
        ("2026-01-01 13:30:00.5+01:30", 500_000_000),
        ("2026-01-01 12:00Z", 0),
        ("2026-01-01Z", -12 * 3_600 * 10**9),
        ("2026-01-01 12:00:00.1", None),  # without a zone
        ("2026-01-01 12:00:00.0000000001Z", None),
        ("2026-13-01 12:00:00Z", None),
        ("noon", None),
    ],
)
def test_nanoseconds_with_a_zone_are_read_without_duckdb(text: str, nanos: int | None) -> None:
    noon = int(NOON.replace(tzinfo=dt.UTC).timestamp()) * 10**9
    expected: Predicate = UNKNOWN
    if nanos is not None:
        value = pa.scalar(noon + nanos, pa.int64()).cast(_NANOS)
        expected = Compare("t", Op.EQ, value)

    assert from_sql(f"t = '{text}'", pa.schema([("t", _NANOS)])) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("make_date(2026, 1, 1)", dt.date(2026, 1, 1)),
        ("last_day(DATE '2026-01-03')", dt.date(2026, 1, 31)),
        ("greatest(DATE '2026-01-01', DATE '2026-01-02')", dt.date(2026, 1, 2)),
        ("strptime('it''s 2026-01-01', 'it''s %Y-%m-%d')::DATE", dt.date(2026, 1, 1)),
        ("DATE '2026-01-01' - 7", dt.date(2025, 12, 25)),
        ("DATE '2026-01-01' + CAST('1' AS INTEGER)", dt.date(2026, 1, 2)),
        ("DATE '2026-01-01' + (- CAST('1' AS INTEGER))", None),
        ("DATE '2026-01-01' + 2 * 3", None),
        ("DATE '2026-01-01' + CAST(pi() AS INTEGER)", None),
        ("CAST(CAST(make_date(2026, 1, 1) AS VARCHAR) AS DATE)", dt.date(2026, 1, 1)),
        ("DATE '2026-01-01' + i", None),
        ("greatest(DATE '2026-01-01', d)", None),
        ("make_date(2026, 1, i)", None),
        ("greatest(DATE '2026-01-01', NULL)", None),
    ],
)
def test_expression_without_columns_is_computed_or_says_nothing(
    text: str, expected: dt.date | None
) -> None:
    found = parse_where(f"d > {text}", SCHEMA)[1]

    assert found == (UNKNOWN if expected is None else c("d", ">", expected))


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for each in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from nodes(each)


EACH_NODE = [
    "i = 1",
    "i BETWEEN 1 AND 3",
    "NOT (i > 1 OR s = 'a')",
    "i IN (1, 2)",
    "i IS NULL",
    "q IS TRUE",
    "i IS DISTINCT FROM 1",
    "s LIKE 'ab%'",
    "starts_with(s, 'a')",
    "d = CAST('2026-01-01' AS DATE)",
    "i = - (- 5)",
    "tz > now() - INTERVAL 1 HOUR",
    "true",
]


@pytest.mark.parametrize("text", EACH_NODE)
def test_each_part_of_each_node_is_read_or_the_condition_is_unknown(text: str) -> None:
    sql, predicate = parse_where(text, SCHEMA)
    places = {"class", "type", "query_location", "query_location_length"}

    def nothing_is_known(found: Predicate) -> bool:
        return found != predicate or predicate == UNKNOWN

    changed = 0
    for index, node in enumerate(nodes(sql.tree)):
        for key in [*(node.keys() - places), "word_of_a_later_version"]:
            tree = copy.deepcopy(sql.tree)
            list(nodes(tree))[index][key] = {"something": "else"}
            found = pruning.predicate_of(
                type(sql)(
                    text=sql.text,
                    sql=sql.sql,
                    columns=sql.columns,
                    zone=sql.zone,
                    type=sql.type,
                    tree=tree,
                ),
                types_of(SCHEMA),
            )
            changed += 1
            assert nothing_is_known(found), (key, node)

    assert changed > 5


def test_tree_that_is_of_no_known_form_is_unknown() -> None:
    sql, _ = parse_where("i = 1", SCHEMA)
    negated, _ = parse_where("NOT q", SCHEMA)
    deep: Any = sql.tree
    for _ in range(2_000):
        deep = {**negated.tree, "children": [deep]}
    trees: list[Any] = [deep, {**sql.tree, "type": "COMPARE_LATER"}, "text", None]

    for tree in trees:
        assert pruning.predicate_of(replace(sql, tree=tree), types_of(SCHEMA)) == UNKNOWN


def test_conditions_beyond_the_predicate_language_filter_exactly() -> None:
    rows = pa.table({"i": [1, 2, None], "l": [1, 3, 3], "s": ["xay", "b", None]})

    assert kept("i = l", rows) == [0]
    assert kept("s LIKE '%a_'", rows) == [0]
    assert kept("NOT (I = l) OR s IS NULL", rows) == [1, 2]
    assert kept("coalesce(i, 3) = l", rows) == [0, 2]
    assert kept("i = l AND i > 1", rows) == []
    assert kept("lower(s) = 'b' OR i + 1 = 2", rows) == [0, 1]


def test_a_condition_of_null_is_neither_true_nor_false() -> None:
    rows = pa.table({"i": [1, -1, None], "s": ["ab", "b", None]})

    assert (kept("(i > 0) IS TRUE", rows), kept("(i > 0) IS NOT TRUE", rows)) == ([0], [1, 2])
    assert (kept("(i > 0) IS FALSE", rows), kept("(i > 0) IS NOT FALSE", rows)) == ([1], [0, 2])
    assert kept("(s LIKE '%b' AND i > 0) IS NOT TRUE", rows) == [1, 2]
    assert kept("i IS TRUE", rows) == [0, 1]
    assert kept("NULL", rows) == kept("NOT NULL", rows) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wide = 9999999999999999999999999.99999", [0]),
        ("wide = -9999999999999999999999999.99999", [1]),
        ("wide > - -9999999999999999999999999.99998", [0]),
        ("wide IN (-9999999999999999999999999.99999, 7)", [1]),
        ("wide NOT BETWEEN -9999999999999999999999999.99998 AND 0", [0, 1]),
        ("b IN (-9223372036854775808)", [1]),
    ],
)
def test_minus_sign_rounds_no_number(text: str, expected: list[int]) -> None:
    # Python's own would, to the 28 digits of the decimal context.
    wide = [Decimal(f"{sign}9999999999999999999999999.99999") for sign in ("", "-")]
    rows = pa.table(
        {"wide": pa.array(wide, pa.decimal128(30, 5)), "b": [2**63 - 1, -(2**63)]},
    )
    predicate = to_polars(from_sql(text, rows.schema))
    assert predicate is not None
    read = pl.DataFrame(rows).with_row_index().filter(predicate)

    assert kept(text, rows) == expected
    assert read["index"].to_list() == expected


@pytest.mark.parametrize(
    "text",
    [
        *(f"f {op} 0.1" for op in ("=", "<>", "<", "<=", ">", ">=")),
        "f BETWEEN 0.1 AND 0.3",
        "f NOT BETWEEN 0.3 AND 0.7",
        "f IS DISTINCT FROM 0.1",
        "f IS NOT DISTINCT FROM -0.7",
        "f IN (0.1, 0.3)",
        "f NOT IN (0.1, 16777217)",
        "f = 16777217",
        "f >= 7.9549868151",
        "f = 0.1::FLOAT",
        "f = x",
        "f < x",
        "f + 1 > 1.3",
    ],
)
def test_number_beside_a_float_is_rounded_to_one_as_duckdb_does(text: str) -> None:
    numbers = [0.1, 0.3, -0.7, 7.9549868151, 16777216.0, 1e10, math.nan, None]
    rows = pa.table(
        {
            "n": range(len(numbers)),
            "f": pa.array(numbers, pa.float32()),
            "x": pa.array(numbers, pa.float64()),
        }
    )
    with duckdb.connect() as connection:
        # DuckDB 1 lets Arrow filter, which takes NaN for less than any number.
        connection.execute("SET disabled_optimizers = 'filter_pushdown'")
        asked = connection.from_arrow(rows).filter(text).project("n").fetchall()
    exact = to_polars(from_sql(text, rows.schema))

    assert kept(text, rows) == [n for (n,) in asked]
    if exact is not None:
        assert pl.DataFrame(rows).filter(exact)["n"].to_list() == [n for (n,) in asked]
