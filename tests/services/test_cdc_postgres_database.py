"""`postgres_sync_database`: many schemas and tables, one slot; a table that breaks is set aside."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.cdc.postgres.connection import locked_error
from lakecore.cdc.postgres.source import PostgresSource
from tests.services import servers
from tests.services.mirrors import (
    environment,
    mirror,
    postgres,
    postgres_command,
    program,
    ran,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.cdc.events import Step
    from tests.services.servers import Server

NAME = "postgres_sync_database-m"
LARGE = "".join(chr(97 + each * 7919 % 26) for each in range(20_000))


@pytest.fixture
def server(postgres_log: Server) -> Server:
    return postgres_log


@pytest.fixture
def cursor(server: Server) -> Any:
    return postgres(server)


def target(warehouse: Path, name: str) -> list[tuple[object, ...]]:
    found = lc.connect(warehouse).get_table(f"m.{name}").to_arrow().to_pylist()
    return sorted(tuple(each.values()) for each in found)


def source(cursor: Any, name: str) -> list[tuple[object, ...]]:
    cursor.execute(f"SELECT * FROM {name}")
    return sorted(cursor.fetchall())


def resync(warehouse: Path, tables: str) -> None:
    done = ran(["cdc", "resync", NAME, f"--warehouse={warehouse}", f"--tables={tables}"])
    assert done.code == 0, done.err


def test_tables_of_two_schemas_follow_with_the_default_identity(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    for schema in ("sales", "hr"):
        cursor.execute(
            f"CREATE SCHEMA {schema}; "
            f"CREATE TABLE {schema}.t (a int, b char(3), v text NOT NULL, w int, c bool, "
            f"PRIMARY KEY (a, b, c)); "
            f"ALTER TABLE {schema}.t ALTER v SET STORAGE EXTERNAL; "
            f"INSERT INTO {schema}.t VALUES (1, 'x', '{LARGE}', 1, true), "
            f"(2, 'y', '{LARGE}', 2, false), (3, 'z', 'small', 3, true)"
        )
    cursor.execute("CREATE TABLE sales.keyless (id int); CREATE TABLE sales.empty (id int)")
    cursor.execute("ALTER TABLE sales.empty ADD PRIMARY KEY (id)")
    given = postgres_command(server, tmp_path, "sales|hr", slot="two_schemas")
    first = mirror(given)
    assert first["left_out"] == {"postgres.sales.keyless": "it has no primary key"}
    cursor.execute(
        "UPDATE sales.t SET w = 10 WHERE a = 1; "
        "UPDATE sales.t SET a = 12 WHERE a = 2; "
        "DELETE FROM sales.t WHERE a = 3; "
        "UPDATE hr.t SET w = 5 WHERE a = 1; UPDATE hr.t SET a = 7 WHERE a = 1; "
        "UPDATE hr.t SET w = 6 WHERE a = 2; DELETE FROM hr.t WHERE a = 2; "
        "INSERT INTO sales.empty VALUES (1)"
    )
    cursor.execute("CREATE TABLE hr.late (id int primary key, v text)")
    cursor.execute("INSERT INTO hr.late SELECT i, 'v' FROM generate_series(1, 300) i")
    mirror(given)
    cursor.execute("UPDATE hr.late SET v = 'later' WHERE id = 7; DELETE FROM hr.late WHERE id = 8")
    last = mirror(given)

    for schema, table in (("sales", "t"), ("hr", "t"), ("sales", "empty"), ("hr", "late")):
        name = f"{schema}.{table}"
        assert target(tmp_path, f"{schema}_{table}") == [
            tuple(each.rstrip() if isinstance(each, str) else each for each in row)
            for row in source(cursor, name)
        ], name
    assert (last["quarantine"], last["not_read_again"]) == ([], {})


def test_truncate_is_followed_within_its_transaction(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    cursor.execute("CREATE SCHEMA emptied")
    for name in ("a", "b", "c"):
        cursor.execute(
            f"CREATE TABLE emptied.{name} (id int primary key, v int); "
            f"INSERT INTO emptied.{name} SELECT i, i FROM generate_series(1, 100) i"
        )
    given = postgres_command(server, tmp_path, "emptied", slot="emptied")
    mirror(given)
    cursor.execute(
        "BEGIN; INSERT INTO emptied.a VALUES (500, 1); TRUNCATE emptied.a, emptied.b; "
        "INSERT INTO emptied.a VALUES (7, 70), (8, 80); UPDATE emptied.a SET v = 71 WHERE id = 7; "
        "COMMIT"
    )
    cursor.execute("BEGIN; TRUNCATE emptied.c; ROLLBACK; DELETE FROM emptied.c WHERE id > 3")
    mirror(given)

    for name in ("a", "b", "c"):
        assert target(tmp_path, name) == source(cursor, f"emptied.{name}"), name
    cursor.execute("TRUNCATE emptied.a; INSERT INTO emptied.b VALUES (1, 1)")
    found = mirror([*given, "--truncate=stop"], ends_with=3)
    (entry,) = found["quarantine"]
    assert (entry["table"], len(target(tmp_path, "a"))) == ("emptied.a", 2)
    assert target(tmp_path, "b") == [(1, 1)]


def test_tables_that_break_are_set_aside_and_come_back(
    server: Server, cursor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("value", "wider", "gone", "good")
    cursor.execute("CREATE SCHEMA broken")
    for name in names:
        cursor.execute(
            f"CREATE TABLE broken.{name} (id int primary key, d date, ip inet, r int4range); "
            f"INSERT INTO broken.{name} "
            f"SELECT i, '2024-01-01', '10.0.0.1', '[1,5)' FROM generate_series(1, 50) i"
        )
    given = postgres_command(server, tmp_path, "broken", slot="broken")
    mirror(given)
    lc.connect(tmp_path).drop_table("m.gone")
    cursor.execute(
        "UPDATE broken.value SET d = 'infinity' WHERE id = 3; "
        "ALTER TABLE broken.wider ALTER id TYPE bigint; "
        "INSERT INTO broken.wider (id) VALUES (5000000000)"
    )
    for name in names:
        cursor.execute(
            f"DELETE FROM broken.{name} WHERE id = 2; INSERT INTO broken.{name} VALUES (90)"
        )
    found = mirror(given, ends_with=3)

    reasons = {each["table"].partition(".")[2]: each["reason"] for each in found["quarantine"]}
    assert sorted(reasons) == ["gone", "value", "wider"]
    assert "column=d" in reasons["value"]
    assert "the type of a column changed" in reasons["wider"]
    assert "is gone" in reasons["gone"]
    assert [row[0] for row in target(tmp_path, "good")] == [1, *range(3, 51), 90]
    assert mirror(given)["newly_set_aside"] == []

    cursor.execute("UPDATE broken.value SET d = '2025-01-01' WHERE id = 3")
    lc.connect(tmp_path).drop_table("m.wider")
    read, done = PostgresSource.read_again, list[str]()
    other = postgres(server)
    other.execute("BEGIN; UPDATE broken.value SET ip = '::1' WHERE id = 5")

    def meanwhile(self: PostgresSource, *of: Any) -> Iterator[Step]:
        for number, step in enumerate(read(self, *of)):
            yield step
            name = of[0].name
            cursor.execute(
                f"UPDATE {name} SET ip = '10.0.0.{number}' WHERE id = 9; "
                f"DELETE FROM {name} WHERE id = {20 + number}; "
                f"INSERT INTO {name} (id) VALUES ({1000 + number})"
            )
            if not done:
                other.execute("COMMIT")
            done.append(name)

    monkeypatch.setattr(PostgresSource, "read_again", meanwhile)
    resync(tmp_path, "value,broken.wider,gone,good")
    last = mirror(given)

    assert (last["quarantine"], last["not_read_again"]) == ([], {})
    assert len({*done}) == 4
    for name in names:
        cursor.execute(f"SELECT id, d, abbrev(ip), r::text FROM broken.{name}")
        key = lambda row: row[0]  # noqa: E731
        assert sorted(target(tmp_path, name), key=key) == sorted(cursor.fetchall(), key=key), name


@pytest.mark.parametrize("kind", ["first", "again"])
def test_a_table_that_is_written_again_before_its_rows_are_read_keeps_them(
    server: Server, cursor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A snapshot that is older than such a statement sees no row of the table."""
    schema, names = f"rewritten_{kind}", ("plain", "parted", "other")
    cursor.execute(f"CREATE SCHEMA {schema}")
    for name in names:
        parted = name == "parted"
        cursor.execute(
            f"CREATE TABLE {schema}.{name} (id int primary key, v int)"
            + (" PARTITION BY RANGE (id)" if parted else "")
        )
        if parted:
            cursor.execute(
                f"CREATE TABLE {schema}.low PARTITION OF {schema}.parted "
                "FOR VALUES FROM (MINVALUE) TO (MAXVALUE)"
            )
        cursor.execute(f"INSERT INTO {schema}.{name} SELECT i, i FROM generate_series(1, 9) i")
    given = postgres_command(server, tmp_path, schema, slot=schema)
    if kind == "again":
        mirror(given)
        resync(tmp_path, ",".join(names))
    read, done = PostgresSource._rows, list[str]()  # noqa: SLF001
    cursor.execute("SET lock_timeout = 300")

    def late(self: PostgresSource, of: Any, table: Any, *more: Any) -> Iterator[Any]:
        if table.table.name not in done:
            of.execute("SELECT count(*) FROM pg_class")  # the transaction has its snapshot now
            done.append(table.table.name)
            with suppress(*([] if kind == "first" else [locked_error()])):
                cursor.execute(f"ALTER TABLE {table.table.name} ALTER v TYPE bigint")
        yield from read(self, of, table, *more)

    monkeypatch.setattr(PostgresSource, "_rows", late)
    assert mirror(given)["quarantine"] == []

    assert len(done) == 3
    for name in names:
        assert target(tmp_path, name) == source(cursor, f"{schema}.{name}"), name


