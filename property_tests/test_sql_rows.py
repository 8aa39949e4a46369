"""Any history of INSERT, UPDATE, DELETE and MERGE leaves the rows that DuckDB's own table holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
from hypothesis import given, note
from hypothesis import strategies as st

import lakecore as lc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

COLUMNS = "id INT, n INT, v STRING, r ROW<a INT, b STRING>"
MODEL = "id INTEGER, n INTEGER, v VARCHAR, r STRUCT(a INTEGER, b VARCHAR)"
NAMES = ("id", "n", "v", "r")


@dataclass(frozen=True, slots=True)
class Step:
    """A statement of lakecore, and how the model does the same.

    `model` is a statement of DuckDB; for an INSERT it is the query whose rows are put in.
    """

    verb: str
    text: str
    model: str


NUMBER_TEXTS = st.sampled_from(["NULL", "0", "1", "2", "-3"])
TEXT_TEXTS = st.sampled_from(["NULL", "''", "'a'", "'B'", "'it''s'", "'é; -- '"])
ROW_TEXTS = st.one_of(
    st.just("NULL"),
    st.tuples(NUMBER_TEXTS, TEXT_TEXTS).map(
        lambda both: f"{{'a': {both[0]}::INTEGER, 'b': {both[1]}::VARCHAR}}"
    ),
)


def numbers(table: str) -> st.SearchStrategy[str]:
    """Expressions of a number over a row; `table` is the qualifier, with its dot, or empty."""
    columns = [f"{table}{name}" for name in ("n", "id", "r.a")]
    leaves = st.one_of(NUMBER_TEXTS, st.sampled_from([*columns, f"length({table}v)"]))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from("+-"), inner).map(
                lambda parts: "({} {} {})".format(*parts)
            ),
            st.tuples(inner, inner).map(lambda both: f"coalesce({both[0]}, {both[1]})"),
            st.tuples(inner, inner).map(lambda both: f"nullif({both[0]}, {both[1]})"),
            st.tuples(inner, inner).map(
                lambda both: f"CASE WHEN {table}n > 1 THEN {both[0]} ELSE {both[1]} END"
            ),
        ),
        max_leaves=3,
    )


def texts(table: str) -> st.SearchStrategy[str]:
    """Expressions of a text over a row."""
    columns = [f"{table}v", f"{table}r.b", f"CAST({table}n AS VARCHAR)", f"upper({table}v)"]
    return st.one_of(
        TEXT_TEXTS,
        st.sampled_from(columns),
        st.tuples(st.sampled_from(columns), TEXT_TEXTS).map(" || ".join),
        st.tuples(st.sampled_from(columns), TEXT_TEXTS).map(
            lambda both: f"CASE {both[0]} WHEN 'a' THEN {both[1]} ELSE 'z' END"
        ),
    )


def conditions(table: str) -> st.SearchStrategy[str]:
    """Conditions on a row; some of them are null."""
    leaves = st.one_of(
        st.tuples(numbers(table), st.sampled_from(["=", "<>", "<", ">="]), numbers(table)).map(
            " ".join
        ),
        st.tuples(texts(table), st.sampled_from(["=", "<>", ">"]), TEXT_TEXTS).map(
            lambda parts: "({}) {} {}".format(*parts)
        ),
        st.sampled_from(
            [
                f"{table}v IS NULL",
                f"{table}r IS NOT NULL",
                f"{table}v LIKE '%a%'",
                f"{table}id IN (1, 2, NULL)",
                f"{table}n BETWEEN 0 AND 2",
                f"{table}n IS DISTINCT FROM 1",
                "true",
                "NULL",
            ]
        ),
    )
    return st.one_of(
        leaves,
        leaves.map("NOT ({})".format),
        st.tuples(leaves, st.sampled_from(["AND", "OR"]), leaves).map(
            lambda parts: "(({}) {} ({}))".format(*parts)
        ),
    )


def asked_numbers(table: str) -> st.SearchStrategy[str]:
    """Queries of a number; some refer to the row."""
    return st.sampled_from(
        [
            "(SELECT max(n) FROM u)",
            "(SELECT n FROM u WHERE id = 99)",
            f"(SELECT n FROM u WHERE u.id = {table}id)",
            f"(SELECT min(q.n) + {table}n FROM t AS q WHERE q.id > {table}id)",
            f"(SELECT count(*) FROM u WHERE u.n >= {table}n OR {table}v IS NULL)",
            "(SELECT count(*) FROM t AS q)",
        ]
    )


def asked(table: str) -> st.SearchStrategy[str]:
    """Conditions with queries; some refer to the row."""
    numbers_of = st.sampled_from([f"{table}n", f"{table}id", f"{table}r.a", f"({table}n + 1)"])
    return st.one_of(
        st.tuples(
            numbers_of,
            st.sampled_from(["IN", "NOT IN"]),
            st.sampled_from(
                [
                    "(SELECT n FROM u)",
                    "(SELECT id FROM u)",
                    "(SELECT n FROM u WHERE n IS NOT NULL)",
                    "(SELECT q.n FROM t AS q)",
                    f"(SELECT u.n FROM u WHERE u.id <= {table}id)",
                    "(SELECT 1 WHERE false)",
                ]
            ),
        ).map(" ".join),
        st.tuples(
            st.sampled_from(["EXISTS", "NOT EXISTS"]),
            st.sampled_from(
                [
                    f"(SELECT 1 FROM u WHERE u.id = {table}id)",
                    f"(SELECT 1 FROM u WHERE u.n > {table}n)",
                    f"(FROM t AS q WHERE q.v = {table}v AND q.id <> {table}id)",
                    "(SELECT 1 FROM u WHERE n = 2)",
                ]
            ),
        ).map(" ".join),
        st.tuples(
            numbers_of, st.sampled_from(["=", "<", "<> ALL", "= ANY"]), asked_numbers(table)
        ).map(" ".join),
        st.tuples(asked_numbers(table), st.just("IS NULL")).map(" ".join),
    )


@st.composite
def values(draw: st.DrawFn, most: int = 4) -> str:
    """VALUES of rows with different ids."""
    ids = draw(st.lists(st.integers(0, 7), min_size=1, max_size=most, unique=True))
    rows = [
        f"({each}, {draw(NUMBER_TEXTS)}, {draw(TEXT_TEXTS)}, {draw(ROW_TEXTS)})" for each in ids
    ]
    return "VALUES " + ", ".join(rows)


@st.composite
def inserts(draw: st.DrawFn) -> Step:
    rows = draw(values())
    as_rows = f"SELECT * FROM ({rows}) AS x(id, n, v, r)"
    form = draw(st.sampled_from(["values", "columns", "select", "overwrite", "by name"]))
    if form == "values":
        return Step("insert", f"INSERT INTO t {rows}", as_rows)
    if form == "overwrite":
        return Step("overwrite", f"INSERT OVERWRITE t {rows}", as_rows)
    if form == "columns":
        text = f"INSERT INTO t (v, id) SELECT v, id FROM ({rows}) AS x(id, n, v, r)"
        return Step("insert", text, f"SELECT id, NULL, v, NULL FROM ({as_rows})")
    if form == "by name":
        text = f"INSERT INTO t BY NAME SELECT r, n + 1 AS n, id FROM ({rows}) AS x(id, n, v, r)"
        return Step("insert", text, f"SELECT id, n + 1, NULL, r FROM ({as_rows})")
    where = draw(conditions("o."))
    query = f"SELECT o.id + 1, o.n, o.v, o.r FROM t AS o WHERE {where}"
    return Step("insert", f"INSERT INTO t {query}", query)


@st.composite
def updates(draw: st.DrawFn) -> Step:
    prefix, alias = draw(st.sampled_from([("", ""), ("t.", ""), ("o.", " AS o")]))
    given = draw(
        st.fixed_dictionaries(
            {},
            optional={"n": numbers(prefix), "v": texts(prefix), "r": ROW_TEXTS},
        )
    )
    given = given or {"n": f"{prefix}n + 1"}
    where = draw(st.none() | conditions(prefix))
    tail = "" if where is None else f" WHERE {where}"
    listed = ", ".join(f"{name} = {text}" for name, text in given.items())
    text = f"UPDATE t{alias} SET {listed}{tail}"
    return Step("update", text, text)


@st.composite
def deletes(draw: st.DrawFn) -> Step:
    prefix = draw(st.sampled_from(["", "t."]))
    text = f"DELETE FROM t WHERE {draw(conditions(prefix))}"
    return Step("delete", text, text)


HEADS = ("MATCHED", "NOT MATCHED BY SOURCE", "NOT MATCHED")


@st.composite
def clauses(
    draw: st.DrawFn, *, asks: bool = False, heads: Sequence[str] = HEADS
) -> tuple[str, str]:
    """A clause as lakecore and as DuckDB spell it. With `asks`, its expressions hold queries."""
    both = st.sampled_from(["t.", "s."])
    head = draw(st.sampled_from(heads))
    side = {"MATCHED": draw(both), "NOT MATCHED": "s.", "NOT MATCHED BY SOURCE": "t."}[head]
    # DuckDB refuses a clause after one without a condition, which could never be reached.
    chosen = st.just("true") | conditions(side)
    when = f"WHEN {head} AND {draw(asked(side) | chosen if asks else chosen)}"
    number = asked_numbers(side) | numbers(side) if asks else numbers(side)
    if head == "NOT MATCHED":
        if draw(st.booleans()):
            return f"{when} THEN INSERT *", f"{when} THEN INSERT BY NAME"
        text = f"INSERT (v, id, n) VALUES ({draw(texts('s.'))}, s.id, {draw(number)})"
        return f"{when} THEN {text}", f"{when} THEN {text}"
    if draw(st.integers(0, 2)) == 0:
        return f"{when} THEN DELETE", f"{when} THEN DELETE"
    if head == "MATCHED" and draw(st.booleans()):
        # A star sets the key too; it is equal on both sides.
        return f"{when} THEN UPDATE SET *", f"{when} THEN UPDATE BY NAME"
    text = f"UPDATE SET n = {draw(number)}, v = {draw(texts(side))}"
    return f"{when} THEN {text}", f"{when} THEN {text}"


@st.composite
def merges(draw: st.DrawFn) -> Step:
    source = f"(SELECT * FROM ({draw(values())}) AS x(id, n, v, r)) AS s"
    asks = draw(st.booleans())
    on = "t.id = s.id"
    heads: Sequence[str] = HEADS
    if asks and draw(st.booleans()):
        # A row of the source may have the key of a row that it does not match: it is not inserted.
        on, heads = f"{on} AND {draw(asked('t.') | asked('s.'))}", HEADS[:2]
    pairs = draw(st.lists(clauses(asks=asks, heads=heads), min_size=1, max_size=4))
    start = f"MERGE INTO t USING {source} ON {on} "
    ours, theirs = zip(*pairs, strict=True)
    return Step("merge", start + " ".join(ours), start + " ".join(theirs))


STEPS = st.lists(
    st.one_of(inserts(), inserts(), updates(), deletes(), merges(), merges()),
    min_size=1,
    max_size=3,
)


def apply(model: duckdb.DuckDBPyConnection, step: Step, *, keyed: bool) -> None:
    """Do a step on DuckDB's table; a keyed table replaces rows of the same id."""
    if step.verb not in {"insert", "overwrite"}:
        model.execute(step.model)
        return
    model.execute(f"CREATE OR REPLACE TEMP TABLE new AS {step.model}")
    if step.verb == "overwrite":
        model.execute("DELETE FROM t")
    elif keyed:
        model.execute("DELETE FROM t WHERE id IN (SELECT #1 FROM new)")
    model.execute("INSERT INTO t FROM new")


