"""Any condition that DuckDB takes keeps, through every face, the rows that DuckDB keeps."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

import lakecore as lc
from lakecore.io.stores.local import LocalStore
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from lakecore.table.handle import Table

NAN = float("nan")
DAY = dt.date(2026, 1, 1)
COLUMNS = {
    "id": "INT NOT NULL",
    "i8": "TINYINT",
    "i16": "SMALLINT",
    "i64": "BIGINT",
    "f32": "FLOAT",
    "f64": "DOUBLE",
    "dec": "DECIMAL(6, 2)",
    "s": "STRING",
    "Select": "STRING",
    "q": "BOOLEAN",
    "d": "DATE",
    "ms": "TIMESTAMP(3)",
    "tz": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "st": "ROW<x INT, y STRING>",
    "l": "ARRAY<INT>",
}
NOON = dt.datetime(2026, 1, 1, 12)
VALUES: dict[str, list[Any]] = {
    "i8": [-128, -1, 0, 1, 100, 127],
    "i16": [-(2**15), -1, 0, 1, 2**15 - 1],
    "i64": [-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1],
    "f32": [-1.5, -0.0, 0.0, 1.0, 1.5, NAN, float("inf")],
    "f64": [-1.5, -0.0, 0.0, 0.1, 1.0, NAN, float("-inf")],
    "dec": [Decimal(text) for text in ("-1.50", "0.00", "0.10", "1.00", "9999.99")],
    "s": ["", "a", "ab", "A", "é", "É", "12", "x%y", "\U0001f600"],
    "Select": ["a", "b", "it's"],
    "q": [True, False],
    "d": [dt.date(1969, 12, 31), DAY, dt.date(2026, 1, 31), dt.date(2024, 2, 29)],
    "ms": [NOON, NOON + dt.timedelta(milliseconds=1), NOON - dt.timedelta(days=400)],
    "tz": [
        each.replace(tzinfo=dt.UTC)
        for each in (NOON, dt.datetime(2026, 1, 1), dt.datetime(2025, 12, 31, 23, 59, 59, 999999))
    ],
    "st": [{"x": 1, "y": "a"}, {"x": None, "y": "b"}, {"x": -1, "y": None}],
    "l": [[], [1], [1, None, 3], [2, 2]],
}
NUMBERS = ["i8", "i16", "i64", "f32", "f64", "dec", "st.x", "l[1]", "len(l)", "length(s)"]
TEXTS = ["s", '"Select"', "st.y", "upper(s)", "s || 'a'", "reverse(s)", "i8::VARCHAR"]
TIMES = ["d", "ms", "tz", "d + 1", "ms + INTERVAL 1 DAY", "date_trunc('month', ms)"]
NUMBER = st.recursive(
    st.sampled_from([*NUMBERS, "0", "1", "-1", "100", "0.5", "1.5e0", "NULL", "127", "255"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "&"]), inner).map(
            lambda parts: "({} {} {})".format(*parts)
        ),
        inner.map("-({})".format),
        inner.map("abs({})".format),
        inner.map("round({})".format),
        inner.map("({} << 1)".format),
        inner.map("CAST({} AS TINYINT)".format),
        inner.map("try_cast({} AS INTEGER)".format),
        inner.map("{}::DOUBLE".format),
        st.tuples(inner, inner).map(lambda parts: "coalesce({}, {})".format(*parts)),
        inner.map("CASE WHEN q THEN {} END".format),
    ),
    max_leaves=3,
)
TEXT = st.sampled_from([*TEXTS, "'a'", "''", "'É'", "'12'", "NULL"])
TIME = st.sampled_from(
    [
        *TIMES,
        "DATE '2026-01-01'",
        "'2026-01-01'",
        "TIMESTAMP '2026-01-01 12:00:00.0005'",
        "'2026-01-01 13:00:00+01'",
        "NULL",
    ]
)
COMPARISON = st.sampled_from(
    ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
)
LEAF = st.one_of(
    *(
        st.tuples(kind, COMPARISON, kind).map(lambda parts: "{} {} {}".format(*parts))
        for kind in (NUMBER, NUMBER, TEXT, TIME)
    ),
    st.tuples(NUMBER, NUMBER, NUMBER).map(lambda parts: "{} BETWEEN {} AND {}".format(*parts)),
    st.tuples(NUMBER, NUMBER, NUMBER).map(lambda parts: "{} IN ({}, {})".format(*parts)),
    st.tuples(
        st.sampled_from(TEXTS),
        st.sampled_from(["LIKE", "ILIKE", "NOT LIKE", "SIMILAR TO"]),
        st.sampled_from(["'a%'", "'%'", "'_'", "'A%'", "'x%y'", "'é%'", "NULL"]),
    ).map(lambda parts: "{} {} {}".format(*parts)),
    st.sampled_from([*NUMBERS, *TEXTS, *TIMES, "q"]).map("{} IS NULL".format),
    st.sampled_from([*NUMBERS, *TEXTS, *TIMES, "st", "l"]).map("{} IS NOT NULL".format),
    st.sampled_from(
        [
            "q",
            "NOT q",
            "q IS TRUE",
            "q IS NOT FALSE",
            "isnan(f64)",
            "st = {'x': 1, 'y': 'a'}",
            "l = [1]",
            "list_contains(l, 2)",
            "regexp_matches(s, '[a-z]')",
            "starts_with(s, 'a')",
            "extract(year FROM d) = 2026",
            "tz::DATE = d",
            "try_cast(s AS INTEGER) > 1",
            "TRUE",
            "NULL",
        ]
    ),
)
CONDITION = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda parts: "({} AND {})".format(*parts)),
        st.tuples(inner, inner).map(lambda parts: "({} OR {})".format(*parts)),
        inner.map("NOT ({})".format),
        inner.map("({}) IS TRUE".format),
        inner.map("({}) IS NOT TRUE".format),
    ),
    max_leaves=4,
)


@st.composite
def rows_of_files(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    numbers = iter(range(99))
    row = st.fixed_dictionaries(
        {name: st.none() | st.sampled_from(values) for name, values in VALUES.items()}
    )
    files = draw(st.lists(st.lists(row, min_size=1, max_size=3), min_size=1, max_size=3))
    return [[{"id": next(numbers), **each} for each in file] for file in files]


def filled(path: Path, files: list[list[dict[str, Any]]], *, keyed: bool) -> Table:
    table = new_table(COLUMNS, keys=["id"] if keyed else [], store=LocalStore(), path=str(path))
    for rows in files:
        table.write(pa.Table.from_pylist(rows, table.schema.arrow))
    return table


def asked_of_duckdb(table: Table, condition: str) -> list[int]:
    """What DuckDB keeps of all rows, in a table of its own."""
    with duckdb.connect() as connection:
        table.to_duckdb(connection).create("t")
        try:
            found = connection.execute(f"SELECT id FROM t WHERE {condition}").fetchall()
        except duckdb.Error:
            assume(False)  # some row has no value of it, or it does not fit the types
    return sorted(number for (number,) in found)


def through_duckdb(table: Table, condition: str) -> list[int]:
    with duckdb.connect() as connection:
        return [row[0] for row in table.to_duckdb(connection, condition).select("id").fetchall()]


def left_by_delete(table: Table, condition: str) -> list[int]:
    before = table.to_arrow(["id"])["id"].to_pylist()
    table.delete(condition)
    return sorted({*before} - {*table.to_arrow(["id"])["id"].to_pylist()})


FACES: dict[str, Callable[[Table, str], list[int]]] = {
    "to_polars": lambda table, text: table.to_polars(["id"], text)["id"].to_list(),
    "to_arrow": lambda table, text: table.to_arrow(["id"], text)["id"].to_pylist(),
    "scan": lambda table, text: table.scan(where=text).collect()["id"].to_list(),
    "streaming": lambda table, text: (
        table.scan(where=text).select("id").collect(engine="streaming")["id"].to_list()
    ),
    "dataset": lambda table, text: table.to_arrow_dataset(text).to_table()["id"].to_pylist(),
    "head": lambda table, text: table.head(99, ["id"], text)["id"].to_list(),
    "changes": lambda table, text: table.changes(where=text).collect()["id"].to_list(),
    "duckdb": through_duckdb,
    "count": lambda table, text: table.to_polars(["id"], text)["id"].to_list()[: table.count(text)],
    "delete": left_by_delete,
}


@given(files=rows_of_files(), condition=CONDITION, keyed=st.booleans())
def test_every_face_keeps_what_duckdb_keeps(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[dict[str, Any]]],
    condition: str,
    *,
    keyed: bool,
) -> None:
    path = tmp_path_factory.mktemp("t")
    table = filled(path / "t", files, keyed=keyed)
    wanted = asked_of_duckdb(table, condition)

    found = {name: sorted(face(table, condition)) for name, face in FACES.items()}
    assert found == dict.fromkeys(FACES, wanted), condition


POLARS_NUMBER = st.recursive(
    st.sampled_from(["i8", "i16", "i64", "f32", "f64"]).map(
        lambda name: pl.col(name)  # noqa: PLW0108  Hypothesis shows what it maps by, and `pl.col` has any name
    )
    | st.sampled_from([0, 1, 100, 127, -1, 0.5]).map(lambda value: pl.lit(value)),  # noqa: PLW0108
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda both: both[0] + both[1]),
        st.tuples(inner, inner).map(lambda both: both[0] - both[1]),
        st.tuples(inner, inner).map(lambda both: both[0] * both[1]),
        inner.map(lambda each: -each),
        inner.map(lambda each: each.abs()),
        inner.map(lambda each: each.cast(pl.Int8, strict=False)),
        inner.map(lambda each: each.cast(pl.UInt8, wrap_numerical=True)),
        inner.map(lambda each: each.cast(pl.Float32)),
    ),
    max_leaves=4,
)
POLARS_CONDITION = st.one_of(
    st.tuples(POLARS_NUMBER, POLARS_NUMBER).map(lambda both: both[0] > both[1]),
    st.tuples(POLARS_NUMBER, POLARS_NUMBER).map(lambda both: both[0] == both[1]),
    st.tuples(POLARS_NUMBER, POLARS_NUMBER).map(lambda both: both[0] != both[1]),
    st.tuples(POLARS_NUMBER, POLARS_NUMBER).map(lambda both: both[0].le(both[1])),
    POLARS_NUMBER.map(lambda each: each.is_between(0, 100)),
    POLARS_NUMBER.map(lambda each: each.is_in([1, 101, 127])),
    POLARS_NUMBER.map(lambda each: each.eq_missing(2**40)),
)


@given(
    files=rows_of_files(),
    condition=POLARS_CONDITION,
    other=POLARS_CONDITION,
    keyed=st.booleans(),
)
def test_no_bound_of_a_file_hides_a_row_from_an_expression(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[dict[str, Any]]],
    condition: pl.Expr,
    other: pl.Expr,
    *,
    keyed: bool,
) -> None:
    table = filled(tmp_path_factory.mktemp("t") / "t", files, keyed=keyed)
    rows = table.to_polars()
    both = condition & (other | (pl.col("i8") > 0))
    for expression in (condition, both):
        try:
            wanted = rows.filter(expression)["id"].sort().to_list()
        except pl.exceptions.PolarsError:
            assume(False)
        reads = [table.scan().filter(expression).collect()["id"].sort().to_list()]
        try:
            reads.append(table.scan(where=expression).collect()["id"].sort().to_list())
            reads.append(sorted(table.to_arrow(where=expression)["id"].to_pylist()))
        except lc.InvalidRequest:
            assume(False)  # a condition without columns, or on no single row

        assert reads == [wanted] * 3, expression
