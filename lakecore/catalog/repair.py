"""Adds missing entries to a metastore for tables in the warehouse, and copies all schemas again.

Nothing is removed: entries without files stay, and files that are not a table stay, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.catalog.file_tables import data_table, directories, is_table
from lakecore.catalog.filesystem import DATABASE_SUFFIX
from lakecore.catalog.identifier import Identifier, check_name
from lakecore.errors import NotFound
from lakecore.format.layout import Layout
from lakecore.io.history.history import History

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.catalog.metastore import Metastore
    from lakecore.io.stores.store import Store

__all__ = ["repair_names"]


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
