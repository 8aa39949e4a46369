"""A replica of MariaDB takes over: pipelines go on by GTIDs, and no row is lost or doubled."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from tests.services import servers
from tests.services.mirrors import (
    command,
    connect,
    environment,
    mirror,
    program,
    ran,
    refusal,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.services.servers import Server

Pair = tuple["Server", "Server"]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary and its replica, which has the same log."""
    second = (*servers.BINARY_LOG, "--server-id=2", "--log-slave-updates")
    with servers.mariadb(*servers.BINARY_LOG) as primary, servers.mariadb(*second) as replica:
        servers.eventually(lambda: connect(primary), "the primary")
        servers.eventually(lambda: connect(replica), "the replica")
        run(
            connect(replica),
            "RESET MASTER",
            f"CHANGE MASTER TO master_host='127.0.0.1', master_port={primary.port}, "
            f"master_user='paimon', master_password='{servers.PASSWORD}', "
            "master_use_gtid=slave_pos",
            "START SLAVE",
        )
        yield primary, replica


def fail_over(primary: Server, replica: Server, *, waits: bool = True) -> None:
    """The primary dies, and the replica answers at its address."""
    at = value(connect(primary), "SELECT @@gtid_binlog_pos")
    cursor = connect(replica)
    if waits:
        assert value(cursor, f"SELECT MASTER_GTID_WAIT('{at}', 60)") == 0
    primary.kill()
    run(cursor, "STOP SLAVE", "RESET SLAVE ALL")
    replica.stop()
    port = f"--port={primary.port}"
    replica.command = [port if each.startswith("--port=") else each for each in replica.command]
    replica.port = primary.port
    replica.start()
    servers.eventually(lambda: connect(replica), "the new primary")


def value(cursor: Any, query: str) -> Any:
    cursor.execute(query)
    return cursor.fetchone()[0]


def targets(warehouse: Path, name: str) -> list[tuple[object, ...]]:
    found = lc.connect(warehouse).get_table(f"m.{name}").to_arrow().to_pylist()
    return sorted(tuple(each.values()) for each in found)


def rows(cursor: Any, table: str) -> list[tuple[object, ...]]:
    cursor.execute(f"SELECT * FROM {table}")
    return sorted(cursor.fetchall())


def test_running_pipelines_go_on_after_a_failover(pair: Pair, tmp_path: Path) -> None:
    primary, replica = pair
    cursor = connect(primary)
    run(
        cursor,
        "CREATE DATABASE fo",
        "CREATE TABLE fo.t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE fo.log (n INT)",  # a row that is read twice would be stored twice
        "INSERT INTO fo.t VALUES (1, 1), (2, 2), (3, 3)",
    )
    keyed = command(primary, tmp_path, "mysql_sync_database", "fo", "--interval=0.2 s")
    flags = ("--table=log", "--interval=0.2 s")
    log = command(primary, tmp_path, "mysql_sync_table", "fo", *flags, **{"table-name": "log"})
    log.remove("--table_conf=bucket=1")
    processes = [
        subprocess.Popen(program(each), env=environment(), stderr=subprocess.DEVNULL)
        for each in (keyed, log)
    ]
    try:
        number = 0

        def load(cursor: Any, count: int) -> None:
            nonlocal number
            for _ in range(count):
                number += 1
                run(
                    cursor,
                    f"SET SESSION gtid_domain_id = {number % 3}",
                    f"INSERT INTO fo.log VALUES ({number})",
                    f"REPLACE INTO fo.t VALUES ({number % 17}, {number})",
                    f"DELETE FROM fo.t WHERE id = {number % 5}",
                )

        load(cursor, 100)

        def have_begun() -> None:
            shown = ran(["cdc", "status", f"--warehouse={tmp_path}", "--json"]).out.splitlines()
            assert [json.loads(each)["caught_up"] for each in shown] == [True, True]

        def have_followed() -> None:  # a failover within the first snapshot is refused
            assert len(targets(tmp_path, "log")) > number - 50

        servers.eventually(have_begun, "the first rows")
        load(cursor, 50)
        servers.eventually(have_followed, "the first rows of the log")
        load(cursor, 50)
        fail_over(primary, replica)
        cursor = connect(replica)
        load(cursor, 100)

        def has_come() -> None:
            assert len(targets(tmp_path, "log")) >= number

        servers.eventually(has_come, "the rows of the new primary")
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        assert [each.wait(60) for each in processes] == [0, 0]
    mirror(keyed)
    mirror(log)
    assert targets(tmp_path, "log") == [(each,) for each in range(1, number + 1)]
    assert targets(tmp_path, "t") == rows(cursor, "fo.t")

    run(cursor, "REPLACE INTO fo.t VALUES (1, -1)")
    moved = [each.replace("hostname=127.0.0.1", "hostname=localhost") for each in keyed]
    assert "--source-moved true" in refusal(moved)
    mirror([*moved, "--source-moved=true"])
    mirror(moved)
    assert targets(tmp_path, "t") == rows(cursor, "fo.t")


def test_a_replica_that_was_behind_is_named(pair: Pair, tmp_path: Path) -> None:
    primary, replica = pair
    cursor = connect(primary)
    run(cursor, "CREATE DATABASE fo", "CREATE TABLE fo.t (id INT PRIMARY KEY)")
    given = command(primary, tmp_path, "mysql_sync_database", "fo", "--patience=1 s")
    mirror(given)
    at = value(cursor, "SELECT @@gtid_binlog_pos")
    assert value(connect(replica), f"SELECT MASTER_GTID_WAIT('{at}', 60)") == 0
    run(connect(replica), "STOP SLAVE")
    run(cursor, "INSERT INTO fo.t VALUES (1)")
    mirror(given)
    fail_over(primary, replica, waits=False)
    run(connect(replica), "INSERT INTO fo.t VALUES (2)")

    assert "it was behind when it took over" in refusal(given)
