from __future__ import annotations

from threading import Barrier, Thread
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakecore.catalog.filesystem import FilesystemCatalog, create_table_at
from lakecore.catalog.new_table import new_schema
from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    CorruptTable,
    InvalidRequest,
    NotFound,
    Unsupported,
)
from lakecore.format.layout import Layout
from lakecore.io.ambient import seeded
from lakecore.model.schema_change import SchemaChange

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.table.handle import Table

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "dt": "STRING NOT NULL"}


def create(catalog: FilesystemCatalog, identifier: str = "shop.orders") -> Table:
    return catalog.create_table(
        identifier, COLUMNS, primary_keys=["id"], options={"bucket": "1"}, comment="what was sold"
    )


def one_row(number: int = 1) -> pa.Table:
    return pa.table({"id": [number], "name": ["a"], "dt": ["x"]})


# --- databases ------------------------------------------------------------------------------------


def test_new_warehouse_has_no_databases(make_catalog: Callable[..., FilesystemCatalog]) -> None:
    assert make_catalog().list_databases() == ()


def test_first_database_makes_the_warehouse(
    make_catalog: Callable[..., FilesystemCatalog],
) -> None:
    catalog = make_catalog()
    catalog.create_database("shop")
    catalog.create_database("a b")

    assert catalog.list_databases() == ("a b", "shop")
    assert catalog.database_exists("shop")
    assert not catalog.database_exists("sho")


def test_database_that_exists_is_refused_unless_ignored(catalog: FilesystemCatalog) -> None:
    with pytest.raises(AlreadyExists, match="database=shop"):
        catalog.create_database("shop")

    catalog.create_database("shop", ignore_if_exists=True)

    assert catalog.list_databases() == ("shop",)


def test_bad_database_name_is_refused(catalog: FilesystemCatalog) -> None:
    with pytest.raises(InvalidRequest, match="must not hold '/'"):
        catalog.create_database("a/b")


def test_dropped_database_is_gone(catalog: FilesystemCatalog) -> None:
    catalog.drop_database("shop")

    assert catalog.list_databases() == ()


def test_database_that_is_not_there_cannot_be_dropped_unless_ignored(
    catalog: FilesystemCatalog,
) -> None:
    with pytest.raises(NotFound, match=r"database=sop databases=\[shop\]"):
        catalog.drop_database("sop")

    catalog.drop_database("sop", ignore_if_not_exists=True)


def test_database_with_tables_is_dropped_by_cascade_alone(catalog: FilesystemCatalog) -> None:
    create(catalog)
    with pytest.raises(InvalidRequest, match=r"cascade=True .* tables=\[orders\]"):
        catalog.drop_database("shop")

    catalog.drop_database("shop", cascade=True)

    assert catalog.list_databases() == ()


def test_database_with_foreign_files_is_dropped_by_cascade_alone(
    catalog: FilesystemCatalog,
) -> None:
    catalog.store.put(f"{catalog.database_path('shop')}/notes/readme.txt", b"mine")
    with pytest.raises(InvalidRequest, match=r"foreign_files=\[notes\]"):
        catalog.drop_database("shop")

    catalog.drop_database("shop", cascade=True)

    assert not catalog.database_exists("shop")


# --- listing --------------------------------------------------------------------------------------


def test_foreign_directories_are_no_databases_and_no_tables(catalog: FilesystemCatalog) -> None:
    create(catalog)
    for path in (
        "notes/a.txt",
        ".hidden.db/a.txt",
        ".db/a.txt",
        "loose.db.txt",
        "shop.db/export/part-0.parquet",
        "shop.db/loose.txt",
        "shop.db/.tmp/schema/schema-0",
        "shop.db/half/schema/.schema-0.1234.tmp",
    ):
        catalog.store.put(f"{catalog.warehouse}/{path}", b"x")

    assert catalog.list_databases() == ("shop",)
    assert catalog.list_tables("shop") == ("orders",)
    assert not catalog.table_exists("shop.export")


def test_tables_of_a_database_that_is_not_there_cannot_be_listed(
    catalog: FilesystemCatalog,
) -> None:
    with pytest.raises(NotFound, match=r"no such database\. database=sop databases=\[shop\]"):
        catalog.list_tables("sop")


def test_table_whose_first_schema_was_removed_is_still_listed(catalog: FilesystemCatalog) -> None:
    table = create(catalog)
    catalog.alter_table("shop.orders", [SchemaChange.add_column("note", "STRING")])
    catalog.store.delete(Layout(root=table.path).schema(0))

    assert catalog.list_tables("shop") == ("orders",)


# --- creating and finding -------------------------------------------------------------------------


def test_created_table_is_found_with_what_it_was_made_of(catalog: FilesystemCatalog) -> None:
    create(catalog)
    table = catalog.get_table("shop.orders")

    assert table.identifier == "shop.orders"
    assert table.path == f"{catalog.warehouse}/shop.db/orders"
    assert table.schema.names == ("id", "name", "dt")
    assert table.schema.primary_keys == ("id",)
    assert table.schema.options == {"bucket": "1"}
    assert table.schema.comment == "what was sold"
    assert catalog.list_tables("shop") == ("orders",)
    assert catalog.table_exists("shop.orders")


