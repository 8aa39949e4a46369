"""A catalog that consists only of directories: `WAREHOUSE/DATABASE.db/TABLE`.

Any directory `X.db` of the warehouse is a database, and any directory of it that holds a schema
file is a table; everything else is ignored. There is no other state. Every Paimon engine that works
on the same warehouse therefore sees the same tables.

What is atomic, and what is not:

- creating a table creates its file `schema-0` exclusively; altering it creates the next schema file
  exclusively. Of concurrent attempts, one succeeds; the others retry from the new state;
- renaming a table moves its directory. On local storage, this is atomic. An object store copies
  file by file, so a concurrent writer could lose commits: this raises Unsupported unless
  `commit.single-writer` is set;
- dropping a table or a database first hides it, which is atomic, and then deletes its files
  (`io/directories.py`). If this is interrupted, the table stays hidden, and the next drop continues
  the deletion.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from lakecore.catalog.file_tables import (
    asked_table,
    base_name,
    branch_names,
    change_schema,
    data_table,
    directories,
    is_table,
    near,
    open_warehouse,
    shown,
)
from lakecore.catalog.identifier import (
    MAIN_BRANCH,
    SYSTEM_DATABASE,
    Identifier,
    check_directory,
    check_name,
    parse_identifier,
)
from lakecore.catalog.options import of_process, parse_catalog_options
from lakecore.deferred import deferred
from lakecore.errors import (
    AlreadyExists,
    CorruptTable,
    InvalidRequest,
    NotFound,
    Unsupported,
)
from lakecore.format.layout import SCHEMA_PREFIX, SNAPSHOT_PREFIX, Layout, parse_numbered
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.directories import drop_database, drop_table, finish_drop, move_table, sweep
from lakecore.io.parallel import read_all
from lakecore.model.arguments import check_flags
from lakecore.table.publication import EXCLUSIVE_CREATE, write_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.catalog.new_table import SchemaLike, create_filled
    from lakecore.catalog.options import CatalogOptions
    from lakecore.catalog.system_database import global_table, global_tables, has_global_table
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.model.schema_change import Change
    from lakecore.options import OptionValue
    from lakecore.table.handle import Table, load_table
else:
    create_filled = deferred("lakecore.catalog.new_table", "create_filled")
    global_table = deferred("lakecore.catalog.system_database", "global_table")
    global_tables = deferred("lakecore.catalog.system_database", "global_tables")
    has_global_table = deferred("lakecore.catalog.system_database", "has_global_table")
    load_table = deferred("lakecore.table.handle", "load_table")

__all__ = ["FilesystemCatalog", "create_table_at", "open_filesystem"]

DATABASE_SUFFIX = ".db"


class FilesystemCatalog:
    """The databases and tables of one warehouse (`catalog.py`). It has no state of its own."""

    case_sensitive = True

    def __init__(
        self, warehouse: str, store: Store, options: CatalogOptions, ambient: Ambient = SYSTEM
    ) -> None:
        self.warehouse = warehouse
        self.store = store
        self.options = options
        self.ambient = ambient
        self.publication = EXCLUSIVE_CREATE

    @property
    def option_texts(self) -> Mapping[str, str]:
        return self.options.texts

    # --- databases --------------------------------------------------------------------------------

    def list_databases(self) -> tuple[str, ...]:
        names = directories(self.store, self.warehouse)
        return tuple(
            sorted(
                name.removesuffix(DATABASE_SUFFIX)
                for name in names
                if name.endswith(DATABASE_SUFFIX) and name != DATABASE_SUFFIX
            )
        )

    def database_exists(self, name: str) -> bool:
        return name == SYSTEM_DATABASE or self.store.exists(self.database_path(name))

    def create_database(self, name: str, *, ignore_if_exists: bool = False) -> None:
        check_flags(ignore_if_exists=ignore_if_exists)
        check_name("database", name)
        path = self.database_path(name)
        if self.store.exists(path):
            if ignore_if_exists:
                return
            raise AlreadyExists("the database exists", database=name, path=path)
        self.store.make_directory(path)

    def drop_database(
        self, name: str, *, ignore_if_not_exists: bool = False, cascade: bool = False
    ) -> None:
        check_flags(ignore_if_not_exists=ignore_if_not_exists, cascade=cascade)
        path = self.database_path(name)
        sweep(self.store, self.warehouse.rstrip("/"))
        if not self.store.exists(path):
            if ignore_if_not_exists:
                return
            raise self._no_database(name)
        tables = self.list_tables(name)
        if not cascade:
            sweep(self.store, path)
            inside = tables or tuple(base_name(child.path) for child in self.store.list(path))
            if inside:
                raise InvalidRequest(
                    "the database is not empty; cascade=True removes what is in it",
                    database=name,
                    **{"tables" if tables else "foreign_files": shown(inside)},
                )
        drop_database(self.store, path, self.ambient)

    # --- tables -----------------------------------------------------------------------------------

    def list_tables(self, database: str) -> tuple[str, ...]:
        if database == SYSTEM_DATABASE:
            return global_tables(self)
        path = self.database_path(database)
        if not self.store.exists(path):
            raise self._no_database(database)
        names = directories(self.store, path)
        are_tables = read_all(lambda name: is_table(self.store, f"{path}/{name}"), names)
        return tuple(sorted(name for name, is_one in zip(names, are_tables, strict=True) if is_one))

    def table_exists(self, identifier: str) -> bool:
        name = parse_identifier(identifier)
        if name.database == SYSTEM_DATABASE:
            return has_global_table(self, name)
        return is_table(self.store, self.table_path(name), name.branch)

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
        if not self.database_exists(name.database):
            raise self._no_database(name.database)
        path = self.table_path(name)
        if is_table(self.store, path):
            if ignore_if_exists:
                return self._load(name)
            raise AlreadyExists("the table exists", table=name, path=path)
        created = create_filled(
            self.store,
            path,
            schema,
            data,
            create_table_at,
            primary_keys=primary_keys,
            partition_keys=partition_keys,
            options={**self.options.table_defaults, **given},
            comment=comment,
            ambient=self.ambient,
            publication=self.publication,
            table=str(name),
        )
        if not created and not ignore_if_exists:
            raise AlreadyExists(
                "another process created the table at the same time", table=name, path=path
            )
        return self._load(name)

    def get_table(self, identifier: str) -> Table:
        name = parse_identifier(identifier)
        if name.database == SYSTEM_DATABASE:
            return cast("Table", global_table(self, name))
        table = self._load(name.data_table)
        if name.system is None:
            return table
        # NOTE: a `SystemTable` has only the reading verbs of a table. A union type would force
        # every caller to distinguish the two, although the caller knows which one it named.
        return cast("Table", table.inspect.system_table(name.system))

    def rename_table(self, source: str, target: str, *, ignore_if_not_exists: bool = False) -> None:
        check_flags(ignore_if_not_exists=ignore_if_not_exists)
        old = data_table(source, "rename", branch_allowed=False)
        new = data_table(target, "rename", branch_allowed=False)
        check_name("table", new.table)
        if not self.store.renames_at_once and not self.options.single_writer:
            raise Unsupported(
                "this storage cannot rename a directory in one step, so a writer could lose its "
                "commits; if nobody else writes, set commit.single-writer",
                table=old,
                path=self.table_path(old),
            )
        if not is_table(self.store, self.table_path(old)):
            finish_drop(self.store, self.table_path(old))
            if ignore_if_not_exists:
                return
            raise self._no_table(old)
        if not self.database_exists(new.database):
            raise self._no_database(new.database)
        place = self.table_path(new)
        if self.store.exists(place) and not finish_drop(self.store, place):
            raise AlreadyExists("the target of the rename exists", table=new)
        move_table(self.store, self.table_path(old), place)

    def drop_table(self, identifier: str, *, ignore_if_not_exists: bool = False) -> None:
        check_flags(ignore_if_not_exists=ignore_if_not_exists)
        name = data_table(identifier, "drop", branch_allowed=False)
        path = self.table_path(name)
        if not is_table(self.store, path):
            sweep(self.store, self.database_path(name.database))
            if finish_drop(self.store, path) or ignore_if_not_exists:
                return
            raise self._no_table(name)
        drop_table(self.store, path, self.ambient)

    def alter_table(
        self, identifier: str, changes: Sequence[Change], *, ignore_if_not_exists: bool = False
    ) -> None:
        check_flags(ignore_if_not_exists=ignore_if_not_exists)
        name = data_table(identifier, "alter", branch_allowed=True)
        layout = Layout(root=self.table_path(name), branch=name.branch)
        done = change_schema(
            self.store,
            layout,
            self.publication,
            changes,
            opened=lambda: self._load(name),
            ambient=self.ambient,
            table=str(name),
        )
        if not done and not ignore_if_not_exists:
            raise self._no_table(name)

    @property
    def views(self) -> None:
        """Always None: a warehouse of directories stores no views."""

    @property
    def functions(self) -> None:
        """Always None: as in Java, only a REST catalog stores functions."""

    def list_branches(self, identifier: str) -> tuple[str, ...]:
        name = data_table(identifier, "list", branch_allowed=False)
        self._load(name)
        return branch_names(self.store, self.table_path(name))

    def list_tags(self, identifier: str) -> tuple[str, ...]:
        name = data_table(identifier, "list", branch_allowed=True)
        return self._load(name).context.history.tag_names()

    def repair(self, name: str | None = None) -> tuple[str, ...]:
        raise Unsupported(
            "a filesystem catalog keeps no names beside its directories: nothing can be repaired",
            warehouse=self.warehouse,
            **({"name": name} if name else {}),
        )

    # --- paths and existence ----------------------------------------------------------------------

    def database_path(self, database: str) -> str:
        """The directory of a database. Raises InvalidRequest for a name that leads outside."""
        check_directory("database", database)
        return f"{self.warehouse.rstrip('/')}/{database}{DATABASE_SUFFIX}"

    def table_path(self, name: Identifier) -> str:
        """The directory of a table."""
        return f"{self.database_path(name.database)}/{name.table}"

    def _load(self, name: Identifier) -> Table:
        try:
            return load_table(
                self.store,
                self.table_path(name),
                identifier=str(name),
                branch=name.branch,
                dynamic_options=of_process(self.options.texts),
                ambient=self.ambient,
                publication=self.publication,
            )
        except NotFound as error:
            raise self._no_table(name) from error

    def _no_database(self, name: str) -> NotFound:
        return NotFound(
            "no such database", database=name, **near("databases", name, self.list_databases())
        )

    def _no_table(self, name: Identifier) -> NotFound:
        if not self.database_exists(name.database):
            return self._no_database(name.database)
        # The directories are one request. Whether each is a table would be one more for each.
        tables = directories(self.store, self.database_path(name.database))
        is_branch = name.branch != MAIN_BRANCH and name.table in tables
        if is_branch and is_table(self.store, self.table_path(name)):
            branches = branch_names(self.store, self.table_path(name))
            return NotFound("no such branch", table=name, **near("branches", name.branch, branches))
        return NotFound("no such table", table=name, **near("tables", name.table, tables))


def open_filesystem(given: Mapping[str, str], *, create: bool) -> FilesystemCatalog:
    """Open the catalog. Raises NotFound for a missing warehouse, unless `create` is set."""
    stated = parse_catalog_options(given)
    warehouse, store = open_warehouse(stated.warehouse, stated.texts, create=create)
    return FilesystemCatalog(warehouse, store, replace(stated, warehouse=warehouse))


def create_table_at(store: Store, path: str, schema: TableSchema) -> bool:
    """Create a table in a directory. Of concurrent callers, exactly one gets True.

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
