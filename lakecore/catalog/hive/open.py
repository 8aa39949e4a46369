"""Opens a Hive catalog by its options."""

from __future__ import annotations

import platform
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakecore.catalog.hive.client import HiveClient
from lakecore.catalog.hive.metastore import HiveLocks, HiveMetastore
from lakecore.catalog.hive.table_rows import HiveTables
from lakecore.catalog.metastore_catalog import MetastoreCatalog
from lakecore.catalog.options import OptionReader, parse_catalog_options
from lakecore.catalog.warehouse import open_warehouse, under_lock
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.ambient import SYSTEM, Ambient, user_name
from lakecore.io.stores.timeouts import timeouts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.catalog.hive.client import Hosts

__all__ = ["open_hive", "parse_hosts"]

_KEYS = (
    "uri",
    "alter-table-cascade",
    "case-sensitive",
    "client-pool-size",
    "hive.metastore.client.socket.timeout",
    "hive.skip-update-stats",
    "location-in-properties",
    "lock.enabled",
    "lock-check-max-sleep",
    "lock-acquire-timeout",
    "sync-all-properties",
    "table.type",
)
_PORT = 9083


def open_hive(
    given: Mapping[str, str], *, create: bool, ambient: Ambient = SYSTEM
) -> MetastoreCatalog:
    """Open the catalog. Raises NotFound for a missing warehouse, unless `create` is set."""
    stated = parse_catalog_options(given, own=_KEYS)
    read = OptionReader(given)
    if read.flag("case-sensitive", default=False):
        raise Unsupported("a Hive Metastore ignores the case of names", option="case-sensitive")
    kind = read.text("table.type", "managed").lower()
    if kind not in {"managed", "external"}:
        raise InvalidRequest("a table is managed or external", option="table.type", value=kind)
    client = HiveClient(
        parse_hosts(given.get("uri", "")),
        read.integer("client-pool-size", 2, least=1),
        read.duration_ms("hive.metastore.client.socket.timeout", "10 min"),
        timeouts_of(given).connect,
    )
    client.check()
    warehouse, store = open_warehouse(stated.warehouse, stated.texts, create=create)
    # As in Java, locks are on by default for object stores, which have no atomic rename.
    locked = read.flag("lock.enabled", default=not store.renames_at_once)
    if locked:
        store = under_lock(warehouse, stated.texts)
    user = user_name()
    locks = HiveLocks(
        wait_ms_max=read.duration_ms("lock-check-max-sleep", "8 s"),
        timeout_ms=read.duration_ms("lock-acquire-timeout", "8 min"),
        user=user,
        host=platform.node() or "localhost",
    )
    metastore = HiveMetastore(
        client=client,
        warehouse=warehouse,
        rows=HiveTables(
            copies_properties=read.flag("sync-all-properties", default=True),
            location_in_properties=read.flag("location-in-properties", default=False),
            external=kind == "external",
            owner=user,
        ),
        locks=locks if locked else None,
        cascades=read.flag("alter-table-cascade", default=True),
        skips_statistics=read.flag("hive.skip-update-stats", default=False),
        ambient=ambient,
    )
    client.databases()  # raises an error now if the address is wrong
    return MetastoreCatalog(
        warehouse, store, replace(stated, warehouse=warehouse), metastore, ambient
    )


def parse_hosts(uri: str) -> Hosts:
    """The servers of a comma-separated list of `thrift://HOST:PORT`.

    Raises InvalidRequest for anything else.
    """
    hosts: list[tuple[str, int]] = []
    for each in filter(None, map(str.strip, uri.split(","))):
        parts = urlsplit(each)
        try:
            port = parts.port or _PORT
        except ValueError:
            port = 0
        if parts.scheme != "thrift" or not parts.hostname or not port or parts.path.strip("/"):
            raise InvalidRequest(
                "the URI of a Hive Metastore is thrift://HOST:PORT", option="uri", value=each
            )
        hosts.append((parts.hostname, port))
    if not hosts:
        raise InvalidRequest(
            "a Hive catalog has a uri", option="uri", example=f"thrift://localhost:{_PORT}"
        )
    return tuple(hosts)
