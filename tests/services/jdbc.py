"""Databases of JDBC catalogs on real servers, and what Java's catalog is told about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore.catalog.jdbc.database import Database, parse_address
from lakecore.io.ambient import SYSTEM
from tests.services.servers import PASSWORD, eventually

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.services.servers import Server


@dataclass(frozen=True)
class JdbcServer:
    """A server, and the options of a catalog in its database."""

    server: Server | None
    options: dict[str, str]
    java_uri: str
    java_more: dict[str, str] = field(default_factory=dict)

    def database(self) -> Database:
        """A connection beside the catalog's, to look at its tables."""
        properties = {
            key.removeprefix("jdbc."): text
            for key, text in self.options.items()
            if key.startswith("jdbc.")
        }
        return Database(parse_address(self.options["uri"], properties), 2, SYSTEM)

    def for_java(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options of a catalog in this database, as Java takes them."""
        return {**options, "uri": self.java_uri, **self.java_more}

    def await_answer(self) -> None:
        eventually(lambda: self.database().rows("SELECT 1", {}), self.options["uri"])


def postgresql_server(server: Server) -> JdbcServer:
    uri = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"
    found = JdbcServer(server, _options(uri), uri)
    found.await_answer()
    return found


def mysql_server(server: Server) -> JdbcServer:
    # MariaDB's driver takes a MySQL URI only if it is told to.
    uri = f"jdbc:mysql://127.0.0.1:{server.port}/cat?permitMysqlScheme=true"
    found = JdbcServer(server, _options(uri), uri)
    found.await_answer()
    return found


def sqlite_file(root: Path) -> JdbcServer:
    uri = f"jdbc:sqlite:{root}/catalog.db"
    # Java leaves cursors open, and its lock has a connection of its own, which then waits for them.
    unlocked = {"lock.enabled": "false"}
    return JdbcServer(None, {"metastore": "jdbc", "uri": uri}, uri, unlocked)


def _options(uri: str) -> dict[str, str]:
    return {
        "metastore": "jdbc",
        "uri": uri,
        "jdbc.user": "paimon",
        "jdbc.password": PASSWORD,
    }
