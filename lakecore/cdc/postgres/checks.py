"""What a PostgreSQL server must have for a mirror: settings, grants, publication, slot.

Each check raises, or returns, errors that name the statement to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.cdc.actions import matches
from lakecore.cdc.postgres.connection import quoted, quoted_table
from lakecore.cdc.quarantine import START_AGAIN, Collected
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from lakecore.cdc.postgres.connection import Connection, Cursor, PostgresSettings


def check_server(cursor: Cursor, settings: PostgresSettings) -> None:
    """Raise InvalidRequest for all settings of the server that rule out a slot."""
    collected = Collected()
    with collected.of():
        if (level := _value(cursor, "SHOW wal_level")) != "logical":
            raise InvalidRequest(
                "the log of the server lacks the changed rows: set wal_level = logical, and "
                "restart it",
                wal_level=level,
            )
    with collected.of():
        if not _value(
            cursor, "SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"
        ):
            raise InvalidRequest(
                "the user may not read the log: ALTER USER ... REPLICATION", user=settings.username
            )
    with collected.of():
        free = _value(
            cursor,
            "SELECT count(*) FILTER (WHERE slot_name = %s) > 0 OR "
            "count(*) < current_setting('max_replication_slots')::int FROM pg_replication_slots",
            settings.slot,
        )
        if not free:
            raise InvalidRequest(
                "the server has no free slot: drop one, or set max_replication_slots",
                slot=settings.slot,
            )
    collected.check()


def check_grant(cursor: Cursor, table: str, user: str) -> None:
    """Raise InvalidRequest if the user may not read a table."""
    schema, _, only = table.partition(".")
    name, role = quoted_table(table), quoted(user)
    cursor.execute(
        "SELECT has_schema_privilege(n.oid, 'USAGE'), has_table_privilege(c.oid, 'SELECT') "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s",
        (schema, only),
    )
    row = cursor.fetchone() or (True, True)
    wanted = f"USAGE ON SCHEMA {quoted(schema)}", f"SELECT ON {name}"
    missing = [f"GRANT {each} TO {role}" for each, has in zip(wanted, row, strict=True) if not has]
    if missing:
        raise InvalidRequest(
            "the user may not read the table: run the statements", table=table, statements=missing
        )


def check_schemas(cursor: Cursor, settings: PostgresSettings) -> None:
    """Raise InvalidRequest if the database has no schema that the settings name."""
    cursor.execute("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'")
    names = sorted(str(row[0]) for row in cursor.fetchall())
    if not any(matches(settings.schemas, each) for each in names):
        raise InvalidRequest(
            "the database has no such schema: correct schema-name",
            schemas=settings.schemas,
            known=names,
        )


def check_publication(
    cursor: Cursor, settings: PostgresSettings, *, needs_key: bool
) -> list[tuple[str | None, InvalidRequest]]:
    """What the user may not do: create the publication (None), or add a table to it.

    `needs_key`: whether only tables with a primary key are published. A table is `schema.table`.
    """
    owns = _value(
        cursor,
        "SELECT pg_has_role(pubowner, 'USAGE') FROM pg_publication WHERE pubname = %s",
        settings.publication,
    )
    cursor.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition "
        "AND NOT (pg_has_role(c.relowner, 'USAGE') AND %s) "
        "AND (NOT %s OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND indisprimary)) "
        "AND NOT EXISTS (SELECT FROM pg_publication_tables p WHERE p.pubname = %s "
        "AND p.schemaname = n.nspname AND p.tablename = c.relname) ORDER BY 1, 2",
        (owns is not False, needs_key, settings.publication),
    )
    name = quoted(settings.publication)
    way = f"CREATE PUBLICATION {name} FOR ALL TABLES" if owns is None else None
    found: list[tuple[str | None, InvalidRequest]] = [
        (
            f"{schema}.{table}",
            InvalidRequest(
                "the user may not add the table to the publication: it must own both. Make it the "
                "owner, or let an administrator run the statement",
                table=f"{schema}.{table}",
                user=settings.username,
                statement=way
                or f"ALTER PUBLICATION {name} ADD TABLE {quoted(schema)}.{quoted(table)}",
            ),
        )
        for schema, table in ((str(row[0]), str(row[1])) for row in cursor.fetchall())
        if settings.takes(schema, table)
    ]
    may_create = "SELECT has_database_privilege(current_database(), 'CREATE')"
    if owns is None and not _value(cursor, may_create):
        database, role = quoted(settings.database), quoted(settings.username)
        error = InvalidRequest(
            "the user may not create the publication: run one of the statements",
            statements=[f"GRANT CREATE ON DATABASE {database} TO {role}", way],
        )
        found.append((None, error))
    return found


def check_slot(
    cursor: Cursor, settings: PostgresSettings, after: int | None, *, may_run: bool = False
) -> int | None:
    """The position from which the slot has all changes; None if there is no slot.

    `after`: the position at which the pipeline continues; `may_run`: whether it may be running, and
    have moved the slot in the meantime. Raises InvalidRequest if the slot cannot be used, or no
    longer has all changes after this position.
    """
    slot = settings.slot
    cursor.execute(
        "SELECT s.confirmed_flush_lsn - '0/0'::pg_lsn, s.plugin, s.wal_status, "
        "to_jsonb(s) ->> 'invalidation_reason', s.database, s.active FROM pg_replication_slots s "
        "WHERE s.slot_name = %s",
        (slot,),
    )
    row = cursor.fetchone()
    if row is None and after is not None:
        raise InvalidRequest(
            f"the slot of the pipeline is gone, and the changes that it kept: {START_AGAIN}",
            slot=slot,
        )
    if row is None:
        return None
    if row[1] != "pgoutput":
        raise InvalidRequest(
            "the slot has another plugin: choose another slot.name", slot=slot, plugin=row[1]
        )
    if row[4] != settings.database:
        raise InvalidRequest(
            "the slot is of another database: choose another slot.name", slot=slot, database=row[4]
        )
    if row[2] == "lost" or row[3] is not None or row[0] is None:
        raise InvalidRequest(
            "the server has discarded the changes that the slot kept: drop the slot by SELECT "
            f"pg_drop_replication_slot('{slot}'), {START_AGAIN}. Raise max_slot_wal_keep_size",
            slot=slot,
            reason=row[3] or row[2],
        )
    begin = int(str(row[0]))
    if after is not None and after < begin and not (may_run and row[5]):
        raise InvalidRequest(
            "the slot has moved past the position of the pipeline: another reader uses it. "
            f"To read everything again, drop the slot, {START_AGAIN}",
            slot=slot,
        )
    return begin


def server_notes(cursor: Cursor, settings: PostgresSettings) -> list[str]:
    """What a user should know: how much log the server keeps for the slot."""
    size = _value(cursor, "SHOW max_slot_wal_keep_size")
    held = _value(
        cursor,
        "SELECT pg_size_pretty(pg_current_wal_lsn() - restart_lsn) FROM pg_replication_slots "
        "WHERE slot_name = %s",
        settings.slot,
    )
    return [
        "the server keeps its log for the slot without a limit while the pipeline is stopped "
        "(max_slot_wal_keep_size)"
        if size == "-1"
        else f"the server keeps at most {size} of log for the slot: after more, the pipeline must "
        "start again (max_slot_wal_keep_size)",
        *([] if held is None else [f"the slot holds {held} of log now"]),
    ]


def _value(cursor: Cursor, query: str, *values: object) -> object:
    cursor.execute(query, values)
    row = cursor.fetchone()
    return None if row is None else row[0]


def open_slot(
    cursor: Cursor, stream: Connection, settings: PostgresSettings, after: int | None
) -> tuple[int, str | None]:
    """Open or create the slot.

    Returns its start position, and the snapshot that a new slot exports.

    `after`: the position at which the pipeline continues. Raises InvalidRequest if the slot no
    longer has all changes after this position.
    """
    begin = check_slot(cursor, settings, after)
    if begin is not None:
        return begin, None
    creation = stream.cursor()
    creation.create_replication_slot(settings.slot, output_plugin="pgoutput")
    made = creation.fetchone()
    assert made is not None, "the server made no slot"
    return _lsn(str(made[1])), str(made[2])


def _lsn(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
