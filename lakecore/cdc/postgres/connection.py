"""Connections to PostgreSQL with psycopg2: tables, publication, slot, and errors in words.

psycopg2 comes with the extra `cdc-postgres` and is imported when a source is opened. Its successor
psycopg 3 lacks the replication protocol. The publication and the replication slot of a pipeline are
created if absent.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from lakecore.cdc.actions import OnTruncate, check_keys, checked_pattern, matches, startup_mode
from lakecore.cdc.events import SourceSchema, SourceTable
from lakecore.cdc.retry import unreachable
from lakecore.cdc.types.mapping import (
    BYTES,
    DEFAULT_MAPPING,
    STRING,
    TIME_DIGITS_MAX,
    TypeMapping,
    TypeOption,
    array_of,
    atomic,
    type_notes,
)
from lakecore.errors import InvalidRequest, StorageError, Unsupported
from lakecore.masking import mask_exception
from lakecore.model.types import LENGTH_MAX, DataType, Field, Root, with_nullable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# --- postgres ------------------------------------------------------------------------------------
# Converts types of PostgreSQL, named as in `pg_type.typname`, to Paimon's types.
#
# An array type has `_` before the name of its element: `_int4`. The rules are those of Paimon's
# actions, with additions for types that Paimon's actions refuse: CHAR and VARCHAR without a length
# become STRING, and so does every type that is not listed, such as INET, ranges and composite
# types; arrays of all types are supported. NUMERIC without digits becomes STRING, because no
# DECIMAL holds all of its values. TIME has at most the milliseconds that Paimon stores.

_PLAIN: dict[str, DataType] = {
    "bool": atomic(Root.BOOLEAN),
    "bytea": BYTES,
    "int2": atomic(Root.SMALLINT),
    "smallserial": atomic(Root.SMALLINT),
    "int4": atomic(Root.INT),
    "serial": atomic(Root.INT),
    "int8": atomic(Root.BIGINT),
    "bigserial": atomic(Root.BIGINT),
    "float4": atomic(Root.FLOAT),
    "float8": atomic(Root.DOUBLE),
    "date": atomic(Root.DATE),
}
_ODD_ARRAYS = frozenset({"_box"})
"""Arrays whose text does not separate the items by commas."""
_DIGITS_MAX = 38
_SCALE_DEFAULT = 18


def postgres_type(
    name: str,
    precision: int | None = None,
    scale: int | None = None,
    mapping: TypeMapping = DEFAULT_MAPPING,
) -> DataType:
    """The nullable Paimon type.

    `precision`: the length of character and bit types, and the digits of numeric. `scale`: the
    scale of numeric, and the fraction digits of times. Any other type is STRING, with the strings
    that the server prints.
    """
    if TypeOption.TO_STRING in mapping:
        return STRING
    lower = name.lower()
    if lower.startswith("_") and lower not in _ODD_ARRAYS:
        return array_of(_element(lower[1:], precision or 0, scale or 0, mapping))
    return _element(lower, precision or 0, scale or 0, mapping)


def postgres_key_type(
    name: str,
    precision: int | None = None,
    scale: int | None = None,
    mapping: TypeMapping = DEFAULT_MAPPING,
) -> DataType:
    """The type of a key column, in which different values of PostgreSQL stay different.

    The type of `postgres_type`, except for types that would map several values to one. For example,
    TIME(6) is STRING: Paimon stores a TIME in milliseconds.
    """
    match name.lower():
        case "varbit":
            return STRING  # BINARY has no place for leading zeros
        case "numeric" if (precision or 0) <= 0:
            return STRING
        case "time" if (scale or 0) > TIME_DIGITS_MAX:
            return STRING
    return postgres_type(name, precision, scale, mapping)


def _element(name: str, precision: int, scale: int, mapping: TypeMapping) -> DataType:
    match name:
        case "bit" | "varbit" if precision <= 1:
            return atomic(Root.BOOLEAN)
        case "bit" | "varbit":
            unbounded = precision == LENGTH_MAX
            length = precision // 8 if unbounded else (precision + 7) // 8
            return atomic(Root.BINARY, length=length)
        case "numeric" if precision <= 0 and TypeOption.BARE_NUMERIC_TO_DECIMAL not in mapping:
            return STRING
        case "numeric" if precision <= 0:
            return atomic(Root.DECIMAL, precision=_DIGITS_MAX, scale=_SCALE_DEFAULT)
        case "numeric" if precision > _DIGITS_MAX or not 0 <= scale <= precision:
            return STRING
        case "numeric":
            return atomic(Root.DECIMAL, precision=precision, scale=scale)
        case "bpchar" | "character":
            return atomic(Root.CHAR, length=precision) if 0 < precision < LENGTH_MAX else STRING
        case "varchar":
            return atomic(Root.VARCHAR, length=precision) if precision > 0 else STRING
        case "timestamp":
            return atomic(Root.TIMESTAMP, precision=scale)
        case "timestamptz":
            return atomic(Root.TIMESTAMP_LTZ, precision=scale)
        case "time":
            return atomic(Root.TIME, precision=min(scale, TIME_DIGITS_MAX))
    return _PLAIN.get(name, STRING)


# --- settings ------------------------------------------------------------------------------------
# The options of `--postgres_conf`: Flink CDC's keys, as Paimon's action takes them.
#
# See https://paimon.apache.org/docs/master/cdc-ingestion/postgres-cdc/

_NEEDED = ("hostname", "username", "password", "database-name", "schema-name", "slot.name")
_KEYS = (
    *_NEEDED,
    "table-name",
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
    on_truncate: OnTruncate = OnTruncate.FOLLOW

    @staticmethod
    def parse(
        conf: Mapping[str, str],
        mapping: TypeMapping = DEFAULT_MAPPING,
        *,
        metadata: bool = False,
        truncate: OnTruncate = OnTruncate.FOLLOW,
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
            tables=checked_pattern("table-name", conf.get("table-name", ".*")),
            slot=slot,
            publication=conf.get("publication.name", f"{slot}_publication"),
            port=_number(conf, "port", 5432),
            mode=startup_mode(StartupMode, conf.get("scan.startup.mode", StartupMode.INITIAL)),
            timeout_seconds=_number(conf, "connect.timeout", 30),
            ssl=tuple((key, conf[key]) for key in ("sslmode", "sslrootcert") if key in conf),
            mapping=mapping,
            takes_metadata=metadata,
            on_truncate=truncate,
        )

    def takes(self, schema: str, table: str) -> bool:
        """Whether a table of the database is read."""
        return matches(self.schemas, schema) and matches(self.tables, table)


def _number(conf: Mapping[str, str], key: str, default: int) -> int:
    text = conf.get(key, str(default))
    if not text.strip().isdecimal() or int(text) < 1:
        raise InvalidRequest("the option is a whole number above 0", option=key, value=text)
    return int(text)


# --- connection ----------------------------------------------------------------------------------

EXTRA = "cdc-postgres"
_SESSION = (
    "-c timezone=UTC -c datestyle=ISO -c intervalstyle=postgres -c bytea_output=hex "
    "-c extra_float_digits=3"
)
_PASSING = frozenset({"55P03", "55006"})
"""Codes of temporary errors: a table is locked, or the slot is still active because the server has
not noticed yet that an earlier reader disconnected."""
_REFUSALS = {
    "authentication failed": "the server refuses the login. Correct username and password",
    "no password supplied": "the server refuses the login. Give a password",
    "no pg_hba": "pg_hba.conf of the server has no line for this user, database and address. Add "
    "one, and reload it",
    'FATAL:  database "': "the server has no such database. Correct database-name, or create it",
    'FATAL:  role "': "the server has no such user. Correct username, or create it",
    "is not permitted to log in": "the user may not log in. ALTER ROLE ... LOGIN",
    "permission denied for database": "the user may not connect. GRANT CONNECT ON DATABASE",
    "permission denied": "the user lacks a privilege. GRANT it as the cause says",
    "must be owner of": "the user lacks a privilege. Make it the owner, as the cause says",
    "does not exist": "something that the pipeline reads is gone, as the cause says",
}
"""Parts of messages about users and privileges, with the next step; a retry does not help."""
_LARGEST = 2147483647
_HEADER = 4


class Message(Protocol):
    """A message of the stream of changes."""

    payload: bytes
    data_start: int


class Cursor(Protocol):
    """The part of a psycopg2 cursor that lakecore uses; the last four calls are for replication."""

    def execute(self, query: str, values: Sequence[object] | None = None) -> None: ...
    def fetchone(self) -> tuple[object, ...] | None: ...
    def fetchall(self) -> list[tuple[object, ...]]: ...
    def fetchmany(self, size: int) -> list[tuple[object, ...]]: ...
    def close(self) -> None: ...
    def create_replication_slot(self, slot: str, output_plugin: str) -> None: ...
    def start_replication(self, **settings: object) -> None: ...
    def read_message(self) -> Message | None: ...
    def send_feedback(self, *, flush_lsn: int, reply: bool) -> None: ...
    def fileno(self) -> int: ...


class Connection(Protocol):
    """The part of a psycopg2 connection that lakecore uses."""

    autocommit: bool

    def cursor(self, name: str | None = None) -> Cursor: ...
    def close(self) -> None: ...
    def fileno(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresColumn:
    """A column: the name of its type, and the modifier with its declared length or precision."""

    name: str
    type: str
    modifier: int = -1
    nullable: bool = True
    comment: str | None = None

    @property
    def selected(self) -> str:
        """The expression that selects the value in the text form of the stream.

        A cast to TEXT differs for three types: the netmask of a single address is appended,
        booleans are spelled out, and CHAR loses trailing spaces.
        """
        name = quoted(self.name)
        match self.type:
            case "inet":
                return f"abbrev({name})"
            case "bool":
                return f"left({name}::text, 1)"
            case _:
                return f"{name}::text"

    @property
    def precision_scale(self) -> tuple[int | None, int | None]:
        """The precision and scale, as `postgres_type` expects them."""
        kind, number = self.type.lstrip("_"), self.modifier
        match kind:
            case "numeric":
                if number < _HEADER:
                    return 0, 0
                scale = (number - _HEADER) & 0x7FF
                return (number - _HEADER) >> 16 & 0xFFFF, scale - 2048 if scale > 1023 else scale
            case "varchar" | "bpchar":
                return (number - _HEADER if number >= _HEADER else 0), None
            case "bit":
                return max(number, 1), None
            case "varbit":
                return (number if number > 0 else _LARGEST), None
            case "timestamp" | "timestamptz" | "time":
                return None, number if number >= 0 else 6
            case _:
                return None, None


def quoted(name: str) -> str:
    """The name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def connect(settings: PostgresSettings, *, replicates: bool = False) -> Connection:
    """A new connection; with `replicates`, a replication connection for the stream of changes.

    Raises InvalidRequest if the server refuses the user, StorageError without an answer.
    """
    psycopg2 = _psycopg2()
    more: dict[str, object] = dict(settings.ssl)
    if replicates:
        more["connection_factory"] = import_module("psycopg2.extras").LogicalReplicationConnection
    with plain_postgres_errors(settings, "the pipeline cannot connect"):
        made = psycopg2.connect(
            host=settings.hostname,
            port=settings.port,
            user=settings.username,
            password=settings.password,
            dbname=settings.database,
            connect_timeout=settings.timeout_seconds,
            options=_SESSION,
            keepalives_idle=settings.timeout_seconds,
            **more,
        )
        if not replicates:
            made.autocommit = True
    return made


