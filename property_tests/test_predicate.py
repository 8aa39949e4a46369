"""Conditions of any origin prune soundly and, where exact, keep the same rows as their engine."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lakecore.plan.predicate import (
    Predicate,
    columns_of,
    fixed_values,
    from_arrow,
    from_polars,
    is_exact,
    split_by_columns,
    to_arrow,
    to_polars,
)
from lakecore.plan.pruning import matches_exactly, may_match
from lakecore.scalar.values import Setting, matches, parse_where
from lakecore.testing.condition_draws import COMPARISONS

NAN = float("nan")
EPOCH = dt.datetime(1970, 1, 1)
UTC = dt.UTC
SCHEMA = pa.schema(
    [
        ("i8", pa.int8()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("dec", pa.decimal128(6, 2)),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("q", pa.bool_()),
        ("d", pa.date32()),
        ("ti", pa.time32("ms")),
        ("ms", pa.timestamp("ms")),
        ("us", pa.timestamp("us")),
        ("ns", pa.timestamp("ns")),
        ("tz", pa.timestamp("us", "UTC")),
    ]
)
VALUES: dict[str, list[Any]] = {
    "i8": [-128, -1, 0, 1, 2, 127],
    "i32": [-(2**31), -1, 0, 1, 2, 3, 2**24 + 1, 2**31 - 1],
    "i64": [-(2**63), -1, 0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1],
    "f32": [-1.5, -0.0, 0.0, 1.0, 1.5, 1.1, NAN, float("inf")],
    "f64": [-1.5, -0.0, 0.0, 1.0, 1.1, 1.5, NAN, float("inf"), 2.0**53],
    "dec": [Decimal(text) for text in ("-1.50", "0.00", "0.10", "1.00", "1.50", "9999.99")],
    "s": ["", "a", "ab", "abc", "b", "é", "\U0001f600", "A", "a\nb"],
    "b": [b"", b"a", b"ab", b"\x00", b"\xff", b"\xff\xff"],
    "q": [True, False],
    "d": [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(1970, 1, 2), dt.date(2026, 1, 1)],
    "ti": [dt.time(0), dt.time(1, 2, 3, 4000), dt.time(23, 59, 59, 999000)],
    "ms": [EPOCH, EPOCH + dt.timedelta(milliseconds=1), EPOCH + dt.timedelta(days=1)],
    "us": [EPOCH, EPOCH + dt.timedelta(microseconds=1), EPOCH - dt.timedelta(microseconds=1)],
    "ns": [0, 1, 1000, 1500, -1, 86_400_000_000_000],
    "tz": [EPOCH.replace(tzinfo=UTC), (EPOCH + dt.timedelta(hours=1)).replace(tzinfo=UTC)],
}
MORE: dict[str, list[Any]] = {  # literals that are no values of the column
    "i8": [1.5, -0.5, 1000, -1000, Decimal("1.5"), 2**40],
    "i32": [1.5, -0.5, 2**40, Decimal("1.50"), 1.0],
    "i64": [1.5, 2.0**53, Decimal("0.5"), 1e300],
    "f32": [1.1, 0.1, 1, 2**24 + 1, Decimal("1.5"), 1e300],
    "f64": [1, 2**53 + 1, Decimal("1.1")],
    "dec": [1, 0.1, 1.5, Decimal("1.505"), 10**6, Decimal("0.1"), -(10**9)],
    "d": [EPOCH, EPOCH + dt.timedelta(hours=12)],
    "ms": [EPOCH + dt.timedelta(microseconds=1), EPOCH + dt.timedelta(microseconds=1500)],
    "ms_date": [],
    "us": [dt.date(1970, 1, 1)],
    "ns": [EPOCH, EPOCH + dt.timedelta(microseconds=1), dt.date(1970, 1, 2)],
}
COLUMNS = st.sampled_from(SCHEMA.names)
OPS = st.sampled_from([*COMPARISONS])


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(1, 7))
    columns = []
    for field in SCHEMA:
        value = st.one_of(st.none(), st.sampled_from(VALUES[field.name]))
        columns.append(pa.array(draw(st.lists(value, min_size=rows, max_size=rows)), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def trees(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(st.just("and"), inner, inner),
            st.tuples(st.just("or"), inner, inner),
            st.tuples(st.just("not"), inner),
        ),
        max_leaves=5,
    )


@st.composite
def leaves(draw: st.DrawFn) -> tuple[Any, ...]:
    column = draw(COLUMNS)
    own = st.sampled_from(VALUES[column])
    literal = st.one_of(own, st.sampled_from(VALUES[column] + MORE.get(column, [])))
    kinds = ["compare", "compare", "in", "null", "not null", "between"]
    kinds += ["starts"] * 2 * (column in ("s", "b")) + ["is"] * (column == "q")
    match draw(st.sampled_from(kinds)):
        case "compare":
            return ("compare", column, draw(OPS), draw(literal))
        case "in":
            values = st.lists(st.one_of(own, own, st.none()), max_size=4)
            return ("in", column, draw(values))
        case "between":
            return ("between", column, draw(literal), draw(literal))
        case "starts":
            return ("starts", column, draw(own))
        case "is":
            return ("compare", column, "=", draw(st.booleans()))
        case kind:
            return (kind, column)


def chunked(batch: pa.RecordBatch) -> tuple[list[pa.RecordBatch], tuple[Any, ...]]:
    """Chunks of up to three rows, and their statistics as a file format gives them."""
    chunks = [batch.slice(start, 3) for start in range(0, batch.num_rows, 3)]
    low: list[pa.Array] = []
    high: list[pa.Array] = []
    nulls: list[pa.Array] = []
    for index, field in enumerate(batch.schema):
        bounds = [_bounds(chunk.column(index)) for chunk in chunks]
        low.append(pa.array([pair[0] for pair in bounds], field.type))
        high.append(pa.array([pair[1] for pair in bounds], field.type))
        nulls.append(pa.array([chunk.column(index).null_count for chunk in chunks], pa.int64()))
    names = batch.schema.names
    stats = tuple(pa.RecordBatch.from_arrays(c, names) for c in (low, high, nulls))
    rows = np.array([chunk.num_rows for chunk in chunks])
    return chunks, (*stats, rows)


def _bounds(column: pa.Array) -> tuple[Any, Any]:
    if pa.types.is_floating(column.type):
        column = column.filter(pc.invert(pc.is_nan(column)))
    ordered = column.drop_null().take(pc.sort_indices(column.drop_null()))
    return (ordered[0], ordered[-1]) if len(ordered) else (None, None)


def assert_sound(predicate: Predicate, batch: pa.RecordBatch, keep: list[bool]) -> None:
    """No chunk and no row that matches may be left out; an exact predicate keeps the same rows."""
    _, stats = chunked(batch)
    mask = may_match(predicate, *stats)
    for index, kept in enumerate(mask):
        assert kept or not any(keep[index * 3 : index * 3 + 3]), (index, predicate)
    rows = matches_exactly(predicate, batch)
    assert all(kept or not wanted for kept, wanted in zip(rows, keep, strict=True)), predicate
    if is_exact(predicate):
        assert rows.tolist() == keep, predicate


# --- Polars -------------------------------------------------------------------------------------


def as_polars(tree: tuple[Any, ...]) -> pl.Expr:
    match tree:
        case ("and", left, right):
            return as_polars(left) & as_polars(right)
        case ("or", left, right):
            return as_polars(left) | as_polars(right)
        case ("not", inner):
            return ~as_polars(inner)
        case ("compare", column, op, value):
            compared: pl.Expr = COMPARISONS[op](pl.col(column), _polars_value(column, value))
            return compared
        case ("between", column, lower, upper):
            lower, upper = _polars_value(column, lower), _polars_value(column, upper)
            return pl.col(column).is_between(lower, upper)
        case ("in", column, values):
            kind = pl.Series(pa.array([], SCHEMA.field(column).type)).dtype
            return pl.col(column).is_in(pl.lit(pl.Series(values, dtype=kind)).implode())
        case ("starts", "b", prefix):
            return pl.col("b").bin.starts_with(prefix)
        case ("starts", column, prefix):
            return pl.col(column).str.starts_with(pl.lit(prefix))
        case ("null", column):
            return pl.col(column).is_null()
        case ("not null", column):
            return pl.col(column).is_not_null()
    raise AssertionError(tree)


def _polars_value(column: str, value: Any) -> Any:
    if column == "ns" and isinstance(value, int):
        return pl.lit(value).cast(pl.Datetime("ns"))
    return pl.lit(value) if isinstance(value, str) else value


@given(batches(), trees(leaves()))
def test_a_polars_condition_prunes_soundly(batch: pa.RecordBatch, tree: tuple[Any, ...]) -> None:
    expression = as_polars(tree)
    frame = pl.DataFrame(pl.from_arrow(batch))
    keep = frame.select(pl.all_horizontal(expression).alias("keep"))["keep"]
    predicate = from_polars(expression, SCHEMA)

    assert_sound(predicate, batch, keep.fill_null(value=False).to_list())


def has_infinity(tree: object) -> bool:
    """Whether a number of the tree, not a text, is infinite."""
    if isinstance(tree, tuple | list):
        return any(map(has_infinity, tree))
    return isinstance(tree, float) and math.isinf(tree)


@given(batches(), trees(leaves()))
def test_a_predicate_survives_the_way_to_polars_and_back(
    batch: pa.RecordBatch, tree: tuple[Any, ...]
) -> None:
    predicate = from_polars(as_polars(tree), SCHEMA)
    expression = to_polars(predicate)
    if expression is None:
        assert not is_exact(predicate)
        return
    again = from_polars(expression, SCHEMA)

    # The JSON form of an expression has no infinite numbers.
    assert is_exact(again) or has_infinity(tree)
    assert_sound(again, batch, matches_exactly(predicate, batch).tolist())


# --- Arrow --------------------------------------------------------------------------------------


def as_arrow(tree: tuple[Any, ...]) -> pc.Expression:
    match tree:
        case ("and", left, right):
            return as_arrow(left) & as_arrow(right)
        case ("or", left, right):
            return as_arrow(left) | as_arrow(right)
        case ("not", inner):
            return ~as_arrow(inner)
        case ("compare", column, op, value):
            return COMPARISONS[op](pc.field(column), pc.scalar(_arrow_value(column, value)))
        case ("between", column, lower, upper):
            low = pc.field(column) >= pc.scalar(_arrow_value(column, lower))
            return low & (pc.field(column) <= pc.scalar(_arrow_value(column, upper)))
        case ("in", column, values):
            return pc.field(column).isin(pa.array(values, SCHEMA.field(column).type))
        case ("starts", column, prefix):
            return pc.starts_with(pc.field(column), pattern=prefix)
        case ("null", column):
            return pc.field(column).is_null()
        case ("not null", column):
            return pc.field(column).is_valid()
    raise AssertionError(tree)


def _arrow_value(column: str, value: Any) -> pa.Scalar:
    own = any(type(value) is type(one) and value == one for one in VALUES[column])
    return pa.scalar(value, SCHEMA.field(column).type) if own else pa.scalar(value)


@given(batches(), trees(leaves()))
def test_an_arrow_condition_prunes_soundly(batch: pa.RecordBatch, tree: tuple[Any, ...]) -> None:
    expression = as_arrow(tree)
    table = pa.Table.from_batches([batch]).append_column("row_at", pa.array(range(batch.num_rows)))
    try:
        kept = set(table.filter(expression)["row_at"].to_pylist())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        assume(False)  # Arrow itself refuses to compare these types
    predicate = from_arrow(expression, SCHEMA)

    assert_sound(predicate, batch, [row in kept for row in range(batch.num_rows)])


@given(batches(), trees(leaves()))
def test_a_predicate_keeps_the_same_rows_in_arrow(
    batch: pa.RecordBatch, tree: tuple[Any, ...]
) -> None:
    predicate = from_polars(as_polars(tree), SCHEMA)
    expression = to_arrow(predicate)
    if expression is None:
        assert not is_exact(predicate)
        return
    table = pa.Table.from_batches([batch]).append_column("row_at", pa.array(range(batch.num_rows)))
    kept = set(table.filter(expression)["row_at"].to_pylist())
    keep = [row in kept for row in range(batch.num_rows)]

    assert matches_exactly(predicate, batch).tolist() == keep
    assert_sound(from_arrow(expression, SCHEMA), batch, keep)


# --- SQL ----------------------------------------------------------------------------------------


def as_sql(tree: tuple[Any, ...]) -> str:
    match tree:
        case ("and", left, right):
            return f"({as_sql(left)} AND {as_sql(right)})"
        case ("or", left, right):
            return f"({as_sql(left)} OR {as_sql(right)})"
        case ("not", inner):
            return f"NOT {as_sql(inner)}"
        case ("compare", column, op, value):
            return f"{column} {op} {_sql_value(column, value)}"
        case ("between", column, lower, upper):
            return f"{column} BETWEEN {_sql_value(column, lower)} AND {_sql_value(column, upper)}"
        case ("in", column, []):
            return f"{column} IN (NULL)"
        case ("in", column, values):
            return f"{column} IN ({', '.join(_sql_value(column, value) for value in values)})"
        case ("starts", column, prefix):
            return f"starts_with({column}, {_sql_value(column, prefix)})"
        case ("null", column):
            return f"{column} IS NULL"
        case ("not null", column):
            return f"{column} IS NOT NULL"
    raise AssertionError(tree)


def _sql_value(column: str, value: Any) -> str:
    match value:
        case None | True | False:
            return str(value).upper() if value is not None else "NULL"
        case float():
            return f"{value!r}::DOUBLE" if np.isfinite(value) else f"'{value}'::DOUBLE"
        case bytes():
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
        case dt.datetime() if value.tzinfo is not None:
            return f"TIMESTAMPTZ '{value:%Y-%m-%d %H:%M:%S.%f}+00'"
        case dt.datetime():
            return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}'"
        case dt.date():
            return f"DATE '{value}'"
        case dt.time():
            return f"TIME '{value:%H:%M:%S.%f}'"
        case int() if column == "ns":
            text = np.datetime64(value, "ns").astype(str).replace("T", " ")
            return f"TIMESTAMP_NS '{text}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            return str(value)


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
    return connection


def sql_leaves() -> st.SearchStrategy[tuple[Any, ...]]:
    patterns = st.sampled_from(["a%", "%", "a_%", "ab", "%b", "_", "A%"])
    like = st.tuples(st.just("like"), patterns, st.booleans())
    numbers = st.sampled_from(["1.1", "1.5", "0.1", "1", "1e0", "-1.50", "16777217", "1e300"])
    bare = st.tuples(
        st.just("number"), st.sampled_from(["i32", "i64", "f32", "f64", "dec"]), OPS, numbers
    )
    return st.one_of(leaves(), leaves(), like, bare)


def sql_text(tree: tuple[Any, ...]) -> str:
    match tree:
        case ("like", pattern, negated):
            return f"s {'NOT ' if negated else ''}LIKE '{pattern}'"
        case ("number", column, op, text):
            return f"{column} {op} {text}"
        case ("and" | "or" as word, left, right):
            return f"({sql_text(left)} {word} {sql_text(right)})"
        case ("not", inner):
            return f"NOT {sql_text(inner)}"
        case _:
            return as_sql(tree)


@given(batch=batches(), tree=trees(sql_leaves()))
def test_an_sql_condition_keeps_what_duckdb_keeps(
    duck: duckdb.DuckDBPyConnection, batch: pa.RecordBatch, tree: tuple[Any, ...]
) -> None:
    text = sql_text(tree)
    rows = pa.Table.from_batches([batch]).append_column("row_at", pa.array(range(batch.num_rows)))
    try:
        # NOTE: a view of a constant table, so that nothing is pushed into Arrow
        duck.register("arrow_rows", rows)
        duck.execute("CREATE OR REPLACE TEMP TABLE sample AS SELECT * FROM arrow_rows")
        found = duck.execute(f"SELECT row_at FROM sample WHERE {text}").fetchall()
    except duckdb.Error:
        assume(False)  # DuckDB itself refuses to compare these types
    kept = {at for (at,) in found}
    keep = [row in kept for row in range(batch.num_rows)]

    sql, predicate = parse_where(text, SCHEMA, Setting(now_ms=lambda: 0, zone="UTC"))

    assert_sound(predicate, batch, keep)
    assert matches(sql, rows).to_pylist() == keep, text
    if is_exact(predicate):
        expression = to_polars(predicate)
        assert expression is not None
        frame = pl.DataFrame(pl.from_arrow(rows))
        assert frame.filter(expression)["row_at"].to_list() == sorted(kept), text


# --- reading off a predicate --------------------------------------------------------------------


@given(batches(), trees(leaves()), st.sets(COLUMNS, min_size=1, max_size=8))
def test_a_split_predicate_is_the_conjunction_of_its_parts(
    batch: pa.RecordBatch, tree: tuple[Any, ...], columns: set[str]
) -> None:
    predicate = from_polars(as_polars(tree), SCHEMA)
    within, rest = split_by_columns(predicate, columns)

    assert columns_of(within) <= columns
    both = matches_exactly(within, batch) & matches_exactly(rest, batch)
    assert (both == matches_exactly(predicate, batch)).all()


KEYS = ["i32", "s"]


def key_leaves() -> st.SearchStrategy[tuple[Any, ...]]:
    def of(column: str) -> st.SearchStrategy[tuple[Any, ...]]:
        value = st.sampled_from(VALUES[column])
        equal = st.tuples(st.just("compare"), st.just(column), st.just("="), value)
        some = st.tuples(st.just("in"), st.just(column), st.lists(value, max_size=3))
        return st.one_of(equal, some, some)

    return st.one_of(of("i32"), of("s"))


@given(
    st.lists(st.fixed_dictionaries({name: st.sampled_from(VALUES[name]) for name in KEYS})),
    trees(key_leaves()),
    trees(key_leaves()),
)
def test_matching_rows_have_one_of_the_fixed_values(
    rows: list[dict[str, Any]], left: tuple[Any, ...], right: tuple[Any, ...]
) -> None:
    schema = pa.schema([SCHEMA.field(name) for name in KEYS])
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    predicate = from_polars(as_polars(("and", left, right)), SCHEMA)
    values = fixed_values(predicate, SCHEMA, KEYS, 50)
    matching = batch.filter(pa.array(matches_exactly(predicate, batch), pa.bool_()))

    assert values is None or all(row in values.to_pylist() for row in matching.to_pylist())
