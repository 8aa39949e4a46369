"""Names of databases, tables and views in the tables of Paimon's JdbcCatalog.

A row holds only a name: the directory of a table follows from its name, and its schema is a file.
The rows of a table's properties are copies of its options, for people who query the database.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.catalog.filesystem import DATABASE_SUFFIX
from lakecore.catalog.jdbc import statements as sql
from lakecore.catalog.jdbc.address import SQLITE
from lakecore.catalog.jdbc.views import JdbcViews
from lakecore.catalog.metastore import Entry
from lakecore.errors import InvalidRequest, NotFound
from lakecore.format.layout import MAIN_BRANCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from lakecore.catalog.identifier import Identifier
    from lakecore.catalog.jdbc.database import Database, Statement
    from lakecore.catalog.jdbc.locks import Locks
    from lakecore.catalog.views import Views
    from lakecore.format.layout import Layout
    from lakecore.io.history.history import History
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.table.publication import SnapshotProposal

__all__ = ["JdbcMetastore"]

_EXISTS, _LOCATION = "exists", "location"
_REPLACE_ATTEMPTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcMetastore:
    """The rows of one `catalog-key` (`catalog/metastore.py`)."""

    database: Database
    key: str
    warehouse: str
    copies_properties: bool
    locks: Locks | None

    def make_tables(self) -> None:
        """Create Paimon's tables unless they exist."""
        for table, statement in sql.CREATE.items():
            self.database.create(table, statement)
        if self.locks is not None:
            self.locks.make_table()

    @property
    def case_sensitive(self) -> bool:
        """Always True: directory names are case-sensitive.

        `has_database` therefore compares names itself, in case the SQL database ignores case.
        """
        return True

    @property
    def views(self) -> Views:
        """The views: rows of the same catalog."""
        return JdbcViews(self)

    # --- databases --------------------------------------------------------------------------------

    def databases(self) -> tuple[str, ...]:
        return self._names(sql.LIST_DATABASES)

    def has_database(self, name: str) -> bool:
        return (name,) in self.database.rows(sql.FIND_DATABASE, self._values(name))

    def check_database_name(self, name: str) -> None:
        """Accepts any name: every directory name is a valid name of a database."""

    def check_table_name(self, name: Identifier) -> None:
        """Accepts any name: every directory name is a valid name of a table."""

    def check_schema(self, name: Identifier, schema: TableSchema) -> None:
        if self.database.dialect == SQLITE or not self.copies_properties:
            return  # SQLite has no limits
        for key, value in _properties(schema).items():
            if len(value) > sql.PROPERTY_CHARACTERS_MAX or len(key) > sql.KEY_CHARACTERS_MAX:
                raise InvalidRequest(
                    "the catalog cannot copy an option that is so long; "
                    "with sync-all-properties=false it copies none",
                    table=name,
                    option=key,
                    characters=len(value),
                    most=sql.PROPERTY_CHARACTERS_MAX,
                )

    def add_database(self, name: str) -> bool:
        if self.has_database(name):
            return False
        properties = {_EXISTS: "true", _LOCATION: self.database_path(name)}
        added = self.database.insert(
            *(
                (
                    sql.INSERT_DATABASE_PROPERTY,
                    {**self._values(name), "property": key, "value": value},
                )
                for key, value in properties.items()
            )
        )
        return added is not None

    def remove_database(self, name: str) -> None:
        self.database.change(*((each, self._values(name)) for each in sql.DELETE_DATABASE))

    def database_path(self, name: str) -> str:
        return f"{self.warehouse.rstrip('/')}/{name}{DATABASE_SUFFIX}"

    # --- tables -----------------------------------------------------------------------------------

    def tables(self, database: str) -> tuple[str, ...]:
        return self._names(sql.LIST_TABLES, database)

    def others(self, database: str) -> tuple[str, ...]:
        return self._names(sql.LIST_VIEWS, database)

    def foreign(self, database: str) -> tuple[str, ...]:  # noqa: ARG002
        """Always empty: all rows of a catalog belong to Paimon."""
        return ()

    def find(self, name: Identifier) -> Entry | None:
        exact = (name.database, name.table)
        if exact not in self.database.rows(sql.FIND_TABLE, self.values_of(name)):
            return None
        return Entry(path=self.new_path(name))

    def is_taken(self, name: Identifier) -> bool:
        exact = (name.database, name.table)
        return any(
            exact in self.database.rows(each, self.values_of(name))
            for each in (sql.FIND_TABLE, sql.FIND_VIEW)
        )

    def new_path(self, name: Identifier) -> str:
        return f"{self.database_path(name.database)}/{name.table}"

    def add(self, name: Identifier, path: str, schema: TableSchema) -> bool:  # noqa: ARG002
        added = self.database.insert(
            (sql.INSERT_TABLE, self.values_of(name)),
            # Remove copies of an earlier table, which an engine without copies may have dropped.
            *self._replaced(name, schema),
        )
        return added is not None

    def update(self, name: Identifier, schema: TableSchema, before: TableSchema | None) -> None:  # noqa: ARG002
        if not self.copies_properties:
            return
        # Without a lock, another change may insert the same keys between the DELETE and the INSERT.
        for _ in range(_REPLACE_ATTEMPTS):
            if self.database.insert(*self._replaced(name, schema)) is not None:
                return
        self.database.change(*self._replaced(name, schema))

    def remove(self, name: Identifier) -> bool:
        values = self.values_of(name)
        return (
            self.database.change((sql.DELETE_TABLE, values), (sql.DELETE_TABLE_PROPERTIES, values))
            > 0
        )

    def rename(self, old: Identifier, new: Identifier, path: str) -> bool:  # noqa: ARG002
        values = {**self.values_of(old), "new_database": new.database, "new_table": new.table}
        renamed = self.database.insert(
            (sql.RENAME_TABLE, values),
            (sql.DELETE_TABLE_PROPERTIES, self.values_of(new)),
            (sql.RENAME_TABLE_PROPERTIES, values),
        )
        if renamed == 0:
            raise NotFound("another process renamed or dropped the table", table=old)
        return renamed is not None

    def after_commit(
        self, name: Identifier, store: Store, layout: Layout, proposal: SnapshotProposal
    ) -> None:
        """Does nothing: rows only hold names of tables, which a commit does not change."""

    def after_tags(
        self, name: Identifier, history: History, made: Sequence[str], gone: Sequence[str]
    ) -> None:
        """Does nothing: rows hold names of tables, not tags."""

    def repair_partitions(self, name: Identifier, store: Store, path: str) -> None:
        """Does nothing: rows hold names of tables, not partitions."""

    def lock(self, name: Identifier) -> AbstractContextManager[None]:
        if self.locks is None:
            return nullcontext()
        branch = "" if name.branch == MAIN_BRANCH else f"$branch_{name.branch}"
        return self.locks.hold(name.database, f"{name.table}{branch}")

    # --- statements -------------------------------------------------------------------------------

    def _replaced(self, name: Identifier, schema: TableSchema) -> Iterator[Statement]:
        """The statements that replace the stored copy of a table's properties."""
        if self.copies_properties:
            values = self.values_of(name)
            yield sql.DELETE_TABLE_PROPERTIES, values
            for key, value in _properties(schema).items():
                yield sql.INSERT_TABLE_PROPERTY, {**values, "property": key, "value": value}

    def _names(self, statement: str, database: str = "") -> tuple[str, ...]:
        rows = self.database.rows(
            statement, self._values(database) if database else {"key": self.key}
        )
        return tuple(sorted(name for (name,) in rows))

    def _values(self, database: str) -> dict[str, object]:
        return {"key": self.key, "database": database}

    def values_of(self, name: Identifier) -> dict[str, object]:
        """The parameters of a statement about a table or a view."""
        return {**self._values(name.database), "table": name.table}


def _properties(schema: TableSchema) -> dict[str, str]:
    """The copied properties of a table: its options, and its keys."""
    keys = {
        "primary-key": schema.primary_keys,
        "partition": schema.partition_keys,
        "bucket-key": () if "bucket-key" in schema.options else schema.trimmed_primary_keys,
    }
    return {**schema.options, **{key: ",".join(names) for key, names in keys.items() if names}}