def test_another_catalog_on_the_warehouse_sees_the_table(
    make_catalog: Callable[..., FilesystemCatalog], catalog: FilesystemCatalog
) -> None:
    create(catalog)

    assert make_catalog().get_table("shop.orders").schema.names == ("id", "name", "dt")


def test_table_in_a_database_that_is_not_there_is_refused(catalog: FilesystemCatalog) -> None:
    with pytest.raises(NotFound, match="no such database"):
        create(catalog, "sop.orders")


def test_table_that_exists_is_refused_unless_ignored(catalog: FilesystemCatalog) -> None:
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
    catalog: FilesystemCatalog, identifier: str, why: str
) -> None:
    with pytest.raises(InvalidRequest, match=why):
        catalog.create_table(identifier, COLUMNS)


def test_schema_that_breaks_a_rule_creates_nothing(catalog: FilesystemCatalog) -> None:
    with pytest.raises(InvalidRequest, match="primary key is not a column"):
        catalog.create_table("shop.orders", COLUMNS, primary_keys=["key"])

    assert catalog.list_tables("shop") == ()


def test_keys_given_as_one_text_are_refused(catalog: FilesystemCatalog) -> None:
    with pytest.raises(InvalidRequest, match="primary_keys is a list of columns"):
        catalog.create_table("shop.orders", COLUMNS, primary_keys="id")


def test_options_of_the_table_go_before_the_defaults_of_the_catalog(
    make_catalog: Callable[..., FilesystemCatalog],
) -> None:
    catalog = make_catalog({"table-default.bucket": "8", "table-default.file.format": "orc"})
    catalog.create_database("shop")
    table = create(catalog)

    assert table.schema.options == {"bucket": "1", "file.format": "orc"}


def test_table_that_is_not_there_is_not_found_with_those_that_are(
    catalog: FilesystemCatalog,
) -> None:
    create(catalog)
    with pytest.raises(NotFound, match=r"no such table\. table=shop\.order tables=\[orders\]"):
        catalog.get_table("shop.order")
    with pytest.raises(NotFound, match="no such database"):
        catalog.get_table("sop.orders")
    with pytest.raises(NotFound, match="no such table"):
        catalog.get_table("shop.order$files")


def test_long_list_of_tables_is_cut_in_errors(catalog: FilesystemCatalog) -> None:
    for number in range(22):
        catalog.store.put(f"{catalog.database_path('shop')}/t{number}/schema/schema-0", b"{}")

    with pytest.raises(NotFound, match=r"\.\.\. 2 more"):
        catalog.get_table("shop.order")


def test_branch_that_is_not_there_is_not_found_with_those_that_are(
    catalog: FilesystemCatalog,
) -> None:
    table = create(catalog)
    schema = Layout(root=table.path).schema(0)
    copy = Layout(root=table.path, branch="b1").schema(0)
    catalog.store.put(copy, catalog.store.read(schema))

    assert catalog.get_table("shop.orders$branch_b1").identifier == "shop.orders$branch_b1"
    with pytest.raises(NotFound, match=r"no such branch.* branches=\[b1\]"):
        catalog.get_table("shop.orders$branch_b2")


def test_system_table_is_read_by_name(catalog: FilesystemCatalog) -> None:
    create(catalog).write(one_row())

    assert catalog.get_table("shop.orders$snapshots").to_polars()["snapshot_id"].to_list() == [1]
    assert catalog.get_table("`shop`.`orders$options`").to_arrow().to_pylist() == [
        {"key": "bucket", "value": "1"}
    ]


def test_system_table_that_is_not_there_names_those_that_are(catalog: FilesystemCatalog) -> None:
    create(catalog)
    with pytest.raises(Unsupported, match=r"not supported\. .*system_tables=\[snapshots, .*tags\]"):
        catalog.get_table("shop.orders$audit_log")
    with pytest.raises(Unsupported, match=r"no such system table.*table=shop\.orders\$fils"):
        catalog.get_table("shop.orders$fils")


def test_directory_of_lost_snapshots_takes_no_new_table(catalog: FilesystemCatalog) -> None:
    table = create(catalog)
    table.write(one_row())
    catalog.store.delete_directory(Layout(root=table.path).schema_dir)

    with pytest.raises(CorruptTable, match="snapshots of another table"):
        create(catalog)


def test_of_two_who_create_a_table_one_wins(catalog: FilesystemCatalog) -> None:
    path = f"{catalog.database_path('shop')}/orders"
    schemas = [
        new_schema(
            {name: "INT"},
            primary_keys=(),
            partition_keys=(),
            options={},
            comment=None,
            now_ms=0,
            table="t",
        )
        for name in ("a", "b")
    ]
    won = [create_table_at(catalog.store, path, schema) for schema in schemas]

    assert won == [True, False]
    assert catalog.get_table("shop.orders").schema.names == ("a",)


# --- renaming and dropping ------------------------------------------------------------------------


