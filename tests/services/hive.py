"""The Hive Metastore of the tests: options of catalogs on it, and a client beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.io.hive.client import HiveClient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.servers import Server


def hive_options(server: Server, root: Path) -> dict[str, str]:
    return {
        "metastore": "hive",
        "uri": f"thrift://127.0.0.1:{server.port}",
        "warehouse": str(root / "w"),
        "lock-check-max-sleep": "200 ms",
    }


def client(server: Server) -> HiveClient:
    return HiveClient((("127.0.0.1", server.port),), 2, 60_000)


def empty(server: Server) -> None:
    """Drop all databases but `default`, and the tables of that one."""
    beside = client(server)
    for name in beside.databases():
        for table in beside.table_names(name):
            beside.drop_table(name, table)
        if name != "default":
            beside.drop_database(name)
