"""What `sql` returns: a relation whose errors are lakecore's."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.sql import native_views
from lakecore.sql.python_objects import SqlRelation

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def catalog(tmp_path: Path) -> lc.Session:
    session = lc.connect(tmp_path, create=True)
    session.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id INT, v STRING)")
    session.sql("INSERT INTO shop.t VALUES (1, 'a'), (2, 'b')")
    return session


def test_a_relation_has_the_methods_of_duckdbs(catalog: lc.Session) -> None:
    found = catalog.sql("SELECT * FROM shop.t ORDER BY id")

    assert type(found).__name__ == SqlRelation.__name__
    assert found.columns == ["id", "v"]
    assert found.filter("id > 1").union(found.limit(1)).order("id").fetchall() == [
        (1, "a"),
        (2, "b"),
    ]
    assert len(found) == 2
    assert "id" in found
    assert found["v"].fetchall() == [("a",), ("b",)]
    assert "varchar" in repr(found)
    assert str(found) == repr(found)
    assert "fetchall" in dir(found)
    assert found.pl().height == 2
    assert pa.table(found).num_rows == pl.DataFrame(found).height == 2
    assert duckdb.from_arrow(found).fetchall() == [(1, "a"), (2, "b")]
    assert found.to_arrow_reader().read_all().num_rows == 2
    assert isinstance(found.relation, duckdb.DuckDBPyRelation)
    assert copy.copy(found).fetchall() == [(1, "a"), (2, "b")]
    with pytest.raises(AttributeError):
        found.nope  # noqa: B018  the attribute is not there


def test_a_relation_is_read_by_its_name_and_written(catalog: lc.Session) -> None:
    found = catalog.sql("SELECT id + 2 AS id, v FROM shop.t")
    assert catalog.sql("SELECT count(*) FROM found").fetchall() == [(2,)]
    catalog.get_table("shop.t").write(found)
    assert catalog.sql("SELECT sum(id) FROM shop.t").fetchall() == [(10,)]


def test_infinity_in_a_relation_is_not_written(catalog: lc.Session) -> None:
    catalog.sql("CREATE TABLE shop.days (d DATE)")
    with pytest.raises(lc.InvalidRequest, match="a DATE cannot be infinite"):
        catalog.get_table("shop.days").write(catalog.sql("SELECT DATE 'infinity' AS d"))


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id) NOT ENFORCED"])
def test_the_rows_of_a_dropped_table_are_not_found(catalog: lc.Session, key: str) -> None:
    catalog.sql(f"CREATE TABLE shop.gone (id INT, v INT{key})")
    catalog.sql("INSERT INTO shop.gone VALUES (1, 1)")
    catalog.sql("INSERT INTO shop.gone VALUES (1, 2)")
    found = catalog.sql("SELECT v FROM shop.gone")
    catalog.sql("DROP TABLE shop.gone")

    for read in (found.fetchall, found.pl, found.to_arrow_table, lambda: pa.table(found)):
        with pytest.raises(lc.NotFound, match="run the statement again"):
            read()


def test_a_state_that_the_session_has_dropped_is_not_found(
    catalog: lc.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_views, "_VIEWS_MAX", 1)
    found = catalog.sql("SELECT v FROM shop.t")
    for _ in range(3):
        catalog.sql("INSERT INTO shop.t VALUES (3, 'c')")
        catalog.sql("SELECT v FROM shop.t")

    with pytest.raises(lc.NotFound, match="no longer keeps the state"):
        found.fetchall()


def test_no_error_shows_the_name_of_a_view(catalog: lc.Session) -> None:
    for query in ("SELECT * FROM shop.t WHERE v = 1", "SELECT id FROM shop.t UNION SELECT [id] x"):
        with pytest.raises(lc.InvalidRequest) as caught:
            catalog.sql(query).fetchall()
        assert "_lakecore" not in str(caught.value)
