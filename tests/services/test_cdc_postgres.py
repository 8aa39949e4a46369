"""PostgreSQL -> tables: types, changes, large values, partitions, crashes."""

from __future__ import annotations

import datetime as dt
import json
import signal
import subprocess
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.cdc.postgres.connection import PostgresSettings
from lakecore.cdc.postgres.source import PostgresSource
from lakecore.errors import InvalidRequest, StorageError
from lakecore.io.ambient import SYSTEM
from tests.services import servers
from tests.services.mirrors import drop_slot, environment, mirror, postgres, program, refusal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.servers import Server


@pytest.fixture
def server(postgres_log: Server) -> Server:
    return postgres_log


def command(server: Server, warehouse: Path, schema: str, *flags: str, table: str) -> list[str]:
    conf = {
        "hostname": "127.0.0.1",
        "port": server.port,
        "username": "paimon",
        "password-env": "CDC_PASSWORD",
        "database-name": "postgres",
        "schema-name": schema,
        "table-name": table,
        "slot.name": f"slot_{schema}",
    }
    return [
        *("cdc", "postgres_sync_table"),
        *(f"--warehouse={warehouse}", "--database=m", "--table=t", "--table_conf=bucket=1"),
        *(f"--postgres_conf={key}={value}" for key, value in conf.items()),
        *flags,
    ]


def rows(warehouse: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        lc.connect(warehouse).get_table("m.t").to_arrow().sort_by("id").to_pylist()
    )
    return found


TYPES = (
    "id bigint primary key, b bool, s smallint, i int, f real, g float8, n numeric(30,10), "
    "m numeric, v varchar(20), c char(5), x text, y bytea, d date, t timestamp(3), "
    "z timestamptz, tm time(3), u uuid, j jsonb, bt bit(12), e mood, ia int[], ta text[], "
    "na numeric(5,2)[]"
)
FIRST = (
    "1, true, -32768, 2147483647, 0.1, -1e300, -12345678901234567890.1234567891, 1.5, '😀', 'ab', "
    "'a''b', '\\x00ff', '2024-02-29', '2024-01-02 03:04:05.678', '2024-07-01 12:00:00+02', "
    "'23:59:59.999', '00000000-0000-0000-0000-000000000001', '{\"a\": 1}', b'101010101010', "
    "'fine', '{1,NULL,3}', '{\"a,b\",NULL,\"q\\\"\"}', '{1.50}'"
)


def test_snapshot_and_changes_have_the_same_values_of_every_type(
    server: Server, tmp_path: Path
) -> None:
    cursor = postgres(server)
    cursor.execute("CREATE TYPE mood AS ENUM ('fine', 'bad'); CREATE SCHEMA types")
    cursor.execute(f"CREATE TABLE types.t ({TYPES}); ALTER TABLE types.t REPLICA IDENTITY FULL")
    nulls = ", NULL" * 22
    cursor.execute(f"INSERT INTO types.t VALUES ({FIRST}), (2{nulls})")
    run = command(server, tmp_path / "w", "types", table="t")
    mirror(run)
    cursor.execute(f"INSERT INTO types.t VALUES (11{FIRST[1:]}), (12{nulls})")
    mirror(run)

    first, second, third, fourth = rows(tmp_path / "w")
    assert {**first, "id": 11} == third
    assert {**second, "id": 12} == fourth
    assert first["n"] == Decimal("-12345678901234567890.1234567891")
    assert first["z"] == dt.datetime(2024, 7, 1, 10, tzinfo=dt.UTC)
    assert first["ia"] == [1, None, 3]
    assert first["ta"] == ["a,b", None, 'q"']
    assert first["y"] == b"\x00\xff"
    assert first["bt"] == b"\x0a\xaa"


