"""Tables of a MariaDB that are set aside come back by `lakecore cdc resync`."""

from __future__ import annotations

import socket
import socketserver
import subprocess
import threading
import time
from select import select
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.cdc.mysql.source import MySqlSource
from tests.services import servers
from tests.services.mirrors import command, connect, environment, mirror, program, ran, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakecore.cdc.events import Step
    from tests.services.servers import Server

WITHIN_SECONDS = 60
NAME = "mysql_sync_database-m"


@pytest.fixture
def server(mariadb_log: Server, quick_heartbeats: None) -> Server:
    del quick_heartbeats
    return mariadb_log


@pytest.fixture
def cursor(server: Server) -> Any:
    return connect(server)


def target(warehouse: Path, name: str) -> list[tuple[object, ...]]:
    found = lc.connect(warehouse).get_table(f"m.{name}").to_arrow().to_pylist()
    return sorted(tuple(each.values()) for each in found)


def rows(cursor: Any, table: str) -> list[tuple[object, ...]]:
    cursor.execute(f"SELECT * FROM {table}")
    return sorted(cursor.fetchall())


def resync(warehouse: Path, tables: str) -> None:
    done = ran(["cdc", "resync", NAME, f"--warehouse={warehouse}", f"--tables={tables}"])
    assert done.code == 0, done.err


def broken(server: Server, cursor: Any, warehouse: Path, database: str) -> list[str]:
    """A pipeline whose tables `logged` and `wider` are set aside; `good` is followed."""
    names = ("logged", "wider", "good")
    run(
        cursor,
        f"CREATE DATABASE {database}",
        *(f"CREATE TABLE {database}.{each} (id int primary key, v text)" for each in names),
        *(f"INSERT INTO {database}.{each} VALUES (1, 'a'), (2, 'b'), (3, 'c')" for each in names),
    )
    given = command(server, warehouse, "mysql_sync_database", database)
    mirror(given)
    session = connect(server)
    run(
        session,
        f"USE {database}",
        "SET SESSION binlog_format = STATEMENT",
        "UPDATE logged SET v = 'statement' WHERE id = 1",
    )
    run(
        cursor,
        f"ALTER TABLE {database}.wider MODIFY id bigint",
        f"INSERT INTO {database}.wider VALUES (5000000000, 'd')",
    )
    mirror(given, ends_with=3)
    for each in names:
        run(
            cursor,
            f"DELETE FROM {database}.{each} WHERE id = 2",
            f"UPDATE {database}.{each} SET v = 'later' WHERE id = 3",
            f"INSERT INTO {database}.{each} VALUES (9, 'new')",
        )
    return given


