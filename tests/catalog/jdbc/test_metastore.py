from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.catalog.identifier import Identifier
from lakecore.catalog.jdbc import metastore as sql
from lakecore.catalog.jdbc.database import Database
from lakecore.catalog.metastore_catalog import MetastoreNames
from lakecore.errors import (
    AlreadyExists,
    InvalidRequest,
    LakecoreError,
    NotFound,
    StorageError,
    Unsupported,
)
from lakecore.io.stores.store import MemoryStore
from lakecore.model.schema_change import SchemaChange
from property_tests.profile import calls_of
from tests.stores import FailingStore, StoreFailure, files_below

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.catalog.catalog import Catalog
    from lakecore.io.stores.store import Store
    from tests.catalog.jdbc.conftest import MakeJdbc


def names_of(catalog: Catalog) -> MetastoreNames:
    assert isinstance(catalog.names, MetastoreNames)
    return catalog.names


def query(root: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(root / "catalog.db")) as connection, connection:
        return connection.execute(statement).fetchall()


def properties(root: Path) -> dict[object, object]:
    return dict(query(root, f"SELECT property_key, property_value FROM {sql.TABLE_PROPERTIES}"))  # type: ignore[arg-type]


# --- what is in the database ----------------------------------------------------------------------


@pytest.mark.usefixtures("catalog")
def test_rows_are_those_that_java_writes(tmp_path: Path) -> None:
    assert query(tmp_path, f"SELECT * FROM {sql.TABLES}") == [("jdbc", "shop", "orders")]
    assert query(tmp_path, f"SELECT * FROM {sql.DATABASE_PROPERTIES} ORDER BY property_key") == [
        ("jdbc", "shop", "exists", "true"),
        ("jdbc", "shop", "location", f"{tmp_path}/w/shop.db"),
    ]
    assert properties(tmp_path) == {"primary-key": "id", "bucket-key": "id"}


def test_properties_follow_every_schema_change(catalog: Catalog, tmp_path: Path) -> None:
    catalog.alter_table("shop.orders", [SchemaChange.set_option("bucket", "-1")])
    catalog.alter_table("shop.orders", [SchemaChange.set_option("write-only", "true")])
    assert properties(tmp_path)["write-only"] == "true"

    catalog.alter_table("shop.orders", [SchemaChange.remove_option("write-only")])
    assert "write-only" not in properties(tmp_path)


def test_properties_are_not_copied_if_that_is_switched_off(
    make_catalog: MakeJdbc, tmp_path: Path
) -> None:
    catalog = make_catalog({"sync-all-properties": "false"})
    catalog.create_database("shop")
    catalog.create_table("shop.t", {"id": "INT"}, options={"write-only": "true"})
    catalog.alter_table("shop.t", [SchemaChange.set_option("write-only", "false")])

    assert properties(tmp_path) == {}


def test_branch_changes_no_properties(catalog: Catalog, tmp_path: Path) -> None:
    catalog.get_table("shop.orders").create_branch("b")
    before = properties(tmp_path)
    catalog.alter_table("shop.orders$branch_b", [SchemaChange.set_option("write-only", "true")])

    assert properties(tmp_path) == before
    assert catalog.get_table("shop.orders$branch_b").schema.options["write-only"] == "true"


def test_catalogs_with_other_keys_share_a_database(
    make_catalog: MakeJdbc, catalog: Catalog, tmp_path: Path
) -> None:
    other = make_catalog({"catalog-key": "other", "warehouse": str(tmp_path / "v")})
    assert other.list_databases() == ()

    other.create_database("shop")
    other.create_table("shop.orders", {"x": "INT"})
    other.drop_database("shop", cascade=True)
    assert catalog.get_table("shop.orders").schema.names == ("id", "v")