def test_changes_keep_large_values_keys_and_partitions(server: Server, tmp_path: Path) -> None:
    cursor = postgres(server)
    cursor.execute(
        "CREATE SCHEMA parts; CREATE TABLE parts.t (id int primary key, x text, v int) "
        "PARTITION BY RANGE (id); "
        "CREATE TABLE parts.t1 PARTITION OF parts.t FOR VALUES FROM (0) TO (10); "
        "CREATE TABLE parts.t2 PARTITION OF parts.t FOR VALUES FROM (10) TO (20)"
    )
    for table in ("t", "t1", "t2"):
        cursor.execute(f"ALTER TABLE parts.{table} REPLICA IDENTITY FULL")
    large = "".join(chr(97 + each * 7919 % 26) for each in range(20_000))
    cursor.execute("ALTER TABLE parts.t1 ALTER x SET STORAGE EXTERNAL")
    cursor.execute("INSERT INTO parts.t VALUES (1, %s, 1), (2, 'b', 2), (3, 'c', 3)", (large,))
    run = command(server, tmp_path / "w", "parts", table="t")
    mirror(run)
    cursor.execute("UPDATE parts.t SET v = 10 WHERE id = 1")
    cursor.execute("UPDATE parts.t SET id = 12 WHERE id = 2")
    cursor.execute("DELETE FROM parts.t WHERE id = 3")
    cursor.execute("ALTER TABLE parts.t ADD COLUMN w numeric(8,2)")
    cursor.execute("INSERT INTO parts.t VALUES (4, 'd', 4, 4.5)")
    cursor.execute("BEGIN; INSERT INTO parts.t VALUES (5, 'no', 5); ROLLBACK")
    mirror(run)

    assert [tuple(row.values()) for row in rows(tmp_path / "w")] == [
        (1, large, 10, None),
        (4, "d", 4, Decimal("4.50")),
        (12, "b", 2, None),
    ]


def test_killed_pipeline_goes_on(server: Server, tmp_path: Path) -> None:
    cursor = postgres(server)
    cursor.execute("CREATE SCHEMA killed; CREATE TABLE killed.t (id int primary key, v int)")
    cursor.execute("ALTER TABLE killed.t REPLICA IDENTITY FULL")
    cursor.execute("INSERT INTO killed.t SELECT i, i FROM generate_series(1, 500) i")
    run = command(server, tmp_path / "w", "killed", "--interval=0.2 s", table="t")
    for turn in range(3):
        process = subprocess.Popen(program(run), env=environment(), stderr=subprocess.DEVNULL)
        checkpoints = tmp_path / "w" / ".cdc"
        before = {each.name for each in checkpoints.rglob("checkpoint-*")}
        deadline = time.monotonic() + 60
        for number in range(10_000):
            cursor.execute(f"UPDATE killed.t SET v = v + 1 WHERE id % 7 = {number % 7}")
            cursor.execute(f"DELETE FROM killed.t WHERE id = {turn * 60 + number % 60}")
            time.sleep(0.05)
            found = {each.name for each in checkpoints.rglob("checkpoint-*")}
            if (number >= 20 and len(found - before) > 0) or time.monotonic() > deadline:
                break
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    mirror(run)

    cursor.execute("SELECT id, v FROM killed.t ORDER BY id")
    assert [tuple(row.values()) for row in rows(tmp_path / "w")] == cursor.fetchall()
    drop_slot(server, "slot_killed")
    assert "the slot of the pipeline is gone" in refusal(run)


def test_slot_that_is_still_in_use_is_waited_for(server: Server) -> None:
    """After a kill, the server needs some time to notice that the reader is gone."""
    cursor = postgres(server)
    cursor.execute(
        "CREATE SCHEMA busy; CREATE TABLE busy.t (id int primary key); "
        "ALTER TABLE busy.t REPLICA IDENTITY FULL"
    )
    conf = {
        "hostname": "127.0.0.1", "port": str(server.port), "username": "paimon",
        "password": servers.PASSWORD, "database-name": "postgres", "schema-name": "busy",
        "table-name": "t", "slot.name": "slot_busy",
    }  # fmt: skip
    first, second = (PostgresSource(PostgresSettings.parse(conf), SYSTEM) for _ in range(2))
    steps = first.steps(None)
    position = next(step for step in steps if step.caught_up).position

    with pytest.raises(StorageError, match="is active"):
        next(second.steps(position))
    first.close()


def test_table_whose_log_does_not_name_rows_is_refused(server: Server, tmp_path: Path) -> None:
    cursor = postgres(server)
    cursor.execute("CREATE SCHEMA plain; CREATE TABLE plain.t (id int)")
    run = command(server, tmp_path / "w", "plain", table="t")

    assert "REPLICA IDENTITY FULL" in refusal(run)
    cursor.execute("ALTER TABLE plain.t ADD PRIMARY KEY (id)")
    summed = [*run, "--table_conf=merge-engine=aggregation"]
    cursor.execute("INSERT INTO plain.t VALUES (1)")
    assert "needs the old row of a change" in refusal(summed)


