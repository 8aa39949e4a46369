"""The verbs of a catalog, with the rules that hold wherever the names are kept.

A `Session` and all code above it use only these methods. A catalog maps names to tables. The names
(`names.py`) are kept in directories, in a database or on a server; a name leads to the store and
the directory of a table, and to the `Publication` that makes commits and schema changes visible
(`table/publication.py`). If a catalog takes locks, or a server owns the snapshots, only the
`Publication` differs; all verbs are the same.

Rules that `tests/catalog/test_behaviour.py` checks for every catalog:

- names are read by `identifier.py`; `db.t$branch_b1` is a branch and `db.t$files` a system table;
- the database `sys`, which is not listed, has the tables of `system_database.py`;
- a missing database, table or branch raises NotFound, with the names that exist;
- a name that already exists raises AlreadyExists; the flags `ignore_if_...` suppress these errors;
- exactly one of several concurrent calls that create a table of one name succeeds;
- a schema change is atomic, and concurrent changes are all kept.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

from lakecore.catalog.file_tables import (
    asked_table,
    change_schema,
    data_table,
    no_database,
    no_table,
)
from lakecore.catalog.identifier import (
    SYSTEM_DATABASE,
    Identifier,
    check_directory,
    check_name,
    parse_identifier,
)
from lakecore.catalog.options import of_process
from lakecore.deferred import deferred
from lakecore.errors import AlreadyExists, LakecoreError, NotFound, check_flags

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.catalog.names import Functions, Names
    from lakecore.catalog.new_table import SchemaLike, first_schema
    from lakecore.catalog.system_database import global_table, global_tables, has_global_table
    from lakecore.catalog.views import Views
    from lakecore.model.schema_change import Change
    from lakecore.options import OptionValue
    from lakecore.table.context import TableContext
    from lakecore.table.handle import Table, load_table
    from lakecore.table.maintenance.iceberg_hooks import forget_entries
else:
    first_schema = deferred("lakecore.catalog.new_table", "first_schema")
    global_table = deferred("lakecore.catalog.system_database", "global_table")
    global_tables = deferred("lakecore.catalog.system_database", "global_tables")
    has_global_table = deferred("lakecore.catalog.system_database", "has_global_table")
    load_table = deferred("lakecore.table.handle", "load_table")
    forget_entries = deferred("lakecore.table.maintenance.iceberg_hooks", "forget_entries")

_ICEBERG_URIS = "lakecore.iceberg-uris"


class Catalog:
    """The databases and tables of one warehouse.

    Nothing that another process may change is cached.
    """

    def __init__(self, names: Names) -> None:
        self.names = names

    @property
    def warehouse(self) -> str:
        """The path, URI or name of the warehouse."""
        return self.names.warehouse

    @property
    def option_texts(self) -> Mapping[str, str]:
        """The options of the catalog, as given by the user."""
        return self.names.option_texts

    @property
    def case_sensitive(self) -> bool:
        """Whether names may have upper-case letters. If not, callers must use lower case."""
        return self.names.case_sensitive

    # --- databases --------------------------------------------------------------------------------

    def list_databases(self) -> tuple[str, ...]:
        """The names of all databases, sorted."""
        return self.names.databases()

    def database_exists(self, name: str) -> bool:
        """Whether there is a database of that name."""
        check_directory("database", name)
        return name == SYSTEM_DATABASE or self.names.has_database(name)

    def create_database(self, name: str, *, ignore_if_exists: bool = False) -> None:
        """Create an empty database."""
        check_flags(ignore_if_exists=ignore_if_exists)
        check_name("database", name)
        if not self.names.add_database(name) and not ignore_if_exists:
            raise AlreadyExists("the database exists", database=name)

    def drop_database(
        self, name: str, *, ignore_if_not_exists: bool = False, cascade: bool = False
    ) -> None:
        """Remove a database; with `cascade`, also its tables.

        Raises InvalidRequest if the database is not empty and `cascade` is False.
        """
        check_flags(ignore_if_not_exists=ignore_if_not_exists, cascade=cascade)
        check_directory("database", name)
        tables = (self.names.tables(name) or ()) if cascade else ()
        listed = [self._listed(Identifier(database=name, table=table)) for table in tables]
        if self.names.drop_database(name, cascade=cascade):
            for context in filter(None, listed):
                forget_entries(context)
        elif not ignore_if_not_exists:
            raise no_database(self.names, name)

    # --- tables -----------------------------------------------------------------------------------

    def list_tables(self, database: str) -> tuple[str, ...]:
        """The names of the tables of a database, sorted."""
        if database == SYSTEM_DATABASE:
            return global_tables(self.names)
        check_directory("database", database)
        found = self.names.tables(database)
        if found is None:
            raise no_database(self.names, database)
        return found

    def table_exists(self, identifier: str) -> bool:
        """Whether there is a table, or a branch of one, of that name."""
        name = parse_identifier(identifier)
        if name.database == SYSTEM_DATABASE:
            return has_global_table(self.names, name)
        return self.names.has_table(name)

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
        """Create a table and return it.

        With `ignore_if_exists`, an existing table is returned unchanged. The catalog options under
        `table-default.` are the defaults of `options`. `data`: rows to write to the table; without
        a schema, the table has the columns of the rows.
        """
        name, given = asked_table(identifier, options, ignore_if_exists=ignore_if_exists)
        names = self.names
        if not names.has_database(name.database):
            raise no_database(names, name.database)
        if names.is_taken(name):
            if ignore_if_exists:
                return self._load(name)
            raise AlreadyExists("the table exists", table=name)
        first, rows = first_schema(
            schema,
            data,
            primary_keys=primary_keys,
            partition_keys=partition_keys,
            options={**names.table_defaults, **given},
            comment=comment,
            now_ms=names.ambient.now_ms(),
            table=str(name),
        )
        if not names.create(name, first, rows) and not ignore_if_exists:
            raise AlreadyExists("another process created the table at the same time", table=name)
        return self._load(name)

    def get_table(self, identifier: str) -> Table:
        """The table of that name; a name such as `t$files` returns a read-only system table."""
        name = parse_identifier(identifier)
        if name.database == SYSTEM_DATABASE:
            return cast("Table", global_table(self.names, self.get_table, name))
        table = self._load(name.data_table)
        if name.system is None:
            return table
        # NOTE: a `SystemTable` has only the reading verbs of a table. A union type would force
        # every caller to distinguish the two, although the caller knows which kind it named.
        return cast("Table", table.inspect.system_table(name.system))

    def alter_table(
        self, identifier: str, changes: Sequence[Change], *, ignore_if_not_exists: bool = False
    ) -> None:
        """Apply schema changes as one new schema: all of them, or none.

        If stored rows need it, a change of `deletion-vectors.enabled` first compacts the whole
        table.

        Raises CommitConflict if other processes keep changing the schema at the same time.
        """
        check_flags(ignore_if_not_exists=ignore_if_not_exists)
        name = data_table(identifier, "alter", branch_allowed=True)
        place = self.names.find(name)
        if place is not None and change_schema(
            place, name, changes, opened=lambda: self._load(name), ambient=self.names.ambient
        ):
            return
        if not ignore_if_not_exists:
            raise no_table(self.names, name)

    def rename_table(self, source: str, target: str, *, ignore_if_not_exists: bool = False) -> None:
        """Give a table another name, or move it to another database of the warehouse."""
        check_flags(ignore_if_not_exists=ignore_if_not_exists)
        old = data_table(source, "rename", branch_allowed=False)
        new = data_table(target, "rename", branch_allowed=False)
        check_name("table", new.table)
        if (listed := self._listed(old)) is not None:
            forget_entries(listed)  # the metastore may rename its entry with the table
        if not self.names.rename(old, new) and not ignore_if_not_exists:
            raise no_table(self.names, old)

    def drop_table(self, identifier: str, *, ignore_if_not_exists: bool = False) -> None:
        """Remove a table with all its data, snapshots, tags and branches."""
        check_flags(ignore_if_not_exists=ignore_if_not_exists)
        name = data_table(identifier, "drop", branch_allowed=False)
        listed = self._listed(name)
        if self.names.drop(name):
            if listed is not None:
                forget_entries(listed)
        elif not ignore_if_not_exists:
            raise no_table(self.names, name)

    # --- views and functions ----------------------------------------------------------------------

    @property
    def views(self) -> Views | None:
        """The views that the catalog stores; None if it stores none."""
        return self.names.views

    @property
    def functions(self) -> Functions | None:
        """The functions that the catalog stores; None if it stores none."""
        return self.names.functions

    # --- branches and tags of a table -------------------------------------------------------------

    def list_branches(self, identifier: str) -> tuple[str, ...]:
        """The names of the branches of a table, sorted. `main` is not listed."""
        name = data_table(identifier, "list", branch_allowed=False)
        self._load(name)
        return self.names.branches(name)

    def list_tags(self, identifier: str) -> tuple[str, ...]:
        """The names of the tags of a table or branch, sorted."""
        name = data_table(identifier, "list", branch_allowed=True)
        self._load(name)
        return self.names.tags(name)

    # --- repair -----------------------------------------------------------------------------------

    def repair(self, name: str | None = None) -> tuple[str, ...]:
        """Update the catalog's list of names from the files of the warehouse.

        `name`: a table or a database; by default, everything is repaired. Returns the repaired
        tables. Raises Unsupported if the catalog stores names only as the directories of tables.
        """
        return self.names.repair(name)

    def _listed(self, name: Identifier) -> TableContext | None:
        """A table that Iceberg catalogs may list, if this process may call them."""
        if _ICEBERG_URIS in self.option_texts:
            with suppress(LakecoreError):
                return self._load(name).context
        return None

    def _load(self, name: Identifier) -> Table:
        place = self.names.find(name)
        if place is None:
            raise no_table(self.names, name)
        try:
            return load_table(
                place.store,
                place.path,
                identifier=str(name),
                branch=name.branch,
                dynamic_options={**place.options, **of_process(self.option_texts)},
                ambient=self.names.ambient,
                publication=place.publication,
            )
        except NotFound as error:
            raise no_table(self.names, name, place) from error
