"""A query over lakecore's tables gives the rows that DuckDB gives over copies of these tables.

Conditions, keys of joins and values of subqueries are pushed into the read of a table. The tables
have overlapping runs with updates and deletions, so that a condition on values that went below a
merge would show rows that are gone.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import lakecore as lc

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = ("big", "parted", "plain")
_TYPES = "id BIGINT NOT NULL, p STRING NOT NULL, k INT, s STRING, f DOUBLE, d DATE, n DECIMAL(9, 2)"
_ROWS = 240
_SMALL = pa.schema([("id", pa.int32()), ("k", pa.int64()), ("s", pa.string()), ("p", pa.string())])
Sides = tuple[lc.Session, duckdb.DuckDBPyConnection]


def rows_of(first: int, last: int, salt: int) -> pa.Table:
    ids = range(first, last)
    day = dt.date(2024, 1, 1)
    values = [(each * 7 + salt) % 11 for each in ids]
    floats = [None, float("nan"), -0.0, 0.0, 1.5, float("inf")]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "p": [f"p{each % 3}" for each in ids],
            "k": pa.array([None if each == 3 else each - 4 for each in values], pa.int32()),
            "s": [None if each == 5 else f"s{each}" for each in values],
            "f": [floats[(each + salt) % 6] for each in ids],
            "d": [None if each == 7 else day + dt.timedelta(each) for each in values],
            "n": pa.array([each / 2 for each in values], pa.float64()).cast(pa.decimal128(9, 2)),
        }
    )


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    catalog = lc.connect(tmp_path_factory.mktemp("selects"), create=True)
    catalog.sql("CREATE DATABASE `default`")
    on = "'bucket' = '1', 'write-only' = 'true', 'file.block-size' = '2 kb'"
    catalog.sql(f"CREATE TABLE big ({_TYPES}, PRIMARY KEY (id) NOT ENFORCED) WITH ({on})")
    catalog.sql(
        f"CREATE TABLE parted ({_TYPES}, PRIMARY KEY (id, p) NOT ENFORCED) "
        f"PARTITIONED BY (p) WITH ({on})"
    )
    catalog.sql(f"CREATE TABLE plain ({_TYPES}) PARTITIONED BY (p)")
    with duckdb.connect() as model:
        for name in TABLES:
            table = catalog.get_table(f"default.{name}")
            table.write(rows_of(0, _ROWS, 0))
            table.write(rows_of(_ROWS // 3, _ROWS // 2, 1))
            table.delete("id % 10 = 3")
            table.write(rows_of(_ROWS - 40, _ROWS + 10, 2))
            model.register("copied", table.to_arrow())
            model.execute(f"CREATE TABLE {name} AS FROM copied")
        yield catalog, model


NUMBERS = st.sampled_from(["-3", "0", "2", "6", "17", "90", "200", "NULL", "1.5"])
TEXTS = st.sampled_from(["'s1'", "'s7'", "'p1'", "''", "'é'", "'it''s'", "NULL"])


def conditions(side: str) -> st.SearchStrategy[str]:
    """Conditions on the columns of a table with this alias."""
    number = st.sampled_from([f"{side}.id", f"{side}.k", f"{side}.n", f"{side}.f"])
    words = st.sampled_from([f"{side}.s", f"{side}.p"])
    signs = st.sampled_from(["=", "<>", "<", ">=", "IS DISTINCT FROM"])
    leaves = st.one_of(
        st.tuples(number, signs, NUMBERS).map(" ".join),
        st.tuples(words, signs, TEXTS).map(" ".join),
        st.tuples(number, NUMBERS, NUMBERS).map("{0[0]} BETWEEN {0[1]} AND {0[2]}".format),
        st.tuples(number, st.lists(NUMBERS, min_size=1, max_size=4)).map(
            lambda both: f"{both[0]} IN ({', '.join(both[1])})"
        ),
        st.tuples(number, signs, number).map(" ".join),
        st.sampled_from(
            [
                f"{side}.k IS NULL",
                f"{side}.s IS NOT NULL",
                f"{side}.s LIKE 's1%'",
                f"{side}.d >= DATE '2024-01-05'",
                f"{side}.d + 1 > DATE '2024-01-05'",
                f"isnan({side}.f)",
                f"{side}.f = 'nan'::DOUBLE",
                f"{side}.f >= 0",
                f"length({side}.s) > 2",
                f"{side}.id + {side}.k > 50",
                f"({side}.id % 7 = 1)",
            ]
        ),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map("NOT ({})".format),
            st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
                lambda parts: "(({}) {} ({}))".format(*parts)
            ),
        ),
        max_leaves=3,
    )


KEYS = st.sampled_from(["id", "k", "s", "p", "id + 0"])


@st.composite
def joins(draw: st.DrawFn) -> str:
    """A join of a table with `small`."""
    name = draw(st.sampled_from(TABLES))
    kind = draw(st.sampled_from(["JOIN"] * 4 + ["LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]))
    key = draw(KEYS)
    right = "x.id" if key == "id + 0" else f"x.{key}"
    on = f"t.{key} = {right}" if draw(st.booleans()) else f"{right} = t.{key}"
    if draw(st.booleans()):
        on += (
            f" AND {draw(st.sampled_from(['x.k > 1', 'x.s IS NOT NULL', 't.k > 0', 't.p = x.p']))}"
        )
    where = draw(st.none() | conditions("t") | st.sampled_from(["x.k < 90", "x.s = 's1'"]))
    sides = [f"{name} AS t", "small AS x"]
    if draw(st.booleans()):
        sides.reverse()
    tail = "" if where is None else f" WHERE {where}"
    return f"SELECT t.id, t.k, t.s, t.p, x.id, x.k FROM {sides[0]} {kind} {sides[1]} ON {on}{tail}"


@st.composite
def subqueries(draw: st.DrawFn) -> str:
    """A condition on a table that asks `small`."""
    name, key = draw(st.sampled_from(TABLES)), draw(st.sampled_from(["id", "k", "s", "p"]))
    inner = draw(st.sampled_from(["", " WHERE small.k > 1", " WHERE small.s IS NOT NULL"]))
    ask = draw(
        st.sampled_from(
            [
                f"t.{key} IN (SELECT {key} FROM small{inner})",
                f"t.{key} NOT IN (SELECT {key} FROM small{inner})",
                f"EXISTS (FROM small AS y WHERE y.{key} = t.{key})",
                f"NOT EXISTS (FROM small AS y WHERE y.{key} = t.{key})",
                f"t.{key} = (SELECT max({key}) FROM small)",
                f"t.{key} >= ANY (SELECT {key} FROM small)",
            ]
        )
    )
    link, more = draw(st.sampled_from(["AND", "OR"])), draw(conditions("t"))
    return f"SELECT t.id, t.k, t.p FROM {name} AS t WHERE {ask} {link} {more}"


@st.composite
def selects(draw: st.DrawFn) -> str:
    """A table with a condition; rows, aggregates, or the first rows in an order."""
    name, where = draw(st.sampled_from(TABLES)), draw(conditions("t"))
    what = draw(
        st.sampled_from(
            [
                "SELECT * FROM {} AS t WHERE {}",
                "SELECT count(*), sum(t.k), min(t.s), max(t.id) FROM {} AS t WHERE {}",
                "SELECT t.p, count(*) FROM {} AS t WHERE {} GROUP BY t.p",
                "SELECT t.id, t.p FROM {} AS t WHERE {} ORDER BY t.id DESC LIMIT 5",
                "SELECT DISTINCT t.k, t.s FROM {} AS t WHERE {}",
                "SELECT count(*) FROM (FROM {} AS t WHERE {}) AS y WHERE y.k > 0",
            ]
        )
    )
    return what.format(name, where)


@st.composite
def smalls(draw: st.DrawFn) -> pa.Table:
    numbers = st.none() | st.sampled_from([-9, 1, 2, 6, 83, 100, 101, 205, 245, 900])
    rows = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "id": numbers,
                    "k": numbers,
                    "s": st.none() | st.sampled_from(["s1", "s4", "s7", "it's", ""]),
                    "p": st.none() | st.sampled_from(["p0", "p2", "q"]),
                }
            ),
            max_size=4,
        )
    )
    return pa.Table.from_pylist(rows, _SMALL)


@given(small=smalls(), query=st.one_of(joins(), joins(), subqueries(), selects(), selects()))
def test_a_query_gives_the_rows_that_duckdb_gives(
    sides: Sides, small: pa.Table, query: str
) -> None:
    catalog, model = sides
    note(query)
    model.register("small", small)
    expected = sorted(map(repr, model.execute(query).fetchall()))

    assert sorted(map(repr, catalog.sql(query).fetchall())) == expected
