"""Parses the stream of the binary log into events, each with its place (file and offset).

1. The session declares that it knows checksums, and asks for heartbeats when the log is idle. Each
   file states whether events end in a checksum. The checksum is removed without a check, because
   TCP and TLS have their own checksums.
2. COM_BINLOG_DUMP starts the stream at a file and offset. To start at a GTID, a variable is set for
   MariaDB, and COM_BINLOG_DUMP_GTID is sent to MySQL.
3. Each packet is an event with a header of 19 bytes. Events that do not concern rows are skipped
   without parsing their body.
4. A header states only the lower 32 bits of an offset. In a file of more than 4 GiB, this module
   counts how often the offset wraps around. For a start beyond 4 GiB, the file is read from the
   beginning.

PyMySQL sends and receives the packets. This module parses the events itself, because
mysql-replication takes five to ten times as long for a row. mysql-replication parses table maps,
JSON and sets of GTIDs.

Protocol: https://mariadb.com/kb/en/replication-protocol/
"""

from __future__ import annotations

import re
from importlib import import_module
from struct import Struct, pack
from typing import TYPE_CHECKING, NamedTuple

from lakecore.cdc.mysql.connection import (
    Connection,
    MySqlSettings,
    Server,
    connect,
    log_sizes,
    plain_mysql_errors,
    variable,
)
from lakecore.cdc.quarantine import START_AGAIN
from lakecore.errors import CorruptTable, InvalidRequest, StorageError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from lakecore.model.types import Json

HEARTBEAT_SECONDS = 0.5
_DUMP, _DUMP_GTID = 0x12, 0x1E
_THROUGH_GTID = 0x04
_HEADER = Struct("<IBIIIH")
_CHECKSUM_SIZE = 4
_BODY = 20  # the packet's OK byte, and the header
_QUERY, _ROTATE, _FORMAT, _XID, _TABLE_MAP = 2, 4, 15, 16, 19
_EXECUTE_LOAD, _INCIDENT, _GTID, _XA_PREPARE = 18, 26, 33, 38
_HEARTBEATS = frozenset({27, 41})
_WITHOUT_PLACE = frozenset({_ROTATE, _FORMAT, *_HEARTBEATS})
_ARTIFICIAL = 0x20  # the server made the event for this stream; the log file does not have it
_WRAP = 1 << 32
_WRITES, _UPDATES, _DELETES = frozenset({23, 30}), frozenset({24, 31}), frozenset({25, 32})
_ROWS = _WRITES | _UPDATES | _DELETES
_SECOND_VERSION = frozenset({30, 31, 32})
_REFUSED = {
    39: "partial JSON updates (binlog_row_value_options)",
    40: "compressed transactions (binlog_transaction_compression)",
    **dict.fromkeys(range(165, 172), "compressed events (log_bin_compress)"),
}
_MARIADB_GTID = 162
_STANDALONE = 1
_QUERY_HEAD = Struct("<IIBHH")
_STRICT = 3 << 21  # STRICT_TRANS_TABLES and STRICT_ALL_TABLES of sql_mode
_LOAD_HEAD_SIZE = 13  # the size of a LOAD DATA event after the head of the statement
_STATEMENT = re.compile(
    r"\s*(?:/\*.*?\*/\s*)?(INSERT|UPDATE|DELETE|REPLACE|LOAD)\b", re.IGNORECASE | re.DOTALL
)


class LogPlace(NamedTuple):
    """A place in the log: a file and an offset.

    The digits at the end of a file's name are its number.
    """

    number: int
    offset: int
    file: str

    @staticmethod
    def of(file: str, offset: int) -> LogPlace:
        """The place in a file. Raises InvalidRequest for a name without a number."""
        digits = file.rpartition(".")[2]
        if not digits.isdecimal():
            raise InvalidRequest("a file of the binary log ends in a number", file=file)
        return LogPlace(int(digits), offset, file)

    @staticmethod
    def from_json(value: Json) -> LogPlace:
        """The place from a JSON value that `to_json` returned."""
        if not isinstance(value, list) or len(value) != 2 or not str(value[1]).isdecimal():
            raise InvalidRequest("not a position of this source", position=str(value))
        return LogPlace.of(str(value[0]), int(str(value[1])))

    def to_json(self) -> list[Json]:
        return [self.file, self.offset]


