"""Source catalogs of SQL: `CREATE CATALOG m WITH ('type' = 'mysql', ...)`.

A source catalog names a server. Its tables cannot be queried. CREATE TABLE ... AS TABLE and CREATE
DATABASE ... AS DATABASE replicate them, by the same actions as the command line.

| type | a table | a database |
|---|---|---|
| mysql | `m.database.table`, regular expressions | `m.database`, a regular expression |
| postgres | `p.database.schema.table`; schema and table are regular expressions | not supported |
| kafka | `k.topic` or `k.kafka.topic` | `k.topic`; `k.kafka`: the topics of the options |
| files | `f.folder` | `f.folder` |
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from lakecore.cdc.actions import check_keys
from lakecore.errors import InvalidRequest
from lakecore.io.secret_options import with_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DATABASE = "default-database"
_TOPICS = "kafka"
_PROPERTY = "properties."


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCatalog:
    """A server, defined by options, which `repr` hides because they hold secrets."""

    type: str
    options: Mapping[str, str] = field(repr=False)

    def action(self, *, takes_table: bool) -> str:
        """The name of the action for one table or for a database."""
        return f"{self.type}_sync_{'table' if takes_table else 'database'}"

    def conf(
        self, names: tuple[str, ...], options: Mapping[str, str], *, takes_table: bool
    ) -> dict[str, str]:
        """The options of the source, from the catalog, the statement and the names."""
        stated = {**self.options, **with_secrets(options)}
        found = (_TABLES if takes_table else _DATABASES)[self.type](names, stated)
        stated.pop(_DATABASE, None)
        twice = sorted(found.keys() & options.keys())
        if twice:
            raise InvalidRequest(
                "the name of the source already states what these options state", options=twice
            )
        return {**stated, **found}


def opened_source(kind: str, options: Mapping[str, str]) -> SourceCatalog:
    """A catalog with these options. The options are checked, without a request to the server.

    Raises InvalidRequest, naming the option.
    """
    found = with_secrets(options)
    known, needed = _KEYS[kind]
    stated = {key: text for key, text in found.items() if not key.startswith(_PROPERTY)}
    check_keys(f"a catalog of the type {kind}", stated, known, ())
    missing = [each for each in needed if each not in found]
    if missing:
        raise InvalidRequest(f"a catalog of the type {kind} needs these options", missing=missing)
    return SourceCatalog(type=kind, options=found)


def _error(names: tuple[str, ...], expected: str) -> InvalidRequest:
    return InvalidRequest(f"a table of this source is named {expected}", name=".".join(names))


def _mysql_table(names: tuple[str, ...], options: Mapping[str, str]) -> Mapping[str, str]:
    if len(names) == 1 and _DATABASE in options:
        names = (options[_DATABASE], *names)
    match names:
        case (database, table):
            return {"database-name": database, "table-name": table}
    raise _error(names, "database.table")


def _mysql_database(names: tuple[str, ...], options: Mapping[str, str]) -> Mapping[str, str]:
    del options
    match names:
        case (database,):
            return {"database-name": database}
    raise InvalidRequest("name one database of the source", name=".".join(names))


def _postgres_table(names: tuple[str, ...], options: Mapping[str, str]) -> Mapping[str, str]:
    match names:
        # In a regular expression such as `order_.*`, the dot does not separate names. Only a chain
        # of three names states a schema.
        case (database, table) if re.fullmatch(r"\w+\.\w.*", table):
            schema, _, table = table.partition(".")
            return {"database-name": database, "schema-name": schema, "table-name": table}
        case (database, table):
            stated = {} if "schema-name" in options else {"schema-name": "public"}
            return {"database-name": database, "table-name": table, **stated}
        case (database, schema, table):
            return {"database-name": database, "schema-name": schema, "table-name": table}
    raise _error(names, "database.schema.table")


def _postgres_database(names: tuple[str, ...], options: Mapping[str, str]) -> Mapping[str, str]:
    match names:
        case (database,):
            stated = {} if "schema-name" in options else {"schema-name": "public"}
            return {"database-name": database, **stated}
        case (database, schema):
            return {"database-name": database, "schema-name": schema}
    raise InvalidRequest("name one database, or database.schema", name=".".join(names))


def _kafka_table(names: tuple[str, ...], options: Mapping[str, str]) -> Mapping[str, str]:
    del options
    match names:
        case (topic,) | ("kafka", topic):
            return {"topic": topic}
    raise _error(names, "topic, or kafka.topic")


def _kafka_database(names: tuple[str, ...], options: Mapping[str, str]) -> Mapping[str, str]:
    match names:
        case ("kafka",) if options.keys() & {"topic", "topic-pattern"}:
            return {}
        case (topic,) if topic != _TOPICS:
            return {"topic": topic}
    raise InvalidRequest(
        "name a topic, or state topic or topic-pattern and name `kafka`", name=".".join(names)
    )


def _files(names: tuple[str, ...], options: Mapping[str, str]) -> Mapping[str, str]:
    match names:
        case (folder,) if folder not in {"", ".", ".."} and "/" not in folder:
            return {"path": f"{options['path'].rstrip('/')}/{folder}"}
    raise InvalidRequest("name one folder in the path of the source", name=".".join(names))


_SERVER = ("hostname", "port", "username", "password", _DATABASE, "connect.timeout")
_KEYS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "mysql": (
        (
            *_SERVER,
            "server-id",
            "server-time-zone",
            "scan.startup.mode",
            "scan.startup.timestamp-millis",
            "scan.incremental.snapshot.chunk.size",
            "scan.snapshot.parallelism",
            "ssl.ca",
        ),
        ("hostname", "username", "password"),
    ),
    "postgres": (
        (
            *_SERVER[:-2],
            "connect.timeout",
            "schema-name",
            "slot.name",
            "publication.name",
            "decoding.plugin.name",
            "scan.startup.mode",
            "sslmode",
            "sslrootcert",
        ),
        ("hostname", "username", "password"),
    ),
    "kafka": (
        (
            "topic",
            "topic-pattern",
            "value.format",
            "scan.startup.mode",
            "scan.startup.timestamp-millis",
            "scan.topic-partition-discovery.interval",
            "schema.registry.url",
        ),
        ("properties.bootstrap.servers",),
    ),
    "files": (("path", "value.format"), ("path",)),
}
"""By type of catalog: the allowed options, and the required ones.

Options about one table or one pipeline are stated in the hint of a statement.
"""
_Named: TypeAlias = "Callable[[tuple[str, ...], Mapping[str, str]], Mapping[str, str]]"
_TABLES: Mapping[str, _Named] = {
    "mysql": _mysql_table,
    "postgres": _postgres_table,
    "kafka": _kafka_table,
    "files": _files,
}
_DATABASES: Mapping[str, _Named] = {
    "mysql": _mysql_database,
    "postgres": _postgres_database,
    "kafka": _kafka_database,
    "files": _files,
}
