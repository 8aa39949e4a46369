"""A session of SQL between statements: what one that failed leaves for the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.io.stores.local import LocalStore
from tests.versions import DUCKDB_1

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def catalog(tmp_path: Path) -> lc.Session:
    """A catalog with a table of one row."""
    session = lc.connect(tmp_path, create=True)
    session.sql("CREATE DATABASE `default`")
    session.sql("CREATE TABLE t (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED)")
    session.sql("INSERT INTO t VALUES (1, 1)")
    return session


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t VALUES (NULL, 1)",
        "INSERT OVERWRITE t VALUES (NULL, 1)",
        (
            "MERGE INTO t USING (SELECT NULL::INT AS id, 2 AS v) AS s ON t.id = s.id"
            " WHEN NOT MATCHED THEN INSERT *"
        ),
        "CREATE TABLE failed WITH ('primary-key' = 'id') AS SELECT NULL::INT AS id",
    ],
)
def test_a_failed_statement_whose_error_is_kept_leaves_the_session_free(
    catalog: lc.Session, statement: str
) -> None:
    # The traceback of a kept error holds the frames, and with them the rows of the query.
    with pytest.raises(lc.LakecoreError, match="NOT NULL") as kept:
        catalog.sql(statement)
    assert catalog.sql("SELECT count(*) FROM t").fetchall() == [(1,)]
    assert catalog.sql("SELECT max(snapshot_id) FROM t$snapshots").fetchall() == [(1,)]
    assert kept.value is not None


def test_a_syntax_error_in_a_later_statement_runs_none(catalog: lc.Session) -> None:
    with pytest.raises(lc.InvalidRequest, match="expected"):
        catalog.sql("DELETE FROM t; DELETE t")
    assert catalog.sql("SELECT count(*) FROM t").fetchall() == [(1,)]


def test_settings_of_duckdb_are_names_not_statements(catalog: lc.Session) -> None:
    for text in (
        "SET 'threads = 1; CREATE TABLE evil (i INT); --' = '1'",
        "RESET 'threads; CREATE TABLE evil (i INT)'",
        "SET autoinstall_known_extensions = true",
        "SET autoload_known_extensions = true",
    ):
        with pytest.raises(lc.Unsupported, match="no setting of DuckDB"):
            catalog.sql(text)
    with pytest.raises(lc.NotFound):
        catalog.sql("SELECT * FROM evil")
    catalog.sql("SET threads = 1")
    found = catalog.sql("SELECT current_setting('threads')").fetchall()
    assert found == [(1,)]


def test_parameters_are_values(catalog: lc.Session) -> None:
    evil = "'); DROP TABLE t; --"
    assert catalog.sql("SELECT ? || v FROM t", [evil]).fetchall() == [(evil + "1",)]
    catalog.sql("INSERT INTO t VALUES ($id, $v)", {"id": 2, "v": 7})
    catalog.sql(
        "MERGE INTO t USING (SELECT ? AS id, ? AS v) AS s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *",
        [2, 8],
    )
    rows = catalog.sql("FROM t SELECT id, v WHERE id >= $least ORDER BY id", {"least": 0})
    assert rows.fetchall() == [(1, 1), (2, 8)]
    with pytest.raises(lc.InvalidRequest):
        catalog.sql("SELECT ? FROM t", [])
    with pytest.raises(lc.Unsupported, match="parameters"):
        catalog.sql("UPDATE t SET v = ?", [1])


def test_an_open_reader_is_named_as_what_is_in_the_way(catalog: lc.Session) -> None:
    reader = catalog.sql("SELECT * FROM range(1000000)").to_arrow_reader(10)
    if not DUCKDB_1:  # which lets the statement run
        with pytest.raises(lc.InvalidRequest, match="close their reader"):
            catalog.sql("SELECT 1")
    reader.close()
    assert catalog.sql("SELECT 1").fetchall() == [(1,)]


def test_statements_share_manifests_but_see_a_table_that_took_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = lc.connect(tmp_path, create=True)
    catalog.sql("CREATE TABLE t (id INT)")
    catalog.sql("INSERT INTO t VALUES (1)")
    assert catalog.sql("FROM t").fetchall() == [(1,)]
    read: list[str] = []
    before = LocalStore.read

    def noted(self: LocalStore, path: str) -> bytes:
        read.append(path)
        return before(self, path)

    monkeypatch.setattr(LocalStore, "read", noted)
    assert catalog.sql("FROM t").fetchall() == [(1,)]
    assert [path for path in read if "/manifest/" in path] == []

    other = lc.connect(tmp_path)
    other.sql("DROP TABLE t")
    other.sql("CREATE TABLE t (id INT, v STRING)")
    other.sql("INSERT INTO t VALUES (2, 'b')")
    assert catalog.sql("FROM t").fetchall() == [(2, "b")]
    other.sql("INSERT INTO t VALUES (3, 'c')")
    assert catalog.sql("SELECT id FROM t ORDER BY id").fetchall() == [(2,), (3,)]


def test_an_error_says_where_a_table_without_a_database_was_looked_for(tmp_path: Path) -> None:
    session = lc.connect(tmp_path)
    session.create_database("shop")

    with pytest.raises(lc.NotFound, match=r"write DATABASE\.TABLE, or USE .* databases=\[shop\]"):
        session.sql("SELECT * FROM people")
