"""What every catalog can do, whatever keeps its names: directories, a database, or a server.

A `Session` and all code above it use these calls alone. A catalog maps names to tables, and gives
each table that it loads what the table's verbs need from it: the store, the directory, the newest
schema, and the `Publication` by which its commits and schema changes become visible
(`table/publication.py`). A catalog that holds locks or owns the snapshots therefore only brings
another `Publication`; the verbs stay the same.

Rules that `tests/catalog/test_behaviour.py` checks for every catalog:

- names are read by `identifier.py`; `db.t$branch_b1` is a branch and `db.t$files` a system table;
- the database `sys`, which is not listed, has the tables of `system_database.py`;
- a missing database, table or branch is NotFound, with the names that exist;
- what exists is AlreadyExists; a flag `ignore_if_...` turns either error into no change;
- of all who create a table of one name at the same time, one succeeds;
- a schema change is carried out whole or not at all, and concurrent changes are all kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.catalog.new_table import SchemaLike
    from lakecore.model.schema_change import Change
    from lakecore.options import OptionValue
    from lakecore.table.handle import Table

__all__ = ["Catalog"]


class Catalog(Protocol):
    """The databases and tables of one warehouse. Holds nothing that another process may change."""

    @property
    def warehouse(self) -> str:
        """The path, URI or name of the warehouse."""
        ...

    @property
    def option_texts(self) -> Mapping[str, str]:
        """The options of the catalog, as they were given."""
        ...

    # --- databases --------------------------------------------------------------------------------

    def list_databases(self) -> tuple[str, ...]:
        """The names of all databases, sorted."""
        ...

    def database_exists(self, name: str) -> bool:
        """Whether there is a database of that name."""
        ...

    def create_database(self, name: str, *, ignore_if_exists: bool = False) -> None:
        """Make an empty database."""
        ...

    def drop_database(
        self, name: str, *, ignore_if_not_exists: bool = False, cascade: bool = False
    ) -> None:
        """Remove a database; with `cascade` also what is in it.

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
        primary_keys: Sequence[str] = (),
        partition_keys: Sequence[str] = (),
        options: Mapping[str, OptionValue] | None = None,
        comment: str | None = None,
        ignore_if_exists: bool = False,
    ) -> Table:
        """The new table; the existing one, unchanged, if `ignore_if_exists`.

        The options of the catalog under `table-default.` hold where `options` says nothing. With
        `data`, the table holds these rows, and has their columns unless a schema is given.
        """
        ...

    def get_table(self, identifier: str) -> Table:
        """The table of that name; with `$files` and its like, a read-only system table."""
        ...

    def alter_table(
        self, identifier: str, changes: Sequence[Change], *, ignore_if_not_exists: bool = False
    ) -> None:
        """Carry out schema changes, all of them or none, as one new schema.

        Raises CommitConflict if others go on changing the schema at the same time.
        """
        ...

    def rename_table(self, source: str, target: str, *, ignore_if_not_exists: bool = False) -> None:
        """Give a table another name, or move it to another database of the warehouse."""
        ...

    def drop_table(self, identifier: str, *, ignore_if_not_exists: bool = False) -> None:
        """Remove a table with all its data, snapshots, tags and branches."""
        ...

    # --- branches and tags of a table -------------------------------------------------------------

    def list_branches(self, identifier: str) -> tuple[str, ...]:
        """The names of the branches of a table, sorted, without `main`."""
        ...

    def list_tags(self, identifier: str) -> tuple[str, ...]:
        """The names of the tags of a table or branch, sorted."""
        ...