@contextmanager
def plain_postgres_errors(settings: PostgresSettings, what: str) -> Iterator[None]:
    """Translate psycopg2's errors; `what`: the start of the message.

    InvalidRequest: the server refused the user or a statement. StorageError: any other failure.
    """
    psycopg2 = _psycopg2()
    try:
        yield
    except psycopg2.Error as error:
        mask_exception(error, [settings.password])
        code = getattr(error, "pgcode", None) or ""
        text = str(error)
        is_refused = code[:2] in {"28", "42", "55", "3D"} and code not in _PASSING
        reason = next((means for part, means in _REFUSALS.items() if part in text), None)
        if reason is None:
            reason = "the server refused a statement" if is_refused else unreachable(text)
        else:
            is_refused = True
        kind = InvalidRequest if is_refused else StorageError
        raise kind(
            f"{what}: {reason}",
            server=f"{settings.hostname}:{settings.port}",
            user=settings.username,
            cause=text.strip(),
        ) from error


def locked_error() -> type[Exception]:
    """psycopg2's error for a lock that could not be acquired in time."""
    found: type[Exception] = import_module("psycopg2.errors").LockNotAvailable
    return found


def read_tables(
    cursor: Cursor, settings: PostgresSettings
) -> dict[tuple[str, str], tuple[str, str | None]]:
    """The replica identity and the comment of each table that the settings name."""
    cursor.execute(
        "SELECT n.nspname, c.relname, c.relreplident, obj_description(c.oid, 'pg_class') "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1, 2"
    )
    return {
        (str(schema), str(name)): (str(identity), None if comment is None else str(comment))
        for schema, name, identity, comment in cursor.fetchall()
        if settings.takes(str(schema), str(name))
    }


