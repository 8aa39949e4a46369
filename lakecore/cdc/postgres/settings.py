"""The options of `--postgres_conf`: Flink CDC's keys, as Paimon's action takes them.

See https://paimon.apache.org/docs/master/cdc-ingestion/postgres-cdc/
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from lakecore.cdc.conf import check_keys, checked_pattern, matches, startup_mode
from lakecore.cdc.types.mapping import DEFAULT_MAPPING, TypeMapping
from lakecore.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PostgresSettings", "StartupMode"]

_NEEDED = (
    "hostname",
    "username",
    "password",
    "database-name",
    "schema-name",
    "table-name",
    "slot.name",
)
_KEYS = (
    *_NEEDED,
    "port",
    "publication.name",
    "decoding.plugin.name",
    "scan.startup.mode",
    "connect.timeout",
    "sslmode",
    "sslrootcert",
)
_SLOT = re.compile(r"[a-z0-9_]{1,63}")


class StartupMode(StrEnum):
    """Where a pipeline without a stored state starts."""

    INITIAL = "initial"
    LATEST = "latest-offset"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSettings:
    """How to reach a server, and what to read from it. `repr` shows no password.

    `schemas` and `tables` are regular expressions that must match the whole name.
    """

    hostname: str
    username: str
    password: str = field(repr=False)
    database: str
    schemas: str
    tables: str
    slot: str
    publication: str
    port: int = 5432
    mode: StartupMode = StartupMode.INITIAL
    timeout_seconds: int = 30
    ssl: tuple[tuple[str, str], ...] = ()
    mapping: TypeMapping = DEFAULT_MAPPING
    takes_metadata: bool = False

    @staticmethod
    def parse(
        conf: Mapping[str, str], mapping: TypeMapping = DEFAULT_MAPPING, *, metadata: bool = False
    ) -> PostgresSettings:
        """The settings. Raises InvalidRequest for a missing, unknown or invalid option."""
        check_keys("postgres_conf", conf, _KEYS, _NEEDED)
        if conf.get("decoding.plugin.name", "pgoutput") != "pgoutput":
            raise Unsupported(
                "only the plugin pgoutput is supported", plugin=conf["decoding.plugin.name"]
            )
        slot = conf["slot.name"]
        if _SLOT.fullmatch(slot) is None:
            raise InvalidRequest(
                "the name of a slot has lower-case letters, digits and underscores", slot=slot
            )
        return PostgresSettings(
            hostname=conf["hostname"],
            username=conf["username"],
            password=conf["password"],
            database=conf["database-name"],
            schemas=checked_pattern("schema-name", conf["schema-name"]),
            tables=checked_pattern("table-name", conf["table-name"]),
            slot=slot,
            publication=conf.get("publication.name", f"{slot}_publication"),
            port=_number(conf, "port", 5432),
            mode=startup_mode(StartupMode, conf.get("scan.startup.mode", StartupMode.INITIAL)),
            timeout_seconds=_number(conf, "connect.timeout", 30),
            ssl=tuple((key, conf[key]) for key in ("sslmode", "sslrootcert") if key in conf),
            mapping=mapping,
            takes_metadata=metadata,
        )

    def takes(self, schema: str, table: str) -> bool:
        """Whether a table of the database is read."""
        return matches(self.schemas, schema) and matches(self.tables, table)


def _number(conf: Mapping[str, str], key: str, default: int) -> int:
    text = conf.get(key, str(default))
    if not text.strip().isdecimal() or int(text) < 1:
        raise InvalidRequest("the option is a whole number above 0", option=key, value=text)
    return int(text)
