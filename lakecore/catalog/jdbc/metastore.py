"""Names of databases, tables and views in the tables of Paimon's JdbcCatalog.

A row holds only a name: the directory of a table follows from its name, and its schema is a file.
The rows of a table's properties are copies of its options, for people who query the database.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from lakecore.catalog.catalog import Catalog
from lakecore.catalog.file_tables import open_lockable_warehouse
from lakecore.catalog.filesystem import DATABASE_SUFFIX
from lakecore.catalog.identifier import Identifier, check_name
from lakecore.catalog.jdbc.database import MYSQL, SQLITE, Database, Statement, parse_address
from lakecore.catalog.metastore import (
    LEFT,
    Entry,
    copied_properties,
    left_text,
    lock_name,
    parse_left,
)
from lakecore.catalog.metastore_catalog import MetastoreNames
from lakecore.catalog.options import OptionReader, parse_catalog_options
from lakecore.catalog.views import View, ViewChange, Views, changed_view, decode_view, encode_view
from lakecore.errors import AlreadyExists, CommitConflict, InvalidRequest, LakecoreError, NotFound
from lakecore.io.ambient import SYSTEM, Ambient, await_lock
from lakecore.io.stores.open import open_store
from lakecore.io.stores.services import timeouts_of
from lakecore.options import below

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.format.layout import Layout
    from lakecore.io.history import History
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.table.publication import SnapshotProposal


# --- statements ----------------------------------------------------------------------------------
# The tables of Paimon's JdbcCatalog and the SQL statements on them, for every dialect.
#
# https://paimon.apache.org/docs/master/concepts/catalog/#jdbc-catalog
#
# Each statement lists its columns, so that the statement also works if another version of Paimon
# has added columns (`lock_owner`).

TABLES, DATABASE_PROPERTIES = "paimon_tables", "paimon_database_properties"
TABLE_PROPERTIES, VIEWS, LOCKS = (
    "paimon_table_properties",
    "paimon_views",
    "paimon_distributed_locks",
)
LOCK_OWNER = "lock_owner"
PROPERTY_CHARACTERS_MAX, KEY_CHARACTERS_MAX = 1000, 255
MYSQL_TEXT_BYTES_MAX = 65_535

CREATE: Mapping[str, str] = {
    TABLES: (
        f"CREATE TABLE {TABLES} (catalog_key VARCHAR(255) NOT NULL,"
        " database_name VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,"
        " PRIMARY KEY (catalog_key, database_name, table_name))"
    ),
    DATABASE_PROPERTIES: (
        f"CREATE TABLE {DATABASE_PROPERTIES} (catalog_key VARCHAR(255) NOT NULL,"
        " database_name VARCHAR(255) NOT NULL, property_key VARCHAR(255),"
        " property_value VARCHAR(1000), PRIMARY KEY (catalog_key, database_name, property_key))"
    ),
    TABLE_PROPERTIES: (
        f"CREATE TABLE {TABLE_PROPERTIES} (catalog_key VARCHAR(255) NOT NULL,"
        " database_name VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,"
        " property_key VARCHAR(255) NOT NULL, property_value VARCHAR(1000),"
        " PRIMARY KEY (catalog_key, database_name, table_name, property_key))"
    ),
    VIEWS: (
        f"CREATE TABLE {VIEWS} (catalog_key VARCHAR(255) NOT NULL,"
        " database_name VARCHAR(255) NOT NULL, view_name VARCHAR(255) NOT NULL,"
        " view_schema TEXT NOT NULL, PRIMARY KEY (catalog_key, database_name, view_name))"
    ),
}

CREATE_LOCKS = (
    f"CREATE TABLE {LOCKS} (lock_id VARCHAR(%d) NOT NULL,"
    " acquired_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL,"
    " expire_time_seconds BIGINT DEFAULT 0 NOT NULL, PRIMARY KEY (lock_id))"
)

_OF_DATABASE = "WHERE catalog_key = :key AND database_name = :database"
_OF_TABLE = f"{_OF_DATABASE} AND table_name = :table"

LIST_DATABASES = " UNION ".join(
    f"SELECT database_name FROM {each} WHERE catalog_key = :key"
    for each in (TABLES, DATABASE_PROPERTIES, VIEWS)
)
FIND_DATABASE = " UNION ".join(
    f"SELECT database_name FROM {each} {_OF_DATABASE}"
    for each in (TABLES, DATABASE_PROPERTIES, VIEWS)
)
INSERT_DATABASE_PROPERTY = (
    f"INSERT INTO {DATABASE_PROPERTIES} (catalog_key, database_name, property_key, property_value)"
    " VALUES (:key, :database, :property, :value)"
)
DELETE_DATABASE = tuple(
    f"DELETE FROM {each} {_OF_DATABASE}"
    for each in (TABLES, DATABASE_PROPERTIES, TABLE_PROPERTIES, VIEWS)
)

LIST_TABLES = f"SELECT table_name FROM {TABLES} {_OF_DATABASE}"
LIST_VIEWS = f"SELECT view_name FROM {VIEWS} {_OF_DATABASE}"
FIND_TABLE = f"SELECT database_name, table_name FROM {TABLES} {_OF_TABLE}"
FIND_PLACE = (
    "SELECT t.database_name, t.table_name, p.property_value"
    f" FROM {TABLES} t LEFT JOIN {TABLE_PROPERTIES} p ON p.catalog_key = t.catalog_key"
    " AND p.database_name = t.database_name AND p.table_name = t.table_name"
    " AND p.property_key = :property"
    " WHERE t.catalog_key = :key AND t.database_name = :database AND t.table_name = :table"
)
FIND_VIEW = f"SELECT database_name, view_name FROM {VIEWS} {_OF_DATABASE} AND view_name = :table"
READ_VIEW = (
    f"SELECT database_name, view_name, view_schema FROM {VIEWS} {_OF_DATABASE}"
    " AND view_name = :table"
)
INSERT_VIEW = (
    f"INSERT INTO {VIEWS} (catalog_key, database_name, view_name, view_schema)"
    " VALUES (:key, :database, :table, :schema)"
)
REPLACE_VIEW = f"UPDATE {VIEWS} SET view_schema = :schema {_OF_DATABASE} AND view_name = :table"
DELETE_VIEW = f"DELETE FROM {VIEWS} {_OF_DATABASE} AND view_name = :table"
RENAME_VIEW = (
    f"UPDATE {VIEWS} SET database_name = :new_database, view_name = :new_table {_OF_DATABASE}"
    " AND view_name = :table"
)
INSERT_TABLE = (
    f"INSERT INTO {TABLES} (catalog_key, database_name, table_name)"
    " VALUES (:key, :database, :table)"
)
DELETE_TABLE = f"DELETE FROM {TABLES} {_OF_TABLE}"
RENAME_TABLE = (
    f"UPDATE {TABLES} SET database_name = :new_database, table_name = :new_table {_OF_TABLE}"
)
INSERT_TABLE_PROPERTY = (
    f"INSERT INTO {TABLE_PROPERTIES}"
    " (catalog_key, database_name, table_name, property_key, property_value)"
    " VALUES (:key, :database, :table, :property, :value)"
)
DELETE_TABLE_PROPERTIES = f"DELETE FROM {TABLE_PROPERTIES} {_OF_TABLE}"
DELETE_OTHER_PROPERTIES = f"{DELETE_TABLE_PROPERTIES} AND property_key <> :property"
DELETE_TABLE_PROPERTY = f"{DELETE_TABLE_PROPERTIES} AND property_key = :property"
RENAME_TABLE_PROPERTIES = (
    f"UPDATE {TABLE_PROPERTIES} SET database_name = :new_database, table_name = :new_table"
    f" {_OF_TABLE}"
)

ACQUIRE = f"INSERT INTO {LOCKS} (lock_id, expire_time_seconds) VALUES (:lock, :seconds)"
ACQUIRE_AS = (
    f"INSERT INTO {LOCKS} (lock_id, expire_time_seconds, {LOCK_OWNER})"
    " VALUES (:lock, :seconds, :owner)"
)
RELEASE = f"DELETE FROM {LOCKS} WHERE lock_id = :lock"
RELEASE_AS = f"{RELEASE} AND {LOCK_OWNER} = :owner"

_AGE_SECONDS: Mapping[str, str] = {
    "mysql": "TIMESTAMPDIFF(SECOND, acquired_at, NOW())",
    "postgresql": "EXTRACT(EPOCH FROM AGE(NOW(), acquired_at))",
    "sqlite": "strftime('%s', 'now') - strftime('%s', acquired_at)",
}


_IS_BEFORE: Mapping[str, str] = {
    # The column's collation may ignore case, and differ in character set from the connection's.
    "mysql": "CONVERT(view_schema USING utf8mb4) COLLATE utf8mb4_bin = :before",
    "postgresql": "view_schema = :before",
    "sqlite": "view_schema = :before",
}


def alter_view(dialect: str) -> str:
    """The statement that replaces a view, unless another process has changed it."""
    return f"{REPLACE_VIEW} AND {_IS_BEFORE[dialect]}"


def delete_expired(dialect: str) -> str:
    """The statement that deletes an expired lock: held longer than its `expire_time_seconds`."""
    return f"{RELEASE} AND {_AGE_SECONDS[dialect]} > expire_time_seconds"


# --- views ---------------------------------------------------------------------------------------
# The views of a JDBC catalog: rows of `paimon_views`, as Paimon's JdbcCatalog stores them.

_ATTEMPTS = 20


class Rows(Protocol):
    """The part of `JdbcMetastore` that views need."""

    @property
    def database(self) -> Database: ...
    def has_database(self, name: str) -> bool: ...
    def is_taken(self, name: Identifier) -> bool: ...
    def others(self, database: str) -> tuple[str, ...]: ...
    def lock(self, name: Identifier) -> AbstractContextManager[None]: ...
    def values_of(self, name: Identifier) -> dict[str, object]: ...


@dataclass(frozen=True, slots=True)
class JdbcViews:
    """The views of one `catalog-key` (`catalog/views.py`)."""

    metastore: Rows

    def names(self, database: str) -> tuple[str, ...]:
        return self.metastore.others(database)

    def find(self, name: Identifier) -> View | None:
        text = self._text(name)
        return None if text is None else decode_view(text, name)

    def create(self, name: Identifier, view: View) -> bool:
        values = self._new_values(name, view)
        with self.metastore.lock(name):
            return self._insert(name, values)

    def replace(self, name: Identifier, view: View) -> bool:
        values = self._new_values(name, view)
        with self.metastore.lock(name):
            for _ in range(_ATTEMPTS):
                if self._text(name) is None:
                    if self._insert(name, values):
                        return True
                    if self._text(name) is None:
                        return False  # a table has the name
                elif self.metastore.database.change((REPLACE_VIEW, values)) > 0:
                    return True
        raise self._conflict(name)

    def alter(self, name: Identifier, changes: Sequence[ViewChange]) -> bool:
        database = self.metastore.database
        statement = alter_view(database.dialect)
        with self.metastore.lock(name):
            # Locks may be off: another process may change the view between the read and the write.
            for _ in range(_ATTEMPTS):
                text = self._text(name)
                if text is None:
                    return False
                before = decode_view(text, name)
                view = changed_view(before, changes, name)
                if view == before:
                    return True
                values = {**self._values(name, view), "before": text}
                if database.change((statement, values)) > 0:
                    return True
        raise self._conflict(name)

    def drop(self, name: Identifier) -> bool:
        if self._text(name) is None:
            return False
        with self.metastore.lock(name):
            values = self.metastore.values_of(name)
            return self.metastore.database.change((DELETE_VIEW, values)) > 0

    def rename(self, source: Identifier, target: Identifier) -> None:
        check_name("view", target.table)
        if not self.metastore.has_database(target.database):
            raise NotFound("no such database", database=target.database)
        if self._text(source) is None:
            raise NotFound("no such view", view=source)
        if source == target:
            # The two locks below would be the same lock.
            raise AlreadyExists("the view has this name already", view=target)
        # Locks are taken in the order of names, so that two renames never wait for each other.
        first, second = sorted((source, target), key=_pair)
        with self.metastore.lock(first), self.metastore.lock(second):
            if self.metastore.is_taken(target):
                raise AlreadyExists("a table or view has the new name", view=target)
            values = {
                **self.metastore.values_of(source),
                "new_database": target.database,
                "new_table": target.table,
            }
            renamed = self.metastore.database.insert((RENAME_VIEW, values))
        if renamed is None:
            raise AlreadyExists("a table or view has the new name", view=target)
        if renamed == 0:
            raise NotFound("another process renamed or dropped the view", view=source)

    def _text(self, name: Identifier) -> str | None:
        """The stored text of a view; None if there is no such view."""
        rows = self.metastore.database.rows(READ_VIEW, self.metastore.values_of(name))
        # The SQL database may ignore case in comparisons, but names are case-sensitive.
        texts = [text for database, view, text in rows if (database, view) == _pair(name)]
        return str(texts[0]) if texts else None

    def _new_values(self, name: Identifier, view: View) -> dict[str, object]:
        """The values of a view's row. Raises NotFound for a missing database."""
        check_name("view", name.table)
        if not self.metastore.has_database(name.database):
            raise NotFound("no such database", database=name.database)
        return self._values(name, view)

    def _values(self, name: Identifier, view: View) -> dict[str, object]:
        text = encode_view(view)
        if self.metastore.database.dialect == MYSQL and len(text) > MYSQL_TEXT_BYTES_MAX:
            raise InvalidRequest(
                "the database cannot store a view that is so long",
                view=name,
                bytes=len(text),
                most=MYSQL_TEXT_BYTES_MAX,
            )
        return {**self.metastore.values_of(name), "schema": text}

    def _insert(self, name: Identifier, values: dict[str, object]) -> bool:
        """Insert the row of a view; False if the name is taken."""
        if self.metastore.is_taken(name):
            return False
        return self.metastore.database.insert((INSERT_VIEW, values)) is not None

    def _conflict(self, name: Identifier) -> CommitConflict:
        return CommitConflict("other processes keep changing the view; try again", view=name)


