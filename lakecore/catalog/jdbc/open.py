"""Opens a JDBC catalog by its options."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.catalog.jdbc.address import SQLITE, parse_address
from lakecore.catalog.jdbc.database import Database
from lakecore.catalog.jdbc.locks import Locks
from lakecore.catalog.jdbc.metastore import JdbcMetastore
from lakecore.catalog.metastore_catalog import MetastoreCatalog
from lakecore.catalog.options import OptionReader, parse_catalog_options
from lakecore.catalog.warehouse import open_warehouse, under_lock
from lakecore.errors import InvalidRequest, NotFound
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.stores.open import open_store
from lakecore.io.stores.timeouts import timeouts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["open_jdbc"]

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


def open_jdbc(
    given: Mapping[str, str], *, create: bool, ambient: Ambient = SYSTEM
) -> MetastoreCatalog:
    """Open the catalog. Creates the tables of Paimon's JdbcCatalog in the database if missing.

    Raises NotFound for a missing warehouse or SQLite file, unless `create` is set.
    """
    stated = parse_catalog_options(given, own=_KEYS, prefixes=(_PROPERTY,))
    if "uri" not in given:
        raise InvalidRequest(
            "a JDBC catalog has a uri", option="uri", example="jdbc:sqlite:/data/catalog.db"
        )
    read = OptionReader(given)
    properties = {
        key.removeprefix(_PROPERTY): text
        for key, text in given.items()
        if key.startswith(_PROPERTY)
    }
    address = parse_address(given["uri"], properties)
    warehouse, store = open_warehouse(stated.warehouse, stated.texts, create=create)
    # As in Java, locks are on by default for object stores, which have no atomic rename.
    locked = read.flag("lock.enabled", default=not store.renames_at_once)
    if locked:
        store = under_lock(warehouse, stated.texts)
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
    return MetastoreCatalog(warehouse, store, options, metastore, ambient)
