"""`lakecore cdc check` on real servers: all problems at once, each with its next step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.services.mirrors import (
    command,
    connect,
    drop_slot,
    mirror,
    postgres,
    postgres_command,
    ran,
    refusal,
    run,
)
from tests.services.servers import BINARY_LOG, PASSWORD, eventually, mariadb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.servers import Server


@pytest.fixture
def server(mariadb_log: Server, quick_heartbeats: None) -> Server:
    del quick_heartbeats
    return mariadb_log


def checked(given: list[str]) -> tuple[int, list[str], list[str]]:
    """The exit code of a check, the problems and the notes."""
    done = ran(["cdc", "check", *given[1:]])
    lines = done.out.splitlines()
    return (
        done.code,
        [each for each in lines if each.startswith("problem: ")],
        [each for each in lines if each.startswith("note: ")],
    )


def found(problems: list[str], *parts: str) -> None:
    """Each of the problems has one of the parts, and each part is in one of them."""
    assert len(problems) == len(parts), problems
    for part in parts:
        assert sum(part in each for each in problems) == 1, (part, problems)


def test_all_problems_of_a_mariadb_are_listed_at_once(tmp_path: Path) -> None:
    with mariadb(*BINARY_LOG) as own:
        eventually(lambda: connect(own), "mariadb")
        run(
            connect(own),
            "SET GLOBAL binlog_format = MIXED",
            "SET GLOBAL binlog_row_image = MINIMAL",
            "SET GLOBAL time_zone = SYSTEM",
            "CREATE DATABASE shop",
            *(f"CREATE TABLE shop.{each} (id int primary key)" for each in ("closed", "key", "t")),
            f"CREATE USER poor@127.0.0.1 IDENTIFIED BY '{PASSWORD}'",
            "GRANT INSERT ON shop.closed TO poor@127.0.0.1",
            "GRANT SELECT ON shop.t TO poor@127.0.0.1",
            "GRANT SELECT ON shop.key TO poor@127.0.0.1",
        )
        given = command(
            own, tmp_path, "mysql_sync_database", "shop", "--exclude_column=key.id", username="poor"
        )
        code, problems, notes = checked(given)
        assert code == 1
        every = (
            "variable=binlog_format value=MIXED needed=ROW",
            "variable=binlog_row_image value=MINIMAL needed=FULL",
            "GRANT REPLICATION CLIENT ON *.* TO 'poor'@'127.0.0.1' server=",
            "GRANT REPLICATION SLAVE ON *.* TO 'poor'@'127.0.0.1' server=",
            "shop.closed: the user lacks a privilege that a mirror needs: run the statement",
            "problem: shop.key: ",
        )
        found(problems, *every)
        assert any("keeps its binary log" in each for each in notes)
        refused = refusal(given)
        assert all(each.removeprefix("problem: ") in refused for each in every)

        run(connect(own), "GRANT BINLOG MONITOR, REPLICATION SLAVE ON *.* TO poor@127.0.0.1")
        assert len(checked(given)[1]) == len(every) - 2


def test_a_login_and_a_database_that_do_not_exist(server: Server, tmp_path: Path) -> None:
    run(connect(server), "CREATE DATABASE named", "CREATE TABLE named.t (id int primary key)")

    def problem(database: str, **more: str) -> str:
        given = command(server, tmp_path, "mysql_sync_database", database, **more)
        _, (only,), _ = checked(given)
        return only

    assert "the server refuses the login. Correct username and password" in problem(
        "named", username="nobody"
    )
    assert "the server has no such database, or hides it" in problem("nameless")
    assert "nothing listens at the address. Start the server" in problem("named", port="1")
    assert "the host name is not known" in problem("named", hostname="no-such-host.invalid")
    run(connect(server), "DROP TABLE named.t")
    assert "the source has no table to follow" in problem("named")


def test_tables_that_are_new_or_hidden_are_notes(server: Server, tmp_path: Path) -> None:
    cursor = connect(server)
    run(
        cursor,
        "CREATE DATABASE seen",
        *(f"CREATE TABLE seen.{each} (id int primary key)" for each in "ab"),
        f"CREATE USER sees@127.0.0.1 IDENTIFIED BY '{PASSWORD}'",
        "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO sees@127.0.0.1",
        *(f"GRANT SELECT ON seen.{each} TO sees@127.0.0.1" for each in "ab"),
    )
    given = command(server, tmp_path, "mysql_sync_database", "seen", username="sees")
    mirror(given)
    run(
        cursor,
        "CREATE TABLE seen.c (id int primary key)",
        "INSERT INTO seen.c VALUES (1)",
        "GRANT SELECT ON seen.c TO sees@127.0.0.1",
        "REVOKE SELECT ON seen.a FROM sees@127.0.0.1",
        "INSERT INTO seen.a VALUES (1)",
    )
    new = "it is new, and `lakecore cdc resync` adds it"
    _, problems, notes = checked(given)
    assert problems == []
    assert f"note: seen.c: left out: {new}" in notes
    assert "note: tables that are mirrored: seen.b" in notes
    assert "hides from the user (GRANT SELECT): seen.a" in "".join(notes)

    assert mirror(given)["left_out"] == {"seen.c": new}
    (status,) = ran(["cdc", "status", f"--warehouse={tmp_path}", "--json"]).out.splitlines()
    resync = [
        "cdc",
        "resync",
        json.loads(status)["name"],
        f"--warehouse={tmp_path}",
        "--tables=seen.a,seen.c",
    ]
    assert ran(resync).code == 0
    last = mirror(given)
    assert last["left_out"] == {}
    assert (
        "or hides it from the user: correct the name, or GRANT" in last["not_read_again"]["seen.a"]
    )
    run(cursor, "GRANT SELECT ON seen.a TO sees@127.0.0.1")
    assert ran(resync).code == 0
    assert mirror(given)["not_read_again"] == {}


def test_a_log_that_was_purged_and_a_pending_column(server: Server, tmp_path: Path) -> None:
    cursor = connect(server)
    run(
        cursor,
        "CREATE DATABASE purged",
        "CREATE TABLE purged.t (id int primary key)",
        "INSERT INTO purged.t VALUES (1)",
    )
    given = command(server, tmp_path, "mysql_sync_database", "purged")
    mirror(given)
    run(cursor, "ALTER TABLE purged.t ADD COLUMN pending int NOT NULL, ADD COLUMN later date")
    code, problems, notes = checked(given)
    assert (code, problems) == (0, [])
    assert "note: tables that are mirrored: purged.t" in notes
    assert any(
        "purged.t: changed at the source: pending, later. The pipe" in each for each in notes
    )

    cursor.execute("FLUSH BINARY LOGS")
    cursor.execute("SHOW MASTER STATUS")
    (file, *_) = cursor.fetchone()

    def is_purged() -> None:
        # A log that a reader has open is not purged: the server notices late that it is gone.
        cursor.execute(f"PURGE BINARY LOGS TO '{file}'")
        cursor.execute("SHOW BINARY LOGS")
        assert cursor.fetchone()[0] == file

    eventually(is_purged, "the purge")
    code, problems, _ = checked(given)
    assert code == 1
    found(problems, "the server no longer has the binary log from there: remove the state")
    assert "(WAREHOUSE/.cdc/NAME), drop the targets, and start again" in problems[0]
    assert f"first_file={file}" in problems[0]
    assert "no longer has the binary log" in refusal(given)
    shown = ran(["cdc", "status", f"--warehouse={tmp_path}"]).out
    assert "the last run ended with an error at" in shown
    assert "no longer has the binary log" in shown
    # A purged log does not hide the other problems.
    cursor.execute(f"CREATE USER reader@127.0.0.1 IDENTIFIED BY '{PASSWORD}'")
    cursor.execute("GRANT SELECT, BINLOG MONITOR ON *.* TO reader@127.0.0.1")
    given = command(server, tmp_path, "mysql_sync_database", "purged", username="reader")
    found(checked(given)[1], "no longer has the binary log", "GRANT REPLICATION SLAVE")


def test_all_problems_of_a_postgres_are_listed_at_once(
    postgres_log: Server, tmp_path: Path
) -> None:
    cursor = postgres(postgres_log)
    cursor.execute(
        "CREATE SCHEMA poor; CREATE TABLE poor.a (id int PRIMARY KEY); "
        "CREATE TABLE poor.nothing (id int PRIMARY KEY); "
        "ALTER TABLE poor.nothing REPLICA IDENTITY NOTHING; "
        f"CREATE USER poor PASSWORD '{PASSWORD}'; GRANT SELECT ON poor.nothing TO poor; "
        "REVOKE CREATE ON DATABASE postgres FROM PUBLIC"
    )
    given = postgres_command(postgres_log, tmp_path, "poor", slot="poor")
    given = [each.replace("username=paimon", "username=poor") for each in given]
    code, problems, notes = checked(given)
    assert code == 1
    found(
        problems,
        "ALTER USER ... REPLICATION",
        "the user may not create the publication: run one of the statements",
        "poor.a: the user may not add the table to the publication",
        "poor.nothing: the user may not add the table to the publication",
    )
    assert notes
    cursor.execute(
        "ALTER USER poor REPLICATION; CREATE PUBLICATION poor_publication FOR ALL TABLES"
    )
    found(
        checked(given)[1],
        'statements=[GRANT USAGE ON SCHEMA "poor" TO "poor", GRANT SELECT ON "poor"."a" TO "poor"]',
        'statements=[GRANT USAGE ON SCHEMA "poor" TO "poor"]',
    )
    cursor.execute(
        "GRANT USAGE ON SCHEMA poor TO poor; GRANT SELECT ON poor.a TO poor; "
        "ALTER TABLE poor.nothing REPLICA IDENTITY DEFAULT"
    )
    assert checked(given)[:2] == (0, [])
    try:
        mirror(given)
        assert checked(given)[:2] == (0, [])
    finally:
        drop_slot(postgres_log, "poor")
    found(checked(given)[1], "the slot of the pipeline is gone")
    assert "the slot of the pipeline is gone" in refusal(given)


def test_a_login_a_database_and_a_schema_that_do_not_exist(
    postgres_log: Server, tmp_path: Path
) -> None:
    given = postgres_command(postgres_log, tmp_path, "nowhere", slot="nowhere")

    def problem(**other: str) -> str:
        _, (only,), _ = checked([*given, *(f"--postgres_conf={k}={v}" for k, v in other.items())])
        return only

    assert "the database has no such schema" in problem()
    changed = {"username": "nobody", "database-name": "nothing", "hostname": "no-such-host.invalid"}
    reasons = "the server refuses the login", "the server has no such database", "host name is not"
    for (name, value), reason in zip(changed.items(), reasons, strict=True):
        assert reason in problem(**{name: value})