def _pair(name: Identifier) -> tuple[str, str]:
    return name.database, name.table


# --- locks ---------------------------------------------------------------------------------------
# The locks of tables in `paimon_distributed_locks`, as Paimon's JdbcCatalogLock takes them.
#
# 1. Delete the row of the lock if older than its own `expire_time_seconds`: the holder died.
# 2. Insert the row. If the row exists, another process holds the lock: wait and begin again.
# 3. Give up after `lock-acquire-timeout`.
# 4. Release: delete the row. A holder that took longer than `expire_time_seconds` may have lost the
#    lock to another process. Such a holder deletes the row only if the column `lock_owner` shows
#    that the row is still its own.
#
# Newer versions of Paimon add the column `lock_owner`, which is used if present.

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Locks:
    """The locks of one catalog; times are in milliseconds."""

    database: Database
    catalog_key: str
    characters_max: int
    wait_ms_max: int
    timeout_ms: int
    ambient: Ambient

    def make_table(self) -> None:
        self.database.create(LOCKS, CREATE_LOCKS % self.characters_max)

    @contextmanager
    def hold(self, database: str, table: str) -> Iterator[None]:
        """Hold the lock of a table. Raises CommitConflict after the time-out."""
        lock = f"{self.catalog_key}.{database}.{table}"
        if len(lock) > self.characters_max:
            raise InvalidRequest(
                "the name of the lock is too long: shorten the name of the table, or make the "
                "column lock_id longer and set lock-key-max-length",
                lock=lock,
                option="lock-key-max-length",
                characters=len(lock),
                most=self.characters_max,
            )
        owner = self.ambient.new_uuid()
        has_owner = LOCK_OWNER in self.database.columns(LOCKS)
        self._acquire(lock, owner if has_owner else None)
        since = self.ambient.now_ms()
        try:
            yield
        finally:
            self._release(lock, owner if has_owner else None, since)

    def _acquire(self, lock: str, owner: str | None) -> None:
        seconds = self.timeout_ms // 1000
        acquire = (
            (ACQUIRE, {"lock": lock, "seconds": seconds})
            if owner is None
            else (ACQUIRE_AS, {"lock": lock, "seconds": seconds, "owner": owner})
        )

        def acquired() -> bool:
            self.database.change((delete_expired(self.database.dialect), {"lock": lock}))
            return self.database.insert(acquire) is not None

        await_lock(
            acquired,
            self.ambient,
            wait_ms_max=self.wait_ms_max,
            timeout_ms=self.timeout_ms,
            lock=lock,
        )

    def _release(self, lock: str, owner: str | None, since: int) -> None:
        held_ms = self.ambient.now_ms() - since
        if owner is None and held_ms // 1000 >= self.timeout_ms // 1000:
            _log.warning("lock held too long to release lock=%s held_ms=%d", lock, held_ms)
            return
        try:
            if owner is None:
                self.database.change((RELEASE, {"lock": lock}))
            else:
                self.database.change((RELEASE_AS, {"lock": lock, "owner": owner}))
        except LakecoreError as error:
            # No error, because the work under the lock is done; the lock will expire.
            _log.warning("lock not released lock=%s error=%s", lock, error)


