"""The tables of a catalog as views in a DuckDB connection, and what is fresh when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.table.reads.source import TableSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakecore.plan.predicate import Predicate


@pytest.fixture
def catalog(tmp_path: Path) -> lc.Session:
    """A catalog with one table of two rows."""
    session = lc.connect(tmp_path / "warehouse", create=True)
    session.create_database("shop")
    session.create_table(
        "shop.orders", data=pa.table({"id": [1, 2], "item": ["tea", "rum"]}), primary_keys=["id"]
    )
    return session


@pytest.fixture
def connection() -> duckdb.DuckDBPyConnection:
    """A connection of the user."""
    return duckdb.connect()


ALL = "FROM paimon.shop.orders ORDER BY id"


def test_each_scan_reads_the_latest_snapshot(
    catalog: lc.Session, connection: duckdb.DuckDBPyConnection
) -> None:
    attached = catalog.attach(connection)
    assert attached.tables == ("shop.orders",)
    assert connection.sql(ALL).fetchall() == [(1, "tea"), (2, "rum")]
    catalog.get_table("shop.orders").write({"id": [2, 3], "item": ["ale", None]})

    assert connection.sql(ALL).fetchall() == [(1, "tea"), (2, "ale"), (3, None)]
    assert connection.cursor().execute(ALL).fetchall()[1] == (2, "ale")


def test_columns_follow_with_refresh_and_never_show_another_column(
    catalog: lc.Session, connection: duckdb.DuckDBPyConnection
) -> None:
    attached = catalog.attach(connection)
    catalog.alter_table("shop.orders", [lc.SchemaChange.add_column("note", "STRING")])
    assert connection.sql(ALL).columns == ["id", "item"]
    assert attached.refresh() is attached
    assert connection.sql(ALL).columns == ["id", "item", "note"]
    # The name `item` is now that of another column.
    catalog.alter_table(
        "shop.orders",
        [
            lc.SchemaChange.rename_column("item", "kind"),
            lc.SchemaChange.rename_column("note", "item"),
        ],
    )
    with pytest.raises(duckdb.Error, match=r"refresh\(\)"):
        connection.sql(ALL).fetchall()
    attached.refresh()

    assert connection.sql("SELECT kind, item FROM paimon.shop.orders LIMIT 1").fetchall() == [
        ("tea", None)
    ]


def test_names_follow_with_refresh(
    catalog: lc.Session, connection: duckdb.DuckDBPyConnection
) -> None:
    attached = catalog.attach(connection)
    catalog.create_database("default")
    catalog.create_table("default.new", {"n": "INT"}).write({"n": [7]})
    catalog.drop_table("shop.orders")
    with pytest.raises(duckdb.Error, match="no such table"):
        connection.sql(ALL).fetchall()
    attached.refresh()

    assert attached.tables == ("default.new",)
    assert connection.sql('FROM paimon."default".new').fetchall() == [(7,)]
    with pytest.raises(duckdb.CatalogException):
        connection.sql(ALL)
    connection.execute("USE paimon")
    attached.refresh()
    assert connection.sql('FROM "default".new').fetchall() == [(7,)]


def test_a_refresh_of_one_table_leaves_the_other_views(
    catalog: lc.Session, connection: duckdb.DuckDBPyConnection
) -> None:
    attached = catalog.attach(connection, ["shop"])
    before = attached.tables
    for name in ("shop.one", "shop.two", "shop.ORDERS"):
        catalog.create_table(name, {"n": "INT"})
    catalog.create_database("far")
    catalog.create_table("far.t", {"n": "INT"})

    assert set(attached.refresh("shop.one").tables) == {*before, "shop.one"}
    attached.refresh("shop.ORDERS").refresh("far.t")
    assert attached.left_out == {"shop.ORDERS": "DuckDB does not distinguish it from shop.orders"}
    catalog.drop_table("shop.one")
    catalog.drop_table("shop.orders")
    assert attached.refresh("shop.one").tables == before
    catalog.alter_table("shop.ORDERS", [lc.SchemaChange.add_column("new", "INT")])
    attached.refresh("shop.orders").refresh("shop.ORDERS")
    assert connection.sql("FROM paimon.shop.orders").columns == ["n", "new"]


def test_nothing_is_stored_in_the_file_of_the_user(catalog: lc.Session, tmp_path: Path) -> None:
    file = tmp_path / "own.db"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE TABLE own AS SELECT 1 AS id")
        catalog.attach(connection)
        joined = connection.sql("SELECT item FROM own JOIN paimon.shop.orders USING (id)")
        assert joined.fetchall() == [("tea",)]
    with duckdb.connect(str(file)) as connection:
        views = connection.sql("SELECT view_name FROM duckdb_views() WHERE NOT internal")
        assert views.fetchall() == []
    with duckdb.connect(str(file), read_only=True) as connection:
        catalog.attach(connection)
        assert len(connection.sql(ALL).fetchall()) == 2


def test_names_that_duckdb_does_not_distinguish_are_left_out(
    catalog: lc.Session, connection: duckdb.DuckDBPyConnection
) -> None:
    catalog.create_table("shop.Orders", {"n": "INT"})
    catalog.create_table('shop.a"; DROP VIEW x', {"n": "INT"}).write({"n": [5]})
    attached = catalog.attach(connection)
    assert list(attached.left_out) == ["shop.orders"]
    assert 'shop.a"; DROP VIEW x' in attached.tables
    assert connection.sql('FROM paimon.shop."a""; DROP VIEW x"').fetchall() == [(5,)]


def test_what_is_wrong_is_said(catalog: lc.Session, connection: duckdb.DuckDBPyConnection) -> None:
    attached = catalog.attach(connection, ["shop"], name="lake")
    assert connection.sql("SELECT count(*) FROM lake.shop.orders").fetchall() == [(2,)]
    with pytest.raises(lc.AlreadyExists, match="name="):
        catalog.attach(connection, name="LAKE")
    with pytest.raises(lc.NotFound):
        catalog.attach(connection, ["nowhere"])
    assert connection.sql("SHOW DATABASES").fetchall() == [("lake",), ("memory",)]
    with pytest.raises(lc.InvalidRequest, match="DuckDB connection"):
        catalog.attach("connection")  # type: ignore[arg-type]
    attached.detach()
    with pytest.raises(lc.InvalidRequest, match="attach the catalog again"):
        attached.refresh()
    with pytest.raises(duckdb.Error):
        connection.sql("FROM lake.shop.orders")


def test_columns_and_filters_are_pushed_into_each_face(
    catalog: lc.Session, connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = catalog.get_table("shop.orders")
    orders.write({"id": [2], "item": ["ale"]})  # a second run: the rows are merged by lakecore
    asked: list[tuple[set[str], str]] = []
    batches = TableSource.batches

    def noted(
        source: TableSource,
        columns: Sequence[str],
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        asked.append((set(columns), str(predicate)))
        return batches(source, columns, predicate, limit)

    monkeypatch.setattr(TableSource, "batches", noted)
    catalog.attach(connection)
    dataset = orders.to_arrow_dataset()
    assert dataset is not None
    for rows in (
        connection.sql("SELECT item FROM paimon.shop.orders WHERE id = 2"),
        connection.sql("SELECT item FROM dataset WHERE id = 2"),
        catalog.sql("SELECT item FROM shop.orders WHERE id = 2"),
        lc.sql("SELECT item FROM orders WHERE id = 2"),
    ):
        asked.clear()
        assert rows.fetchall() == [("ale",)]
        ((columns, predicate),) = asked
        assert columns == {"item", "id"}
        assert "id" in predicate
    # DuckDB takes an object that it finds by name as a stream: right rows, nothing pushed down.
    found = duckdb.sql("SELECT item FROM orders WHERE id = 2")
    assert found is not None
    assert found.fetchall() == [("ale",)]


def test_comments_are_those_of_the_table(
    catalog: lc.Session, connection: duckdb.DuckDBPyConnection
) -> None:
    change = lc.SchemaChange
    about = [change.update_comment('it\'s "new"'), change.update_column_comment("item", "a\n--b")]
    catalog.alter_table("shop.orders", about)
    attached = catalog.attach(connection)

    def shown() -> list[tuple[object, ...]]:
        views = "SELECT comment FROM duckdb_views() WHERE database_name = 'paimon' UNION ALL "
        columns = "SELECT comment FROM duckdb_columns() WHERE database_name = 'paimon'"
        return connection.sql(views + columns).fetchall()

    assert shown() == [('it\'s "new"',), (None,), ("a\n--b",)]
    catalog.alter_table("shop.orders", [change.update_column_comment("id", "c"), about[0]])
    catalog.alter_table("shop.orders", [change.update_comment(None)])
    attached.refresh()
    assert shown() == [(None,), ("c",), ("a\n--b",)]
