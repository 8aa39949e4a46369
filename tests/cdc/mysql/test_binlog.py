"""The places of events in the binary log, in files of any length."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.cdc.mysql.binlog import (
    Binlog,
    Commit,
    Definition,
    Idle,
    LogPlace,
    Rows,
    Statement,
    TableMapSeen,
    offset_after,
)
from lakecore.cdc.mysql.connection import MySqlSettings, Server
from lakecore.errors import InvalidRequest, StorageError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable

GIB = 1 << 30
QUERY, ROTATE, FORMAT, XID, LOAD, HEARTBEAT, GTID_LIST = 2, 4, 15, 16, 18, 27, 163
ARTIFICIAL = 0x20
SERVER = Server(
    version="11", identity="1", is_mariadb=True, zone="UTC", snapshot_states_position=True
)


def event(kind: int, end: int, body: bytes = b"", flags: int = 0) -> bytes:
    return b"\0" + pack("<IBIIIH", 1, kind, 1, 19 + len(body), end % (4 * GIB), flags) + body


def rotate(offset: int, file: bytes) -> bytes:
    return event(ROTATE, 0, pack("<Q", offset) + file, ARTIFICIAL)


class Scripted:
    """A connection that gives these packets, then the end of the log."""

    def __init__(self, packets: Iterable[bytes]) -> None:
        self._packets = iter([*packets, b"\xfe\0"])

    def _read_packet(self) -> Scripted:
        self._packet = next(self._packets)
        return self

    def get_all_data(self) -> bytes:
        return self._packet


def query(text: str, end: int, database: str = "", more: bytes | None = None) -> bytes:
    name, status = database.encode(), b"\0\1\2"
    head = pack("<IIBHH", 1, 0, len(name), 0, len(status))
    body = head + (more or b"") + status + name + b"\0" + text.encode()
    return event(QUERY if more is None else LOAD, end, body)


Seen = TableMapSeen | Rows | Commit | Definition | Statement | Idle


def events(skips_to: int, *packets: bytes) -> list[Seen]:
    settings = MySqlSettings(hostname="h", username="u", password="p", databases="d")
    log = Binlog(settings, SERVER, 1)
    log.skips_to, log.place = skips_to, LogPlace(7, 4, "log.000007")
    connection: Any = Scripted(packets)
    found: list[Seen] = []
    with pytest.raises(StorageError, match="ended the binary log"):
        found.extend(log.events_of(connection))
    return found


def commits(skips_to: int, *packets: bytes) -> list[LogPlace]:
    return [each.place for each in events(skips_to, *packets) if isinstance(each, Commit)]


@pytest.mark.parametrize(
    ("before", "stated", "after"),
    [
        (4, 256, 256),
        (4 * GIB - 10, 5, 4 * GIB + 5),
        (4 * GIB + 5, 100, 4 * GIB + 100),
        (8 * GIB - 1, 0, 8 * GIB),
        (7 * GIB, 3 * GIB - 200, 7 * GIB - 200),  # falls by little: the same 4 GiB
        (3 * GIB, 4 * GIB - 1, 4 * GIB - 1),
    ],
)
def test_end_of_an_event_counts_the_bits_above(before: int, stated: int, after: int) -> None:
    assert offset_after(before, stated) == after


def test_a_file_beyond_4_gib_has_its_true_places() -> None:
    found = commits(
        0,
        rotate(4, b"log.000007"),
        event(FORMAT, 256, bytes(5)),
        event(XID, 1000),
        *(event(19, GIB * step - 7) for step in range(1, 5)),
        event(XID, 4 * GIB + 50),
        rotate(4, b"log.000008"),
        event(XID, 300),
    )

    assert found == [
        LogPlace(7, 1000, "log.000007"),
        LogPlace(7, 4 * GIB + 50, "log.000007"),
        LogPlace(8, 300, "log.000008"),
    ]


def test_a_place_beyond_4_gib_is_reached_by_skipping() -> None:
    found = commits(
        4 * GIB + 50,
        rotate(4, b"log.000007"),
        event(XID, 1000),
        *(event(19, GIB * step - 7) for step in range(1, 5)),
        event(XID, 4 * GIB + 50),
        event(XID, 4 * GIB + 99),
    )

    assert found == [LogPlace(7, 4 * GIB + 99, "log.000007")]


def test_an_event_that_the_server_makes_for_the_stream_moves_no_place() -> None:
    found = commits(
        0,
        rotate(3 * GIB, b"log.000007"),
        event(FORMAT, 256, bytes(5)),
        event(GTID_LIST, 300, flags=ARTIFICIAL),
        event(XID, 3 * GIB + 10),
    )

    assert found == [LogPlace(7, 3 * GIB + 10, "log.000007")]


def test_start_at_a_gtid_beyond_4_gib_is_refused() -> None:
    """The server sends the lower 32 bits of the place, and no event from before."""

    def first(size: int) -> LogPlace:
        settings = MySqlSettings(hostname="h", username="u", password="p", databases="d")
        log = Binlog(settings, SERVER, 1)
        log.sizes = {"log.000007": size}
        packets = (rotate(4, b"log.000007"), event(XID, 5 * GIB))
        connection: Any = Scripted(packets)
        return next(each.place for each in log.events_of(connection) if isinstance(each, Commit))

    assert first(4 * GIB) == LogPlace(7, GIB, "log.000007")
    with pytest.raises(Unsupported, match="more than 4 GiB"):
        first(5 * GIB)


def test_logged_statement_names_its_database_and_does_not_end_its_transaction() -> None:
    found = events(
        0,
        query("BEGIN", 300),
        query("insert into x values (1)", 400, "other"),
        query("LOAD DATA INFILE 'f' INTO TABLE x", 500, "third", more=bytes(13)),
        event(XID, 600),
        query("CREATE TABLE y (id int)", 700, "other"),
    )

    assert found == [
        Statement("insert into x values (1)", "other", "log.000007:400", 400),
        Statement("LOAD DATA INFILE 'f' INTO TABLE x", "third", "log.000007:500", 500),
        Commit(LogPlace(7, 600, "log.000007"), None, 1),
        Definition("CREATE TABLE y (id int)", "other"),
        Commit(LogPlace(7, 700, "log.000007"), None, 1),
    ]


@pytest.mark.parametrize("stored", [None, [], ["bin.1"], ["bin.1", "x"], ["bin.1", None]])
def test_a_damaged_place_is_refused(stored: Any) -> None:
    with pytest.raises(InvalidRequest, match="not a position of this source"):
        LogPlace.from_json(stored)
