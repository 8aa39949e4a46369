"""A catalog with its names in a metastore, and its tables as files below a warehouse.

Each change has two steps, whose order decides what a crash in between leaves:

- create: the schema file, then the entry. A crash leaves a directory without an entry; `repair`
  adds the entry;
- drop: the entry, then the directory. A crash leaves a directory without an entry;
- rename: the entry, then the directory. The first step decides: the entry stores the old name, and
  the table is read at its old path until the directory has moved. If the directory cannot be moved,
  the entry is renamed back. After a crash, the same rename continues, or `repair` of the old name
  adds the old entry again. Only a table in the directory of its name moves;
- alter: the copy in the metastore, then the schema file. A crash leaves a copy of a schema that the
  table does not have; `repair` copies the right one.

Creation and altering hold the table's lock; a rename holds the locks of both names, in order.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.catalog.file_tables import (
    branch_names,
    check_empty,
    check_renames,
    data_table,
    directories,
    is_table,
    no_database,
    shown,
    without_files,
)
from lakecore.catalog.filesystem import create_table_at, database_names
from lakecore.catalog.identifier import MAIN_BRANCH, Identifier, check_name
from lakecore.catalog.metastore import Entry, Metastore, MetastorePublication
from lakecore.catalog.names import Place
from lakecore.catalog.new_table import create_filled
from lakecore.errors import (
    AlreadyExists,
    CommitUnknown,
    InvalidRequest,
    LakecoreError,
    NotFound,
    Unsupported,
)
from lakecore.format.layout import Layout, canonical, storage_of
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.directories import drop_table, finish_drop, move_table, sweep
from lakecore.io.history import History
from lakecore.io.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.catalog.options import CatalogOptions
    from lakecore.catalog.views import Views
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema


# --- repair --------------------------------------------------------------------------------------
# Adds missing entries to a metastore for tables in the warehouse, and copies all schemas again.
#
# Nothing is removed: neither entries without files, nor files that are not a table.


def repair_names(
    metastore: Metastore, store_of: Callable[[str], Store], warehouse: str, name: str | None
) -> tuple[str, ...]:
    """Add the tables that have directories to the metastore, and copy their schemas to it.

    `name`: a table or a database; None: the whole warehouse. Returns the names of the tables.
    Raises NotFound if the warehouse has no such table or database.
    """
    if name is None:
        return tuple(
            table
            for each in database_names(store_of(warehouse), warehouse)
            for table in _database(metastore, store_of, each)
        )
    if "." not in name.replace("`", ""):
        check_name("database", name)
        return _database(metastore, store_of, name)
    table = data_table(name, "repair", branch_allowed=False)
    _table(metastore, store_of, table)
    return (str(table),)


def _database(metastore: Metastore, store_of: Callable[[str], Store], name: str) -> tuple[str, ...]:
    path = metastore.database_path(name)
    store = store_of(path)
    if not store.exists(path):
        raise NotFound("no directory of that database", database=name, path=path)
    metastore.check_database_name(name)
    metastore.add_database(name)
    tables = [
        Identifier(database=name, table=each)
        for each in sorted(directories(store, path))
        if is_table(store, f"{path}/{each}")
    ]
    for table in tables:
        _table(metastore, store_of, table)
    return tuple(str(table) for table in tables)


def _table(metastore: Metastore, store_of: Callable[[str], Store], name: Identifier) -> None:
    entry = metastore.find(name)
    if entry is None:
        metastore.check_table_name(name)
        path = metastore.new_path(name)
    else:
        path = entry.path
    store = store_of(path)
    schema = History(store, Layout(root=path)).latest_schema()
    if schema is None:
        raise NotFound("the directory holds no table", table=name, path=path)
    metastore.check_schema(name, schema)
    metastore.add_database(name.database)
    if entry is not None or not metastore.add(name, path, schema):
        metastore.update(name, schema, None)
    metastore.repair_partitions(name, store, path)


# --- metastore names -----------------------------------------------------------------------------

_LISTED_ATTEMPTS, _LISTED_WAIT_SECONDS = 20, 0.05


class MetastoreNames:
    """The databases and tables that a metastore lists (`names.py`), without a cache."""

    functions = None  # as in Java, only a REST catalog stores functions

    def __init__(
        self,
        warehouse: str,
        store: Store,
        options: CatalogOptions,
        metastore: Metastore,
        ambient: Ambient = SYSTEM,
    ) -> None:
        self.warehouse = warehouse
        self.store = store
        self.options = options
        self.option_texts = options.texts
        self.table_defaults = options.table_defaults
        self.metastore = metastore
        self.case_sensitive = metastore.case_sensitive
        self.ambient = ambient

    @property
    def views(self) -> Views | None:
        return self.metastore.views

    # --- databases --------------------------------------------------------------------------------

    def databases(self) -> tuple[str, ...]:
        return self.metastore.databases()

    def has_database(self, name: str) -> bool:
        return self.metastore.has_database(name)

    def add_database(self, name: str) -> bool:
        self.metastore.check_database_name(name)
        return self.metastore.add_database(name)

    def drop_database(self, name: str, *, cascade: bool) -> bool:
        if not self.metastore.has_database(name):
            return False
        tables, others = self.metastore.tables(name), self.metastore.others(name)
        check_empty(name, {"tables": tables, "others": others}, cascade=cascade)
        if foreign := self.metastore.foreign(name):
            raise InvalidRequest(
                "the database holds views or tables that are not Paimon's: drop them first",
                database=name,
                others=shown(foreign),
            )
        for table in tables:
            self.drop(Identifier(database=name, table=table))
        path = self.metastore.database_path(name)
        self.metastore.remove_database(name)
        store = self._store(path)
        sweep(store, path)
        # The catalog must not delete files that belong to no entry.
        if not store.list(path):
            with suppress(LakecoreError):
                store.delete_directory(path)
        return True

    # --- tables -----------------------------------------------------------------------------------

    def tables(self, database: str) -> tuple[str, ...] | None:
        return self.metastore.tables(database) if self.metastore.has_database(database) else None

    def near(self, database: str) -> tuple[str, ...]:
        return self.metastore.tables(database)

    def others(self, database: str) -> tuple[str, ...]:
        return self.metastore.others(database)

    def has_table(self, name: Identifier) -> bool:
        entry = self._find(name)
        return entry is not None and is_table(self._store(entry.path), entry.path, name.branch)

    def is_taken(self, name: Identifier) -> bool:
        self.metastore.check_table_name(name)
        return self.metastore.is_taken(name)

    def find(self, name: Identifier) -> Place | None:
        entry = self._find(name)
        return None if entry is None else self._place(name, entry.path)

    def create(self, name: Identifier, schema: TableSchema, rows: object) -> bool:
        def create(store: Store, path: str, schema: TableSchema) -> bool:
            self.metastore.check_schema(name, schema)
            with self.metastore.lock(name):
                return self._create(store, path, name, schema)

        place = self._place(name, self.metastore.new_path(name))
        created = create_filled(
            place.store,
            place.path,
            schema,
            rows,
            create,
            ambient=self.ambient,
            publication=place.publication,
            table=str(name),
        )
        if not created:
            self._await_entry(name)
        return created

    def rename(self, old: Identifier, new: Identifier) -> bool:
        self.metastore.check_table_name(new)
        check_renames(self.store, single_writer=self.options.single_writer, table=old)
        with ExitStack() as locks:
            for name in sorted({old, new}, key=str):
                locks.enter_context(self.metastore.lock(name))
            entry = self.metastore.find(old)
            if entry is None:
                entry = self.metastore.find(new)
                return entry is not None and self._finish_rename(new, entry, old)
            if entry.left is not None:
                self._finish_rename(old, entry, entry.left)
            if not self.metastore.has_database(new.database):
                raise no_database(self, new.database)
            if self.metastore.is_taken(new):
                raise AlreadyExists("the target of the rename exists", table=new)
            self._rename(old, new, entry)
        return True

    def drop(self, name: Identifier) -> bool:
        entry = self._find(name)
        if entry is None or not self.metastore.remove(name):
            if self.has_database(name.database):
                path = self.metastore.database_path(name.database)
                sweep(self._store(path), path)
            return False
        store = self._store(entry.path)
        if not entry.external and store.list(entry.path):
            drop_table(store, entry.path, self.ambient)
        return True

    def branches(self, name: Identifier) -> tuple[str, ...]:
        place = self.find(name)
        return () if place is None else branch_names(place.store, place.path)

    def tags(self, name: Identifier) -> tuple[str, ...]:
        place = self.find(name)
        if place is None:
            return ()
        return History(place.store, Layout(root=place.path, branch=name.branch)).tag_names()

    def repair(self, name: str | None) -> tuple[str, ...]:
        return repair_names(self.metastore, self._store, self.warehouse, name)

    # --- steps ------------------------------------------------------------------------------------

    def _create(self, store: Store, path: str, name: Identifier, schema: TableSchema) -> bool:
        """Create the files of a table and its entry; the caller holds the lock."""
        if self.metastore.is_taken(name):
            return False
        if is_table(store, path):
            raise AlreadyExists(
                "the directory holds a table that the catalog does not list: repair lists it, or "
                "repeat a rename that was interrupted",
                table=name,
                path=path,
            )
        if not create_table_at(store, path, schema):
            return False
        try:
            listed = self.metastore.add(name, path, schema)
        except LakecoreError:
            # If the reply was lost, the entry may exist: then keep the files.
            if not self.metastore.is_taken(name):
                drop_table(store, path, self.ambient)
            raise
        # A concurrent repair may have added the entry for the files: then keep them.
        if not listed and self.metastore.find(name) is None:
            drop_table(store, path, self.ambient)
            raise AlreadyExists(
                "the name is taken: the catalog does not tell it from that of another table, "
                "perhaps because it ignores case",
                table=name,
            )
        return True

    def _rename(self, old: Identifier, new: Identifier, entry: Entry) -> None:
        """Rename the entry, then move the directory; the caller holds both locks."""
        at = self.metastore.new_path(old)
        moves = not entry.external and canonical(entry.path) == canonical(at)
        path = self.metastore.new_path(new) if moves else entry.path
        store = self._store(path)
        if storage_of(entry.path) != storage_of(path):
            raise Unsupported(
                "the table would move to another storage", table=old, path=entry.path, target=path
            )
        if moves and store.exists(path) and not finish_drop(store, path):
            raise AlreadyExists("the target of the rename exists", table=new, path=path)
        if not is_table(store, entry.path):
            raise without_files(old, entry.path)
        if not self.metastore.rename(old, new, path, moves=moves):
            raise AlreadyExists("the target of the rename exists", table=new)
        if not moves:
            return
        try:
            move_table(store, entry.path, path)
        except CommitUnknown:
            raise
        except (LakecoreError, OSError):
            with suppress(LakecoreError):
                self.metastore.rename(new, old, entry.path, moves=False)
            raise
        self.metastore.moved(new)

    def _find(self, name: Identifier) -> Entry | None:
        """The entry of a table, with the directory where its files are now."""
        entry = self.metastore.find(name)
        if entry is None or entry.left is None:
            return entry
        source = self._left(entry, entry.left)
        return entry if source is None else replace(entry, path=source)

    def _left(self, entry: Entry, old: Identifier) -> str | None:
        """The directory of the old name, if a rename was interrupted before it moved the files."""
        source, store = self.metastore.new_path(old), self._store(entry.path)
        if entry.external or storage_of(source) != storage_of(entry.path):
            return None
        if is_table(store, entry.path) or not is_table(store, source):
            return None
        return source if self.metastore.find(old) is None else None

    def _finish_rename(self, new: Identifier, entry: Entry, old: Identifier) -> bool:
        """Finish an interrupted rename; the caller holds the locks. False if there was none."""
        source, store = self._left(entry, old), self._store(entry.path)
        if source is None:
            if entry.left != old or not is_table(store, entry.path):
                return False
        elif store.exists(entry.path) and not finish_drop(store, entry.path):
            return False
        else:
            move_table(store, source, entry.path)
        self.metastore.moved(new)
        return True

    def _place(self, name: Identifier, path: str) -> Place:
        main = replace(name.data_table, branch=MAIN_BRANCH)
        publication = MetastorePublication(metastore=self.metastore, name=main)
        store = self._store(path)
        return Place(store=store, path=path, publication=publication, is_listed=True)

    def _store(self, path: str) -> Store:
        """The storage of a directory, which may not be the storage of the warehouse."""
        same = storage_of(path) == storage_of(self.warehouse)
        return self.store if same else open_store(path, self.options.texts)

    def _await_entry(self, name: Identifier) -> None:
        """Wait until the process that creates a table has added its entry."""
        for _ in range(_LISTED_ATTEMPTS):
            if self.metastore.is_taken(name):
                return
            self.ambient.sleep(_LISTED_WAIT_SECONDS)
