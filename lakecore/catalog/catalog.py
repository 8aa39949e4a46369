"""The interface of all catalogs: their names may be in directories, in a database or on a server.

A `Session` and all code above it use only these methods. A catalog maps names to tables. It
provides each table that it loads with the store, the directory, the newest schema, and the
`Publication` that makes commits and schema changes visible (`table/publication.py`). A catalog that
takes locks, or whose server owns the snapshots, passes another `Publication`; all verbs are the
same.

Rules that `tests/catalog/test_behaviour.py` checks for every catalog:

- names are read by `identifier.py`; `db.t$branch_b1` is a branch and `db.t$files` a system table;
- the database `sys`, which is not listed, has the tables of `system_database.py`;
- a missing database, table or branch raises NotFound, with the names that exist;
- a name that already exists raises AlreadyExists; the flags `ignore_if_...` suppress these errors;
- of concurrent calls that create a table of one name, exactly one succeeds;
- a schema change is atomic, and concurrent changes are all kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.catalog.functions import Functions
    from lakecore.catalog.new_table import SchemaLike
    from lakecore.catalog.views import Views
    from lakecore.model.schema_change import Change
    from lakecore.options import OptionValue
    from lakecore.table.handle import Table

__all__ = ["Catalog"]


class Catalog(Protocol):
    """The databases and tables of one warehouse.

    Nothing that another process may change is cached.
    """

    @property
    def warehouse(self) -> str:
        """The path, URI or name of the warehouse."""
        ...

    @property
    def option_texts(self) -> Mapping[str, str]:
        """The options of the catalog, as given by the user."""
        ...

    @property
    def case_sensitive(self) -> bool:
        """Whether names may have upper-case letters. If not, callers must use lower case."""
        ...

    # --- databases --------------------------------------------------------------------------------

    def list_databases(self) -> tuple[str, ...]:
        """The names of all databases, sorted."""
        ...

    def database_exists(self, name: str) -> bool:
        """Whether there is a database of that name."""
        ...

    def create_database(self, name: str, *, ignore_if_exists: bool = False) -> None:
        """Create an empty database."""
        ...

    def drop_database(
        self, name: str, *, ignore_if_not_exists: bool = False, cascade: bool = False
    ) -> None:
        """Remove a database; with `cascade`, also its tables.

        Raises InvalidRequest if it is not empty and `cascade` is False.
        """
        ...

    # --- tables -----------------------------------------------------------------------------------

    def list_tables(self, database: str) -> tuple[str, ...]:
        """The names of the tables of a database, sorted."""
        ...

    def table_exists(self, identifier: str) -> bool:
        """Whether there is a table, or a branch of one, of that name."""
        ...

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
        `table-default.` are the defaults of `options`. With `data`, these rows are written to the
        table; without a schema, it has their columns.
        """
        ...

    def get_table(self, identifier: str) -> Table:
        """The table of that name; a name such as `t$files` returns a read-only system table."""
        ...

    def alter_table(
        self, identifier: str, changes: Sequence[Change], *, ignore_if_not_exists: bool = False
    ) -> None:
        """Apply schema changes as one new schema: all of them, or none.

        Raises CommitConflict if other processes keep changing the schema at the same time.
        """
        ...

    def rename_table(self, source: str, target: str, *, ignore_if_not_exists: bool = False) -> None:
        """Give a table another name, or move it to another database of the warehouse."""
        ...

    def drop_table(self, identifier: str, *, ignore_if_not_exists: bool = False) -> None:
        """Remove a table with all its data, snapshots, tags and branches."""
        ...

    # --- views and functions ----------------------------------------------------------------------

    @property
    def views(self) -> Views | None:
        """The views that the catalog stores; None if it stores none."""
        ...

    @property
    def functions(self) -> Functions | None:
        """The functions that the catalog stores; None if it stores none."""
        ...

    # --- branches and tags of a table -------------------------------------------------------------

    def list_branches(self, identifier: str) -> tuple[str, ...]:
        """The names of the branches of a table, sorted. `main` is not listed."""
        ...

    def list_tags(self, identifier: str) -> tuple[str, ...]:
        """The names of the tags of a table or branch, sorted."""
        ...

    # --- repair -----------------------------------------------------------------------------------

    def repair(self, name: str | None = None) -> tuple[str, ...]:
        """Update the catalog's list of names from the files of the warehouse.

        `name` is a table or a database; by default, everything is repaired. Returns the repaired
        tables. Raises Unsupported if the catalog stores names only as the directories of tables.
        """
        ...