class TableMapSeen(NamedTuple):
    """A table map event, which describes the table of the next rows.

    Fields: the table's number, the packet, and the offset of its end in the log.
    """

    table_id: bytes
    packet: bytes
    end: int = 0


class Rows(NamedTuple):
    """Changed rows of a table. `before`, `after`: whether old and new rows are included."""

    table_id: bytes
    data: bytes
    start: int
    stop: int
    before: bool
    after: bool
    end: int
    timestamp: int


class Commit(NamedTuple):
    """The end of a transaction, or of a single statement. A reader can start again here."""

    place: LogPlace
    gtid: str | None
    timestamp: int


class Definition(NamedTuple):
    """A statement that may be DDL: it may change the definitions of tables.

    - `database`: the current database of the session, or empty;
    - `is_strict`: whether its session refuses values that do not fit a column.
    """

    text: str
    database: str = ""
    is_strict: bool = False


class Statement(NamedTuple):
    """A statement that changes rows, logged in place of the rows (binlog_format=STATEMENT).

    - `database`: the current database of the session, or empty;
    - `place`: where the statement is in the log, for messages;
    - `end`: the offset of its end in the log.
    """

    text: str
    database: str
    place: str
    end: int = 0


class Idle(NamedTuple):
    """The server has sent all events."""


