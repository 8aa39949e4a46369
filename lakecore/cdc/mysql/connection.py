"""Connections to a server with PyMySQL; checks the server's settings, and translates errors.

PyMySQL comes with the extra `cdc-mysql` and is imported when a source is opened.
"""

from __future__ import annotations

import re
import ssl
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lakecore.cdc.actions import OnTruncate, check_keys, checked_pattern, matches, startup_mode
from lakecore.cdc.mysql.column import Definition
from lakecore.cdc.quarantine import START_AGAIN, Collected, of_tables
from lakecore.cdc.retry import unreachable
from lakecore.cdc.types.mapping import DEFAULT_MAPPING, TypeMapping
from lakecore.errors import InvalidRequest, LakecoreError, StorageError, Unsupported
from lakecore.masking import mask_exception

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakecore.cdc.events import SourceTable
EXTRA = "cdc-mysql"
_SESSION = "SET SESSION time_zone='+00:00', sql_mode='', wait_timeout=28800, net_write_timeout=3600"
_LOGIN = (
    "the server refuses the login. Correct username and password, and check that the user may come "
    "from this host"
)
NO_DATABASE = (
    "the server has no such database, or hides it from the user. Correct database-name, or GRANT "
    "SELECT"
)
NO_GRANT = (
    "the user lacks a privilege. GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* has all"
)
REFUSALS = {
    **dict.fromkeys((1045, 1130, 1251, 1698, 1820, 1862, 3118, 4151), _LOGIN),
    **dict.fromkeys((1044, 1049), NO_DATABASE),
    **dict.fromkeys((1142, 1143, 1227, 1370), NO_GRANT),
}
"""Error codes about users and privileges, with the next step; a retry does not help."""
_LOG_REFUSED = frozenset({1236, 4052})
_LOST_LOG = ("first log file name", "purged", "impossible position", "could not find gtid")
"""Parts of error messages which say that the log no longer holds the requested position."""
_SAME_ID = ("same server_uuid/server_id", "same server_id", "same server id")
_QUOTED = re.compile(r"'(?:[^'\\]|''|\\.)*'|`(?:[^`]|``)*`", re.DOTALL)
_SILENT = re.compile(r"\bON (?:DELETE|UPDATE) (?:CASCADE|SET (?:NULL|DEFAULT))\b", re.IGNORECASE)
_TLS = "_create_ssl_ctx"
_DATA_ERRORS = ("ProgrammingError", "NotSupportedError", "DataError", "IntegrityError")


class Cursor(Protocol):
    """The part of a PyMySQL cursor that lakecore uses."""

    def execute(self, query: str, args: Sequence[object] | None = None) -> int: ...
    def fetchone(self) -> tuple[object, ...] | None: ...
    def fetchall(self) -> Sequence[tuple[object, ...]]: ...
    def fetchmany(self, size: int) -> Sequence[tuple[object, ...]]: ...
    def close(self) -> None: ...


class Packet(Protocol):
    """The part of a PyMySQL packet that lakecore uses."""

    def get_all_data(self) -> bytes: ...
    def is_eof_packet(self) -> bool: ...
    def is_error_packet(self) -> bool: ...


