"""A catalog with its names in a metastore, and its tables as files below a warehouse.

Each change has two steps. Their order decides what a crash between them leaves:

- create: the schema file, then the entry. A crash leaves a directory without an entry; `repair`
  adds the entry;
- drop: the entry, then the directory. A crash leaves a directory without an entry;
- rename: the entry, then the directory. If the directory cannot be moved, the entry is renamed
  back. A crash leaves the new entry without a directory, and the table at its old path; `repair` of
  the old name adds the old entry again;
- alter: the copy in the metastore, then the schema file. A crash leaves a copy of a schema that the
  table does not have; `repair` copies the right one.

Creation and altering hold the table's lock; a rename holds the locks of both names, in order.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from lakecore.catalog.file_tables import (
    asked_table,
    branch_names,
    change_schema,
    data_table,
    directories,
    is_table,
    near,
    shown,
)
from lakecore.catalog.filesystem import DATABASE_SUFFIX, create_table_at
from lakecore.catalog.identifier import (
    MAIN_BRANCH,
    SYSTEM_DATABASE,
    Identifier,
    check_directory,
    check_name,
    parse_identifier,
)
from lakecore.catalog.metastore import MetastorePublication
from lakecore.catalog.new_table import create_filled
from lakecore.catalog.options import of_process
from lakecore.catalog.system_database import global_table, global_tables, has_global_table
from lakecore.errors import (
    AlreadyExists,
    CommitUnknown,
    InvalidRequest,
    LakecoreError,
    NotFound,
    Unsupported,
)
from lakecore.format.layout import Layout, storage_of
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.directories import drop_table, finish_drop, move_table, sweep
from lakecore.io.history import History
from lakecore.io.stores.open import open_store
from lakecore.model.arguments import check_flags
from lakecore.table.handle import Table, load_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.catalog.metastore import Entry, Metastore
    from lakecore.catalog.new_table import SchemaLike
    from lakecore.catalog.options import CatalogOptions
    from lakecore.catalog.views import Views
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.model.schema_change import Change
    from lakecore.options import OptionValue


# --- repair --------------------------------------------------------------------------------------
# Adds missing entries to a metastore for tables in the warehouse, and copies all schemas again.
#
# Nothing is removed: entries without files stay, and files that are not a table stay, too.


def repair_names(
    metastore: Metastore, store_of: Callable[[str], Store], warehouse: str, name: str | None
) -> tuple[str, ...]:
    """Add the tables that have directories to the metastore, and copy their schemas to it.

    `name` is a table or a database; None means the whole warehouse. Returns the names of these
    tables. Raises NotFound if the warehouse has no such table or database.
    """
    if name is None:
        found = directories(store_of(warehouse), warehouse)
        databases = [
            each.removesuffix(DATABASE_SUFFIX)
            for each in found
            if each.endswith(DATABASE_SUFFIX) and each != DATABASE_SUFFIX
        ]
        return tuple(
            table for each in sorted(databases) for table in _database(metastore, store_of, each)
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


# --- metastore catalog ---------------------------------------------------------------------------

_LISTED_ATTEMPTS, _LISTED_WAIT_SECONDS = 20, 0.05


class MetastoreCatalog:
    """The databases and tables that a metastore lists (`catalog.py`), without a cache."""

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
        self.metastore = metastore
        self.case_sensitive = metastore.case_sensitive
        self.ambient = ambient

    @property
    def option_texts(self) -> Mapping[str, str]:
        return self.options.texts

    # --- databases --------------------------------------------------------------------------------

    def list_databases(self) -> tuple[str, ...]:
        return self.metastore.databases()

    def database_exists(self, name: str) -> bool:
        check_directory("database", name)
        return name == SYSTEM_DATABASE or self.metastore.has_database(name)

    def create_database(self, name: str, *, ignore_if_exists: bool = False) -> None:
        check_flags(ignore_if_exists=ignore_if_exists)
        check_name("database", name)
        self.metastore.check_database_name(name)
        if not self.metastore.add_database(name) and not ignore_if_exists:
            raise AlreadyExists("the database exists", database=name)

    def drop_database(
        self, name: str, *, ignore_if_not_exists: bool = False, cascade: bool = False
    ) -> None:
        check_flags(ignore_if_not_exists=ignore_if_not_exists, cascade=cascade)
        check_directory("database", name)
        if not self.metastore.has_database(name):
            if ignore_if_not_exists:
                return
            raise self._no_database(name)
        tables, others = self.metastore.tables(name), self.metastore.others(name)
        if not cascade and (tables or others):
            raise InvalidRequest(
                "the database is not empty; cascade=True removes what is in it",
                database=name,
                **{"tables" if tables else "others": shown(tables or others)},
            )
        if foreign := self.metastore.foreign(name):
            raise InvalidRequest(
                "the database holds views or tables that are not Paimon's: drop them first",
                database=name,
                others=shown(foreign),
            )
        for table in tables:
            self.drop_table(str(Identifier(database=name, table=table)), ignore_if_not_exists=True)
        path = self.metastore.database_path(name)
        self.metastore.remove_database(name)
        store = self._store(path)
        sweep(store, path)
        # The catalog must not delete files that belong to no entry.
        if not store.list(path):
            with suppress(LakecoreError):
                store.delete_directory(path)

    # --- tables -----------------------------------------------------------------------------------

    def list_tables(self, database: str) -> tuple[str, ...]:
        if database == SYSTEM_DATABASE:
            return global_tables(self)
        check_directory("database", database)
        if not self.metastore.has_database(database):
            raise self._no_database(database)
        return self.metastore.tables(database)

    def table_exists(self, identifier: str) -> bool:
        name = parse_identifier(identifier)
        if name.database == SYSTEM_DATABASE:
            return has_global_table(self, name)
        entry = self.metastore.find(name)
        return entry is not None and is_table(self._store(entry.path), entry.path, name.branch)

    def create_table(  # noqa: PLR0913  the public verb
        self,
        identifier: str,
        schema: SchemaLike | None = None,
        *,
        data: object = None,
        primary_keys: Sequence[str] | None = None,
        partition_keys: Sequence[str] | None = None,
        options: Mapping[str, OptionValue] | None = None,
        comment: str | None = None,
        ignore_if_exists: bool = False,
    ) -> Table:
        name, given = asked_table(identifier, options, ignore_if_exists=ignore_if_exists)
        self.metastore.check_table_name(name)
        if not self.metastore.has_database(name.database):
            raise self._no_database(name.database)
        if self.metastore.is_taken(name):
            if ignore_if_exists:
                return self._load(name)
            raise AlreadyExists("the table exists", table=name)

        def create(store: Store, path: str, schema: TableSchema) -> bool:
            self.metastore.check_schema(name, schema)
            with self.metastore.lock(name):
                return self._create(store, path, name, schema)

        path = self.metastore.new_path(name)
        created = create_filled(
            self._store(path),
            path,
            schema,
            data,
            create,
            primary_keys=primary_keys,
            partition_keys=partition_keys,
            options={**self.options.table_defaults, **given},
            comment=comment,
            ambient=self.ambient,
            publication=self._publication(name),
            table=str(name),
        )
        if not created:
            if not ignore_if_exists:
                raise AlreadyExists(
                    "another process created the table at the same time", table=name
                )
            self._await_entry(name)
        return self._load(name)

    def get_table(self, identifier: str) -> Table:
        name = parse_identifier(identifier)
        if name.database == SYSTEM_DATABASE:
            return cast("Table", global_table(self, name))
        table = self._load(name.data_table)
        if name.system is None:
            return table
        return cast("Table", table.inspect.system_table(name.system))

    def alter_table(
        self, identifier: str, changes: Sequence[Change], *, ignore_if_not_exists: bool = False
    ) -> None:
        check_flags(ignore_if_not_exists=ignore_if_not_exists)
        name = data_table(identifier, "alter", branch_allowed=True)
        entry = self.metastore.find(name)
        done = entry is not None and change_schema(
            self._store(entry.path),
            Layout(root=entry.path, branch=name.branch),
            self._publication(name),
            changes,
            opened=lambda: self._load(name),
            ambient=self.ambient,
            table=str(name),
        )
        if not done and not ignore_if_not_exists:
            raise self._no_table(name)

    def rename_table(self, source: str, target: str, *, ignore_if_not_exists: bool = False) -> None:
        check_flags(ignore_if_not_exists=ignore_if_not_exists)
        old = data_table(source, "rename", branch_allowed=False)
        new = data_table(target, "rename", branch_allowed=False)
        check_name("table", new.table)
        self.metastore.check_table_name(new)
        if not self.store.renames_at_once and not self.options.single_writer:
            raise Unsupported(
                "this storage cannot rename a directory in one step, so a writer could lose its "
                "commits; if nobody else writes, set commit.single-writer",
                table=old,
            )
        with ExitStack() as locks:
            for name in sorted({old, new}, key=str):
                locks.enter_context(self.metastore.lock(name))
            entry = self.metastore.find(old)
            if entry is None:
                if ignore_if_not_exists:
                    return
                raise self._no_table(old)
            if not self.metastore.has_database(new.database):
                raise self._no_database(new.database)
            if self.metastore.is_taken(new):
                raise AlreadyExists("the target of the rename exists", table=new)
            self._rename(old, new, entry)

    def drop_table(self, identifier: str, *, ignore_if_not_exists: bool = False) -> None:
        check_flags(ignore_if_not_exists=ignore_if_not_exists)
        name = data_table(identifier, "drop", branch_allowed=False)
        entry = self.metastore.find(name)
        if entry is None or not self.metastore.remove(name):
            if self.database_exists(name.database):
                path = self.metastore.database_path(name.database)
                sweep(self._store(path), path)
            if not ignore_if_not_exists:
                raise self._no_table(name)
            return
        store = self._store(entry.path)
        if not entry.external and store.list(entry.path):
            drop_table(store, entry.path, self.ambient)

    @property
    def views(self) -> Views | None:
        return self.metastore.views

    # --- branches and tags of a table -------------------------------------------------------------

    def list_branches(self, identifier: str) -> tuple[str, ...]:
        table = self._load(data_table(identifier, "list", branch_allowed=False))
        return branch_names(table.context.store, table.path)

    def list_tags(self, identifier: str) -> tuple[str, ...]:
        table = self._load(data_table(identifier, "list", branch_allowed=True))
        return table.context.history.tag_names()

    def repair(self, name: str | None = None) -> tuple[str, ...]:
        return repair_names(self.metastore, self._store, self.warehouse, name)

    # --- steps ------------------------------------------------------------------------------------

    def _create(self, store: Store, path: str, name: Identifier, schema: TableSchema) -> bool:
        """Create the files of a table and its entry; the caller holds the lock."""
        if self.metastore.is_taken(name):
            return False
        if is_table(store, path):
            raise AlreadyExists(
                "the directory holds a table that the catalog does not list: repair lists it",
                table=name,
                path=path,
            )
        if not create_table_at(store, path, schema):
            return False
        try:
            listed = self.metastore.add(name, path, schema)
        except LakecoreError:
            # If the reply was lost, the entry may exist. Then the files must not be deleted.
            if not self.metastore.is_taken(name):
                drop_table(store, path, self.ambient)
            raise
        # A concurrent repair may have added the entry for these files: then they stay.
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
        moves = not entry.external
        path = self.metastore.new_path(new) if moves else entry.path
        store = self._store(path)
        if storage_of(entry.path) != storage_of(path):
            raise Unsupported(
                "the table would move to another storage", table=old, path=entry.path, target=path
            )
        if moves and store.exists(path) and not finish_drop(store, path):
            raise AlreadyExists("the target of the rename exists", table=new, path=path)
        if moves and not is_table(store, entry.path):
            raise self._without_files(old, entry)
        if not self.metastore.rename(old, new, path):
            raise AlreadyExists("the target of the rename exists", table=new)
        if not moves:
            return
        try:
            move_table(store, entry.path, path)
        except CommitUnknown:
            raise
        except (LakecoreError, OSError):
            with suppress(LakecoreError):
                self.metastore.rename(new, old, entry.path)
            raise

    # --- finding ----------------------------------------------------------------------------------

    def _store(self, path: str) -> Store:
        """The storage of a directory. A table may be on another storage than the warehouse."""
        same = storage_of(path) == storage_of(self.warehouse)
        return self.store if same else open_store(path, self.options.texts)

    def _publication(self, name: Identifier) -> MetastorePublication:
        main = replace(name.data_table, branch=MAIN_BRANCH)
        return MetastorePublication(metastore=self.metastore, name=main)

    def _load(self, name: Identifier) -> Table:
        entry = self.metastore.find(name)
        if entry is None:
            raise self._no_table(name)
        try:
            return load_table(
                self._store(entry.path),
                entry.path,
                identifier=str(name),
                branch=name.branch,
                dynamic_options=of_process(self.options.texts),
                ambient=self.ambient,
                publication=self._publication(name),
            )
        except NotFound as error:
            store = self._store(entry.path)
            if name.branch != MAIN_BRANCH and is_table(store, entry.path):
                branches = branch_names(store, entry.path)
                raise NotFound(
                    "no such branch", table=name, **near("branches", name.branch, branches)
                ) from error
            raise self._without_files(name, entry) from error

    def _await_entry(self, name: Identifier) -> None:
        """Wait until the process that creates a table has added its entry."""
        for _ in range(_LISTED_ATTEMPTS):
            if self.metastore.is_taken(name):
                return
            self.ambient.sleep(_LISTED_WAIT_SECONDS)

    def _no_database(self, name: str) -> NotFound:
        return NotFound(
            "no such database", database=name, **near("databases", name, self.list_databases())
        )

    def _no_table(self, name: Identifier) -> NotFound | Unsupported:
        if not self.database_exists(name.database):
            return self._no_database(name.database)
        if name.table in self.metastore.others(name.database):
            return Unsupported("a view (SQL reads it), or not a table of Paimon", table=name)
        tables = self.metastore.tables(name.database)
        return NotFound("no such table", table=name, **near("tables", name.table, tables))

    def _without_files(self, name: Identifier, entry: Entry) -> NotFound:
        return NotFound(
            "the catalog lists the table, but its directory holds none; perhaps a rename was "
            "interrupted: repair the old name, and drop this one",
            table=name,
            path=entry.path,
        )
