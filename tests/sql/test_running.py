"""Queries while they run: EXPLAIN, results that stream, and interrupts."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import duckdb
import pytest

import lakecore as lc
from lakecore.table.reads.source import TableSource
from tests.versions import DUCKDB_1

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa


@pytest.fixture
def catalog(tmp_path: Path) -> lc.Session:
    """A catalog with a table of two overlapping runs."""
    session = lc.connect(tmp_path, create=True)
    session.sql("""
        CREATE DATABASE d; USE d;
        CREATE TABLE t (id BIGINT, v BIGINT, s STRING, PRIMARY KEY (id) NOT ENFORCED)
            WITH ('bucket' = '1', 'write-only' = 'true');
        INSERT INTO t SELECT range, range, 'x' FROM range(1000);
        INSERT INTO t SELECT range * 2, 1, 'it''s' FROM range(500)
    """)
    return session


def _plan(catalog: lc.Session, text: str) -> dict[str, str]:
    parts: dict[str, str] = dict(catalog.sql(f"EXPLAIN {text}").fetchall())
    return parts


def test_explain_shows_what_is_pushed_into_the_read_of_a_table(catalog: lc.Session) -> None:
    parts = _plan(catalog, "SELECT s FROM t WHERE id IN (1, 2) AND v > 7 AND s LIKE '%s'")
    assert list(parts) == ["physical_plan", "t"]
    ids, above = ("id>=1 AND id<=2", "v>7") if DUCKDB_1 else ('"id" IN (1, 2)', '"v" > 7')
    assert ids in parts["t"]
    assert above in parts["t"]
    assert "LIKE" not in parts["t"]
    assert "snapshot:  2" in parts["t"]
    assert "everything" in _plan(catalog, "SELECT a.v FROM t a JOIN t b USING (id)")["t"]


def test_explain_knows_system_tables_paths_and_past_states(catalog: lc.Session) -> None:
    assert "metadata" in _plan(catalog, "SELECT * FROM t$files")["t$files"]
    assert "snapshot:  1" in _plan(catalog, "SELECT * FROM t VERSION AS OF 1")["t"]
    path = catalog.get_table("d.t").path
    assert "snapshot:  2" in _plan(catalog, f"FROM '{path}'")[path]
    assert list(_plan(catalog, "SELECT 1")) == ["physical_plan"]


def test_a_result_is_read_as_far_as_it_is_asked_for(
    catalog: lc.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []
    batches = TableSource.batches

    def counted(self: TableSource, *arguments: object) -> Iterator[pa.RecordBatch]:
        for batch in batches(self, *arguments):  # type: ignore[arg-type]
            for row in range(batch.num_rows):
                given.append(row)
                yield batch.slice(row, 1)

    monkeypatch.setattr(TableSource, "batches", counted)
    with catalog.sql("SELECT id FROM t").to_arrow_reader(1) as reader:
        assert reader.read_next_batch().num_rows >= 1
    assert catalog.sql("SELECT id FROM t LIMIT 1").fetchall()
    assert len(given) < 2000


def test_an_interrupt_ends_a_statement_that_writes_and_leaves_the_table(
    catalog: lc.Session,
) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        catalog.sql("INSERT INTO t SELECT range, 1, 'new' FROM range(2000, 100000000000)")
    timer.join()
    rows = catalog.sql("SELECT count(*), (SELECT max(snapshot_id) FROM t$snapshots) FROM t")
    assert rows.fetchall() == [(1000, 2)]


@pytest.mark.parametrize(
    ("query", "from_metadata"),
    [
        ("SELECT count(*) FROM t", True),
        ("SELECT count(*) AS n, count() FROM t AS x", True),
        ("SELECT count(*) FROM t WHERE id < 10", False),
        ("SELECT count(*) FILTER (id < 10) FROM t", False),
        ("SELECT count(*), count(id) FROM t", False),
        ("SELECT count(*) FROM t GROUP BY id % 2 ORDER BY 1", False),
        ("SELECT count(*) FROM t TABLESAMPLE reservoir(7 ROWS)", False),
        ("SELECT count(*) FROM t, t AS u WHERE t.id = u.id", False),
        ("WITH x AS (SELECT id FROM t LIMIT 5) SELECT count(*) FROM x", False),
    ],
)
def test_only_a_query_that_counts_all_rows_reads_none(
    catalog: lc.Session, query: str, *, from_metadata: bool
) -> None:
    table = catalog.get_table("d.t")
    table.compact(full=True)
    rows = duckdb.connect()
    rows.register("t", table.to_arrow())
    relation = catalog.sql(query)

    assert relation.fetchall() == rows.sql(query).fetchall()
    assert relation.columns == rows.sql(query).columns
    assert ("RANGE" in relation.explain()) is from_metadata