def shown(rows: Sequence[tuple[object, ...]]) -> list[str]:
    return sorted(map(repr, rows))


@given(steps=STEPS, keyed=st.booleans(), first=values())
def test_statements_leave_the_rows_that_duckdb_leaves(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], first: str, *, keyed: bool
) -> None:
    catalog = lc.connect(tmp_path_factory.mktemp("sql"), create=True)
    catalog.sql("CREATE DATABASE `default`")
    key = ", PRIMARY KEY (id) NOT ENFORCED" if keyed else ""
    catalog.sql(f"CREATE TABLE t ({COLUMNS}{key}) WITH ('bucket' = '{1 if keyed else -1}')")
    start = Step("insert", f"INSERT INTO t {first}", f"SELECT * FROM ({first})")
    others = "(1, 1), (2, NULL), (3, 2), (5, -3)"
    catalog.sql(f"CREATE TABLE u (id INT, n INT); INSERT INTO u VALUES {others}")
    with duckdb.connect() as model:
        model.execute(f"CREATE TABLE t ({MODEL})")
        model.execute(f"CREATE TABLE u (id INT, n INT); INSERT INTO u VALUES {others}")
        for step in [start, *steps]:
            note(step.text)
            apply(model, step, keyed=keyed)
            catalog.sql(step.text)
            found = catalog.sql("SELECT * FROM t").fetchall()
            assert shown(found) == shown(model.execute("FROM t").fetchall()), step.text
