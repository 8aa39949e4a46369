"""Connections to PostgreSQL with psycopg2; reads the tables of a database, and translates errors.

psycopg2 comes with the extra `cdc-postgres` and is imported when a source is opened: it speaks the
replication protocol, which its successor psycopg 3 does not.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from lakecore.cdc.events import SourceSchema
from lakecore.cdc.types.mapping import type_notes
from lakecore.cdc.types.postgres import postgres_key_type, postgres_type
from lakecore.errors import InvalidRequest, StorageError, Unsupported
from lakecore.masking import mask_exception
from lakecore.model.types import Field, with_nullable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.cdc.postgres.settings import PostgresSettings
    from lakecore.cdc.types.mapping import TypeMapping

__all__ = [
    "Connection",
    "PostgresColumn",
    "connect",
    "locked_error",
    "plain_postgres_errors",
    "read_tables",
]

EXTRA = "cdc-postgres"
_SESSION = (
    "-c timezone=UTC -c datestyle=ISO -c intervalstyle=postgres -c bytea_output=hex "
    "-c extra_float_digits=3"
)
_PASSING = frozenset({"55P03", "55006"})
"""Codes of temporary errors: a table is locked, or the slot is still active because the server has
not noticed yet that an earlier reader disconnected."""
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


def connect(settings: PostgresSettings, *, replicates: bool = False) -> Connection:
    """A new connection; with `replicates`, a replication connection for the stream of changes.

    Raises InvalidRequest if the server refuses the user, StorageError if it does not answer.
    """
    psycopg2 = _psycopg2()
    more: dict[str, object] = dict(settings.ssl)
    if replicates:
        more["connection_factory"] = import_module("psycopg2.extras").LogicalReplicationConnection
    with plain_postgres_errors(settings, "the server does not let the pipeline in"):
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
    """Translate psycopg2's errors; `what` is the message.

    InvalidRequest: the server refused the user or a statement. StorageError: any other failure.
    """
    psycopg2 = _psycopg2()
    try:
        yield
    except psycopg2.Error as error:
        mask_exception(error, [settings.password])
        code = getattr(error, "pgcode", None) or ""
        text = str(error)
        refused = (code[:2] in {"28", "42", "55", "3D"} and code not in _PASSING) or any(
            each in text for each in ("authentication failed", "does not exist", "no pg_hba")
        )
        kind = InvalidRequest if refused else StorageError
        raise kind(
            what,
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


def source_schema(
    columns: Sequence[PostgresColumn],
    primary_key: Sequence[str],
    comment: str | None,
    mapping: TypeMapping,
    *,
    states_key: bool = True,
) -> SourceSchema:
    """The source schema of these columns.

    Raises Unsupported, naming a type without a Paimon type.
    """
    fields: list[Field] = []
    notes: list[str] = []
    exact = mapping.exact((each.name for each in columns), primary_key)
    for number, column in enumerate(columns):
        precision, scale = column.precision_scale
        usual = kind = postgres_type(column.type, precision, scale, mapping)
        if column.name in exact:
            kind = postgres_key_type(column.type, precision, scale, mapping)
        notes += type_notes(column.name, kind, usual, scale or 0)
        nullable = column.nullable or "to-nullable" in mapping.options
        fields.append(
            Field(
                id=number,
                name=column.name,
                type=with_nullable(kind, nullable=nullable and column.name not in primary_key),
                description=column.comment,
            )
        )
    return SourceSchema(
        fields=tuple(fields),
        primary_key=tuple(primary_key),
        states_key=states_key,
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
