"""Views of scanned tables: which states a session tells apart, and how long a view lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest

import lakecore as lc
from lakecore.memory import Share
from lakecore.sql import native_views
from lakecore.sql.queries import Queries
from lakecore.table.splits import survivors

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.sql.references import Reference
    from lakecore.sql.statement_views import Noted, TableView
    from lakecore.table.handle import Table


@pytest.fixture
def catalog(tmp_path: Path) -> lc.Session:
    """A session whose current database is `shop`."""
    survivors.forget()
    session = lc.connect(tmp_path, create=True)
    session.create_database("shop")
    session.sql("USE shop")
    return session


def overlapping(catalog: lc.Session) -> Table:
    """A table whose key 1 is older in the last level than in level 0."""
    table = catalog.create_table(
        "shop.t",
        {"id": "INT NOT NULL", "s": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true"},
    )
    table.write([{"id": key, "s": "old"} for key in (1, 2)])
    table.copy({"write-only": "false"}).compact(full=True)
    table.write([{"id": 1, "s": "new"}])
    return table


@pytest.mark.parametrize("first", ["t", "t$ro"])
def test_the_last_level_alone_is_another_state(catalog: lc.Session, first: str) -> None:
    overlapping(catalog)
    catalog.sql(f"FROM {first}")

    assert sorted(catalog.sql("FROM t").fetchall()) == [(1, "new"), (2, "old")]
    assert sorted(catalog.sql("FROM t$ro").fetchall()) == [(1, "old"), (2, "old")]


def test_row_ids_are_columns_of_another_view(catalog: lc.Session) -> None:
    options = {"row-tracking.enabled": "true", "lakecore.verify-checksums": "false"}
    table = catalog.create_table("shop.a", {"v": "INT"}, options=options)
    table.write([{"v": 7}])

    assert catalog.sql("FROM a").fetchall() == [(7,)]
    assert catalog.sql("SELECT v, _ROW_ID FROM a$row_tracking").fetchall() == [(7, 0)]


def test_cached_footers_have_a_limit(catalog: lc.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'OBJECT_CACHE'"
    monkeypatch.setattr(native_views, "_FOOTERS_EVERY", 1)
    monkeypatch.setattr(Share.FOOTERS, "under", 1 << 40)
    table = overlapping(catalog)
    sizes = []
    for _ in range(4):
        table.write([{"id": 1, "s": "x"}])
        assert catalog.sql("SELECT count(*) FROM t WHERE s = 'x'").fetchall() == [(1,)]
        sizes += catalog.sql(cached).fetchall()

    # DuckDB still notes each file, in some hundred bytes.
    assert sizes[-1][0] - sizes[0][0] < 3 * 1000


def test_a_statement_keeps_the_views_of_its_own_tables(
    catalog: lc.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_views, "_VIEWS_MAX", 2)
    overlapping(catalog)
    catalog.sql("INSERT INTO t VALUES (1, 'newest')")
    ids = (1, 2, 3, 4)
    text = " UNION ALL ".join(f"SELECT max(s) FROM t VERSION AS OF {each}" for each in ids)
    for _ in range(2):
        assert sorted(catalog.sql(text).fetchall()) == [("old",)] * 4


def test_a_setting_of_duckdb_is_seen_by_the_next_statement(catalog: lc.Session) -> None:
    overlapping(catalog)
    kept = catalog.sql("FROM t")
    expected = sorted(kept.fetchall())
    catalog.sql("SET 'enable_external_access' = 'false'")

    assert sorted(catalog.sql("FROM t").fetchall()) == expected
    catalog.sql("SET 'TimeZone' = 'UTC'")
    assert catalog.sql("SELECT count(*) FROM t").fetchall() == [(2,)]


def test_binary_values_are_no_text(catalog: lc.Session) -> None:
    connection = duckdb.connect()
    connection.execute("SET binary_as_string = true")
    catalog.sql("SET 'binary_as_string' = 'true'")
    table = catalog.create_table("shop.a", {"v": "BYTES"})
    table.write([{"v": b"text"}])

    assert catalog.sql("FROM a").fetchall() == [(b"text",)]
    assert table.to_duckdb(connection).fetchall() == [(b"text",)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.s, b.s FROM t a JOIN shop.t b USING (id) WHERE id = 1",
        "SELECT a.s, b.s FROM paimon.shop.t a JOIN t b USING (id) WHERE id = 1",
        "SELECT s, s FROM shop.t WHERE s IN (SELECT s FROM t) AND id = 1",
    ],
)
def test_a_table_with_two_names_is_read_at_one_snapshot(
    catalog: lc.Session, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    table = overlapping(catalog)
    table_view = Queries.table_view

    def disturbed(queries: Queries, reference: Reference, noted: Noted | None) -> TableView | None:
        found = table_view(queries, reference, noted)
        table.write([{"id": 1, "s": "newest"}])
        return found

    monkeypatch.setattr(Queries, "table_view", disturbed)

    assert catalog.sql(text).fetchall() == [("new", "new")]


def test_a_name_of_the_session_is_not_the_table_of_that_name(catalog: lc.Session) -> None:
    overlapping(catalog)
    catalog.sql("CREATE TEMPORARY VIEW t AS SELECT 7 AS n")

    assert catalog.sql("SELECT max(n), max(s) FROM shop.t, t").fetchall() == [(7, "old")]
    assert catalog.sql("SELECT max(n), max(s) FROM t, shop.t").fetchall() == [(7, "old")]