def read_columns(
    cursor: Cursor, schema: str, table: str
) -> tuple[tuple[PostgresColumn, ...], tuple[str, ...]]:
    """The columns of a table in order, and its primary key."""
    cursor.execute(
        "SELECT a.attname, a.atttypid, a.atttypmod, a.attnotnull, "
        "col_description(c.oid, a.attnum), a.attnum = ANY(i.indkey::int2[]), "
        "array_position(i.indkey::int2[], a.attnum) "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
        "LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary "
        "WHERE n.nspname = %s AND c.relname = %s AND a.attgenerated = '' ORDER BY a.attnum",
        (schema, table),
    )
    rows = cursor.fetchall()
    names = type_names(cursor, [int(str(row[1])) for row in rows])
    columns = tuple(
        PostgresColumn(
            name=str(row[0]),
            type=names[int(str(row[1]))],
            modifier=int(str(row[2])),
            nullable=not row[3],
            comment=None if row[4] is None else str(row[4]),
        )
        for row in rows
    )
    keys = sorted((int(str(row[6])), str(row[0])) for row in rows if row[5])
    return columns, tuple(name for _, name in keys)


def type_names(cursor: Cursor, oids: Sequence[int]) -> dict[int, str]:
    """The names of types; a domain has the name of its base type, and an enumeration is `enum`."""
    cursor.execute(
        "SELECT t.oid, CASE WHEN t.typtype = 'e' THEN 'enum' WHEN t.typtype = 'd' THEN b.typname "
        "ELSE t.typname END FROM pg_type t LEFT JOIN pg_type b ON b.oid = t.typbasetype "
        "WHERE t.oid = ANY(%s::oid[])",
        (list(oids),),
    )
    return {int(str(oid)): str(name) for oid, name in cursor.fetchall()}


