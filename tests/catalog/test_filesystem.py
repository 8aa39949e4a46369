from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakecore.catalog.catalog import Catalog
from lakecore.catalog.filesystem import DirectoryNames, create_table_at
from lakecore.catalog.new_table import new_schema
from lakecore.catalog.registry import open_catalog
from lakecore.errors import (
    CommitConflict,
    CorruptTable,
    InvalidRequest,
    NotFound,
    Unsupported,
)
from lakecore.format.layout import Layout
from lakecore.io.ambient import seeded
from lakecore.metrics import Numbers, prometheus
from lakecore.model.schema_change import SchemaChange

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.handle import Table

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "dt": "STRING NOT NULL"}


def names_of(catalog: Catalog) -> DirectoryNames:
    assert isinstance(catalog.names, DirectoryNames)
    return catalog.names


def create(catalog: Catalog, identifier: str = "shop.orders") -> Table:
    return catalog.create_table(
        identifier, COLUMNS, primary_keys=["id"], options={"bucket": "1"}, comment="what was sold"
    )


def one_row(number: int = 1) -> pa.Table:
    return pa.table({"id": [number], "name": ["a"], "dt": ["x"]})


# --- databases ------------------------------------------------------------------------------------


def test_database_with_foreign_files_is_dropped_by_cascade_alone(
    catalog: Catalog,
) -> None:
    names_of(catalog).store.put(
        f"{names_of(catalog).database_path('shop')}/notes/readme.txt", b"mine"
    )
    with pytest.raises(InvalidRequest, match=r"foreign_files=\[notes\]"):
        catalog.drop_database("shop")

    catalog.drop_database("shop", cascade=True)

    assert not catalog.database_exists("shop")


def test_what_a_dropped_table_left_is_not_suggested_for_its_own_name(catalog: Catalog) -> None:
    names = names_of(catalog)
    names.store.put(f"{names.database_path('shop')}/orders/bucket-0/data-1.parquet", b"late")

    with pytest.raises(NotFound, match=r"no such table\. table=shop\.orders tables=\[\]"):
        catalog.get_table("shop.orders")


# --- listing --------------------------------------------------------------------------------------


def test_foreign_directories_are_no_databases_and_no_tables(catalog: Catalog) -> None:
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
        names_of(catalog).store.put(f"{catalog.warehouse}/{path}", b"x")

    assert catalog.list_databases() == ("shop",)
    assert catalog.list_tables("shop") == ("orders",)
    assert not catalog.table_exists("shop.export")


def test_table_whose_first_schema_was_removed_is_still_listed(catalog: Catalog) -> None:
    table = create(catalog)
    catalog.alter_table("shop.orders", [SchemaChange.add_column("note", "STRING")])
    names_of(catalog).store.delete(Layout(root=table.path).schema(0))

    assert catalog.list_tables("shop") == ("orders",)


# --- creating and finding -------------------------------------------------------------------------


def test_long_list_of_tables_is_cut_in_errors(catalog: Catalog) -> None:
    for number in range(22):
        names_of(catalog).store.put(
            f"{names_of(catalog).database_path('shop')}/t{number}/schema/schema-0", b"{}"
        )

    with pytest.raises(NotFound, match=r"\.\.\. 2 more"):
        catalog.get_table("shop.order")


def test_branch_that_is_not_there_is_not_found_with_those_that_are(
    catalog: Catalog,
) -> None:
    table = create(catalog)
    schema = Layout(root=table.path).schema(0)
    copy = Layout(root=table.path, branch="b1").schema(0)
    names_of(catalog).store.put(copy, names_of(catalog).store.read(schema))

    assert catalog.get_table("shop.orders$branch_b1").identifier == "shop.orders$branch_b1"
    with pytest.raises(NotFound, match=r"no such branch.* branches=\[b1\]"):
        catalog.get_table("shop.orders$branch_b2")


def test_directory_of_lost_snapshots_takes_no_new_table(catalog: Catalog) -> None:
    table = create(catalog)
    table.write(one_row())
    names_of(catalog).store.delete_directory(Layout(root=table.path).schema_dir)

    with pytest.raises(CorruptTable, match="snapshots of another table"):
        create(catalog)


