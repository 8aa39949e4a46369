"""The options of `--mysql_conf`: Flink CDC's keys, as Paimon's actions take them.

An option that only concerns Flink, or that lakecore does not support, is refused by name.

See https://paimon.apache.org/docs/master/cdc-ingestion/mysql-cdc/
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lakecore.cdc.conf import check_keys, checked_pattern, matches, startup_mode
from lakecore.cdc.types.mapping import DEFAULT_MAPPING, TypeMapping
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MySqlSettings", "StartupMode"]

_NEEDED = ("hostname", "username", "password", "database-name")
_KEYS = (
    "hostname",
    "port",
    "username",
    "password",
    "database-name",
    "table-name",
    "server-id",
    "server-time-zone",
    "scan.startup.mode",
    "scan.startup.specific-offset.file",
    "scan.startup.specific-offset.pos",
    "scan.startup.specific-offset.gtid-set",
    "scan.startup.timestamp-millis",
    "scan.incremental.snapshot.chunk.size",
    "scan.snapshot.parallelism",
    "connect.timeout",
    "ssl.ca",
)


class StartupMode(StrEnum):
    """Where a pipeline without a stored state starts."""

    INITIAL = "initial"
    EARLIEST = "earliest-offset"
    LATEST = "latest-offset"
    SPECIFIC = "specific-offset"
    TIMESTAMP = "timestamp"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class MySqlSettings:
    """How to reach a server, and what to read from it. `repr` shows no password.

    `tables` and `databases` are regular expressions that must match the whole name.
    `takes_unique_keys`: whether a unique key stands in for a missing primary key.
    """

    hostname: str
    username: str
    password: str = field(repr=False)
    databases: str
    tables: str = ".*"
    port: int = 3306
    server_id: int | None = None
    zone: str | None = None
    mode: StartupMode = StartupMode.INITIAL
    file: str | None = None
    offset: int | None = None
    gtid: str | None = None
    timestamp_ms: int | None = None
    chunk_rows: int = 50_000
    parallelism: int = 2
    timeout_seconds: float = 30.0
    ca_file: str | None = None
    mapping: TypeMapping = DEFAULT_MAPPING
    takes_metadata: bool = False
    takes_unique_keys: bool = False

    @staticmethod
    def parse(
        conf: Mapping[str, str],
        mapping: TypeMapping = DEFAULT_MAPPING,
        *,
        metadata: bool = False,
        unique_keys: bool = False,
    ) -> MySqlSettings:
        """The settings. Raises InvalidRequest for a missing, unknown or invalid option."""
        check_keys("mysql_conf", conf, _KEYS, _NEEDED)
        mode = startup_mode(StartupMode, conf.get("scan.startup.mode", StartupMode.INITIAL))
        gtid = conf.get("scan.startup.specific-offset.gtid-set")
        file = conf.get("scan.startup.specific-offset.file")
        if mode is StartupMode.SPECIFIC and (gtid is None) == (file is None):
            raise InvalidRequest(
                "specific-offset needs either scan.startup.specific-offset.file and .pos, or "
                ".gtid-set"
            )
        instant = _number(conf, "scan.startup.timestamp-millis", 0)
        if mode is StartupMode.TIMESTAMP and instant is None:
            raise InvalidRequest("timestamp needs scan.startup.timestamp-millis")
        return MySqlSettings(
            hostname=conf["hostname"],
            username=conf["username"],
            password=conf["password"],
            databases=checked_pattern("database-name", conf["database-name"]),
            tables=checked_pattern("table-name", conf.get("table-name", ".*")),
            port=_number(conf, "port", 1) or 3306,
            server_id=_number(conf, "server-id", 1),
            zone=_zone(conf.get("server-time-zone")),
            mode=mode,
            file=file,
            offset=_number(conf, "scan.startup.specific-offset.pos", 4),
            gtid=gtid,
            timestamp_ms=instant,
            chunk_rows=_number(conf, "scan.incremental.snapshot.chunk.size", 1) or 50_000,
            parallelism=_number(conf, "scan.snapshot.parallelism", 1) or 2,
            timeout_seconds=float(_number(conf, "connect.timeout", 1) or 30),
            ca_file=conf.get("ssl.ca"),
            mapping=mapping,
            takes_metadata=metadata,
            takes_unique_keys=unique_keys,
        )

    def key(self, primary: tuple[str, ...], unique: tuple[str, ...]) -> tuple[str, ...]:
        """The key of a table, given its primary key, and the unique key that may stand in."""
        return primary or (unique if self.takes_unique_keys else ())

    def takes(self, database: str, table: str) -> bool:
        """Whether a table of the server is read."""
        return matches(self.databases, database) and matches(self.tables, table)


def _number(conf: Mapping[str, str], key: str, least: int) -> int | None:
    text = conf.get(key)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < least:
        raise InvalidRequest("the option is a whole number", option=key, value=text, least=least)
    return int(text)


def _zone(text: str | None) -> str | None:
    if text is None or re.fullmatch(r"[+-]\d\d:\d\d", text):
        return text
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise InvalidRequest(
            "unknown time zone", option="server-time-zone", value=text, example="Europe/Berlin"
        ) from error
    return text
