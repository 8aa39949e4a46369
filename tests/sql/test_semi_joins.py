"""`column IN (SELECT ...)`: the same rows as DuckDB, and values that reach the scan as a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.sql import semi_joins
from lakecore.table.reads.source import TableSource
from tests.versions import DUCKDB_1

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakecore.plan.predicate import Predicate

T = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5, 6], pa.int64()),
        "k": pa.array([10, 20, None, 40, 10, -5], pa.int32()),
        "s": ["a", "b", "it's", None, "a", "é"],
        "d": pa.array([0, 1, 2, None, 4, 5], pa.date32()),
        "f": [0.0, -0.0, float("nan"), 1.5, None, 2.0],
    }
)
S = pa.table(
    {
        "id": pa.array([1, 3, 5, 9], pa.int64()),
        "k": pa.array([10, None, 40, 7], pa.int64()),
        "s": ["it's", None, "é", "zz"],
        "d": pa.array([2, None, 5, 5], pa.date32()),
        "f": [float("nan"), 0.0, None, 7.0],
    }
)
QUERIES = [
    "SELECT id FROM t WHERE id IN (SELECT id FROM s)",
    "SELECT id FROM t WHERE t.k IN (SELECT k FROM s) AND id < 5",
    "SELECT id FROM t WHERE s IN (SELECT s FROM s)",
    "SELECT id FROM t WHERE d IN (SELECT d FROM s)",
    "SELECT id FROM t WHERE f IN (SELECT f FROM s)",
    "SELECT id FROM t WHERE id IN (SELECT id FROM s WHERE false)",
    "SELECT id FROM t WHERE id NOT IN (SELECT id FROM s)",
    "SELECT id FROM t WHERE k NOT IN (SELECT k FROM s)",
    "SELECT id FROM t WHERE NOT (id IN (SELECT id FROM s))",
    "SELECT id FROM t WHERE id IN (SELECT id FROM s) OR k = 20",
    "SELECT id, k IN (SELECT k FROM s) FROM t",
    "SELECT id FROM t AS x WHERE x.id IN (SELECT id FROM s WHERE s.id = x.id)",
    "SELECT id FROM t AS x WHERE id IN (SELECT s.id FROM shop.s WHERE shop.s.k = k AND x.k = 10)",
    "SELECT id FROM t WHERE id IN (SELECT id FROM t AS y WHERE y.k IN (SELECT k FROM s))",
    "SELECT t.id FROM t JOIN s USING (id) WHERE id IN (SELECT id FROM s WHERE id > 1)",
    "SELECT t.id, s.k FROM t LEFT JOIN s ON t.id = s.id WHERE s.k IN (SELECT k FROM s)",
    "SELECT t.id FROM t, s WHERE t.id = s.id AND t.k IN (SELECT k FROM t WHERE id = 5)",
    "WITH s AS (SELECT 2 AS id) SELECT id FROM t WHERE id IN (SELECT id FROM s)",
    "WITH c AS (FROM s) SELECT id FROM t WHERE id IN (SELECT id FROM c) AND k IN (SELECT k FROM s)",
    "SELECT id FROM t WHERE id IN (WITH s AS (SELECT 2 AS id) SELECT id FROM s)",
    "SELECT id FROM t WHERE id IN (VALUES (1), (NULL), (6))",
    "SELECT id FROM t WHERE id IN (SELECT count(*) FROM s) -- all",
    "SELECT id FROM (FROM t WHERE id IN (SELECT id FROM s)) WHERE k IN (SELECT k FROM s)",
    "SELECT id FROM t WHERE id IN (SELECT k FROM s UNION SELECT id + 1 FROM s) AND k IS NOT NULL",
    "SELECT id FROM t WHERE (id, k) IN (SELECT (id, k) FROM s)",
    "SELECT id FROM t WHERE id IN (SELECT id FROM s WHERE s.s IN (SELECT 'it''s'))",
    "SELECT id FROM t WHERE id IN (SELECT id FROM s ORDER BY id DESC LIMIT 2)",
    "SELECT id FROM t WHERE id > ANY (SELECT id FROM s)",
    "SELECT shop.t.k FROM t WHERE shop.t.id IN (SELECT shop.s.id FROM s)",
    "SELECT id FROM shop.t WHERE shop.t.id IN (SELECT shop.s.id FROM shop.s)",
]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[lc.Session, duckdb.DuckDBPyConnection]:
    """The same tables in lakecore, where `t` is merged, and in DuckDB."""
    catalog = lc.connect(tmp_path_factory.mktemp("semi"), create=True)
    catalog.create_database("shop")
    for name, rows in (("t", T), ("s", S)):
        options = {"write-only": "true", "bucket": "1"}
        table = catalog.create_table(
            f"shop.{name}", rows.schema, primary_keys=["id"], options=options
        )
        table.write(rows.set_column(2, "s", pa.array(["old"] * rows.num_rows)))
        table.write(rows)
    catalog.sql("USE shop")
    plain = duckdb.connect()
    plain.execute("CREATE SCHEMA shop; USE shop")
    for name, rows in (("t", T), ("s", S)):
        plain.from_arrow(rows).create(name)
    return catalog, plain


def _rows(side: lc.Session | duckdb.DuckDBPyConnection, text: str) -> list[str]:
    return sorted(map(str, side.sql(text).fetchall()))


@pytest.mark.parametrize("listed_max", [None, 1000, 1, 0])
@pytest.mark.parametrize("text", QUERIES)
def test_the_rows_are_those_of_duckdb(
    sides: tuple[lc.Session, duckdb.DuckDBPyConnection],
    text: str,
    listed_max: int | None,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if listed_max is not None:  # otherwise DuckDB scans the files itself
        request.getfixturevalue("by_lakecore")
        monkeypatch.setattr(semi_joins, "LISTED_MAX", listed_max)
    catalog, plain = sides
    expected = _rows(plain, text)
    assert _rows(catalog, text) == expected


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, by_lakecore: None) -> list[str]:
    """The predicates of the scans that a test makes."""
    del by_lakecore
    found: list[str] = []
    batches = TableSource.batches

    def noted(
        source: TableSource,
        columns: Sequence[str],
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        found.append(str(predicate))
        return batches(source, columns, predicate, limit)

    monkeypatch.setattr(TableSource, "batches", noted)
    return found


def test_values_reach_the_scan_as_a_list_or_as_a_range(
    sides: tuple[lc.Session, duckdb.DuckDBPyConnection],
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog, _ = sides
    text = "SELECT s FROM t WHERE id IN (SELECT id FROM s WHERE id < 5)"
    assert sorted(catalog.sql(text).fetchall()) == [("a",), ("it's",)]
    assert "'id'" in asked[-1]
    assert "3" in asked[-1]
    monkeypatch.setattr(semi_joins, "LISTED_MAX", 1)
    assert len(_rows(catalog, text)) == 2
    assert "'id'" in asked[-1]
    monkeypatch.setattr(semi_joins, "ROWS_MAX", 1)
    assert len(_rows(catalog, text)) == 2
    assert asked[-1] == "None" or DUCKDB_1  # which filters the scan by the values of a join


def test_explain_runs_no_query(
    sides: tuple[lc.Session, duckdb.DuckDBPyConnection], asked: list[str]
) -> None:
    catalog, _ = sides
    catalog.sql("EXPLAIN SELECT s FROM t WHERE id IN (SELECT id FROM s)").fetchall()
    assert asked == []


def test_a_statement_reads_a_table_at_one_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = lc.connect(tmp_path, create=True)
    catalog.create_database("d")
    table = catalog.create_table("d.t", {"n": "INT"})
    table.write({"n": [1]})
    to_duckdb = lc.Table.to_duckdb

    def disturbed(
        self: lc.Table, connection: duckdb.DuckDBPyConnection, **travel: object
    ) -> object:
        relation = to_duckdb(self, connection, **travel)  # type: ignore[arg-type]
        table.write({"n": [1]})
        return relation

    monkeypatch.setattr(lc.Table, "to_duckdb", disturbed)
    rows = catalog.sql("SELECT (SELECT count(*) FROM d.t), (SELECT count(*) FROM d.t AS x)")
    first, second = rows.fetchall()[0]
    assert first == second
