"""What a MySQL or MariaDB server must have for a mirror: settings, grants, and the stored place.

A grant is checked by doing what needs it, because the list of grants hides those of roles.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.cdc.actions import matches
from lakecore.cdc.mysql.binlog import Binlog, LogPlace
from lakecore.cdc.mysql.connection import (
    NO_DATABASE,
    NO_GRANT,
    REFUSALS,
    StartupMode,
    check_server,
    log_position,
    log_refused,
    log_sizes,
    plain_mysql_errors,
    read_server,
    variable,
)
from lakecore.cdc.quarantine import START_AGAIN, Collected
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.cdc.mysql.connection import Connection, Cursor, MySqlSettings, Server
    from lakecore.cdc.mysql.log_batches import Place


def server_problems(
    connection: Connection,
    settings: MySqlSettings,
    place: Place | None,
    server_id: int,
    *,
    is_half_read: bool,
) -> Collected:
    """What the server lacks for a pipeline that continues at a place; None for a new one.

    `server_id`: an id that no other reader of the log has. `is_half_read`: see `moved`.
    """
    collected = Collected()
    with plain_mysql_errors(settings, "the settings of the server cannot be read"):
        cursor = connection.cursor()
        with collected.of():
            check_server(cursor, settings)
        has_log = str(variable(cursor, "log_bin")) in {"ON", "1"}
    if not has_log or settings.mode is StartupMode.SNAPSHOT:
        return collected
    server = read_server(connection, settings, is_checked=False)
    has_moved = place is not None and place.server not in {None, server.identity}
    begin = None if place is None or has_moved else place.log or first_mark(place)
    end = gtid = None
    with collected.of():
        with needs_grant(cursor, settings, "REPLICATION CLIENT"):
            end = LogPlace.of(*log_position(cursor))
            sizes = log_sizes(cursor)
        if begin is not None and begin.offset > sizes.get(begin.file, -1):
            raise InvalidRequest(
                log_refused("purged"),
                place=f"{begin.file}:{begin.offset}",
                first_file=next(iter(sizes), None),
            )
    with collected.of():
        if place is not None and has_moved:
            place = moved(settings, server, place, is_half_read=is_half_read)
        if place is not None and place.log is None:
            gtid = place.gtid
        with (
            closing(Binlog(settings, server, server_id)) as stream,
            needs_grant(cursor, settings, "REPLICATION SLAVE"),
        ):
            stream.start(end if gtid is None else None, gtid)
            stream.check()
    return collected


def first_mark(place: Place) -> LogPlace | None:
    """The earliest place of the log at which a part of the snapshot was read."""
    return min((mark for each in place.marks.values() for mark in each.places), default=None)


def moved(settings: MySqlSettings, server: Server, place: Place, *, is_half_read: bool) -> Place:
    """The place on another server, which has taken over: after the last GTID of each domain.

    Tables and transactions that were read in part are read again, and rows replace rows of the
    same key. `is_half_read`: whether they would be doubled. Raises InvalidRequest if it is not
    known where the pipeline goes on.
    """
    if not server.is_mariadb or not place.gtid or place.log is None or is_half_read:
        raise InvalidRequest(
            "another server answers at the address, and it is not known where the pipeline "
            "goes on: this is known for MariaDB, after the first snapshot. To read everything "
            f"again, {START_AGAIN}",
            server=f"{settings.hostname}:{settings.port}",
            server_id_before=place.server,
            server_id=server.identity,
        )
    return replace(place, log=None, marks={}, events_done=0)


def check_databases(connection: Connection, settings: MySqlSettings) -> None:
    """Raise InvalidRequest if the user sees no database that the settings name."""
    cursor = connection.cursor()
    cursor.execute("SELECT schema_name FROM information_schema.schemata")
    names = sorted(str(row[0]) for row in cursor.fetchall())
    if not any(matches(settings.databases, each) for each in names):
        raise InvalidRequest(
            "the server has no such database, or hides it from the user: correct database-name, "
            "create it, or GRANT SELECT",
            databases=settings.databases,
            user=settings.username,
            visible=names,
        )


def check_select(cursor: Cursor, settings: MySqlSettings, table: str) -> None:
    """Raise InvalidRequest if the user may not read a table, given by its quoted name."""
    with needs_grant(cursor, settings, "SELECT", table):
        cursor.execute(f"SELECT 1 FROM {table} LIMIT 0")


@contextmanager
def needs_grant(
    cursor: Cursor, settings: MySqlSettings, privilege: str, on: str = "*.*"
) -> Iterator[None]:
    """A context manager for what needs a privilege: its error has the statement that grants it."""
    try:
        with plain_mysql_errors(settings, "the server cannot be read"):
            yield
    except InvalidRequest as error:
        cause = error.__cause__
        code = cause.args[0] if cause is not None and cause.args else 0
        if REFUSALS.get(code) not in {NO_GRANT, NO_DATABASE}:
            raise
        cursor.execute("SELECT CURRENT_USER()")
        row = cursor.fetchone()
        user, _, host = str(row[0] if row else settings.username).rpartition("@")
        raise InvalidRequest(
            "the user lacks a privilege that a mirror needs: run the statement",
            statement=f"GRANT {privilege} ON {on} TO '{user}'@'{host}'",
            server=f"{settings.hostname}:{settings.port}",
            cause=cause,
        ) from cause