def source_schema(  # noqa: PLR0913 - what a schema is
    table: SourceTable,
    columns: Sequence[PostgresColumn],
    primary_key: Sequence[str],
    comment: str | None,
    mapping: TypeMapping,
    *,
    identity: str,
    states_key: bool = True,
) -> SourceSchema:
    """The source schema of the mirrored columns among `columns`.

    `identity`: the replica identity of the table, as in `pg_class.relreplident`.
    """
    fields: list[Field] = []
    notes: list[str] = []
    exact = mapping.exact((each.name for each in columns), primary_key)
    for column in columns:
        in_key = column.name in exact
        if mapping.excludes(table, column.name, exact=in_key or column.name in primary_key):
            continue
        precision, scale = column.precision_scale
        usual = postgres_type(column.type, precision, scale, mapping)
        of = postgres_key_type if in_key else postgres_type
        kind, is_own = mapping.column_type(
            table, column.name, partial(of, column.type, precision, scale, mapping), exact=in_key
        )
        if in_key or not is_own:
            notes += type_notes(column.name, kind, usual, scale or 0)
        nullable = column.nullable or "to-nullable" in mapping.options
        fields.append(
            Field(
                id=len(fields),
                name=column.name,
                type=with_nullable(kind, nullable=nullable and column.name not in primary_key),
                description=column.comment,
            )
        )
    return SourceSchema(
        fields=tuple(fields),
        primary_key=tuple(primary_key),
        states_key=states_key,
        has_old_rows=identity == "f",
        comment=comment,
        exact=exact,
        notes=tuple(notes),
    )


