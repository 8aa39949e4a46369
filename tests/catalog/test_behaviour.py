"""What every catalog must do. A new catalog is one more parameter of `make_catalog`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pytest

from lakecore.catalog.catalog import Catalog
from lakecore.catalog.registry import open_catalog
from lakecore.errors import AlreadyExists, InvalidRequest, NotFound, Unsupported
from lakecore.model.schema_change import SchemaChange
from tests.catalog.places import warehouse_options
from tests.rest_servers import rest_server

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.handle import Table

MakeCatalog: TypeAlias = Callable[..., Catalog]

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "dt": "STRING NOT NULL"}


PLACES = (
    *("filesystem-memory", "filesystem-local", "filesystem-s3"),
    *("jdbc-local", "jdbc-locked", "rest-local"),
)


# The tests over servers import all of this module but names with an underscore.
@pytest.fixture(name="make_catalog", params=PLACES)
def _make_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeCatalog]:
    """Catalogs on one fresh warehouse, each opened again with the catalog options given."""
    metastore, _, storage = request.param.partition("-")
    options = warehouse_options(request, "local" if storage == "locked" else storage, tmp_path)
    if metastore == "jdbc":
        options["uri"] = f"jdbc:sqlite:{tmp_path}/catalog.db"
        options["lock.enabled"] = str(storage == "locked").lower()

    def make(given: Mapping[str, str] = {}) -> Catalog:
        return open_catalog({"metastore": metastore, **options, **given}, create=True)

    if metastore != "rest":
        yield make
        return
    with rest_server(open_catalog(options, create=True)) as client:
        # What the storage of the server needs is no option of a client.
        yield lambda given={}: open_catalog(
            {**client, **{key: given[key] for key in given if key != "commit.single-writer"}},
            create=True,
        )


@pytest.fixture(name="other_database")
def _other_database() -> str:
    return "a b"


@pytest.fixture
def catalog(make_catalog: MakeCatalog) -> Catalog:
    """A catalog with one database, `shop`."""
    catalog = make_catalog()
    catalog.create_database("shop")
    return catalog


def create(catalog: Catalog, identifier: str = "shop.orders") -> Table:
    return catalog.create_table(
        identifier, COLUMNS, primary_keys=["id"], options={"bucket": "1"}, comment="what was sold"
    )


def one_row(number: int = 1) -> pa.Table:
    return pa.table({"id": [number], "name": ["a"], "dt": ["x"]})


def at_once(deed: Callable[[int], object], number: int) -> list[object]:
    """What so many threads answer that do something at the same time: results, or errors."""
    start = Barrier(number)

    def act(at: int) -> object:
        start.wait()
        return deed(at)

    with ThreadPoolExecutor(number) as threads:
        futures = [threads.submit(act, at) for at in range(number)]
    return [future.exception() or future.result() for future in futures]


# --- databases ------------------------------------------------------------------------------------


def test_new_warehouse_has_no_databases(make_catalog: MakeCatalog) -> None:
    assert make_catalog().list_databases() == ()


def test_first_database_makes_the_warehouse(make_catalog: MakeCatalog, other_database: str) -> None:
    catalog = make_catalog()
    catalog.create_database("shop")
    catalog.create_database(other_database)

    assert catalog.list_databases() == (other_database, "shop")
    assert catalog.database_exists("shop")
    assert not catalog.database_exists("sho")


def test_database_that_exists_is_refused_unless_ignored(catalog: Catalog) -> None:
    with pytest.raises(AlreadyExists, match="database=shop"):
        catalog.create_database("shop")

    catalog.create_database("shop", ignore_if_exists=True)

    assert catalog.list_databases() == ("shop",)


def test_bad_database_name_is_refused(catalog: Catalog) -> None:
    with pytest.raises(InvalidRequest, match="must not hold '/'"):
        catalog.create_database("a/b")


def test_dropped_database_is_gone(catalog: Catalog) -> None:
    catalog.drop_database("shop")

    assert catalog.list_databases() == ()


def test_database_that_is_not_there_cannot_be_dropped_unless_ignored(
    catalog: Catalog,
) -> None:
    with pytest.raises(NotFound, match=r"database=sop did_you_mean=shop databases=\[shop\]"):
        catalog.drop_database("sop")

    catalog.drop_database("sop", ignore_if_not_exists=True)


def test_database_with_tables_is_dropped_by_cascade_alone(catalog: Catalog) -> None:
    create(catalog)
    with pytest.raises(InvalidRequest, match=r"cascade=True .* tables=\[orders\]"):
        catalog.drop_database("shop")

    catalog.drop_database("shop", cascade=True)

    assert catalog.list_databases() == ()


# --- listing --------------------------------------------------------------------------------------


def test_tables_of_a_database_that_is_not_there_cannot_be_listed(
    catalog: Catalog,
) -> None:
    with pytest.raises(
        NotFound, match=r"no such database\. database=sop did_you_mean=shop databases=\[shop\]"
    ):
        catalog.list_tables("sop")


# --- creating and finding -------------------------------------------------------------------------


def test_created_table_is_found_with_what_it_was_made_of(catalog: Catalog) -> None:
    create(catalog)
    table = catalog.get_table("shop.orders")

    assert table.identifier == "shop.orders"
    assert table.schema.names == ("id", "name", "dt")
    assert table.schema.primary_keys == ("id",)
    assert table.schema.options == {"bucket": "1"}
    assert table.schema.comment == "what was sold"
    assert catalog.list_tables("shop") == ("orders",)
    assert catalog.table_exists("shop.orders")


def test_another_catalog_on_the_warehouse_sees_the_table(
    make_catalog: MakeCatalog, catalog: Catalog
) -> None:
    create(catalog)

    assert make_catalog().get_table("shop.orders").schema.names == ("id", "name", "dt")


def test_table_in_a_database_that_is_not_there_is_refused(catalog: Catalog) -> None:
    with pytest.raises(NotFound, match="no such database"):
        create(catalog, "sop.orders")


def test_table_that_exists_is_refused_unless_ignored(catalog: Catalog) -> None:
    create(catalog)
    with pytest.raises(AlreadyExists, match=r"table=shop\.orders"):
        create(catalog)

    table = catalog.create_table("shop.orders", {"other": "INT"}, ignore_if_exists=True)

    assert table.schema.names == ("id", "name", "dt")


@pytest.mark.parametrize(
    ("identifier", "why"),
    [
        ("shop.orders$files", "a system table cannot be created"),
        ("shop.orders$branch_b", "a branch cannot be created"),
        ("shop.`a b `", "begins or ends with a blank"),
    ],
)
def test_name_that_no_new_table_can_have_is_refused(
    catalog: Catalog, identifier: str, why: str
) -> None:
    with pytest.raises(InvalidRequest, match=why):
        catalog.create_table(identifier, COLUMNS)


def test_upper_case_in_a_name_is_kept_or_refused_as_the_catalog_says(catalog: Catalog) -> None:
    if catalog.case_sensitive:
        create(catalog, "shop.Orders")
    else:
        with pytest.raises(InvalidRequest, match="lower-case"):
            create(catalog, "shop.Orders")

    assert catalog.list_tables("shop") == (("Orders",) if catalog.case_sensitive else ())


def test_schema_that_breaks_a_rule_creates_nothing(catalog: Catalog) -> None:
    with pytest.raises(InvalidRequest, match="primary key is not a column"):
        catalog.create_table("shop.orders", COLUMNS, primary_keys=["key"])

    assert catalog.list_tables("shop") == ()


def test_keys_given_as_one_text_are_refused(catalog: Catalog) -> None:
    with pytest.raises(InvalidRequest, match="primary_keys is a list of columns"):
        catalog.create_table("shop.orders", COLUMNS, primary_keys="id")


def test_options_of_the_table_go_before_the_defaults_of_the_catalog(
    make_catalog: MakeCatalog,
) -> None:
    catalog = make_catalog({"table-default.bucket": "8", "table-default.file.format": "orc"})
    catalog.create_database("shop")
    table = create(catalog)

    assert table.schema.options == {"bucket": "1", "file.format": "orc"}


def test_table_that_is_not_there_is_not_found_with_those_that_are(
    catalog: Catalog,
) -> None:
    create(catalog)
    with pytest.raises(
        NotFound, match=r"no such table\. table=shop\.order did_you_mean=orders tables=\[orders\]"
    ):
        catalog.get_table("shop.order")
    with pytest.raises(NotFound, match="no such database"):
        catalog.get_table("sop.orders")
    with pytest.raises(NotFound, match="no such table"):
        catalog.get_table("shop.order$files")


def test_system_table_is_read_by_name(catalog: Catalog) -> None:
    create(catalog).write(one_row())

    assert catalog.get_table("shop.orders$snapshots").to_polars()["snapshot_id"].to_list() == [1]
    assert catalog.get_table("`shop`.`orders$options`").to_arrow().to_pylist() == [
        {"key": "bucket", "value": "1"}
    ]


def test_system_table_that_is_not_there_names_those_that_are(catalog: Catalog) -> None:
    create(catalog)
    with pytest.raises(
        Unsupported, match=r"not supported\. .*system_tables=\[snapshots, .*row_tracking\]"
    ):
        catalog.get_table("shop.orders$file_indexes")
    with pytest.raises(Unsupported, match=r"no such system table.*table=shop\.orders\$fils"):
        catalog.get_table("shop.orders$fils")


# --- renaming and dropping ------------------------------------------------------------------------


def test_renamed_table_keeps_its_rows(make_catalog: MakeCatalog, catalog: Catalog) -> None:
    catalog = make_catalog({"commit.single-writer": "true"})
    catalog.create_database("old")
    create(catalog).write(one_row())
    catalog.rename_table("shop.orders", "old.orders_2024")

    assert catalog.list_tables("shop") == ()
    assert catalog.get_table("old.orders_2024").to_arrow().to_pylist() == one_row().to_pylist()


def test_rename_refuses_what_it_cannot_do(make_catalog: MakeCatalog, catalog: Catalog) -> None:
    catalog = make_catalog({"commit.single-writer": "true"})
    create(catalog)
    create(catalog, "shop.others")

    with pytest.raises(NotFound, match="no such table"):
        catalog.rename_table("shop.order", "shop.o")
    with pytest.raises(NotFound, match="no such database"):
        catalog.rename_table("shop.orders", "sop.orders")
    with pytest.raises(AlreadyExists, match=r"table=shop\.others"):
        catalog.rename_table("shop.orders", "shop.others")
    with pytest.raises(InvalidRequest, match="a system table cannot be renamed"):
        catalog.rename_table("shop.orders$files", "shop.o")
    with pytest.raises(InvalidRequest, match="a branch cannot be renamed"):
        catalog.rename_table("shop.orders", "shop.o$branch_b")
    catalog.rename_table("shop.order", "shop.o", ignore_if_not_exists=True)
    assert catalog.list_tables("shop") == ("orders", "others")


def test_dropped_table_leaves_nothing(catalog: Catalog) -> None:
    table = create(catalog)
    table.write(one_row())
    catalog.drop_table("shop.orders")

    assert catalog.list_tables("shop") == ()
    assert not table.context.store.exists(table.path)
    assert create(catalog).to_arrow().num_rows == 0


def test_table_that_is_not_there_cannot_be_dropped_unless_ignored(
    catalog: Catalog,
) -> None:
    with pytest.raises(NotFound, match="no such table"):
        catalog.drop_table("shop.orders")
    with pytest.raises(InvalidRequest, match="a system table cannot be dropped"):
        catalog.drop_table("shop.orders$files")

    catalog.drop_table("shop.orders", ignore_if_not_exists=True)


# --- altering -------------------------------------------------------------------------------------


def test_altered_table_has_one_new_schema(catalog: Catalog) -> None:
    create(catalog).write(one_row())
    catalog.alter_table(
        "shop.orders",
        [
            SchemaChange.add_column("note", "STRING"),
            SchemaChange.rename_column("name", "title"),
            SchemaChange.set_option("snapshot.num-retained.max", "20"),
        ],
    )
    table = catalog.get_table("shop.orders")

    assert table.schema.id == 1
    assert table.schema.names == ("id", "title", "dt", "note")
    assert table.schema.options["snapshot.num-retained.max"] == "20"
    assert table.to_arrow().to_pylist() == [{"id": 1, "title": "a", "dt": "x", "note": None}]


def test_change_that_is_not_allowed_changes_nothing(catalog: Catalog) -> None:
    create(catalog)
    with pytest.raises(InvalidRequest):
        catalog.alter_table(
            "shop.orders",
            [SchemaChange.add_column("note", "STRING"), SchemaChange.drop_column("id")],
        )

    assert catalog.get_table("shop.orders").schema.id == 0


def test_no_changes_make_no_schema(catalog: Catalog) -> None:
    create(catalog)
    catalog.alter_table("shop.orders", [])

    assert catalog.get_table("shop.orders").schema.id == 0


def test_table_that_is_not_there_cannot_be_altered_unless_ignored(
    catalog: Catalog,
) -> None:
    changes = [SchemaChange.update_comment("x")]
    with pytest.raises(NotFound, match="no such table"):
        catalog.alter_table("shop.orders", changes)
    with pytest.raises(InvalidRequest, match="a system table cannot be altered"):
        catalog.alter_table("shop.orders$files", changes)

    catalog.alter_table("shop.orders", changes, ignore_if_not_exists=True)


def test_schema_changes_of_many_at_once_are_all_kept(
    make_catalog: MakeCatalog, catalog: Catalog
) -> None:
    create(catalog)

    def alter(number: int) -> None:
        changes = [SchemaChange.add_column(f"c{number}", "INT")]
        make_catalog().alter_table("shop.orders", changes)

    assert at_once(alter, 4) == [None] * 4
    schema = catalog.get_table("shop.orders").schema
    assert schema.id == 4
    assert set(schema.names) == {"id", "name", "dt", "c0", "c1", "c2", "c3"}


# --- writing through a catalog --------------------------------------------------------------------


def test_of_many_who_create_a_table_one_wins(make_catalog: MakeCatalog, catalog: Catalog) -> None:
    answers = at_once(lambda at: make_catalog().create_table("shop.t", {f"c{at}": "INT"}), 4)

    refused = [answer for answer in answers if isinstance(answer, AlreadyExists)]
    (won,) = [at for at, answer in enumerate(answers) if answer not in refused]
    assert len(refused) == 3
    assert catalog.get_table("shop.t").schema.names == (f"c{won}",)


def test_table_made_with_rows_has_them(make_catalog: MakeCatalog, catalog: Catalog) -> None:
    catalog.create_table("shop.orders", data=one_row(), primary_keys=["id"])

    again = make_catalog().get_table("shop.orders")
    assert again.to_arrow().to_pylist() == one_row().to_pylist()
    with pytest.raises(AlreadyExists):
        catalog.create_table("shop.orders", data=one_row(2), primary_keys=["id"])
    assert again.to_arrow().num_rows == 1


def test_commit_is_seen_by_another_catalog(make_catalog: MakeCatalog, catalog: Catalog) -> None:
    result = create(catalog).write(one_row())

    theirs = make_catalog().get_table("shop.orders")
    assert result.snapshot_ids == (1,)
    assert theirs.to_arrow().to_pylist() == one_row().to_pylist()


def test_rows_of_many_writers_are_all_kept(make_catalog: MakeCatalog, catalog: Catalog) -> None:
    create(catalog)
    answers = at_once(
        lambda at: len(make_catalog().get_table("shop.orders").write(one_row(at)).snapshot_ids), 4
    )

    assert answers == [1] * 4
    assert catalog.get_table("shop.orders").to_polars()["id"].sort().to_list() == [0, 1, 2, 3]


def test_column_that_a_write_adds_is_in_the_catalog(catalog: Catalog) -> None:
    table = create(catalog)
    table.write(one_row().append_column("note", pa.array(["n"])), evolve_schema=True)

    assert catalog.get_table("shop.orders").schema.names == ("id", "name", "dt", "note")


# --- branches and tags ----------------------------------------------------------------------------


def test_new_table_has_no_branches_and_no_tags(catalog: Catalog) -> None:
    create(catalog)

    assert catalog.list_branches("shop.orders") == ()
    assert catalog.list_tags("shop.orders") == ()


def test_branches_and_tags_of_what_has_none_are_refused(catalog: Catalog) -> None:
    create(catalog)
    for listing in (catalog.list_branches, catalog.list_tags):
        with pytest.raises(NotFound, match="no such table"):
            listing("shop.order")
        with pytest.raises(InvalidRequest, match="a system table cannot be listed"):
            listing("shop.orders$files")
    with pytest.raises(InvalidRequest, match="a branch cannot be listed"):
        catalog.list_branches("shop.orders$branch_b1")


# --- the catalog as a value -----------------------------------------------------------------------


def test_pickled_catalog_sees_the_same_tables(catalog: Catalog) -> None:
    create(catalog)
    if catalog.warehouse.startswith("memory:"):
        with pytest.raises(Unsupported):
            pickle.dumps(catalog)
    else:
        assert pickle.loads(pickle.dumps(catalog)).list_tables("shop") == ("orders",)