# --- metastore -----------------------------------------------------------------------------------

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
        for table, statement in CREATE.items():
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
        return JdbcViews(self)

    # --- databases --------------------------------------------------------------------------------

    def databases(self) -> tuple[str, ...]:
        return self._names(LIST_DATABASES)

    def has_database(self, name: str) -> bool:
        return (name,) in self.database.rows(FIND_DATABASE, self._values(name))

    def check_database_name(self, name: str) -> None:
        """Accepts any name: every directory name is a valid name of a database."""

    def check_table_name(self, name: Identifier) -> None:
        """Accepts any name: every directory name is a valid name of a table."""

    def check_schema(self, name: Identifier, schema: TableSchema) -> None:
        if self.database.dialect == SQLITE or not self.copies_properties:
            return  # SQLite has no limits
        for key, value in copied_properties(schema).items():
            if len(value) > PROPERTY_CHARACTERS_MAX or len(key) > KEY_CHARACTERS_MAX:
                raise InvalidRequest(
                    "the catalog cannot copy an option that is so long; "
                    "with sync-all-properties=false it copies none",
                    table=name,
                    option=key,
                    characters=len(value),
                    most=PROPERTY_CHARACTERS_MAX,
                )

    def add_database(self, name: str) -> bool:
        if self.has_database(name):
            return False
        properties = {_EXISTS: "true", _LOCATION: self.database_path(name)}
        added = self.database.insert(
            *(
                (
                    INSERT_DATABASE_PROPERTY,
                    {**self._values(name), "property": key, "value": value},
                )
                for key, value in properties.items()
            )
        )
        return added is not None

    def remove_database(self, name: str) -> None:
        self.database.change(*((each, self._values(name)) for each in DELETE_DATABASE))

    def database_path(self, name: str) -> str:
        return f"{self.warehouse.rstrip('/')}/{name}{DATABASE_SUFFIX}"

    # --- tables -----------------------------------------------------------------------------------

    def tables(self, database: str) -> tuple[str, ...]:
        return self._names(LIST_TABLES, database)

    def others(self, database: str) -> tuple[str, ...]:
        return self._names(LIST_VIEWS, database)

    def foreign(self, database: str) -> tuple[str, ...]:  # noqa: ARG002
        """Always empty: all rows of a catalog belong to Paimon."""
        return ()

    def find(self, name: Identifier) -> Entry | None:
        values = {**self.values_of(name), "property": LEFT}
        for *exact, left in self.database.rows(FIND_PLACE, values):
            if exact == [name.database, name.table]:
                return Entry(path=self.new_path(name), left=parse_left(left))
        return None

    def is_taken(self, name: Identifier) -> bool:
        exact = (name.database, name.table)
        return any(
            exact in self.database.rows(each, self.values_of(name))
            for each in (FIND_TABLE, FIND_VIEW)
        )

    def new_path(self, name: Identifier) -> str:
        return f"{self.database_path(name.database)}/{name.table}"

    def add(self, name: Identifier, path: str, schema: TableSchema) -> bool:  # noqa: ARG002
        added = self.database.insert(
            (INSERT_TABLE, self.values_of(name)),
            # Remove copies of an earlier table, which an engine without copies may have dropped.
            (DELETE_TABLE_PROPERTIES, self.values_of(name)),
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
        return self.database.change((DELETE_TABLE, values), (DELETE_TABLE_PROPERTIES, values)) > 0

    def rename(self, old: Identifier, new: Identifier, path: str, *, moves: bool) -> bool:  # noqa: ARG002
        mark = {**self.values_of(new), "property": LEFT, "value": left_text(old)}
        values = {**self.values_of(old), "new_database": new.database, "new_table": new.table}
        renamed = self.database.insert(
            (RENAME_TABLE, values),
            (DELETE_TABLE_PROPERTIES, self.values_of(new)),
            (RENAME_TABLE_PROPERTIES, values),
            (DELETE_TABLE_PROPERTY, mark),
            *([(INSERT_TABLE_PROPERTY, mark)] if moves else []),
        )
        if renamed == 0:
            raise NotFound("another process renamed or dropped the table", table=old)
        return renamed is not None

    def moved(self, name: Identifier) -> None:
        self.database.change((DELETE_TABLE_PROPERTY, {**self.values_of(name), "property": LEFT}))

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
        return self.locks.hold(name.database, lock_name(name))

    # --- statements -------------------------------------------------------------------------------

    def _replaced(self, name: Identifier, schema: TableSchema) -> Iterator[Statement]:
        """The statements that replace the stored copy of a table's properties."""
        if self.copies_properties:
            values = self.values_of(name)
            yield DELETE_OTHER_PROPERTIES, {**values, "property": LEFT}
            for key, value in copied_properties(schema).items():
                yield INSERT_TABLE_PROPERTY, {**values, "property": key, "value": value}

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


# --- open ----------------------------------------------------------------------------------------
# Opens a JDBC catalog by its options.

_PROPERTY = "jdbc."
_KEYS = (
    "uri",
    "catalog-key",
    "client-pool-size",
    "lock.enabled",
    "lock-key-max-length",
    "lock-check-max-sleep",
    "lock-acquire-timeout",
    "sync-all-properties",
)


def open_jdbc(given: Mapping[str, str], *, create: bool, ambient: Ambient = SYSTEM) -> Catalog:
    """Open the catalog. Creates the tables of Paimon's JdbcCatalog in the database if missing.

    Raises NotFound for a missing warehouse or SQLite file, unless `create` is set.
    """
    stated = parse_catalog_options(given, own=_KEYS, prefixes=(_PROPERTY,))
    if "uri" not in given:
        raise InvalidRequest(
            "a JDBC catalog has a uri", option="uri", example="jdbc:sqlite:/data/catalog.db"
        )
    read = OptionReader(given)
    address = parse_address(given["uri"], below(given, _PROPERTY))
    warehouse, store, locked = open_lockable_warehouse(
        stated.warehouse, stated.texts, create=create
    )
    is_file = address.dialect == SQLITE
    if is_file and not create and not open_store(address.database, {}).exists(address.database):
        raise NotFound(
            "no such SQLite file; connect(..., create=True) makes one", path=address.database
        )
    database = Database(
        address, read.integer("client-pool-size", 2, least=1), ambient, timeouts_of(given)
    )
    key = read.text("catalog-key", "jdbc")
    locks = Locks(
        database=database,
        catalog_key=key,
        characters_max=read.integer("lock-key-max-length", 255, least=1),
        wait_ms_max=read.duration_ms("lock-check-max-sleep", "8 s"),
        timeout_ms=read.duration_ms("lock-acquire-timeout", "8 min"),
        ambient=ambient,
    )
    metastore = JdbcMetastore(
        database=database,
        key=key,
        warehouse=warehouse,
        copies_properties=read.flag("sync-all-properties", default=True),
        locks=locks if locked else None,
    )
    metastore.make_tables()
    options = replace(stated, warehouse=warehouse)
    return Catalog(MetastoreNames(warehouse, store, options, metastore, ambient))