def test_both_tables_come_back_while_their_rows_change(
    server: Server, cursor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = broken(server, cursor, tmp_path, "back")
    before = target(tmp_path, "wider")
    resync(tmp_path, "logged,back.wider")
    session = connect(server)
    run(session, "USE back", "SET SESSION binlog_format = STATEMENT")
    run(session, "UPDATE logged SET v = 'again' WHERE id = 1")  # before the rows are read
    read = MySqlSource.read_again

    def meanwhile(self: MySqlSource, *of: Any) -> Iterator[Step]:
        for number, step in enumerate(read(self, *of)):
            yield step
            run(
                cursor,
                f"INSERT INTO back.logged VALUES ({100 + number}, 'meanwhile') "
                "ON DUPLICATE KEY UPDATE v = 'twice'",
                f"UPDATE back.logged SET v = 'step {number}' WHERE id = 3",
                f"DELETE FROM back.logged WHERE id = {99 + number}",
                f"INSERT INTO back.good VALUES ({1000 + 10 * len(done) + number}, 'g')",
            )
        done.append(True)

    done: list[bool] = []
    monkeypatch.setattr(MySqlSource, "read_again", meanwhile)
    found = mirror(given, ends_with=3)

    assert target(tmp_path, "logged") == rows(cursor, "back.logged")
    assert target(tmp_path, "good") == rows(cursor, "back.good")
    (entry,) = found["quarantine"]
    assert entry["table"] == "wider"
    assert "could not be read again" in entry["reason"]
    assert "the type of a column changed" in entry["reason"]
    assert target(tmp_path, "wider") == before

    lc.connect(tmp_path).drop_table("m.wider")
    resync(tmp_path, "wider")
    assert mirror(given)["quarantine"] == []
    run(cursor, "DELETE FROM back.wider WHERE id = 1", "DELETE FROM back.logged WHERE id = 9")
    mirror(given)
    assert target(tmp_path, "wider") == rows(cursor, "back.wider")
    assert target(tmp_path, "logged") == rows(cursor, "back.logged")


def test_a_running_pipeline_that_is_killed_in_the_middle(
    server: Server, cursor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = broken(server, cursor, tmp_path, "killed")
    read = MySqlSource.read_again

    def dies(self: MySqlSource, *of: Any) -> Iterator[Step]:
        for step in read(self, *of):
            yield step
            if step.count:
                raise RuntimeError("killed")

    resync(tmp_path, "logged")
    with monkeypatch.context() as patched:
        patched.setattr(MySqlSource, "read_again", dies)
        with pytest.raises(RuntimeError, match="killed"):
            mirror(given)
    assert mirror(given, ends_with=0)["quarantine"][0]["table"] == "wider"
    assert target(tmp_path, "logged") == rows(cursor, "killed.logged")

    lc.connect(tmp_path).drop_table("m.wider")
    process = subprocess.Popen(program([*given, "--interval=1 s"]), env=environment())
    try:
        run(cursor, "INSERT INTO killed.good VALUES (20, 'before')")
        until(lambda: target(tmp_path, "good") == rows(cursor, "killed.good"))
        resync(tmp_path, "wider")
        run(cursor, "INSERT INTO killed.good VALUES (21, 'after')")
        until(lambda: lc.connect(tmp_path).table_exists("m.wider"))
        process.kill()
        process.wait()
        run(cursor, "INSERT INTO killed.wider VALUES (6000000000, 'e')")
        assert mirror(given)["quarantine"] == []
    finally:
        process.kill()
        process.wait()
    for name in ("good", "wider", "logged"):
        assert target(tmp_path, name) == rows(cursor, f"killed.{name}"), name


def until(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + WITHIN_SECONDS
    while not holds():
        assert time.monotonic() < ends, "the pipeline did not get there"
        time.sleep(0.2)


def test_check_lists_all_problems_and_geometries_are_bytes(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    run(
        cursor,
        "CREATE DATABASE checked",
        "CREATE TABLE checked.a (id int primary key)",
        "CREATE TABLE checked.b (id int primary key)",
        "CREATE TABLE checked.good (id int primary key, g geometry, p point NOT NULL)",
        "CREATE TABLE checked.keyless (id int)",
        "INSERT INTO checked.good VALUES (1, ST_GeomFromText('LINESTRING(0 0,1 1)', 4326), "
        "POINT(1, 2))",
    )
    excluded = "--exclude_column=checked.a.id,b.id"
    given = command(server, tmp_path, "mysql_sync_database", "checked", excluded)
    found = ran(["cdc", "check", *given[1:]])

    assert found.code == 1
    problems = [each for each in found.out.splitlines() if each.startswith("problem: ")]
    assert [each.split(": ")[1] for each in problems] == ["checked.a", "checked.b"]
    assert "cannot be excluded. column=id" in problems[0]
    assert "keyless: it has no primary key" in found.out
    assert "binary log" in found.out
    assert not (tmp_path / ".cdc").exists()
    skipped = mirror([*given, "--skip-unsupported=true"])
    assert [each["table"] for each in skipped["quarantine"]] == ["a", "b"]
    run(cursor, "INSERT INTO checked.good SELECT 2, g, p FROM checked.good")
    assert mirror(given)["newly_set_aside"] == []
    first, second = target(tmp_path, "good")
    assert first[1:] == second[1:]
    assert first[1] is not None
    assert bytes(first[1])[:5] == (4326).to_bytes(4, "little") + b"\1"  # type: ignore[call-overload]


class Forward(socketserver.BaseRequestHandler):
    """Passes the bytes of a connection to the server on the port `to`, and back."""

    to = 0

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.to)) as there:
            pairs = {self.request: there, there: self.request}
            while True:
                for ready in select([*pairs], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    pairs[ready].sendall(data)


def test_a_server_that_is_down_at_the_start_is_waited_for(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    run(cursor, "CREATE DATABASE waited", "CREATE TABLE waited.t (id int primary key)")
    run(cursor, "INSERT INTO waited.t VALUES (1)")
    port = servers.free_port()
    given = command(server, tmp_path, "mysql_sync_database", "waited", port=str(port))
    done = ran([*given, "--until=caught-up", "--patience=1 s"])
    assert done.code == 1
    assert "nothing listens at the address" in done.err
    process = subprocess.Popen(
        program([*given, "--until=caught-up"]), env=environment(), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    handler = type("To", (Forward,), {"to": server.port})
    with socketserver.ThreadingTCPServer(("127.0.0.1", port), handler) as between:
        between.daemon_threads = True
        threading.Thread(target=between.serve_forever, daemon=True).start()
        _, logged = process.communicate(timeout=60)
        between.shutdown()
    assert process.returncode == 0, logged
    assert "the source is not reachable" in first
    assert target(tmp_path, "t") == [(1,)]