class Connection(Protocol):
    """The part of a PyMySQL connection that lakecore uses. The private calls read the log."""

    charset: str
    _read_timeout: float | None

    def cursor(self, cursor: object = None) -> Cursor: ...
    def close(self) -> None: ...
    def _read_packet(self) -> Packet: ...
    def _write_bytes(self, data: bytes) -> None: ...
    def _force_close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The facts about a server that its source needs.

    - `identity`: distinguishes the server from others that take over its address in a failover;
    - `snapshot_states_position`: whether a transaction can state its position in the log (MariaDB).
    """

    version: str
    identity: str
    is_mariadb: bool
    zone: str
    snapshot_states_position: bool


def connect(settings: MySqlSettings, *, raw: bool = False, stream: bool = False) -> Connection:
    """A new connection.

    `raw`: values are the bytes of MySQL's text protocol. `stream`: every read has a timeout, not
    only the login.

    Raises InvalidRequest if the server refuses the user, StorageError without an answer, and
    Unsupported if PyMySQL is not installed.
    """
    with of_tables(), plain_mysql_errors(settings, "the pipeline cannot connect"):
        connection = _connection_type()(
            host=settings.hostname,
            port=settings.port,
            user=settings.username,
            password=settings.password,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=settings.timeout_seconds,
            read_timeout=settings.timeout_seconds,
            ssl_ca=settings.ca_file,
            **({"conv": {}, "use_unicode": False} if raw else {}),
        )
        cursor = connection.cursor()
        cursor.execute(_SESSION)
        cursor.close()
    if not stream:
        connection._read_timeout = None  # noqa: SLF001 - PyMySQL has one timeout for all reads
    return connection


@contextmanager
def streaming_cursor(connection: Connection) -> Iterator[Cursor]:
    """A cursor that fetches rows from the server on demand, instead of buffering all of them.

    If its block ends early, the connection is closed. Otherwise, PyMySQL would read all remaining
    rows when the cursor is freed, and print a traceback if the connection is lost.
    """
    cursor = connection.cursor(import_module("pymysql.cursors").SSCursor)
    try:
        yield cursor
    except BaseException:
        connection._force_close()  # noqa: SLF001 - `close` would read all rows
        if (result := getattr(cursor, "_result", None)) is not None:
            result.unbuffered_active = False
        raise
    cursor.close()


@contextmanager
def plain_mysql_errors(settings: MySqlSettings, what: str) -> Iterator[None]:
    """Translate PyMySQL's errors; `what`: the start of the message.

    InvalidRequest: the server refused the user, the position or a statement. StorageError: any
    other failure, such as a lost connection.
    """
    try:
        yield
    except LakecoreError:
        raise
    except (_pymysql().MySQLError, OSError, EOFError) as error:
        mask_exception(error, [settings.password])
        code = error.args[0] if error.args and isinstance(error.args[0], int) else None
        where = f"{settings.hostname}:{settings.port}"
        facts = {"server": where, "user": settings.username, "cause": error}
        if code in REFUSALS:
            raise InvalidRequest(f"{what}: {REFUSALS[code]}", **facts) from error
        if code in _LOG_REFUSED:
            raise InvalidRequest(log_refused(str(error).lower()), **facts) from error
        if type(error).__name__ in _DATA_ERRORS:
            raise InvalidRequest(f"{what}: the server refused a statement", **facts) from error
        raise StorageError(f"{what}: {unreachable(error)}", **facts) from error


def log_refused(reason: str) -> str:
    """What it means that the server refuses to send its log, given its reason in lower case."""
    if "not in the master's binlog" in reason:
        return (
            "the server lacks changes that the pipeline has written: it was behind when it took "
            f"over. To read everything again, {START_AGAIN}"
        )
    if any(each in reason for each in _SAME_ID):
        return (
            "another reader of the binary log uses the same server-id: give each pipeline one of "
            "its own, or none"
        )
    if any(each in reason for each in _LOST_LOG):
        return (
            f"the server no longer has the binary log from there: {START_AGAIN}. Keep the log for "
            "longer (binlog_expire_logs_seconds)"
        )
    return "the server refuses to send its binary log"


def read_server(
    connection: Connection, settings: MySqlSettings, *, is_checked: bool = True
) -> Server:
    """The facts about the server.

    Raises InvalidRequest if its log lacks what a source needs, unless `is_checked` is False.
    """
    cursor = connection.cursor()
    if is_checked:
        check_server(cursor, settings)
    version = str(_value(cursor, "SELECT VERSION()"))
    cursor.execute("SHOW STATUS LIKE 'Binlog_snapshot_file'")
    states = bool(cursor.fetchall())
    zone = (settings.zone or _zone(cursor)) if is_checked else "UTC"
    identity = variable(cursor, "server_uuid") or variable(cursor, "server_id") or ""
    cursor.close()
    return Server(
        version=version,
        identity=identity,
        is_mariadb="mariadb" in version.lower(),
        zone=zone,
        snapshot_states_position=states,
    )


def check_server(cursor: Cursor, settings: MySqlSettings) -> None:
    """Raise InvalidRequest for all settings of the server that rule out a mirror."""
    wanted = {
        "log_bin": ("ON", "1"),
        "binlog_format": ("ROW",),
        "binlog_row_image": ("FULL",),
        "binlog_row_metadata": ("FULL",),
    }
    collected = Collected()
    for name, values in wanted.items():
        found = variable(cursor, name)
        with collected.of():
            if found is not None and found.upper() in values:
                continue
            raise InvalidRequest(
                "the binary log of the server lacks what a mirror needs: set the variable in "
                + (
                    "my.cnf, and restart the server"
                    if name == "log_bin"
                    else "my.cnf and with SET GLOBAL, and end the sessions that are open: they "
                    "keep the old value"
                ),
                variable=name,
                value="missing" if found is None else found,
                needed=values[0],
                server=f"{settings.hostname}:{settings.port}",
            )
    for name in ("log_bin_compress", "binlog_transaction_compression"):
        if (variable(cursor, name) or "OFF").upper() == "ON":
            with collected.of():
                raise Unsupported(
                    "a compressed binary log is not supported: set the variable to OFF",
                    variable=name,
                )
    with collected.of():
        settings.zone or _zone(cursor)
    collected.check()


def server_notes(connection: Connection) -> list[str]:
    """What a user should know: how long the log is kept."""
    cursor = connection.cursor()
    days = float(variable(cursor, "expire_logs_days") or 0)
    seconds = float(variable(cursor, "binlog_expire_logs_seconds") or 0) or days * 86_400
    return [
        f"the server keeps its binary log for {seconds / 86_400:g} days: a pipeline that is "
        "stopped for longer must start again (binlog_expire_logs_seconds)"
        if seconds
        else "the server keeps its binary log without a limit of time"
    ]


def variable(cursor: Cursor, name: str) -> str | None:
    """The value of a global variable; None if the server has no variable of that name."""
    cursor.execute("SHOW GLOBAL VARIABLES LIKE %s", (name,))
    row = cursor.fetchone()
    return None if row is None else _text(row[1])


def log_position(cursor: Cursor) -> tuple[str, int]:
    """The file and the offset at the current end of the log."""
    try:
        cursor.execute("SHOW MASTER STATUS")
    except _pymysql().ProgrammingError:
        cursor.execute("SHOW BINARY LOG STATUS")
    row = cursor.fetchone()
    if row is None:
        raise InvalidRequest("the server writes no binary log", variable="log_bin", needed="ON")
    return _text(row[0]), int(_text(row[1]))


def gtids_at(cursor: Cursor, file: str, offset: int) -> str | None:
    """The last GTID of each domain before a place in the log of MariaDB; None if not known."""
    cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (file, offset))
    row = cursor.fetchone()
    return None if row is None or row[0] is None else _text(row[0])


def log_sizes(cursor: Cursor) -> dict[str, int]:
    """The files of the log in order, with their sizes in bytes."""
    cursor.execute("SHOW BINARY LOGS")
    return {_text(row[0]): int(_text(row[1])) for row in cursor.fetchall()}


def read_tables(cursor: Cursor) -> dict[tuple[str, str], tuple[int, int]]:
    """The tables of the server, each with the server's estimates: row count, bytes per row."""
    cursor.execute(
        "SELECT table_schema, table_name, COALESCE(table_rows, 0), COALESCE(avg_row_length, 0) "
        "FROM information_schema.tables WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') "
        "AND table_schema "
        "NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')"
    )
    return {
        (_text(row[0]), _text(row[1])): (int(_text(row[2])), int(_text(row[3])))
        for row in cursor.fetchall()
    }