def test_a_kill_at_any_time_of_a_resync_is_harmless(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    cursor.execute(
        "CREATE SCHEMA again; CREATE TABLE again.t (id int primary key, v int); "
        "INSERT INTO again.t SELECT i, 0 FROM generate_series(1, 20000) i"
    )
    given = postgres_command(server, tmp_path, "again", "--interval=0.2 s", slot="again")
    mirror(given)
    for turn in range(3):
        resync(tmp_path, "again.t")
        process = subprocess.Popen(program(given), env=environment(), stderr=subprocess.DEVNULL)
        for number in range(12 + 4 * turn):
            cursor.execute(
                f"UPDATE again.t SET v = v + 1 WHERE id % 97 = {number}; "
                f"DELETE FROM again.t WHERE id = {turn * 100 + number}"
            )
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    mirror(given)

    assert target(tmp_path, "t") == source(cursor, "again.t")
    status = ran(["cdc", "status", f"--warehouse={tmp_path}"]).out
    assert "read again" not in status


def test_an_idle_database_lets_the_server_discard_its_log(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    cursor.execute("CREATE SCHEMA idle; CREATE TABLE idle.t (id int primary key)")
    cursor.execute("CREATE DATABASE busy")
    given = postgres_command(server, tmp_path, "idle", "--interval=0.2 s", slot="idle")
    mirror(given)
    process = subprocess.Popen(program(given), env=environment(), stderr=subprocess.PIPE)
    other = postgres(server, "busy")
    other.execute("CREATE TABLE t AS SELECT i FROM generate_series(1, 100000) i")

    def moved() -> None:
        other.execute("SELECT pg_switch_wal()")
        cursor.execute(
            "SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots "
            "WHERE slot_name = 'idle'"
        )
        assert cursor.fetchone()[0] < 40_000_000, "the slot stays where it was"
        cursor.execute(
            "SELECT confirmed_flush_lsn > %s::pg_lsn FROM pg_replication_slots "
            "WHERE slot_name = 'idle'", (start,),
        )  # fmt: skip
        assert cursor.fetchone()[0]

    cursor.execute("SELECT pg_current_wal_lsn()")
    start = cursor.fetchone()[0]
    try:
        servers.eventually(moved, "the slot")
    finally:
        process.send_signal(signal.SIGTERM)
        _, logged = process.communicate(timeout=60)
    assert process.returncode == 0
    assert logged == b"", "nothing is said while the source is idle"


def test_check_lists_all_problems_and_they_can_be_skipped(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    cursor.execute(
        "CREATE SCHEMA checked; CREATE TABLE checked.good (id int primary key, t time(6)); "
        "CREATE TABLE checked.nothing (id int primary key); "
        "ALTER TABLE checked.nothing REPLICA IDENTITY NOTHING; "
        "CREATE TABLE checked.other (id int primary key, v int); "
        "CREATE TABLE checked.keyless (id int)"
    )
    catalog = lc.connect(tmp_path, create=True)
    catalog.create_database("m")
    catalog.create_table("m.other", {"id": "BIGINT", "v": "INT"}, primary_keys=["v"])
    given = postgres_command(server, tmp_path, "checked", slot="checked")
    found = ran(["cdc", "check", *given[1:]])

    assert found.code == 1
    lines = found.out.splitlines()
    problems = [each for each in lines if each.startswith("problem: ")]
    assert [each.split(": ")[1] for each in problems] == [
        "postgres.checked.nothing", "postgres.checked.other",
    ]  # fmt: skip
    assert "column t loses digits" in found.out
    assert "keyless: it has no primary key" in found.out
    assert "max_slot_wal_keep_size" in found.out
    assert "--skip-unsupported true" in lines[-1]
    cursor.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'checked'")
    assert cursor.fetchall() == []

    refused = ran([*given, "--until=caught-up"])
    assert refused.code == 1
    assert "checked.nothing" in refused.err
    assert "m.other" in refused.err
    assert catalog.list_tables("m") == ("other",), "nothing is made"
    skipped = mirror([*given, "--skip-unsupported=true"])
    assert [each["table"] for each in skipped["quarantine"]] == [
        "checked.nothing", "checked.other",
    ]  # fmt: skip
    cursor.execute("INSERT INTO checked.good VALUES (1); INSERT INTO checked.nothing VALUES (1)")
    cursor.execute("ALTER TABLE checked.nothing REPLICA IDENTITY DEFAULT")
    resync(tmp_path, "nothing")
    last = mirror(given)
    assert [each["table"] for each in last["quarantine"]] == ["checked.other"]
    assert (target(tmp_path, "good"), target(tmp_path, "nothing")) == ([(1, None)], [(1,)])