def renames(catalog: FilesystemCatalog) -> bool:
    return not catalog.warehouse.startswith("s3:")


def test_renamed_table_keeps_its_rows(
    make_catalog: Callable[..., FilesystemCatalog], catalog: FilesystemCatalog
) -> None:
    if not renames(catalog):
        catalog = make_catalog({"commit.single-writer": "true"})
    catalog.create_database("old")
    create(catalog).write(one_row())
    catalog.rename_table("shop.orders", "old.orders_2024")

    assert catalog.list_tables("shop") == ()
    assert catalog.get_table("old.orders_2024").to_arrow().to_pylist() == one_row().to_pylist()


def test_rename_is_unsupported_where_it_is_many_steps(catalog: FilesystemCatalog) -> None:
    create(catalog)
    if renames(catalog):
        catalog.rename_table("shop.orders", "shop.o")
    else:
        with pytest.raises(Unsupported, match=r"commit\.single-writer"):
            catalog.rename_table("shop.orders", "shop.o")

    assert catalog.list_tables("shop") == (("o",) if renames(catalog) else ("orders",))


def test_rename_refuses_what_it_cannot_do(
    make_catalog: Callable[..., FilesystemCatalog], catalog: FilesystemCatalog
) -> None:
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


def test_dropped_table_leaves_nothing(catalog: FilesystemCatalog) -> None:
    table = create(catalog)
    table.write(one_row())
    catalog.drop_table("shop.orders")

    assert catalog.list_tables("shop") == ()
    assert not catalog.store.exists(table.path)
    assert create(catalog).to_arrow().num_rows == 0


def test_table_that_is_not_there_cannot_be_dropped_unless_ignored(
    catalog: FilesystemCatalog,
) -> None:
    with pytest.raises(NotFound, match="no such table"):
        catalog.drop_table("shop.orders")
    with pytest.raises(InvalidRequest, match="a system table cannot be dropped"):
        catalog.drop_table("shop.orders$files")

    catalog.drop_table("shop.orders", ignore_if_not_exists=True)


# --- altering -------------------------------------------------------------------------------------


def test_altered_table_has_one_new_schema(catalog: FilesystemCatalog) -> None:
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


def test_change_that_is_not_allowed_changes_nothing(catalog: FilesystemCatalog) -> None:
    create(catalog)
    with pytest.raises(InvalidRequest):
        catalog.alter_table(
            "shop.orders",
            [SchemaChange.add_column("note", "STRING"), SchemaChange.drop_column("id")],
        )

    assert catalog.get_table("shop.orders").schema.id == 0


def test_no_changes_make_no_schema(catalog: FilesystemCatalog) -> None:
    create(catalog)
    catalog.alter_table("shop.orders", [])

    assert catalog.get_table("shop.orders").schema.id == 0


def test_table_that_is_not_there_cannot_be_altered_unless_ignored(
    catalog: FilesystemCatalog,
) -> None:
    changes = [SchemaChange.update_comment("x")]
    with pytest.raises(NotFound, match="no such table"):
        catalog.alter_table("shop.orders", changes)
    with pytest.raises(InvalidRequest, match="a system table cannot be altered"):
        catalog.alter_table("shop.orders$files", changes)

    catalog.alter_table("shop.orders", changes, ignore_if_not_exists=True)


def test_branch_is_altered_on_its_own(catalog: FilesystemCatalog) -> None:
    table = create(catalog)
    main, branch = Layout(root=table.path), Layout(root=table.path, branch="b1")
    catalog.store.put(branch.schema(0), catalog.store.read(main.schema(0)))
    catalog.alter_table("shop.orders$branch_b1", [SchemaChange.add_column("note", "STRING")])

    assert catalog.get_table("shop.orders$branch_b1").schema.id == 1
    assert catalog.get_table("shop.orders").schema.id == 0


def test_schema_changes_of_many_at_once_are_all_kept(
    make_catalog: Callable[..., FilesystemCatalog], catalog: FilesystemCatalog
) -> None:
    create(catalog)
    start = Barrier(4)

    def alter(number: int) -> None:
        own = make_catalog()
        start.wait()
        own.alter_table("shop.orders", [SchemaChange.add_column(f"c{number}", "INT")])

    threads = [Thread(target=alter, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    schema = catalog.get_table("shop.orders").schema
    assert schema.id == 4
    assert set(schema.names) == {"id", "name", "dt", "c0", "c1", "c2", "c3"}


def test_alter_gives_up_when_others_always_come_first(catalog: FilesystemCatalog) -> None:
    create(catalog)

    class Crowded:
        """The catalog's store, on which another schema appears before each of ours."""

        def __getattr__(self, name: str) -> object:
            return getattr(catalog.store, name)

        def put_if_absent(self, path: str, data: bytes) -> bool:
            catalog.store.put(path, data)
            return False

    options = catalog.options
    crowded = FilesystemCatalog(catalog.warehouse, Crowded(), options, seeded(1))  # type: ignore[arg-type]
    with pytest.raises(CommitConflict, match="attempts=10"):
        crowded.alter_table("shop.orders", [SchemaChange.update_comment("x")])