def read_comment(cursor: Cursor, database: str, table: str) -> str | None:
    """The comment of a table; None if the table has no comment, or does not exist any more.

    Raises Unsupported for a table with system versioning: the log records its deletions as updates.
    """
    cursor.execute(
        "SELECT table_comment, table_type FROM information_schema.tables "
        "WHERE table_schema = %s AND table_name = %s",
        (database, table),
    )
    row = cursor.fetchone()
    if row is not None and _text(row[1]) == "SYSTEM VERSIONED":
        raise Unsupported(
            "a table with system versioning is not mirrored: leave it out",
            table=f"{database}.{table}",
        )
    return (_text(row[0]) or None) if row is not None else None


def has_silent_changes(cursor: Cursor, database: str, table: str) -> bool:
    """Whether a foreign key of the table cascades or sets null.

    The server does not log the changes that a foreign key causes. The definition of the table is
    read, because information_schema hides foreign keys from a user who may only read rows.
    """
    quoted = (name.replace("`", "``") for name in (database, table))
    cursor.execute("SHOW CREATE TABLE `{}`.`{}`".format(*quoted))
    row = cursor.fetchone()
    return row is not None and _SILENT.search(_QUOTED.sub("", _text(row[1]))) is not None


def has_routines(cursor: Cursor, table: SourceTable, text: str) -> bool:
    """Whether a statement on a table may run a trigger or a stored function that the user sees."""
    cursor.execute(
        "SELECT 1 FROM information_schema.triggers WHERE event_object_schema = %s AND "
        "event_object_table = %s LIMIT 1",
        (table.database, table.name),
    )
    if cursor.fetchone() is not None:
        return True
    cursor.execute(
        "SELECT DISTINCT LOWER(routine_name) FROM information_schema.routines "
        "WHERE routine_type = 'FUNCTION' AND routine_schema <> 'sys'"
    )
    lower = text.lower()
    return any(_text(row[0]) in lower for row in cursor.fetchall())


