"""The tables of Paimon's JdbcCatalog and the SQL statements on them, for every dialect.

https://paimon.apache.org/docs/master/concepts/catalog/#jdbc-catalog

Each statement lists its columns, so that it also works if another version of Paimon has added
columns (`lock_owner`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

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