def test_renamed_table_takes_its_rows_along(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_database("old")
    catalog.rename_table("shop.orders", "old.o")

    assert query(tmp_path, f"SELECT * FROM {sql.TABLES}") == [("jdbc", "old", "o")]
    assert query(tmp_path, f"SELECT DISTINCT table_name FROM {sql.TABLE_PROPERTIES}") == [("o",)]
    assert (tmp_path / "w" / "old.db" / "o" / "schema" / "schema-0").exists()


def test_dropped_names_leave_no_rows(catalog: Catalog, tmp_path: Path) -> None:
    catalog.drop_database("shop", cascade=True)

    for table in sql.CREATE:
        assert query(tmp_path, f"SELECT * FROM {table}") == []
    assert not (tmp_path / "w" / "shop.db").exists()


def test_files_that_are_no_table_outlive_the_database(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "w" / "shop.db" / "notes.txt").write_text("keep")
    catalog.drop_database("shop", cascade=True)

    assert (tmp_path / "w" / "shop.db" / "notes.txt").read_text() == "keep"


def test_columns_that_other_versions_add_do_no_harm(catalog: Catalog, tmp_path: Path) -> None:
    for table in sql.CREATE:
        query(tmp_path, f"ALTER TABLE {table} ADD COLUMN more VARCHAR(10)")
    catalog.create_table("shop.t", {"id": "INT"})
    catalog.rename_table("shop.t", "shop.u")
    catalog.drop_table("shop.u")

    assert catalog.list_tables("shop") == ("orders",)


# --- views ----------------------------------------------------------------------------------------


def test_views_take_names_and_keep_a_database(catalog: Catalog, tmp_path: Path) -> None:
    query(tmp_path, f"INSERT INTO {sql.VIEWS} VALUES ('jdbc', 'shop', 'v', '{{}}')")
    with pytest.raises(AlreadyExists):
        catalog.create_table("shop.v", {"id": "INT"})
    with pytest.raises(AlreadyExists):
        catalog.rename_table("shop.orders", "shop.v")
    with pytest.raises(Unsupported, match="a view"):
        catalog.get_table("shop.v")
    assert catalog.list_tables("shop") == ("orders",)

    catalog.drop_table("shop.orders")
    with pytest.raises(InvalidRequest, match=r"others=\[v\]"):
        catalog.drop_database("shop")
    catalog.drop_database("shop", cascade=True)
    assert query(tmp_path, f"SELECT * FROM {sql.VIEWS}") == []


# --- what an interruption leaves, and repair ------------------------------------------------------


def test_table_that_is_not_listed_is_not_replaced_and_can_be_repaired(
    catalog: Catalog, tmp_path: Path
) -> None:
    catalog.get_table("shop.orders").write([{"id": 1, "v": "a"}])
    query(tmp_path, f"DELETE FROM {sql.TABLES}")
    query(tmp_path, f"DELETE FROM {sql.TABLE_PROPERTIES}")
    assert not catalog.table_exists("shop.orders")
    with pytest.raises(AlreadyExists, match="repair lists it"):
        catalog.create_table("shop.orders", {"x": "INT"})

    assert catalog.repair("shop.orders") == ("shop.orders",)
    assert catalog.get_table("shop.orders").to_arrow().num_rows == 1
    assert properties(tmp_path) == {"primary-key": "id", "bucket-key": "id"}


def test_repair_lists_what_another_catalog_made(make_catalog: MakeJdbc, tmp_path: Path) -> None:
    files = lc.connect(tmp_path / "w", create=True)
    for name in ("a", "b"):
        files.create_database(name)
        files.create_table(f"{name}.t", {"id": "INT"})
    catalog = make_catalog()

    assert catalog.repair("a") == ("a.t",)
    assert catalog.list_databases() == ("a",)
    assert catalog.repair() == ("a.t", "b.t")
    assert catalog.list_tables("b") == ("t",)
    with pytest.raises(NotFound, match="no directory of that database"):
        catalog.repair("c")
    with pytest.raises(NotFound, match="holds no table"):
        catalog.repair("a.x")


def test_procedure_repairs_by_name(catalog: Catalog, tmp_path: Path) -> None:
    query(tmp_path, f"DELETE FROM {sql.TABLES}")
    session = lc.Session(catalog)
    assert session.sql("CALL sys.repair('shop.orders')").fetchall() == [("Success",)]

    assert session.list_tables("shop") == ("orders",)


def test_entry_without_files_says_so_and_can_be_dropped(catalog: Catalog, tmp_path: Path) -> None:
    query(tmp_path, f"INSERT INTO {sql.TABLES} VALUES ('jdbc', 'shop', 'gone')")
    with pytest.raises(NotFound, match="its directory holds none"):
        catalog.get_table("shop.gone")
    with pytest.raises(NotFound, match="its directory holds none"):
        catalog.rename_table("shop.gone", "shop.back")

    catalog.drop_table("shop.gone")
    assert catalog.list_tables("shop") == ("orders",)


def test_handle_of_a_dropped_table_does_not_write_into_the_one_that_follows(
    catalog: Catalog,
) -> None:
    old = catalog.get_table("shop.orders")
    catalog.drop_table("shop.orders")
    catalog.create_table("shop.orders", {"id": "BIGINT NOT NULL", "n": "INT"}, primary_keys=["id"])

    with pytest.raises(NotFound, match="another was made in its place"):
        old.write([{"id": 1, "v": "a"}])
    assert catalog.get_table("shop.orders").to_arrow().num_rows == 0


def test_directory_that_cannot_be_moved_leaves_the_name(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise StorageError("no", path=source, target=target)

    with monkeypatch.context() as patch:
        patch.setattr(names_of(catalog).store, "rename_directory", refuse)
        with pytest.raises(StorageError):
            catalog.rename_table("shop.orders", "shop.o")

    assert catalog.list_tables("shop") == ("orders",)
    assert properties(tmp_path)["primary-key"] == "id"
    catalog.rename_table("shop.orders", "shop.o")
    assert catalog.get_table("shop.o").to_arrow().num_rows == 0


def rename_killed(
    make_catalog: MakeJdbc, store: MemoryStore, call: int, *, after: bool
) -> tuple[FailingStore, Catalog]:
    """Rename a table of one row, and die at a call to the storage or a transaction."""
    catalog = on_store(make_catalog, store)
    for database in ("shop", "far"):
        catalog.create_database(database)
    catalog.create_table("shop.orders", {"id": "INT"}).write([{"id": 1}])
    failing = FailingStore(store, call, after=after, seed=call)
    real = Database._transaction  # noqa: SLF001  each step of the metastore is one

    def transaction(*given: Any, **more: Any) -> int | None:
        with failing.call("put", "metastore"):
            return real(*given, **more)

    with pytest.MonkeyPatch.context() as patch, suppress(StoreFailure, LakecoreError):
        patch.setattr(Database, "_transaction", transaction)
        on_store(make_catalog, failing).rename_table("shop.orders", "far.moved")
    return failing, on_store(make_catalog, store)


def on_store(make_catalog: MakeJdbc, store: Store) -> Catalog:
    catalog = make_catalog({"commit.single-writer": "true"})
    names_of(catalog).store = store
    return catalog


def ids(catalog: Catalog, name: str) -> list[int] | None:
    try:
        found = catalog.get_table(name).to_polars()["id"].to_list()
    except NotFound:
        found = None
    assert catalog.table_exists(name) == (found is not None)
    return found


OLD, NEW = "shop.orders", "far.moved"


@pytest.mark.parametrize(
    ("then", "at_once"),
    [
        *((then, True) for then in ("write", "rename", "rename on", "create old", "repair")),
        *((then, at_once) for then in ("drop", "alter") for at_once in (True, False)),
    ],
)
def test_rename_killed_anywhere_leaves_one_name_that_reads_and_goes_on(
    make_catalog: MakeJdbc, then: str, *, at_once: bool
) -> None:
    decisions = set()
    ends = ((call, after) for call in calls_of(then) for after in (False, True)[not at_once :])
    for call, after in chain([(1, False), (1, True)], ends):
        store = MemoryStore(renames_at_once=at_once)
        failing, catalog = rename_killed(make_catalog, store, call, after=after)
        decided = catalog.list_tables("far") == ("moved",)
        decisions.add(decided)
        here, gone = (NEW, OLD) if decided else (OLD, NEW)
        assert (ids(catalog, here), ids(catalog, gone)) == ([1], None)
        assert catalog.list_tables("shop") == (() if decided else ("orders",))
        match then:
            case "write":
                catalog.get_table(here).write([{"id": 2}])
                assert sorted(ids(catalog, here) or ()) == [1, 2]
            case "rename":
                with suppress(NotFound):  # it was whole
                    catalog.rename_table(OLD, NEW)
                assert ids(catalog, NEW) == [1]
                with pytest.raises(NotFound, match="no such table"):
                    catalog.rename_table(OLD, NEW)
                catalog.create_table(OLD, {"id": "INT"})
            case "rename on":
                catalog.rename_table(here, "shop.third")
                assert (ids(catalog, "shop.third"), ids(catalog, here)) == ([1], None)
            case "drop":
                catalog.drop_table(here)
                assert files_below(store, "w") == []
                catalog.create_table(here, {"id": "INT"})
                assert ids(catalog, here) == []
            case "create old" if decided:
                with suppress(AlreadyExists):  # its directory may hold the table that moves
                    catalog.create_table(OLD, {"id": "INT"})
                assert ids(catalog, NEW) == [1]
            case "repair":
                catalog.repair()
                assert [ids(catalog, name) for name in (NEW, OLD)].count([1]) == 1
            case "alter":
                catalog.alter_table(here, [SchemaChange.add_column("v", "INT")])
                assert ids(catalog, here) == [1]
                with suppress(NotFound):
                    catalog.rename_table(OLD, NEW)
                assert catalog.get_table(NEW).schema.names == ("id", "v")
        for database in ("shop", "far"):
            catalog.drop_database(database, cascade=True)
        if not failing.is_dead:
            break
    assert decisions == {True, False}


def test_second_rename_of_a_table_moves_nothing(catalog: Catalog) -> None:
    name = Identifier(database="shop", table="orders")
    entry = names_of(catalog).metastore.find(name)
    assert entry is not None
    catalog.rename_table("shop.orders", "shop.first")
    with pytest.raises(NotFound, match="another process renamed or dropped"):
        names_of(catalog).metastore.rename(
            name, Identifier(database="shop", table="second"), entry.path, moves=True
        )

    assert catalog.list_tables("shop") == ("first",)


# --- errors and options ---------------------------------------------------------------------------


def test_schema_that_cannot_be_copied_is_not_published(catalog: Catalog, tmp_path: Path) -> None:
    refuse = "BEGIN SELECT * FROM gone; END"
    query(tmp_path, f"CREATE TRIGGER no BEFORE INSERT ON {sql.TABLE_PROPERTIES} {refuse}")
    with pytest.raises(StorageError, match="no such table"):
        catalog.alter_table("shop.orders", [SchemaChange.add_column("n", "INT")])

    assert catalog.get_table("shop.orders").schema.names == ("id", "v")


def test_failure_of_the_database_is_a_storage_error_without_its_library(
    catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "catalog.db").write_bytes(b"not a database, but long enough to be read as one" * 9)
    with pytest.raises(StorageError, match=r"failed\. .* why=file is not a database"):
        catalog.list_databases()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"client-pool-size": "0"}, "option=client-pool-size"),
        ({"lock-acquire-timeout": "soon"}, "option=lock-acquire-timeout"),
        ({"lock.enabled": "perhaps"}, "option=lock.enabled"),
        ({"catalog-kay": "x"}, "did_you_mean=catalog-key"),
        ({"jdbc.user": "me"}, "SQLite catalog has no settings"),
    ],
)
def test_bad_options_are_refused(make_catalog: MakeJdbc, given: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        make_catalog(given)


def test_options_of_another_metastore_are_unsupported(make_catalog: MakeJdbc) -> None:
    with pytest.raises(Unsupported, match="a jdbc catalog has nothing to set by it"):
        make_catalog({"hive-conf-dir": "/x"})


def test_missing_sqlite_file_is_made_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    options = {
        "metastore": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/cat.db",
        "warehouse": str(tmp_path / "w"),
    }
    with pytest.raises(NotFound, match="no such SQLite file"):
        lc.connect(options)
    assert not (tmp_path / "cat.db").exists()

    lc.connect(options, create=True)
    assert lc.connect(options).list_databases() == ()


def test_uri_is_required(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="a JDBC catalog has a uri"):
        lc.connect({"metastore": "jdbc", "warehouse": str(tmp_path)})