def read_columns(
    cursor: Cursor, database: str, table: str
) -> tuple[dict[str, Definition], tuple[str, ...], tuple[str, ...]]:
    """The columns of a table in order, its primary key, and the key that replaces a missing one.

    Without a primary key, the server itself uses a unique key of NOT NULL columns, if any, and the
    log names that key as the primary key.
    """
    cursor.execute(
        "SELECT column_name, column_type, is_nullable, column_comment, column_key "
        "FROM information_schema.columns WHERE table_schema = %s AND table_name = %s "
        "ORDER BY ordinal_position",
        (database, table),
    )
    rows = cursor.fetchall()
    columns = {
        _text(name): Definition(
            name=_text(name),
            type=_text(kind),
            nullable=_text(nullable) == "YES",
            comment=_text(comment) or None,
        )
        for name, kind, nullable, comment, _ in rows
    }
    cursor.execute(
        "SELECT column_name FROM information_schema.key_column_usage WHERE table_schema = %s AND "
        "table_name = %s AND constraint_name = 'PRIMARY' ORDER BY ordinal_position",
        (database, table),
    )
    key = tuple(_text(row[0]) for row in cursor.fetchall())
    used = tuple(_text(row[0]) for row in rows if _text(row[4]) == "PRI")
    return columns, key, () if key else used


def _zone(cursor: Cursor) -> str:
    """The time zone of the server: an offset or a name of the tz database.

    Raises InvalidRequest if the server states only an abbreviation such as CET.
    """
    zone = variable(cursor, "time_zone") or "SYSTEM"
    if zone.upper() == "SYSTEM":
        zone = variable(cursor, "system_time_zone") or ""
    if re.fullmatch(r"[+-]\d\d:\d\d", zone) or "/" in zone:
        return zone
    if zone.upper() in {"UTC", "GMT"}:
        return "UTC"
    raise InvalidRequest(
        "the server does not state its time zone by a full name: set server-time-zone",
        zone=zone,
        example="Europe/Berlin",
    )


def _value(cursor: Cursor, query: str) -> object:
    cursor.execute(query)
    row = cursor.fetchone()
    return None if row is None else row[0]


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


class _PyMySql(Protocol):
    MySQLError: type[Exception]
    ProgrammingError: type[Exception]


@cache
def _connection_type() -> Callable[..., Connection]:
    """PyMySQL's connection, with `_tls` in place of a new context for each connection.

    A new context takes 25 ms of CPU time, and PyMySQL checks no certificate.
    """
    _pymysql()
    base = import_module("pymysql.connections").Connection

    def context(self: object, stated: Mapping[str, str]) -> ssl.SSLContext:
        del self
        return _tls(stated.get("ca"))

    return cast("Callable[..., Connection]", type("Connection", (base,), {_TLS: context}))


@cache
def _tls(ca_file: str | None) -> ssl.SSLContext:
    """The TLS context: accepts any certificate, or only those that the file's authority signed."""
    if ca_file is None:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
        return made
    made = ssl.create_default_context(cafile=ca_file)
    made.check_hostname = False
    # The certificates that MySQL makes for itself do not pass.
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return made


def _pymysql() -> _PyMySql:
    try:
        return cast("_PyMySql", import_module("pymysql"))
    except ImportError as error:
        raise Unsupported(
            f"MySQL needs the extra {EXTRA}: pip install 'lakecore[{EXTRA}]'", missing="PyMySQL"
        ) from error


# --- settings ------------------------------------------------------------------------------------
# The options of `--mysql_conf`: Flink CDC's keys, as Paimon's actions take them.
#
# An option that only concerns Flink, or that lakecore does not support, raises an error.
#
# See https://paimon.apache.org/docs/master/cdc-ingestion/mysql-cdc/

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
    on_truncate: OnTruncate = OnTruncate.FOLLOW

    @staticmethod
    def parse(
        conf: Mapping[str, str],
        mapping: TypeMapping = DEFAULT_MAPPING,
        *,
        metadata: bool = False,
        unique_keys: bool = False,
        truncate: OnTruncate = OnTruncate.FOLLOW,
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
            zone=_server_zone(conf.get("server-time-zone")),
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
            on_truncate=truncate,
        )

    def key(self, primary: tuple[str, ...], unique: tuple[str, ...]) -> tuple[str, ...]:
        """The key of a table, given its primary key and its unique key."""
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


def _server_zone(text: str | None) -> str | None:
    if text is None or re.fullmatch(r"[+-]\d\d:\d\d", text):
        return text
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise InvalidRequest(
            "unknown time zone", option="server-time-zone", value=text, example="Europe/Berlin"
        ) from error
    return text