class Binlog:
    """One stream of the log.

    - `place`: the position of the next event;
    - `skips_to`: events of the first file that end at or before this offset are left out;
    - `sizes`: the sizes of the log's files; set only by a start at a GTID, until the first event.
    """

    def __init__(self, settings: MySqlSettings, server: Server, server_id: int) -> None:
        self._settings = settings
        self._server = server
        self._id = server_id
        self._connection: Connection | None = None
        self._tail = 0
        self._end = 4
        self.sizes: dict[str, int] = {}
        self.skips_to = 0
        self.place = LogPlace(0, 4, "")

    def start(self, place: LogPlace | None, gtid: str | None = None) -> None:
        """Request the log from a place, or after a GTID."""
        connection = self._connection = connect(self._settings, stream=True)
        cursor = connection.cursor()
        cursor.execute(
            "SET @master_binlog_checksum=@@global.binlog_checksum, "
            "@source_binlog_checksum=@@global.binlog_checksum"
        )
        has_checksum = (variable(cursor, "binlog_checksum") or "NONE").upper() != "NONE"
        self._tail = _CHECKSUM_SIZE if has_checksum else 0
        cursor.execute("SET @mariadb_slave_capability=4")
        cursor.execute(f"SET @master_heartbeat_period={int(HEARTBEAT_SECONDS * 1e9)}")
        if gtid is not None:
            self.sizes = log_sizes(cursor)
        if gtid is not None and self._server.is_mariadb:
            cursor.execute("SET @slave_connect_state=%s", (gtid,))
            cursor.execute("SET @slave_gtid_strict_mode=1")
        cursor.close()
        if gtid is not None and not self._server.is_mariadb:
            command = _gtid_command(self._id, gtid)
        else:
            file = b"" if place is None else place.file.encode()
            offset = 4 if place is None else place.offset
            if place is not None and offset >= _WRAP:
                offset, self.skips_to = 4, place.offset
            body = pack("<BIHI", _DUMP, offset, 0, self._id) + file
            command = pack("<I", len(body)) + body
        if place is not None:
            self.place = LogPlace(place.number, offset, place.file)
            self._end = offset
        with self._errors():
            connection._write_bytes(command)  # noqa: SLF001 - PyMySQL has no other way
            connection._next_seq_id = 1  # type: ignore[attr-defined]  # noqa: SLF001

    def check(self) -> None:
        """Raise InvalidRequest if the server refuses to send the log; `start` was called before."""
        assert self._connection is not None, "start it first"
        self._connection._read_packet()  # noqa: SLF001

    def close(self) -> None:
        if self._connection is not None:
            self._connection._force_close()  # noqa: SLF001 - the server still sends
            self._connection = None

    def events(
        self,
    ) -> Iterator[TableMapSeen | Rows | Commit | Definition | Statement | Idle]:
        """The events; the iterator never ends. Raises StorageError when the connection is lost."""
        connection = self._connection
        assert connection is not None, "start it first"
        with self._errors():
            yield from self.events_of(connection)

    def events_of(  # noqa: C901, PLR0912, PLR0915 - a case for each kind of event
        self, connection: Connection
    ) -> Iterator[TableMapSeen | Rows | Commit | Definition | Statement | Idle]:
        """The events that a connection sends."""
        gtid: str | None = None
        standalone = False
        rows_seen = False
        while True:
            data = connection._read_packet().get_all_data()  # noqa: SLF001
            if data[0] == 0xFE and len(data) < 9:
                raise StorageError("the server ended the binary log", file=self.place.file)
            timestamp, kind, sender, _, end, flags = _HEADER.unpack_from(data, 1)
            if end and kind not in _WITHOUT_PLACE and not flags & _ARTIFICIAL:
                self._check_place(end)
                end = self._end = offset_after(self._end, end)
                if end <= self.skips_to:
                    continue
            if kind in _ROWS:
                rows_seen = True
                yield _rows(data, kind, end, timestamp, len(data) - self._tail)
            elif kind == _TABLE_MAP:
                yield TableMapSeen(data[_BODY : _BODY + 6], data[: len(data) - self._tail], end)
            elif kind == _XID:
                self._advance(end)
                rows_seen = False
                yield Commit(self.place, gtid, timestamp)
            elif kind == _MARIADB_GTID:
                sequence, domain = int.from_bytes(data[20:28], "little"), data[28:32]
                gtid = f"{int.from_bytes(domain, 'little')}-{sender}-{sequence}"
                standalone = bool(data[32] & _STANDALONE)
            elif kind == _GTID:
                sid = data[21:37].hex()
                name = "-".join((sid[:8], sid[8:12], sid[12:16], sid[16:20], sid[20:]))
                gtid, standalone = f"{name}:{int.from_bytes(data[37:45], 'little')}", False
            elif kind == _EXECUTE_LOAD:
                text, database, _ = _query(data[: len(data) - self._tail], _LOAD_HEAD_SIZE)
                yield Statement(text, database, f"{self.place.file}:{end}", end)
            elif kind == _QUERY:
                text, database, is_strict = _query(data[: len(data) - self._tail])
                upper = text[:20].upper()
                if upper.startswith("ROLLBACK") and rows_seen:
                    raise Unsupported(
                        "a rolled-back transaction in the binary log: it changed tables of an "
                        "engine without transactions",
                        place=f"{self.place.file}:{end}",
                    )
                if upper.startswith(("BEGIN", "SAVEPOINT", "XA ")) and not standalone:
                    continue
                if _STATEMENT.match(text):
                    # The transaction continues: its end is a separate event.
                    yield Statement(text, database, f"{self.place.file}:{end}", end)
                    continue
                self._advance(end)
                if upper.startswith("COMMIT"):
                    rows_seen = False
                else:
                    yield Definition(text, database, is_strict)
                yield Commit(self.place, gtid, timestamp)
            elif kind == _ROTATE:
                file = data[28 : len(data) - self._tail].rstrip(b"\0").decode()
                self._rotate(LogPlace.of(file, int.from_bytes(data[20:28], "little")))
            elif kind in _HEARTBEATS:
                yield Idle()
            elif kind == _FORMAT:
                self._tail = _CHECKSUM_SIZE if data[-_CHECKSUM_SIZE - 1] == 1 else 0
            elif kind in _REFUSED:
                raise Unsupported(f"the binary log has {_REFUSED[kind]}")
            elif kind == _XA_PREPARE:
                raise Unsupported("the binary log has a prepared XA transaction")
            elif kind == _INCIDENT:
                raise InvalidRequest(f"the server reports a gap in its binary log: {START_AGAIN}")

    def at(self, end: int) -> LogPlace:
        """The place of an offset in the current file."""
        return LogPlace(self.place.number, end, self.place.file)

    def _check_place(self, end: int) -> None:
        """After a start at a GTID, raise Unsupported if the offset of the event is ambiguous.

        The event states only the lower 32 bits of its end offset, and the server sends no earlier
        events from which the higher bits could be counted. In a file of more than 4 GiB, there may
        be several offsets with these bits.
        """
        if self.sizes.get(self.place.file, 0) >= end + _WRAP:
            raise Unsupported(
                "a start at a GTID within a file of the binary log of more than 4 GiB: state the "
                "place by scan.startup.specific-offset.file and .pos",
                file=self.place.file,
            )
        self.sizes = {}

    def _rotate(self, place: LogPlace) -> None:
        """Continue in another file. The first event of a stream names the requested file."""
        if place.number != self.place.number:
            self.skips_to = 0
        self.place, self._end = place, place.offset

    def _advance(self, end: int) -> None:
        if end:
            self.place = self.at(end)

    def _errors(self) -> AbstractContextManager[None]:
        return plain_mysql_errors(self._settings, "the binary log cannot be read")


