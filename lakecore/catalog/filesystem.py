"""A catalog that consists only of directories: `WAREHOUSE/DATABASE.db/TABLE`.

Any directory `X.db` of the warehouse is a database, and any directory of it that holds a schema
file is a table; everything else is ignored. There is no other state, so every Paimon engine on the
same warehouse sees the same tables.

What is atomic, and what is not:

- creating a table creates its file `schema-0` exclusively; altering it creates the next schema file
  exclusively. One of several concurrent attempts succeeds; the others retry from the new state;
- renaming a table moves its directory. On local storage, this is atomic. An object store copies
  file by file, so a concurrent writer could lose commits: this raises Unsupported unless
  `commit.single-writer` is set;
- dropping a table or a database first hides it, which is atomic, and then deletes its files
  (`io/directories.py`). After an interruption, the table stays hidden, and the next drop continues
  the deletion.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.catalog.catalog import Catalog
from lakecore.catalog.file_tables import (
    base_name,
    branch_names,
    check_empty,
    check_renames,
    directories,
    is_table,
    no_database,
    open_warehouse,
)
from lakecore.catalog.identifier import SPLITTER, Identifier, check_directory, may_be_named
from lakecore.catalog.names import Place
from lakecore.catalog.options import CatalogOptions, parse_catalog_options
from lakecore.deferred import deferred
from lakecore.errors import AlreadyExists, CorruptTable, Unsupported
from lakecore.format.layout import SCHEMA_PREFIX, SNAPSHOT_PREFIX, Layout, parse_numbered
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.directories import drop_database, drop_table, finish_drop, move_table, sweep
from lakecore.io.history import History
from lakecore.io.parallel import read_all
from lakecore.table.publication import EXCLUSIVE_CREATE, write_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.catalog.new_table import create_filled
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
else:
    create_filled = deferred("lakecore.catalog.new_table", "create_filled")

DATABASE_SUFFIX = ".db"


class DirectoryNames:
    """The databases and tables of a warehouse (`names.py`), without other state."""

    case_sensitive = True
    views = None  # a warehouse of directories stores no views
    functions = None  # as in Java, only a REST catalog stores functions

    def __init__(
        self, warehouse: str, store: Store, options: CatalogOptions, ambient: Ambient = SYSTEM
    ) -> None:
        self.warehouse = warehouse
        self.store = store
        self.options = options
        self.option_texts = options.texts
        self.table_defaults = options.table_defaults
        self.ambient = ambient

    # --- databases --------------------------------------------------------------------------------

    def databases(self) -> tuple[str, ...]:
        return database_names(self.store, self.warehouse)

    def has_database(self, name: str) -> bool:
        return self.store.exists(self.database_path(name))

    def add_database(self, name: str) -> bool:
        path = self.database_path(name)
        if self.store.exists(path):
            return False
        self.store.make_directory(path)
        return True

    def drop_database(self, name: str, *, cascade: bool) -> bool:
        path = self.database_path(name)
        sweep(self.store, self.warehouse.rstrip("/"))
        tables = self.tables(name)
        if tables is None:
            return False
        if not cascade:
            sweep(self.store, path)
            files = () if tables else [base_name(child.path) for child in self.store.list(path)]
            check_empty(name, {"tables": tables, "foreign_files": files}, cascade=cascade)
        drop_database(self.store, path, self.ambient)
        return True

    # --- tables -----------------------------------------------------------------------------------

    def tables(self, database: str) -> tuple[str, ...] | None:
        path = self.database_path(database)
        if not self.store.exists(path):
            return None
        # A name with `$` would be taken for a branch or a system table of another table.
        names = [name for name in directories(self.store, path) if SPLITTER not in name]
        # On a local disk, threads cost more than the calls.
        each = read_all if self.store.local_path(path) is None else map
        are_tables = each(lambda name: is_table(self.store, f"{path}/{name}"), names)
        return tuple(sorted(name for name, is_one in zip(names, are_tables, strict=True) if is_one))

    def near(self, database: str) -> tuple[str, ...]:
        # One request lists all directories; a check for tables would need a request for each.
        return tuple(directories(self.store, self.database_path(database)))

    def others(self, database: str) -> tuple[str, ...]:
        del database
        return ()

    def has_table(self, name: Identifier) -> bool:
        return is_table(self.store, self.table_path(name), name.branch)

    def is_taken(self, name: Identifier) -> bool:
        return self.has_table(name)

    def find(self, name: Identifier) -> Place:
        path = self.table_path(name)
        return Place(store=self.store, path=path, publication=EXCLUSIVE_CREATE)

    def create(self, name: Identifier, schema: TableSchema, rows: object) -> bool:
        return create_filled(
            self.store,
            self.table_path(name),
            schema,
            rows,
            create_table_at,
            ambient=self.ambient,
            publication=EXCLUSIVE_CREATE,
            table=str(name),
        )

    def rename(self, old: Identifier, new: Identifier) -> bool:
        path, target = self.table_path(old), self.table_path(new)
        check_renames(self.store, single_writer=self.options.single_writer, table=old, path=path)
        if not is_table(self.store, path):
            finish_drop(self.store, path)
            return False
        if not self.has_database(new.database):
            raise no_database(self, new.database)
        if self.store.exists(target) and not finish_drop(self.store, target):
            raise AlreadyExists("the target of the rename exists", table=new)
        move_table(self.store, path, target)
        return True

    def drop(self, name: Identifier) -> bool:
        path = self.table_path(name)
        if not is_table(self.store, path):
            sweep(self.store, self.database_path(name.database))
            return finish_drop(self.store, path)
        drop_table(self.store, path, self.ambient)
        return True

    def branches(self, name: Identifier) -> tuple[str, ...]:
        return branch_names(self.store, self.table_path(name))

    def tags(self, name: Identifier) -> tuple[str, ...]:
        layout = Layout(root=self.table_path(name), branch=name.branch)
        return History(self.store, layout).tag_names()

    def repair(self, name: str | None) -> tuple[str, ...]:
        raise Unsupported(
            "a filesystem catalog keeps no names beside its directories: nothing can be repaired",
            warehouse=self.warehouse,
            **({"name": name} if name else {}),
        )

    # --- paths ------------------------------------------------------------------------------------

    def database_path(self, database: str) -> str:
        """The directory of a database. Raises InvalidRequest for a name that leads outside."""
        check_directory("database", database)
        return f"{self.warehouse.rstrip('/')}/{database}{DATABASE_SUFFIX}"

    def table_path(self, name: Identifier) -> str:
        return f"{self.database_path(name.database)}/{name.table}"


def database_names(store: Store, warehouse: str) -> tuple[str, ...]:
    """The names of the directories of databases in a warehouse, sorted."""
    found = directories(store, warehouse)
    suffix = DATABASE_SUFFIX
    names = [name.removesuffix(suffix) for name in found if name.endswith(suffix)]
    return tuple(sorted(filter(may_be_named, names)))


def open_filesystem(given: Mapping[str, str], *, create: bool) -> Catalog:
    """Open the catalog. Raises NotFound for a missing warehouse, unless `create` is set."""
    stated = parse_catalog_options(given)
    warehouse, store = open_warehouse(stated.warehouse, stated.texts, create=create)
    return Catalog(DirectoryNames(warehouse, store, replace(stated, warehouse=warehouse)))


def create_table_at(store: Store, path: str, schema: TableSchema) -> bool:
    """Create a table in a directory. Exactly one of several concurrent callers gets True.

    Raises CorruptTable if the directory holds snapshots without a schema: a new table there would
    contain the rows of an old one.
    """
    layout = Layout(root=path)
    if not store.renames_at_once:
        finish_drop(store, path)
    if _has_numbered(store, layout.snapshot_dir, SNAPSHOT_PREFIX) and not _has_numbered(
        store, layout.schema_dir, SCHEMA_PREFIX
    ):
        raise CorruptTable(
            "the directory holds the snapshots of another table, whose schemas are gone; "
            "remove it or choose another name",
            path=path,
        )
    return write_schema(store, layout, schema)


def _has_numbered(store: Store, directory: str, prefix: str) -> bool:
    names = (base_name(child.path) for child in store.list(directory))
    return any(parse_numbered(name, prefix) is not None for name in names)