def test_large_transaction_is_cut_and_goes_on_from_every_cut(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = postgres(server)
    cursor.execute(
        "CREATE SCHEMA large; CREATE TABLE large.t (id int primary key, v int); "
        "ALTER TABLE large.t REPLICA IDENTITY FULL"
    )
    conf = {
        "hostname": "127.0.0.1",
        "port": str(server.port),
        "username": "paimon",
        "password": servers.PASSWORD,
        "database-name": "postgres",
        "schema-name": "large",
        "table-name": "t",
        "slot.name": "slot_large",
    }
    monkeypatch.setattr("lakecore.cdc.postgres.source._TRANSACTION_ROWS", 30)

    def follow(after: Any) -> tuple[list[int], list[tuple[Any, int]]]:
        source = PostgresSource(PostgresSettings.parse(conf), SYSTEM)
        ids: list[int] = []
        places = []
        for step in source.steps(after):
            for batch in step.batches:
                ids += batch.rows.column("id").to_pylist()
            places.append((json.loads(json.dumps(step.position)), len(ids)))
            if step.caught_up:
                break
        source.close()
        return ids, places

    start = follow(None)[1][-1][0]
    cursor.execute("INSERT INTO large.t VALUES (-1, 0)")
    cursor.execute("BEGIN; INSERT INTO large.t SELECT i, i FROM generate_series(1, 200) i")
    cursor.execute("ALTER TABLE large.t ADD COLUMN w int")
    cursor.execute("INSERT INTO large.t SELECT i, i, i FROM generate_series(201, 300) i; COMMIT")
    cursor.execute("INSERT INTO large.t VALUES (301, 0)")

    every, places = follow(start)
    assert every == [-1, *range(1, 302)]
    cuts = [(position, count) for position, count in places if "changes" in position]
    assert len(cuts) >= 5
    for position, count in cuts:
        assert follow(position)[0] == every[count:]
    other = {**cuts[0][0], "transaction": 1}
    with pytest.raises(InvalidRequest, match="no longer has the transaction"):
        follow(other)


def test_table_that_loses_its_key_ends_the_pipeline(server: Server, tmp_path: Path) -> None:
    cursor = postgres(server)
    cursor.execute(
        "CREATE SCHEMA lost; CREATE TABLE lost.t (id int primary key); "
        "ALTER TABLE lost.t REPLICA IDENTITY FULL; INSERT INTO lost.t VALUES (1)"
    )
    run = command(server, tmp_path / "w", "lost", table="t")
    mirror(run)
    cursor.execute("ALTER TABLE lost.t DROP CONSTRAINT t_pkey; INSERT INTO lost.t VALUES (1), (1)")

    assert "another primary key" in refusal(run)


@pytest.mark.parametrize("kind", ["own", "all"])
def test_table_that_replaces_another_is_read_unless_its_changes_were_kept(
    server: Server, tmp_path: Path, kind: str
) -> None:
    cursor = postgres(server)
    cursor.execute(
        f"CREATE SCHEMA swap_{kind}; CREATE TABLE swap_{kind}.t (id int primary key, v int); "
        f"INSERT INTO swap_{kind}.t VALUES (1, 1), (2, 2), (3, 3)"
    )
    run = command(server, tmp_path, f"swap_{kind}", table="t")
    if kind == "all":
        cursor.execute("CREATE PUBLICATION everything FOR ALL TABLES")
        run.append("--postgres_conf=publication.name=everything")
    mirror(run)
    cursor.execute(
        f"CREATE TABLE swap_{kind}.n (LIKE swap_{kind}.t INCLUDING ALL); "
        f"INSERT INTO swap_{kind}.n SELECT * FROM swap_{kind}.t; "
        f"DELETE FROM swap_{kind}.t WHERE id = 3; DELETE FROM swap_{kind}.n WHERE id = 3; "
        f"ALTER TABLE swap_{kind}.t RENAME TO gone; "
        f"ALTER TABLE swap_{kind}.n RENAME TO t; "
        f"UPDATE swap_{kind}.t SET v = 10 WHERE id = 1"
    )
    mirror(run)
    cursor.execute(f"UPDATE swap_{kind}.t SET v = 20 WHERE id = 2")
    mirror(run)

    assert [tuple(row.values()) for row in rows(tmp_path)] == [(1, 10), (2, 20)]
    cursor.execute("DROP PUBLICATION IF EXISTS everything")


def test_empty_table_that_comes_later_is_followed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakecore.cdc.postgres.source._LOOK_MS", 200)
    cursor = postgres(server)
    shard = "id int primary key, v text); ALTER TABLE later.{0} REPLICA IDENTITY FULL"
    cursor.execute("CREATE SCHEMA later; CREATE TABLE later.a (" + shard.format("a"))
    conf = {
        "hostname": "127.0.0.1", "port": str(server.port), "username": "paimon",
        "password": servers.PASSWORD, "database-name": "postgres", "schema-name": "later",
        "table-name": ".*", "slot.name": "slot_later",
    }  # fmt: skip
    source = PostgresSource(PostgresSettings.parse(conf), SYSTEM)
    steps = source.steps(None)
    next(step for step in steps if step.caught_up)
    cursor.execute("CREATE TABLE later.b (" + shard.format("b"))
    while True:  # until it is published
        next(steps)
        cursor.execute("SELECT 1 FROM pg_publication_tables WHERE schemaname = 'later'")
        if len(cursor.fetchall()) == 2:
            break
    cursor.execute("INSERT INTO later.b SELECT i, repeat('x', 1000) FROM generate_series(1, 9) i")
    (batch,) = next(step for step in steps if step.batches).batches
    source.close()

    assert batch.table.name == "later.b"
    assert batch.rows.column("id").to_pylist() == list(range(1, 10))


def test_new_table_that_is_locked_is_published_later(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakecore.cdc.postgres.source._LOOK_MS", 0)
    monkeypatch.setattr("lakecore.cdc.postgres.connection._LOCK_MS", 200)
    cursor, writer = postgres(server), postgres(server)
    shard = "id int primary key); ALTER TABLE locked.{0} REPLICA IDENTITY FULL"
    cursor.execute("CREATE SCHEMA locked; CREATE TABLE locked.a (" + shard.format("a"))
    conf = {
        "hostname": "127.0.0.1", "port": str(server.port), "username": "paimon",
        "password": servers.PASSWORD, "database-name": "postgres", "schema-name": "locked",
        "table-name": ".*", "slot.name": "slot_locked",
    }  # fmt: skip
    source = PostgresSource(PostgresSettings.parse(conf), SYSTEM)
    steps = source.steps(None)
    next(step for step in steps if step.caught_up)
    cursor.execute("CREATE TABLE locked.b (" + shard.format("b"))
    writer.execute("BEGIN; INSERT INTO locked.b VALUES (1)")
    cursor.execute("INSERT INTO locked.a VALUES (7)")
    (batch,) = next(step for step in steps if step.batches).batches
    writer.execute("ROLLBACK")
    while True:
        next(steps)
        cursor.execute("SELECT 1 FROM pg_publication_tables WHERE schemaname = 'locked'")
        if len(cursor.fetchall()) == 2:
            break
    source.close()

    assert batch.rows.column("id").to_pylist() == [7]


def test_large_rows_are_cut_by_their_bytes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PART_BYTES", "_STEP_BYTES", "_TRANSACTION_BYTES"):
        monkeypatch.setattr(f"lakecore.cdc.postgres.source.{name}", 100_000)
    cursor = postgres(server)
    cursor.execute(
        "CREATE SCHEMA wide; CREATE TABLE wide.t (id int primary key, v text); "
        "ALTER TABLE wide.t REPLICA IDENTITY FULL; "
        "INSERT INTO wide.t SELECT i, repeat('x', 1000) FROM generate_series(1, 400) i"
    )
    conf = {
        "hostname": "127.0.0.1", "port": str(server.port), "username": "paimon",
        "password": servers.PASSWORD, "database-name": "postgres", "schema-name": "wide",
        "table-name": "t", "slot.name": "slot_wide",
    }  # fmt: skip
    source = PostgresSource(PostgresSettings.parse(conf), SYSTEM)
    found: list[Any] = []
    for step in source.steps(None):
        found += step.batches
        if len(found) == 1:
            cursor.execute("UPDATE wide.t SET v = repeat('y', 1000)")
        if sum(map(len, found)) == 1200:
            break
    source.close()

    assert len(found) >= 8
    assert max(each.rows.nbytes for each in found) < 250_000