class _Psycopg2(Protocol):
    Error: type[Exception]

    def connect(self, **settings: object) -> Connection: ...


def _psycopg2() -> _Psycopg2:
    try:
        return cast("_Psycopg2", import_module("psycopg2"))
    except ImportError as error:
        raise Unsupported(
            f"PostgreSQL needs the extra {EXTRA}: pip install 'lakecore[{EXTRA}]'",
            missing="psycopg2",
        ) from error


# --- publication and slot ------------------------------------------------------------------------

log = logging.getLogger("lakecore.cdc")

_LOCK_MS = 2_000


def create_publication(cursor: Cursor, settings: PostgresSettings, tables: Sequence[str]) -> None:
    """Create the publication if absent, or let an existing publication publish TRUNCATE."""
    name = quoted(settings.publication)
    cursor.execute(
        "SELECT pubtruncate, pg_has_role(pubowner, 'USAGE') FROM pg_publication WHERE pubname = %s",
        (settings.publication,),
    )
    row = cursor.fetchone()
    kinds = "publish = 'insert, update, delete, truncate'"
    if row is None:
        listed = ", ".join(map(quoted_table, tables))
        cursor.execute(
            f"CREATE PUBLICATION {name} {'FOR TABLE ' + listed if listed else ''} "
            f"WITH ({kinds}, publish_via_partition_root = true)"
        )
    elif row[0] or settings.on_truncate is OnTruncate.IGNORE:
        return
    elif row[1]:
        cursor.execute(f"ALTER PUBLICATION {name} SET ({kinds})")
    else:
        log.warning(
            "TRUNCATE cannot be followed: the publication does not publish it, and belongs to "
            "another user. publication=%s",
            settings.publication,
        )


def add_table(
    cursor: Cursor, settings: PostgresSettings, table: str, *, is_read: bool = False
) -> bool:
    """Add a table to the publication; False if the table has rows whose changes are missing.

    `is_read`: whether the rows are read afterwards, so that the table may have rows.
    """
    name = quoted_table(table)
    cursor.execute("BEGIN")
    # While this statement waits for the lock, new writers of the table wait behind it.
    cursor.execute(f"SET LOCAL lock_timeout = {_LOCK_MS}")
    cursor.execute(f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE")
    cursor.execute(f"ALTER PUBLICATION {quoted(settings.publication)} ADD TABLE {name}")
    if not is_read:
        cursor.execute(f"SELECT EXISTS (SELECT FROM {name})")
        row = cursor.fetchone()
        if row is not None and row[0]:
            cursor.execute("ROLLBACK")
            return False
    cursor.execute("COMMIT")
    return True


def unpublished(cursor: Cursor, settings: PostgresSettings, tables: Sequence[str]) -> list[str]:
    """Which of these tables are not in the publication."""
    cursor.execute(
        "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s",
        (settings.publication,),
    )
    there = {str(row[0]) for row in cursor.fetchall()}
    return [table for table in tables if table not in there]


def files_of(cursor: Cursor, table: str) -> str:
    """The numbers of the files that hold a table and its partitions.

    A statement that writes new files, such as a change of a type, hides all rows of the table from
    snapshots that were taken before it.
    """
    cursor.execute(
        "SELECT concat_ws(' ', pg_relation_filenode(to_regclass(%s)), (SELECT string_agg("
        "pg_relation_filenode(relid)::text, ' ' ORDER BY relid) "
        "FROM pg_partition_tree(to_regclass(%s))))",
        (quoted_table(table), quoted_table(table)),
    )
    row = cursor.fetchone()
    assert row is not None, "a function returns a row"
    return str(row[0])


def quoted_table(name: str) -> str:
    """The name `schema.table` as two quoted SQL identifiers."""
    schema, _, table = name.partition(".")
    return f"{quoted(schema)}.{quoted(table)}"
