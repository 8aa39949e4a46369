"""MariaDB -> tables: every type both ways, a random load with crashes, shards, modes, secrets."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.cdc.mysql.connection import MySqlSettings
from lakecore.cdc.mysql.source import MySqlSource
from lakecore.errors import InvalidRequest
from lakecore.io.ambient import SYSTEM
from tests.services import servers
from tests.services.cdc_load import Load, difference, target_rows
from tests.services.mirrors import (
    command,
    conf,
    connect,
    environment,
    mirror,
    program,
    read,
    refusal,
    settings,
    whole,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.servers import Server

CHANGES = int(os.environ.get("LAKECORE_CDC_CHANGES", "2000"))
TABLES = int(os.environ.get("LAKECORE_CDC_TABLES", "4"))


@pytest.fixture
def server(mariadb_log: Server, quick_heartbeats: None) -> Server:
    del quick_heartbeats
    return mariadb_log


TYPES = (
    "id bigint unsigned primary key, v varchar(20), d decimal(12,3), d2 decimal(30,10), "
    "d3 decimal(5,5), d4 decimal(65,2), ts datetime(3), dt date, e enum('a','b''c','é'), j json, "
    "b varbinary(4), bin binary(4), f tinyint(1), t6 timestamp(6) null, y year, bt bit(3), "
    "bt1 bit(1), bt20 bit(20), st set('p','q'), ti tinyint unsigned, si smallint, mi mediumint, "
    "miu mediumint unsigned, i int unsigned, fl float, db double, tm time(2), tx text, "
    "lt longtext, bl blob, l1 varchar(300) character set latin1, u2 varchar(9) character set ucs2, "
    "ch char(5), nn datetime not null default '0000-00-00 00:00:00'"
)
ROWS = (
    "(18446744073709551615,'x😀',1.25,-12345678901234567890.1234567891,0.12345,"
    + "9" * 63
    + ".99,'2024-01-02 03:04:05.678','2024-02-29','b''c','{\"a\":1}',x'00ff',x'01',1,"
    "'2024-01-01 00:00:00.123456',2024,b'101',b'1',b'10101010101010101010','p,q',255,-32768,"
    "-8388608,16777215,4294967295,1.1,2.2,'12:34:56.78','txt','long',x'00010203',"
    "_latin1 x'80e9','ü','ab','2020-01-01')",
    "(2" + ",null" * 32 + ",'2020-01-01')",
    (
        "(3,'',-0.001,0,-0.5,-0.01,'0000-00-00','0000-00-00','','null','','',0,'0000-00-00',0,0,0,0,"
        "'',0,0,8388607,0,0,-3.4e38,-1e-300,'00:00:00','','','','','','','0000-00-00')"
    ),
    (
        "(4,'x',999999999.999,99999999999999999999.9999999999,0.99999,1,'9999-12-31 23:59:59.999',"
        "'1000-01-01','a','[]',x'00',x'00000001',null,'2038-01-19 03:14:07.999999',2155,7,1,"
        "1048575,'q',1,1,1,1,1,1e-30,0.1,'23:59:59.99','x','x','x','x','x','x','1000-01-01')"
    ),
)


def test_snapshot_and_log_read_the_same_values_of_every_type(server: Server) -> None:
    cursor = connect(server)
    cursor.execute("CREATE DATABASE types")
    cursor.execute(f"CREATE TABLE types.t ({TYPES})")
    for row in ROWS:
        cursor.execute(f"INSERT INTO types.t VALUES {row}")

    read_first = read(server, "types")
    read_later = read(server, "types", **{"scan.startup.mode": "earliest-offset"})
    snapshot, log = whole(read_first), whole(read_later)

    assert all(each.schema == read_first[0].schema for each in (*read_first, *read_later))
    first, second = (each.sort_by("id").to_pylist() for each in (snapshot, log))
    for name in snapshot.column_names:
        assert [row[name] for row in first] == [row[name] for row in second], name
    assert first[2]["l1"] == "x"
    assert first[3]["v"] == "x😀"
    assert first[3]["st"] == ["p", "q"]


def test_table_survives_random_load_and_crashes(server: Server, tmp_path: Path) -> None:
    chance = random.Random(7)
    load = Load(settings(server), "load_db", TABLES, seed=11)
    for _ in range(60):
        load.change()
    run = command(
        server, tmp_path / "w", "mysql_sync_database", "load_db", "--interval=0.3 s",
        **{"scan.incremental.snapshot.chunk.size": "7"},
    )  # fmt: skip
    session = lc.connect(tmp_path / "w", create=True)
    done = 0
    process: subprocess.Popen[bytes] | None = None
    pauses = [CHANGES // 4, CHANGES // 2, CHANGES * 3 // 4]
    kills = chance.sample(range(CHANGES), min(6, max(1, CHANGES // 2_000)))
    crashes = chance.sample(range(CHANGES), min(3, max(1, CHANGES // 4_000)))
    definitions = min(0.02, 2_000 / CHANGES)  # for each transaction, of ten changes on average

    def reached(places: list[int]) -> bool:
        """Whether the load has passed places of the list, which are removed."""
        passed = [each for each in places if each <= done]
        places[:] = [each for each in places if each > done]
        return bool(passed)

    def stop(how: int) -> None:
        nonlocal process
        if process is not None:
            process.send_signal(how)
            process.wait(120)
            process = None

    try:
        while done < CHANGES:
            if process is None:
                process = subprocess.Popen(
                    program(run),
                    env=environment(),
                    stderr=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
            done += load.change()
            if chance.random() < definitions:
                load.define()
            if reached(kills):
                await_checkpoint(tmp_path / "w")
                load.change()
                time.sleep(chance.random())
                stop(signal.SIGKILL)
            if reached(crashes):
                server.kill()
                server.start()
                servers.eventually(load.reconnect, server.name)
            if reached(pauses):
                stop(signal.SIGTERM)
                check(run, session, load)
        stop(signal.SIGTERM)
        check(run, session, load)
    finally:
        stop(signal.SIGKILL)
    for name, columns in load.columns.items():
        schema = session.get_table(f"m.{name}").context.schema
        assert set(columns) <= set(schema.names)
        assert str(schema.field("bu").type) == "DECIMAL(20, 0)"


def await_checkpoint(warehouse: Path) -> None:
    """Wait until a running pipeline has done one more checkpoint."""
    before = {each.name for each in (warehouse / ".cdc").rglob("checkpoint-*")}
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if {each.name for each in (warehouse / ".cdc").rglob("checkpoint-*")} != before:
            return
        time.sleep(0.02)


def check(run: list[str], session: lc.Session, load: Load) -> None:
    """Assert that every target equals its source after catching up."""
    mirror(run)
    for name, columns in load.columns.items():
        assert not difference(load.rows(name), target_rows(session, f"m.{name}", columns)), name


@pytest.mark.parametrize("gap", [1, 1000])
def test_snapshot_has_every_row_once_however_it_is_cut(server: Server, gap: int) -> None:
    cursor = connect(server)
    cursor.execute(f"CREATE DATABASE cut_{gap}")
    cursor.execute(f"CREATE TABLE cut_{gap}.t (id bigint primary key)")
    keys = [each * gap - 50 * gap for each in range(100)]
    cursor.executemany(f"INSERT INTO cut_{gap}.t VALUES (%s)", [(each,) for each in keys])
    for size in (1, 7, 50, 99, 100, 101):
        batches = read(server, f"cut_{gap}", **{"scan.incremental.snapshot.chunk.size": str(size)})

        found = [each for batch in batches for each in batch.rows.column("id").to_pylist()]
        assert sorted(found) == keys, size
        assert len(batches) >= len(keys) // size


def test_large_transaction_is_cut_and_goes_on_from_every_cut(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = connect(server)
    cursor.execute("CREATE DATABASE large")
    cursor.execute("CREATE TABLE large.t (id int primary key, v varchar(900))")
    cursor.execute("CREATE TABLE large.other (id int primary key)")
    cursor.execute("BEGIN")
    for start in range(0, 200, 40):
        keys = [(each, "x" * 900) for each in range(start, start + 40)]
        cursor.executemany("INSERT INTO large.t VALUES (%s, %s)", keys)
        cursor.execute(f"INSERT INTO large.other VALUES ({start})")
    cursor.execute("COMMIT")
    monkeypatch.setattr("lakecore.cdc.mysql.log_batches._TRANSACTION_ROWS", 30)
    given = conf(server, "large", **{"scan.startup.mode": "earliest-offset", "table-name": "t"})

    def follow(after: Any) -> tuple[list[int], list[tuple[Any, int]]]:
        source = MySqlSource(MySqlSettings.parse(given), SYSTEM)
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

    every, places = follow(None)
    assert every == list(range(200))
    cuts = [(position, count) for position, count in places if "events" in position]
    assert len(cuts) >= 3
    for position, count in cuts:
        assert follow(position)[0] == every[count:]


def test_shards_become_one_table(server: Server, tmp_path: Path) -> None:
    cursor = connect(server)
    for number in (1, 2):
        cursor.execute(f"CREATE DATABASE shard_{number}")
        extra = ", extra int" if number == 2 else ""
        cursor.execute(f"CREATE TABLE shard_{number}.t{number} (id int primary key, v int{extra})")
        cursor.execute(f"INSERT INTO shard_{number}.t{number} (id, v) VALUES ({number}, 0)")
    run = command(
        server, tmp_path / "w", "mysql_sync_table", "shard_.*", "--table=all",
        "--metadata_column=table_name", "--computed_column=twice=truncate(v,10)",
        **{"table-name": "t."},
    )  # fmt: skip
    mirror(run)
    # A key moves from one shard to the other within one step.
    cursor.execute("DELETE FROM shard_1.t1 WHERE id = 1")
    cursor.execute("INSERT INTO shard_2.t2 VALUES (1, 17, 5)")
    cursor.execute("DELETE FROM shard_2.t2 WHERE id = 2")
    cursor.execute("INSERT INTO shard_1.t1 VALUES (2, 25)")
    mirror(run)

    found = lc.connect(tmp_path / "w").get_table("m.all").to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["v"], row["extra"]) for row in found] == [(1, 17, 5), (2, 25, None)]
    assert [(row["twice"], row["table_name"]) for row in found] == [(10, "t2"), (20, "t1")]


@pytest.mark.parametrize("mode", ["divided", "combined"])
def test_table_that_comes_later(server: Server, tmp_path: Path, mode: str) -> None:
    cursor = connect(server)
    cursor.execute(f"CREATE DATABASE later_{mode}")
    cursor.execute(f"CREATE TABLE later_{mode}.a (id int primary key)")
    cursor.execute(f"CREATE TABLE later_{mode}.keyless (id int)")
    run = command(
        server, tmp_path / "w", "mysql_sync_database", f"later_{mode}", f"--mode={mode}",
        "--table_prefix=ods_", "--excluding_tables=x.*",
    )  # fmt: skip
    keyless = mirror(run)["left_out"]
    assert keyless == {f"later_{mode}.keyless": "it has no primary key"}
    cursor.execute(f"CREATE TABLE later_{mode}.b (id int primary key, v varchar(5))")
    cursor.execute(f"CREATE TABLE later_{mode}.xb (id int primary key)")
    cursor.execute(f"INSERT INTO later_{mode}.b VALUES (1, 'x')")
    cursor.execute(f"INSERT INTO later_{mode}.xb VALUES (1)")
    mirror(run)

    tables = lc.connect(tmp_path / "w").list_tables("m")
    assert tables == (("ods_a", "ods_b") if mode == "combined" else ("ods_a",))


def test_a_unique_key_stands_in_for_a_missing_primary_key(server: Server, tmp_path: Path) -> None:
    cursor = connect(server)
    for statement in (
        "CREATE DATABASE uniques",
        "CREATE TABLE uniques.one (a int UNIQUE, b int not null, c int not null, UNIQUE (c, b))",
        "CREATE TABLE uniques.two (a int, t varchar(20) not null, UNIQUE (a), UNIQUE p (t(5)))",
        "INSERT INTO uniques.one VALUES (NULL, 1, 1), (NULL, 1, 2), (3, 3, 3)",
    ):
        cursor.execute(statement)
    run = command(server, tmp_path / "w", "mysql_sync_database", "uniques", "--unique_keys=true")
    first = mirror(run)
    cursor.execute("UPDATE uniques.one SET a = 7, b = 9 WHERE c = 2")
    cursor.execute("DELETE FROM uniques.one WHERE c = 1")
    mirror(run)
    found = lc.connect(tmp_path / "w").get_table("m.one")

    assert list(first["left_out"]) == ["uniques.two"]
    assert found.context.schema.primary_keys == ("b", "c")
    assert sorted(tuple(row.values()) for row in found.to_arrow().to_pylist()) == [
        (3, 3, 3),
        (7, 9, 2),
    ]


def test_a_unique_key_is_no_primary_key_unless_asked(server: Server, tmp_path: Path) -> None:
    """The log names it as the primary key of its table."""
    cursor = connect(server)
    cursor.execute("CREATE DATABASE unasked")
    cursor.execute("CREATE TABLE unasked.t (a int not null unique)")
    cursor.execute("INSERT INTO unasked.t VALUES (1)")
    run = command(
        server, tmp_path / "w", "mysql_sync_table", "unasked", "--table=t", **{"table-name": "t"}
    )
    run[run.index("--table_conf=bucket=1")] = "--table_conf=bucket=-1"
    mirror(run)
    cursor.execute("INSERT INTO unasked.t VALUES (2)")
    mirror(run)
    found = lc.connect(tmp_path / "w").get_table("m.t")

    assert found.context.schema.primary_keys == ()
    assert sorted(found.to_arrow()["a"].to_pylist()) == [1, 2]


def test_modes_begin_where_they_say(server: Server) -> None:
    cursor = connect(server)
    cursor.execute("CREATE DATABASE modes")
    cursor.execute("CREATE TABLE modes.t (id int primary key)")
    cursor.execute("INSERT INTO modes.t VALUES (1)")
    cursor.execute("SHOW MASTER STATUS")
    file, offset = cursor.fetchone()[:2]
    cursor.execute("SELECT @@gtid_binlog_pos")
    (gtid,) = cursor.fetchone()
    time.sleep(1.1)
    now_ms = int(time.time()) * 1000
    cursor.execute("INSERT INTO modes.t VALUES (2)")

    def ids(mode: str, **more: str) -> list[int]:
        options = {f"scan.startup.{key.replace('_', '-', 1)}": v for key, v in more.items()}
        found = read(server, "modes", **{"scan.startup.mode": mode}, **options)
        return [each for batch in found for each in batch.rows.column("id").to_pylist()]

    assert ids("initial") == [1, 2]
    assert ids("snapshot") == [1, 2]
    assert ids("earliest-offset") == [1, 2]
    assert ids("latest-offset") == []
    assert ids("timestamp", **{"timestamp-millis": str(now_ms)}) == [2]
    place = {"specific-offset.file": file, "specific-offset.pos": str(offset)}
    assert ids("specific-offset", **place) == [2]
    assert ids("specific-offset", **{"specific-offset.gtid-set": gtid}) == [2]


def test_password_is_nowhere(server: Server, tmp_path: Path) -> None:
    cursor = connect(server)
    cursor.execute("CREATE DATABASE secret")
    cursor.execute("CREATE TABLE secret.t (id int primary key)")
    cursor.execute("INSERT INTO secret.t VALUES (1)")
    run = command(server, tmp_path / "w", "mysql_sync_database", "secret")
    mirror(run)
    wrong = subprocess.run(
        program([*run, "--until=caught-up"]), capture_output=True, text=True, check=False,
        env={**os.environ, "CDC_PASSWORD": "a-wrong-secret"},
    )  # fmt: skip

    assert wrong.returncode != 0
    assert "the server refuses the login. Correct username and password" in wrong.stderr
    assert "a-wrong-secret" not in wrong.stderr + wrong.stdout
    for path in (tmp_path / "w").rglob("*"):
        assert path.is_dir() or servers.PASSWORD.encode() not in path.read_bytes()


def test_server_without_a_full_log_is_refused() -> None:
    with servers.mariadb("--log-bin=b", "--server-id=1", "--binlog-format=ROW") as plain:
        servers.eventually(lambda: connect(plain), plain.name)
        source = MySqlSource(MySqlSettings.parse(conf(plain, "d")), SYSTEM)

        found = [str(each) for each in source.problems()]
        assert any("variable=binlog_row_metadata" in each for each in found)
        with pytest.raises(lc.InvalidRequest, match="variable=binlog_row_metadata"):
            next(source.steps(None))


@pytest.mark.parametrize("action", ["mysql_sync_table", "mysql_sync_database"])
def test_table_that_loses_its_key_ends_the_pipeline(
    server: Server, tmp_path: Path, action: str
) -> None:
    database = f"lost_{action}"
    cursor = connect(server)
    cursor.execute(f"CREATE DATABASE {database}")
    cursor.execute(f"CREATE TABLE {database}.t (id int primary key)")
    cursor.execute(f"CREATE TABLE {database}.u (id int primary key)")
    cursor.execute(f"INSERT INTO {database}.t VALUES (1)")
    one = action == "mysql_sync_table"
    more = {"table-name": "t"} if one else {}
    run = command(
        server, tmp_path / "w", action, database, *(["--table=t"] if one else []), **more
    )  # fmt: skip
    run += ["--on-table-error=stop"]
    mirror(run)
    cursor.execute(f"ALTER TABLE {database}.t DROP PRIMARY KEY")
    cursor.execute(f"INSERT INTO {database}.t VALUES (1), (1)")
    for _ in range(2):
        assert "primary key" in refusal(run)

    assert lc.connect(tmp_path / "w").get_table("m.t").to_arrow().to_pylist() == [{"id": 1}]


def test_sql_mirrors_a_table_and_a_database(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = connect(server)
    cursor.execute("CREATE DATABASE by_sql")
    for name in ("a", "b", "tmp_c"):
        cursor.execute(f"CREATE TABLE by_sql.{name} (id int primary key, v date)")
        cursor.execute(f"INSERT INTO by_sql.{name} VALUES (1, '2024-05-06')")
    monkeypatch.setenv("CDC_PASSWORD", servers.PASSWORD)
    session = lc.connect(tmp_path / "w", create=True)
    session.sql(
        "CREATE CATALOG my WITH ('type' = 'mysql', 'hostname' = '127.0.0.1', "
        f"'port' = '{server.port}', 'username' = 'paimon', 'password-env' = 'CDC_PASSWORD')"
    )
    session.sql("SET 'cdc.until' = 'caught-up'")
    table = (
        "CREATE TABLE IF NOT EXISTS one.a WITH ('bucket' = '1') AS TABLE my.by_sql.a "
        "/*+ OPTIONS('server-id' = '77', 'scan.incremental.snapshot.chunk.size' = '3') */ "
        "ADD COLUMN y AS year(v)"
    )
    database = (
        "CREATE DATABASE IF NOT EXISTS every WITH ('bucket' = '1') AS DATABASE my.by_sql "
        "INCLUDING ALL TABLES EXCLUDING TABLE 'tmp_.*' /*+ OPTIONS('mode' = 'combined') */"
    )
    for text in (table, database):
        session.sql(text)
    cursor.execute("INSERT INTO by_sql.a VALUES (2, '1999-01-02')")
    cursor.execute("CREATE TABLE by_sql.d (id int primary key)")
    cursor.execute("INSERT INTO by_sql.d VALUES (7)")
    for text in (table, database):
        session.sql(text)

    assert session.sql("SELECT id, y FROM one.a ORDER BY id").fetchall() == [(1, 2024), (2, 1999)]
    assert session.list_tables("every") == ("a", "b", "d")
    assert session.sql("SELECT count(*) FROM every.a").fetchall() == [(2,)]
    with pytest.raises(InvalidRequest, match="table-name"):
        session.sql(database.replace("'mode'", "'table-name' = 'a', 'mode'"))