def test_of_two_who_create_a_table_one_wins(catalog: Catalog) -> None:
    path = f"{names_of(catalog).database_path('shop')}/orders"
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
    won = [create_table_at(names_of(catalog).store, path, schema) for schema in schemas]

    assert won == [True, False]
    assert catalog.get_table("shop.orders").schema.names == ("a",)


# --- renaming and dropping ------------------------------------------------------------------------


def renames(catalog: Catalog) -> bool:
    return not catalog.warehouse.startswith("s3:")


def test_rename_is_unsupported_where_it_is_many_steps(catalog: Catalog) -> None:
    create(catalog)
    if renames(catalog):
        catalog.rename_table("shop.orders", "shop.o")
    else:
        with pytest.raises(Unsupported, match=r"commit\.single-writer"):
            catalog.rename_table("shop.orders", "shop.o")

    assert catalog.list_tables("shop") == (("o",) if renames(catalog) else ("orders",))


# --- altering -------------------------------------------------------------------------------------


def test_branch_is_altered_on_its_own(catalog: Catalog) -> None:
    table = create(catalog)
    main, branch = Layout(root=table.path), Layout(root=table.path, branch="b1")
    names_of(catalog).store.put(branch.schema(0), names_of(catalog).store.read(main.schema(0)))
    catalog.alter_table("shop.orders$branch_b1", [SchemaChange.add_column("note", "STRING")])

    assert catalog.get_table("shop.orders$branch_b1").schema.id == 1
    assert catalog.get_table("shop.orders").schema.id == 0


def test_alter_gives_up_when_others_always_come_first(catalog: Catalog) -> None:
    create(catalog)

    class Crowded:
        """The catalog's store, on which another schema appears before each of ours."""

        def __getattr__(self, name: str) -> object:
            return getattr(names_of(catalog).store, name)

        def put_if_absent(self, path: str, data: bytes) -> bool:
            names_of(catalog).store.put(path, data)
            return False

    options = names_of(catalog).options
    names = DirectoryNames(catalog.warehouse, Crowded(), options, seeded(1))  # type: ignore[arg-type]
    crowded = Catalog(names)
    with pytest.raises(CommitConflict, match="attempts=10"):
        crowded.alter_table("shop.orders", [SchemaChange.update_comment("x")])


def test_table_is_a_directory_of_its_database(catalog: Catalog) -> None:
    assert create(catalog).path == f"{catalog.warehouse}/shop.db/orders"


def test_branches_and_tags_are_those_of_the_files(catalog: Catalog) -> None:
    table = create(catalog)
    table.write(one_row())
    main, branch = Layout(root=table.path), Layout(root=table.path, branch="b1")
    names_of(catalog).store.put(branch.schema(0), names_of(catalog).store.read(main.schema(0)))
    names_of(catalog).store.put(main.tag("t1"), names_of(catalog).store.read(main.snapshot(1)))

    assert catalog.list_branches("shop.orders") == ("b1",)
    assert catalog.list_tags("shop.orders") == ("t1",)
    assert catalog.list_tags("shop.orders$branch_b1") == ()


def test_directories_that_no_caller_can_name_are_not_listed_and_stop_nobody(tmp_path: Path) -> None:
    catalog = open_catalog({"warehouse": str(tmp_path / "w")}, create=True)
    catalog.create_database("d")
    catalog.create_table("d.t", {"id": "INT"})
    root, table = tmp_path / "w", tmp_path / "w" / "d.db" / "t"
    for name in (os.fsdecode(b"\xff"), "a\nb", "a\\b", " "):
        shutil.copytree(table, root / "d.db" / name)
        shutil.copytree(table, root / f"{name}.db" / "t")
    shutil.copytree(table, root / "d.db" / "t$branch_b")

    assert (catalog.list_databases(), catalog.list_tables("d")) == (("d",), ("t",))
    assert "lakecore_table_readable" in prometheus(catalog, Numbers())
    assert catalog.get_table("sys.tables").to_arrow().num_rows == 1
