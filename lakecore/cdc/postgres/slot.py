"""The publication and the replication slot of a pipeline; both are created if absent."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lakecore.cdc.actions import OnTruncate
from lakecore.cdc.postgres.connection import Connection, Cursor, PostgresSettings, quoted
from lakecore.cdc.quarantine import Collected
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence


log = logging.getLogger("lakecore.cdc")

_LOCK_MS = 2_000


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


def check_grant(cursor: Cursor, table: str) -> None:
    """Raise InvalidRequest if the user may not read a table."""
    if not _value(cursor, "SELECT has_table_privilege(%s, 'SELECT')", quoted_table(table)):
        raise InvalidRequest("the user may not read the table: GRANT SELECT ON it", table=table)


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


def open_slot(
    cursor: Cursor, stream: Connection, settings: PostgresSettings, after: int | None
) -> tuple[int, str | None]:
    """Open or create the slot.

    Returns its start position, and the snapshot that a new slot exports.

    `after`: the position at which the pipeline continues. Raises InvalidRequest if the slot no
    longer has all changes after this position.
    """
    slot = settings.slot
    cursor.execute(
        "SELECT confirmed_flush_lsn - '0/0'::pg_lsn, plugin FROM pg_replication_slots "
        "WHERE slot_name = %s",
        (slot,),
    )
    row = cursor.fetchone()
    if row is not None:
        if row[1] != "pgoutput":
            raise InvalidRequest("the slot has another plugin", slot=slot, plugin=row[1])
        begin = int(str(row[0]))
        if after is not None and after < begin:
            raise InvalidRequest(
                "the slot has moved past the position of the pipeline: another reader uses it. "
                "Remove the state of the pipeline to read everything again",
                slot=slot,
            )
        return begin, None
    if after is not None:
        raise InvalidRequest(
            "the slot of the pipeline is gone, and the changes that it kept: remove the state of "
            "the pipeline to read everything again",
            slot=slot,
        )
    creation = stream.cursor()
    creation.create_replication_slot(slot, output_plugin="pgoutput")
    made = creation.fetchone()
    assert made is not None, "the server made no slot"
    return _lsn(str(made[1])), str(made[2])


def _lsn(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def quoted_table(name: str) -> str:
    """The name `schema.table` as two quoted SQL identifiers."""
    schema, _, table = name.partition(".")
    return f"{quoted(schema)}.{quoted(table)}"
