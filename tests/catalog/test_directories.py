"""A process that dies inside create, alter, rename or drop leaves each table whole, or gone."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.catalog.catalog import Catalog
from lakecore.catalog.filesystem import DirectoryNames
from lakecore.catalog.options import parse_catalog_options
from lakecore.errors import CorruptTable, InvalidRequest, LakecoreError, NotFound
from lakecore.format.layout import Layout
from lakecore.io.ambient import seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.model.schema_change import SchemaChange
from property_tests.profile import calls_of, sized
from tests.stores import FailingStore, StoreFailure, files_below

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table

OPTIONS = parse_catalog_options({"warehouse": "w", "commit.single-writer": "true"})
COLUMNS = {"id": "BIGINT NOT NULL", "v": "INT"}
STORES = {"local": True, "objects": False}
SNAPSHOTS, SCHEMAS = 2, 2
SEEDS = count(1)
TABLES = ("shop.orders", "shop.moved", "shop.other", "shop.new")


def catalog_on(store: Store, seed: int | None = None) -> Catalog:
    ambient = seeded(next(SEEDS) if seed is None else seed)
    return Catalog(DirectoryNames("w", store, OPTIONS, ambient))


def filled(*, renames_at_once: bool) -> MemoryStore:
    """A database with a table of some snapshots and schemas and a branch, and another one."""
    store, pattern = MemoryStore(renames_at_once=renames_at_once), _pattern()
    store.make_directory("w/shop.db")
    for path in files_below(pattern, "w"):
        store.put(path, pattern.read(path))
    return store


@cache
def _pattern() -> MemoryStore:
    store = MemoryStore()
    catalog = catalog_on(store)
    catalog.create_database("shop")
    for name in ("shop.orders", "shop.other"):
        table = create(catalog, name)
        for number in range(SNAPSHOTS):
            table.write([{"id": 0, "v": number}])
        for number in range(1, SCHEMAS):
            catalog.alter_table(name, [SchemaChange.add_column(f"c{number}", "INT")])
    branch = Layout(root="w/shop.db/orders").on_branch("b")
    main = Layout(root="w/shop.db/orders")
    store.copy_directory(main.schema_dir, branch.schema_dir)
    store.copy_directory(main.snapshot_dir, branch.snapshot_dir)
    return store


def store_of(catalog: Catalog) -> Store:
    assert isinstance(catalog.names, DirectoryNames)
    return catalog.names.store


def create(catalog: Catalog, name: str) -> Table:
    return catalog.create_table(name, COLUMNS, primary_keys=["id"], options={"bucket": "1"})


def state(catalog: Catalog, name: str) -> object:
    """What a new process sees of a table: all of it, or None."""
    try:
        table = catalog.get_table(name)
    except NotFound:
        assert not catalog.table_exists(name)
        return None
    assert catalog.table_exists(name)
    ids = table.inspect.snapshots()["snapshot_id"].to_list()
    history = [table.to_arrow(snapshot_id=each).to_pylist() for each in ids]
    return table.schema.names, table.to_arrow().to_pylist(), ids, history


DEEDS: dict[str, tuple[Callable[[Catalog], object], set[str]]] = {
    "drop": (lambda catalog: catalog.drop_table("shop.orders"), {"shop.orders"}),
    "rename": (
        lambda catalog: catalog.rename_table("shop.orders", "shop.moved"),
        {"shop.orders", "shop.moved"},
    ),
    "drop database": (
        lambda catalog: catalog.drop_database("shop", cascade=True),
        {"shop.orders", "shop.other"},
    ),
    "create": (lambda catalog: create(catalog, "shop.new"), {"shop.new"}),
    "alter": (
        lambda catalog: catalog.alter_table(
            "shop.orders", [SchemaChange.add_column("c9", "INT"), SchemaChange.drop_column("c1")]
        ),
        {"shop.orders"},
    ),
}


@pytest.mark.parametrize("kind", [*STORES])
@pytest.mark.parametrize("name", [*DEEDS])
def test_process_that_dies_at_any_call_leaves_tables_whole_or_gone(kind: str, name: str) -> None:
    deed, touched = DEEDS[name]
    fresh = filled(renames_at_once=STORES[kind])
    before = {table: state(catalog_on(fresh), table) for table in TABLES}
    deed(catalog_on(fresh))
    done = {table: state(catalog_on(fresh), table) for table in TABLES}
    assert {table for table in TABLES if before[table] != done[table]} == touched
    checked: dict[object, bool] = {}  # what was stored at a death: whether nothing had changed

    def check(store: MemoryStore, handle: Table) -> bool:
        catalog = catalog_on(store)
        found = {table: state(catalog, table) for table in TABLES}
        assert all(found[table] in (before[table], done[table]) for table in TABLES)
        assert name != "rename" or found in (before, done)
        _check_branch(catalog)
        _check_old_handle(catalog, handle)
        _check_redone(catalog, name)
        return all(found[table] == before[table] for table in touched)

    in_steps = name == "rename" and kind == "objects"  # of which the first only makes room
    for after in (False, True):
        seen = set()
        for call in calls_of(kind, name, str(after)):
            store = filled(renames_at_once=STORES[kind])
            handle = catalog_on(store).get_table("shop.orders")
            failing = FailingStore(store, call, after=after, seed=call)
            try:
                deed(catalog_on(failing, seed=0))
            except (StoreFailure, LakecoreError):
                assert failing.is_dead
            # A death after one call often leaves what a death before the next one leaves.
            stored = frozenset((path, store.read(path)) for path in files_below(store, "w"))
            if stored not in checked:
                checked[stored] = check(store, handle)
            seen.add(checked[stored])
            if not failing.is_dead:
                break

        wanted = {True, False} if in_steps or not after else {False}
        assert seen == sized(wanted, quick=seen & wanted)  # some of the calls may see less


def _check_branch(catalog: Catalog) -> None:
    """A branch is there while its table is, and is whole."""
    for table in ("shop.orders", "shop.moved"):
        found = state(catalog, f"{table}$branch_b")
        if catalog.table_exists(table):
            assert found is not None
        else:
            assert found is None


def _check_old_handle(catalog: Catalog, handle: Table) -> None:
    """One who opened the table before writes to the table that others see, or is refused."""
    with suppress(NotFound, CorruptTable):  # one of its files is gone
        assert handle.to_arrow().num_rows == 1
    try:
        handle.write([{"id": 7, "v": 7}])
    except NotFound:
        return
    if catalog.table_exists("shop.orders"):
        assert len(catalog.get_table("shop.orders").to_arrow()) == 2


def _check_redone(catalog: Catalog, name: str) -> None:
    """The same, done again, goes to its end; a table made in the place has no old rows."""
    if name in {"drop", "drop database"}:
        catalog.drop_database("shop", cascade=True, ignore_if_not_exists=True)
        assert files_below(store_of(catalog), "w") == []
        catalog.create_database("shop")
    for table in ("shop.orders", "shop.new", "shop.moved"):
        if not catalog.table_exists(table):
            made = create(catalog, table)
            assert made.to_arrow().num_rows == 0
            made.write([{"id": 1, "v": 1}])
            assert made.inspect.snapshots()["snapshot_id"].to_list() == [1]
        catalog.drop_table(table)
        assert state(catalog, table) is None


@pytest.mark.parametrize("kind", [*STORES])
@pytest.mark.parametrize("then", ["rename", "drop old", "drop new", "drop database", "create old"])
def test_rename_goes_on_where_a_process_died(kind: str, then: str) -> None:
    whole = state(catalog_on(filled(renames_at_once=True)), "shop.orders")
    for call in calls_of(kind, then):
        store = filled(renames_at_once=STORES[kind])
        catalog_on(store).create_database("far")
        failing = FailingStore(store, call, seed=call)
        with suppress(StoreFailure, LakecoreError):
            catalog_on(failing).rename_table("shop.orders", "far.moved")
        catalog = catalog_on(store)
        decided = not catalog.table_exists("shop.orders")
        assert catalog.table_exists("far.moved") == decided
        match then:
            case "rename":
                with suppress(NotFound):
                    catalog.rename_table("shop.orders", "far.moved")
                    decided = True
                catalog.rename_table("far.moved", "far.again")
                assert state(catalog, "far.again") == whole
                catalog.drop_table("far.again")
            case "drop old":
                catalog.drop_table("shop.orders", ignore_if_not_exists=True)
            case "drop new":
                catalog.drop_table("far.moved", ignore_if_not_exists=True)
                assert not catalog.table_exists("far.moved")
            case "drop database":
                catalog.drop_database("shop", cascade=True)
            case "create old" if decided:
                assert create(catalog, "shop.orders").to_arrow().num_rows == 0
                catalog.drop_table("shop.orders")
        if decided and then not in ("rename", "drop new"):
            assert state(catalog, "far.moved") == whole
            catalog.drop_table("far.moved")
        if not failing.is_dead:
            break
        if decided:
            catalog.drop_table("shop.orders", ignore_if_not_exists=True)
            assert [path for path in files_below(store, "w") if "other" not in path] == []


def test_foreign_marks_show_and_delete_nothing() -> None:
    store = filled(renames_at_once=False)
    mark = "w/shop.db/{}/schema/.dropped"
    store.put(mark.format("orders"), b"from ../other")
    assert not catalog_on(store).table_exists("shop.orders")
    store.put(mark.format("other"), b"to ../elsewhere")

    catalog = catalog_on(store)
    assert not catalog.table_exists("shop.orders")
    catalog.drop_table("shop.other", ignore_if_not_exists=True)
    assert store.read(mark.format("orders")) == b"from ../other"


@pytest.mark.parametrize("kind", [*STORES])
def test_drop_goes_on_where_a_process_died(kind: str) -> None:
    call = 0
    while True:
        call += 1
        store = filled(renames_at_once=STORES[kind])
        failing = FailingStore(store, call)
        try:
            catalog_on(failing).drop_table("shop.orders")
        except (StoreFailure, LakecoreError):
            assert failing.is_dead
        catalog = catalog_on(store)
        catalog.drop_table("shop.orders", ignore_if_not_exists=True)
        assert catalog.list_tables("shop") == ("other",)
        with pytest.raises(NotFound):
            catalog.drop_table("shop.orders")
        catalog.drop_table("shop.other")
        catalog.drop_database("shop")
        assert files_below(store, "w") == []
        if not failing.is_dead:
            break


def test_dropped_directory_is_no_table_of_another_engine(tmp_path: Path) -> None:
    """Java takes each directory of a database that has schema files for a table."""
    store = filled(renames_at_once=True)
    call = 0
    while True:
        call += 1
        failing = FailingStore(store, call)
        with suppress(StoreFailure, LakecoreError):
            catalog_on(failing).drop_table("shop.orders")
        if not failing.is_dead:
            break
        tables = [
            child.path for child in store.list("w/shop.db") if store.list(f"{child.path}/schema")
        ]
        assert tables in (["w/shop.db/orders", "w/shop.db/other"], ["w/shop.db/other"])
        store = filled(renames_at_once=True)
    assert call > 2
    assert not [*tmp_path.iterdir()]


def test_engine_without_the_mark_sees_the_newest_schema_or_no_table() -> None:
    call, seen = 0, set()
    while True:
        call += 1
        store = filled(renames_at_once=False)
        failing = FailingStore(store, call, seed=call)
        with suppress(StoreFailure, LakecoreError):
            catalog_on(failing).drop_table("shop.orders")
        if not failing.is_dead:
            break
        layout = Layout(root="w/shop.db/orders")
        schemas = [each.path for each in store.list(layout.schema_dir) if "/schema-" in each.path]
        snapshots = [each.path for each in store.list(layout.snapshot_dir)]
        assert not schemas or schemas[-1] == layout.schema(SCHEMAS - 1)
        assert not schemas or layout.snapshot(SNAPSHOTS) in snapshots
        seen.add(len(schemas))
    assert seen == {*range(SCHEMAS + 1)}


def test_linked_database_is_written_through_and_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "shop.db").symlink_to(tmp_path / "far")
    catalog = lc.connect(tmp_path / "w")
    table = catalog.create_table("shop.t", {"id": "INT"})
    table.write([{"id": 1}])

    assert catalog.list_databases() == ("shop",)
    assert (tmp_path / "far" / "t" / "schema" / "schema-0").exists()
    with pytest.raises(InvalidRequest, match=r"symbolic link.*far"):
        catalog.drop_database("shop", cascade=True)
    assert catalog.get_table("shop.t").to_polars()["id"].to_list() == [1]
    catalog.drop_table("shop.t")
    assert not [*(tmp_path / "far").iterdir()]
    with pytest.raises(InvalidRequest, match="symbolic link"):
        catalog.drop_database("shop")
    assert (tmp_path / "far").is_dir()


def test_linked_table_is_neither_dropped_nor_renamed(tmp_path: Path) -> None:
    far = lc.open_table(tmp_path / "far", create=True, schema={"id": "INT"})
    far.write([{"id": 1}])
    catalog = lc.connect(tmp_path / "w", create=True)
    catalog.create_database("shop")
    (tmp_path / "w" / "shop.db" / "t").symlink_to(tmp_path / "far")

    catalog.get_table("shop.t").write([{"id": 2}])
    with pytest.raises(InvalidRequest, match="symbolic link"):
        catalog.drop_table("shop.t")
    with pytest.raises(InvalidRequest, match="symbolic link"):
        catalog.rename_table("shop.t", "shop.u")
    assert sorted(far.to_polars()["id"]) == [1, 2]