def offset_after(before: int, end: int) -> int:
    """The end offset of an event, from the offset `before` it and the `end` that it states.

    An event states only the lower 32 bits of its end offset, but a file with a very large
    transaction can exceed 4 GiB. An event has at most 1 GiB, so if the stated end is much smaller
    than before, the higher bits have increased by one.
    """
    above = before & ~(_WRAP - 1)
    if (before & (_WRAP - 1)) - end > _WRAP >> 1:
        above += _WRAP
    return above + end


def _rows(data: bytes, kind: int, end: int, timestamp: int, stop: int) -> Rows:
    """The rows of an event. Every row must have all columns."""
    at = _BODY + 8
    if kind in _SECOND_VERSION:
        at += int.from_bytes(data[at : at + 2], "little")
    count = data[at]
    at += 1
    if count >= 251:
        size = {252: 2, 253: 3, 254: 8}[count]
        count = int.from_bytes(data[at : at + size], "little")
        at += size
    full = (1 << count) - 1
    width = (count + 7) // 8
    for _ in range(2 if kind in _UPDATES else 1):
        if int.from_bytes(data[at : at + width], "little") & full != full:
            raise InvalidRequest(
                "rows of the binary log lack columns: binlog_row_image must be FULL for every "
                "session"
            )
        at += width
    if at > stop:
        raise CorruptTable("an event of the binary log is too short", bytes=len(data))
    return Rows(
        data[_BODY : _BODY + 6],
        data,
        at,
        stop,
        kind not in _WRITES,
        kind not in _DELETES,
        end,
        timestamp,
    )


def _query(data: bytes, more: int = 0) -> tuple[str, str, bool]:
    """A statement, the current database of its session, and whether the session is strict.

    `more`: the size of the event after the head of a statement, in bytes.
    """
    _, _, size, _, status = _QUERY_HEAD.unpack_from(data, _BODY)
    start = _BODY + _QUERY_HEAD.size + more
    variables, start = data[start : start + status], start + status
    at = 5 if variables[:1] == b"\0" else 0  # the flags of the session come before its sql_mode
    mode = variables[at + 1 : at + 9] if variables[at : at + 1] == b"\1" else b""
    database = data[start : start + size].decode(errors="replace")
    is_strict = bool(int.from_bytes(mode, "little") & _STRICT)
    return data[start + size + 1 :].decode(errors="replace"), database, is_strict


def _gtid_command(server_id: int, gtid: str) -> bytes:
    """The command COM_BINLOG_DUMP_GTID: requests all transactions except those of a GTID set."""
    try:
        known = bytes(import_module("pymysqlreplication.gtid").GtidSet(gtid).encoded())
    except (ValueError, TypeError) as error:
        raise InvalidRequest("not a set of GTIDs", gtid=gtid, cause=error) from error
    body = pack("<BHII", _DUMP_GTID, _THROUGH_GTID, server_id, 0)
    body += pack("<QI", 4, len(known)) + known
    return pack("<I", len(body)) + body
