"""Queries that follow their tables, and that end by LIMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.session import sql_engine
from lakecore.sql import rewrite

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def session(tmp_path: Path) -> lc.Session:
    found = lc.connect(tmp_path / "w", create=True)
    found.sql("CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, v INT)")
    found.sql(
        "CREATE TEMPORARY VIEW sums AS SELECT v % 2 AS odd, sum(v)::INT AS s FROM t GROUP BY 1"
    )
    found.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    found.sql("SET 'execution.runtime-mode' = 'streaming'")
    found.sql("SET 'continuous.discovery-interval' = '1 ms'")
    return found


def test_changes_of_any_query_are_found(session: lc.Session) -> None:
    found = sql_engine(session).changes("SELECT odd, s, s AS twice FROM sums")
    assert found is not None
    table = session.get_table("default.t")

    def step() -> list[tuple[object, ...]]:
        return sorted(tuple(row.values()) for row in next(found).to_pylist())

    assert step() == [("+I", 0, 2, 2), ("+I", 1, 4, 4)]
    table.write([{"id": 4, "v": 10}])
    assert step() == [("+I", 0, 12, 12), ("-D", 0, 2, 2)]
    table.delete("id IN (1, 3)")
    assert step() == [("-D", 1, 4, 4)]
    table.compact(full=True)
    table.write([{"id": 9, "v": 1}, {"id": 8, "v": 0}])
    assert step() == [("+I", 1, 1, 1)]


def test_equal_rows_are_counted(session: lc.Session) -> None:
    found = sql_engine(session).changes("SELECT 1 AS one FROM t")
    assert found is not None
    table = session.get_table("default.t")

    assert next(found).num_rows == 3
    table.write([{"id": 7}])
    assert next(found).to_pylist() == [{"_row_kind": "+I", "one": 1}]


def test_limit_ends_a_query(session: lc.Session) -> None:
    rows = session.sql("SELECT v FROM t WHERE v IN (SELECT v FROM t LIMIT 9) LIMIT 3").fetchall()

    assert sorted(rows) == [("+I", 1), ("+I", 2), ("+I", 3)]
    with pytest.raises(InvalidRequest, match="a streaming query has no end"):
        session.sql("SELECT v FROM t")
    with pytest.raises(Unsupported, match="LIMIT and a whole number"):
        session.sql("SELECT v FROM t LIMIT 3 OFFSET 1")
    with pytest.raises(InvalidRequest, match="a streaming query names its kinds of rows"):
        session.sql("SELECT v AS _row_kind FROM t LIMIT 3")


def test_a_query_without_tables_ends(session: lc.Session) -> None:
    found = sql_engine(session).changes("SELECT 5 AS five")
    assert found is not None

    assert [each.to_pylist() for each in found] == [[{"_row_kind": "+I", "five": 5}]]


def test_other_statements_and_batch_queries_do_not_follow(session: lc.Session) -> None:
    engine = sql_engine(session)

    assert engine.changes("SHOW TABLES") is None
    session.sql("RESET 'execution.runtime-mode'")
    assert engine.changes("SELECT 1") is None
    assert len(session.sql("SELECT v FROM t").fetchall()) == 3


def test_an_interrupt_while_a_step_is_parsed_is_no_error_of_duckdb(
    session: lc.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sql_engine(session).changes("SELECT v FROM t")
    assert found is not None
    next(found)

    def interrupted(*_: object) -> None:
        raise RuntimeError("Query interrupted")  # what DuckDB raises after Ctrl-C

    monkeypatch.setattr(rewrite, "syntax_tree", interrupted)
    session.get_table("default.t").write([{"id": 4, "v": 10}])
    with pytest.raises(KeyboardInterrupt):
        next(found)
