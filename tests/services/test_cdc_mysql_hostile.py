"""MariaDB as a hostile source: odd types and names, swapped tables, lost logs, large rows."""

from __future__ import annotations

import threading
import time
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.cdc.mysql import connection, log_batches
from lakecore.errors import InvalidRequest, StorageError, Unsupported
from tests.services import servers
from tests.services.mirrors import (
    EARLIEST,
    command,
    connect,
    mirror,
    ran,
    read,
    refusal,
    run,
    source_of,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.cdc.events import Step
    from tests.services.servers import Server

WITHIN_SECONDS = 120
CHARSETS = (
    *("ascii", "latin1", "latin2", "latin5", "latin7", "cp1250", "cp1251", "cp1256", "cp1257"),
    *("cp850", "cp852", "cp866", "koi8r", "koi8u", "hp8", "dec8", "swe7", "macce", "macroman"),
    *("greek", "hebrew", "tis620", "armscii8", "geostd8", "keybcs2", "utf8mb3", "ucs2", "utf16"),
    *("utf16le", "utf32", "big5", "gb2312", "gbk", "sjis", "cp932", "ujis", "eucjpms", "euckr"),
)


@pytest.fixture
def server(mariadb_log: Server, quick_heartbeats: None) -> Server:
    del quick_heartbeats
    return mariadb_log


@pytest.fixture
def cursor(server: Server) -> Any:
    return connect(server)


def target(warehouse: Path, name: str = "t") -> list[tuple[object, ...]]:
    found = lc.connect(warehouse).get_table(f"m.{name}").to_arrow().to_pylist()
    return sorted(tuple(each.values()) for each in found)


def rows(cursor: Any, table: str) -> list[tuple[object, ...]]:
    cursor.execute(f"SELECT * FROM {table}")
    return sorted(cursor.fetchall())


def both_ways(server: Server, database: str) -> tuple[list[Any], list[Any]]:
    """The rows of a database by its snapshot, and by its log."""
    found = (read(server, database), read(server, database, **EARLIEST))
    snapshot, log = (whole(each).sort_by("id") for each in found)
    assert snapshot.schema == log.schema
    return snapshot.to_pylist(), log.to_pylist()


def test_every_character_of_every_set_is_the_same_by_snapshot_and_by_log(
    server: Server, cursor: Any
) -> None:
    listed = ", ".join(f"c_{each} text character set {each}" for each in CHARSETS)
    run(cursor, "CREATE DATABASE sets", f"CREATE TABLE sets.t (id int primary key, {listed})")
    cursor.execute("SET group_concat_max_len = 100000")
    # 128 characters a row, without the surrogates, which are none.
    cursor.execute(
        f"INSERT INTO sets.t SELECT seq DIV 128, {', '.join(['g'] * len(CHARSETS))} FROM (SELECT "
        "seq, GROUP_CONCAT(CONVERT(CHAR(seq USING utf32) USING utf8mb4) ORDER BY seq SEPARATOR '') "
        "g FROM sets.seq_1_to_65535 WHERE seq NOT BETWEEN 0xD800 AND 0xDFFF GROUP BY seq DIV 128) s"
    )
    snapshot, log = both_ways(server, "sets")
    wrong = {
        name: [
            (one, other)
            for first, second in zip(snapshot, log, strict=True)
            for one, other in zip(first[name], second[name], strict=False)
            if one != other
        ]
        for name in snapshot[0]
        if name != "id" and [row[name] for row in snapshot] != [row[name] for row in log]
    }

    assert wrong == {}


def test_texts_of_the_newest_collations(server: Server, cursor: Any) -> None:
    """They are the default of MariaDB 11.5, and have other numbers than all before."""
    listed = ", ".join(
        f"c_{each} varchar(9) character set {each} collate uca1400_ai_ci"
        for each in ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")
    )
    run(
        cursor,
        "CREATE DATABASE newest",
        f"CREATE TABLE newest.t (id int primary key, {listed}, x text collate uca1400_as_cs, "
        "e enum('é') character set ucs2 collate uca1400_nopad_as_ci)",
        "INSERT INTO newest.t VALUES (1" + ", 'é'" * 7 + ")",
    )
    snapshot, log = both_ways(server, "newest")

    assert snapshot == log
    assert set(snapshot[0].values()) == {1, "é"}


def test_columns_that_the_server_computes_or_hides(server: Server, cursor: Any) -> None:
    run(
        cursor,
        "CREATE DATABASE made",
        "CREATE TABLE made.t (id int primary key, v int, twice int AS (v * 2) VIRTUAL, "
        "thrice int AS (v * 3) PERSISTENT, hidden int INVISIBLE DEFAULT 5, "
        "given int DEFAULT (1 + 2), at timestamp DEFAULT '2024-01-02 03:04:05')",
        "INSERT INTO made.t (id, v) VALUES (1, 10), (2, NULL)",
        "UPDATE made.t SET v = 7 WHERE id = 1",
    )
    snapshot, log = both_ways(server, "made")

    last = {row["id"]: row for row in log}
    assert [last[row["id"]] for row in snapshot] == snapshot
    assert (snapshot[0]["twice"], snapshot[0]["thrice"], snapshot[0]["hidden"]) == (14, 21, 5)


def test_names_of_enumerations_and_numbers_at_their_ends(server: Server, cursor: Any) -> None:
    run(
        cursor,
        "CREATE DATABASE ends",
        "CREATE TABLE ends.t (id bigint unsigned primary key, b64 bit(64), b1 bit(1), "
        "e enum('é', 'it''s', 'a,b', 'c\\\\d') character set latin1, "
        "g enum('中', '文') character set gbk, "
        "s set('é', 'x y', '\"') character set latin1, bi bigint, d decimal(38,0), "
        "f float(7,4), z int(5) zerofill, n1 numeric(1,1), t0 time, y4 year(4), dd double(8,3))",
        "INSERT INTO ends.t VALUES (18446744073709551615, b'" + "1" * 64 + "', 1, 'it''s', '文', "
        "'é,\"', -9223372036854775808, -99999999999999999999999999999999999999, 999.9999, 42, "
        "-0.9, '23:59:59', 1901, -99999.999)",
        "INSERT INTO ends.t VALUES (9223372036854775808, 0, 0, 'a,b', '中', '', "
        "9223372036854775807, 99999999999999999999999999999999999999, -0.0001, 0, 0.9, "
        "'00:00:00', 2155, 0.001)",
        "INSERT INTO ends.t VALUES (0, b'1', NULL, 'c\\\\d', NULL, 'x y', 0, 0, 0, 99999, 0, "
        "NULL, 0, NULL)",
    )
    snapshot, log = both_ways(server, "ends")

    assert log == snapshot
    assert snapshot[2]["b64"] == b"\xff" * 8
    assert [row["e"] for row in snapshot] == ["c\\d", "a,b", "it's"]


def test_rows_of_more_than_16_mib(server: Server, cursor: Any) -> None:
    run(
        cursor,
        "CREATE DATABASE huge",
        "CREATE TABLE huge.t (id int primary key, b longblob, x longtext)",
        "INSERT INTO huge.t VALUES (1, REPEAT('x', 17000000), 'small'), (2, 'y', REPEAT('é', 100))",
        "UPDATE huge.t SET x = 'changed' WHERE id = 1",
    )
    snapshot, log = both_ways(server, "huge")

    assert len(snapshot[0]["b"]) == 17_000_000
    assert [row["x"] for row in log] == ["small", "small", "changed", "é" * 100]
    assert log[2] == snapshot[0]


def test_large_rows_are_cut_by_their_bytes(
    server: Server, cursor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("_STEP_BYTES", 50_000), ("_TRANSACTION_BYTES", 100_000)):
        monkeypatch.setattr(f"lakecore.cdc.mysql.log_batches.{name}", size)
    monkeypatch.setattr("lakecore.cdc.mysql.snapshot._PART_BYTES", 100_000)
    monkeypatch.setattr("lakecore.cdc.mysql.snapshot._FETCH_BYTES", 50_000)
    run(
        cursor,
        "CREATE DATABASE wide",
        "CREATE TABLE wide.t (id varchar(9) primary key, x text)",
        "BEGIN",
        *(
            f"INSERT INTO wide.t SELECT concat({start}, '-', seq), REPEAT('x', 1000) "
            "FROM wide.seq_1_to_50"
            for start in range(8)
        ),
        "COMMIT",
    )

    for batches in (read(server, "wide"), read(server, "wide", **EARLIEST)):
        assert len(batches) >= 3
        assert max(each.rows.nbytes for each in batches) < 250_000
        assert whole(batches).num_rows == 400


@pytest.mark.parametrize("gtid", ["now", ""])
def test_start_at_a_gtid_is_kept_while_nothing_comes(
    server: Server, cursor: Any, gtid: str
) -> None:
    database = f"by_gtid_{gtid}"
    run(cursor, f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int primary key)")
    run(cursor, f"INSERT INTO {database}.t VALUES (1)")
    cursor.execute("SELECT @@gtid_binlog_pos")
    (now,) = cursor.fetchone()
    more = {"scan.startup.mode": "specific-offset"}
    more["scan.startup.specific-offset.gtid-set"] = now if gtid else "0-1-1"
    source = source_of(server, database, **more)
    steps = source.steps(None)
    position = next(step for step in steps if step.caught_up).position
    source.close()
    run(cursor, f"INSERT INTO {database}.t VALUES (2)")

    again = source_of(server, database, **more)
    assert ids(until(again.steps(position), lambda step: step.caught_up)) == [2]
    again.close()


def ids(steps: list[Step]) -> list[int]:
    return [
        each for step in steps for batch in step.batches
        for each in batch.rows.column("id").to_pylist()
    ]  # fmt: skip


def until(steps: Iterator[Step], ends: Any) -> list[Step]:
    found = []
    deadline = time.monotonic() + WITHIN_SECONDS
    for step in steps:
        found.append(step)
        if ends(step):
            break
        assert time.monotonic() < deadline, "the source does not end"
    return found


def test_swapped_table_of_a_tool_for_schema_changes(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    run(
        cursor,
        "CREATE DATABASE swap",
        "CREATE TABLE swap.t (id int primary key, v varchar(5))",
        "INSERT INTO swap.t VALUES (1, 'a'), (2, 'b')",
    )
    given = command(server, tmp_path, "mysql_sync_database", "swap")
    mirror(given)
    run(
        cursor,
        "CREATE TABLE swap._t_gho LIKE swap.t",
        "ALTER TABLE swap._t_gho ADD COLUMN n int FIRST, MODIFY v varchar(50)",
        "INSERT INTO swap._t_gho (id, v) SELECT id, v FROM swap.t",
        "UPDATE swap.t SET v = 'aa' WHERE id = 1",
        "REPLACE INTO swap._t_gho (id, v) VALUES (1, 'aa')",
        "RENAME TABLE swap.t TO swap._t_del, swap._t_gho TO swap.t",
        "INSERT INTO swap.t VALUES (7, 3, 'a longer text')",
        "DELETE FROM swap.t WHERE id = 2",
        "DROP TABLE swap._t_del",
    )
    mirror(given)

    assert target(tmp_path) == [(1, "aa", None), (3, "a longer text", 7)]
    assert lc.connect(tmp_path).list_tables("m") == ("t",)


def test_flag_that_is_dropped_or_renamed_before_its_rows_are_read(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    run(
        cursor,
        "CREATE DATABASE flags",
        "CREATE TABLE flags.t (id int primary key, gone tinyint(1), old tinyint(1), v int)",
        "INSERT INTO flags.t VALUES (1, 1, 0, 1)",
    )
    given = command(server, tmp_path, "mysql_sync_database", "flags")
    mirror(given)
    run(
        cursor,
        "INSERT INTO flags.t VALUES (2, 1, 0, 2), (3, NULL, 1, 3)",
        "ALTER TABLE flags.t DROP COLUMN gone, CHANGE old new tinyint(1)",
        "INSERT INTO flags.t VALUES (4, 1, 4)",
    )
    mirror(given)

    found = lc.connect(tmp_path).get_table("m.t").to_arrow().sort_by("id").to_pylist()
    assert [(row["gone"], row["old"], row["new"]) for row in found] == [
        (True, False, None),
        (True, False, None),
        (None, True, None),
        (None, None, True),
    ]


def test_table_that_is_made_again_and_columns_in_another_order(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    run(
        cursor,
        "CREATE DATABASE again",
        "CREATE TABLE again.t (id int primary key, v int, w varchar(5))",
        "INSERT INTO again.t VALUES (1, 10, 'x'), (2, 20, 'y')",
    )
    given = command(server, tmp_path, "mysql_sync_database", "again", "--truncate=ignore")
    mirror(given)
    run(
        cursor,
        "ALTER TABLE again.t MODIFY w varchar(5) FIRST, MODIFY v int AFTER w",
        "INSERT INTO again.t VALUES ('z', 30, 3)",
        "BEGIN",
        "UPDATE again.t SET v = 31 WHERE id = 3",
        "ALTER TABLE again.t ADD COLUMN inside int",  # ends the transaction
        "UPDATE again.t SET inside = 5 WHERE id = 1",
        "COMMIT",
        "TRUNCATE again.t",  # ignored: the target keeps its rows
        "DROP TABLE again.t",
        "CREATE TABLE again.t (id int primary key, other date, v bigint)",
        "INSERT INTO again.t VALUES (2, '2024-01-02', 5000000000)",
        "CREATE TABLE again.copied (PRIMARY KEY (id)) SELECT * FROM again.t",
    )
    mirror(given)

    found = lc.connect(tmp_path).get_table("m.t").to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["v"], row["w"], row["inside"]) for row in found] == [
        (1, 10, "x", 5),
        (2, 5_000_000_000, None, None),
        (3, 31, "z", None),
    ]


def test_changes_of_the_key_or_of_a_type_that_the_target_cannot_follow(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    for name, change, reason in (
        ("key", "DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", "another primary key"),
        ("type", "MODIFY v date", "the type of a column changed at the source"),
    ):
        run(
            cursor,
            f"CREATE DATABASE new_{name}",
            f"CREATE TABLE new_{name}.t (id int primary key, v int not null)",
            f"INSERT INTO new_{name}.t VALUES (1, 20240102)",
        )
        given = command(server, tmp_path / name, "mysql_sync_database", f"new_{name}")
        given += ["--on-table-error", "stop"]
        mirror(given)
        run(
            cursor,
            f"ALTER TABLE new_{name}.t {change}",
            f"INSERT INTO new_{name}.t VALUES (2, 20240103)",
        )
        for _ in range(2):
            assert reason in refusal(given)
        assert target(tmp_path / name) == [(1, 20240102)]


def test_tables_that_cannot_be_followed_are_set_aside_while_the_others_go_on(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    names = ("wider", "value", "logged", "late", "good")
    run(
        cursor,
        "CREATE DATABASE aside",
        "CREATE TABLE aside.wider (id int primary key)",
        "CREATE TABLE aside.value (id int primary key, v date)",
        "CREATE TABLE aside.logged (id int primary key)",
        "CREATE TABLE aside.good (id int primary key)",
        *(f"INSERT INTO aside.{name} (id) VALUES (1)" for name in names if name != "late"),
    )
    given = command(server, tmp_path, "mysql_sync_database", "aside", "--mode=combined")
    mirror(given)
    session = connect(server)
    run(session, "USE aside", "SET SESSION binlog_format = STATEMENT")
    run(
        cursor,
        "ALTER TABLE aside.wider MODIFY id bigint",
        "INSERT INTO aside.wider VALUES (5000000000)",
        "INSERT INTO aside.good VALUES (2)",
        "ALTER TABLE aside.value MODIFY v time",
        "INSERT INTO aside.value VALUES (2, '838:59:59')",
        "INSERT INTO aside.good VALUES (3)",
        "CREATE TABLE aside.late AS SELECT 1 AS id",
        "ALTER TABLE aside.late ADD PRIMARY KEY (id)",
        "INSERT INTO aside.late VALUES (2)",
    )
    run(session, "INSERT INTO logged VALUES (2)")
    run(cursor, "INSERT INTO aside.logged VALUES (3)", "INSERT INTO aside.good VALUES (4)")

    first = mirror(given, ends_with=3)
    aside = ("logged", "value", "wider")
    assert sorted(first["newly_set_aside"]) == [f"aside.{name}" for name in aside]
    reasons = {each["table"]: each["reason"] for each in first["quarantine"]}
    assert "the type of a column changed" in reasons["wider"]
    assert "a TIME of Paimon" in reasons["value"] or "cannot follow" in reasons["value"]
    assert "a statement in place of rows" in reasons["logged"]
    # A table that got its key after its first rows is new: it is read whole.
    assert [row[0] for row in target(tmp_path, "late")] == [1, 2]
    run(cursor, *(f"INSERT INTO aside.{name} (id) VALUES (9)" for name in names))
    second = mirror(given)
    assert second["newly_set_aside"] == []
    assert second["quarantine"] == first["quarantine"]

    assert [row[0] for row in target(tmp_path, "good")] == [1, 2, 3, 4, 9]
    assert [row[0] for row in target(tmp_path, "late")] == [1, 2, 9]
    for name in aside:
        assert [row[0] for row in target(tmp_path, name)] == [1], name


def test_rows_that_truncate_and_partitions_remove_are_gone_in_the_target(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    parted = (
        "PARTITION BY RANGE (y) "
        "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    )
    run(
        cursor,
        "CREATE DATABASE cleared",
        f"CREATE TABLE cleared.dropped (id int, y int, v text, primary key (id, y)) {parted}",
        f"CREATE TABLE cleared.emptied (y int, id varchar(9), primary key (y, id)) {parted}",
        f"CREATE TABLE cleared.exchanged (id int, y int, primary key (id, y)) {parted}",
        "CREATE TABLE cleared.other (id int, y int, primary key (id, y))",
        "CREATE TABLE cleared.truncated (id int primary key, d decimal(9, 2))",
        "INSERT INTO cleared.dropped VALUES (1, 1, 'a'), (2, 11, 'b')",
        "INSERT INTO cleared.emptied VALUES (1, 'a'), (11, 'A')",
        "INSERT INTO cleared.exchanged VALUES (1, 1), (2, 11)",
        "INSERT INTO cleared.other VALUES (3, 3)",
        "INSERT INTO cleared.truncated VALUES (1, 1.5), (2, NULL)",
    )
    given = command(server, tmp_path, "mysql_sync_database", "cleared")
    mirror(given)
    run(
        cursor,
        "UPDATE cleared.dropped SET v = 'c'",
        "ALTER TABLE cleared.dropped DROP PARTITION p0",
        "INSERT INTO cleared.dropped VALUES (3, 12, 'd')",
        "ALTER TABLE cleared.emptied TRUNCATE PARTITION p0",
        "INSERT INTO cleared.emptied VALUES (1, 'b')",
        "TRUNCATE TABLE cleared.truncated",
        "INSERT INTO cleared.truncated VALUES (2, 7), (3, 8)",
        "DELETE FROM cleared.truncated WHERE id = 3",
        "ALTER TABLE cleared.exchanged EXCHANGE PARTITION p0 WITH TABLE cleared.other",
    )
    found = mirror(given, ends_with=3)

    for name in ("dropped", "emptied", "truncated"):
        assert target(tmp_path, name) == rows(cursor, f"cleared.{name}"), name
    assert sorted(found["newly_set_aside"]) == ["cleared.exchanged", "cleared.other"]
    assert "moved rows of a table" in found["quarantine"][0]["reason"]


@pytest.mark.parametrize("choice", ["ignore", "stop"])
def test_truncate_is_ignored_or_stops_the_pipeline(
    server: Server, cursor: Any, tmp_path: Path, choice: str
) -> None:
    run(
        cursor,
        f"CREATE DATABASE chosen_{choice}",
        f"CREATE TABLE chosen_{choice}.t (id int primary key)",
        f"INSERT INTO chosen_{choice}.t VALUES (1)",
    )
    more = ("--table=t", f"--truncate={choice}")
    given = command(
        server, tmp_path, "mysql_sync_table", f"chosen_{choice}", *more, **{"table-name": "t"}
    )
    mirror(given)
    run(cursor, f"TRUNCATE chosen_{choice}.t", f"INSERT INTO chosen_{choice}.t VALUES (2)")

    if choice == "ignore":
        mirror(given)
        assert target(tmp_path) == [(1,), (2,)]
    else:
        assert "removed rows of a table" in refusal(given)
        assert target(tmp_path) == [(1,)]


def test_excluded_table_may_be_of_any_kind(server: Server, cursor: Any, tmp_path: Path) -> None:
    run(
        cursor,
        "CREATE DATABASE places",
        "CREATE TABLE places.t (id int primary key)",
        "CREATE TABLE places.at (id int primary key) WITH SYSTEM VERSIONING",
    )
    given = command(server, tmp_path, "mysql_sync_database", "places")
    assert "system versioning" in refusal(given)
    given.append("--excluding_tables=at")
    mirror(given)
    run(cursor, "INSERT INTO places.at VALUES (1)", "INSERT INTO places.t VALUES (1)")
    mirror(given)

    assert target(tmp_path) == [(1,)]


def test_another_reader_with_the_same_id_is_told_from_a_lost_log(
    server: Server, cursor: Any
) -> None:
    run(cursor, "CREATE DATABASE twins", "CREATE TABLE twins.t (id int primary key)")
    first, second = (source_of(server, "twins", **{"server-id": "77"}) for _ in range(2))
    steps = first.steps(None)
    until(steps, lambda step: step.caught_up)
    until(second.steps(None), lambda step: step.caught_up)

    with pytest.raises(InvalidRequest, match="uses the same server-id"):
        until(steps, lambda _: False)
    for each in (first, second):
        each.close()


def test_killed_connection_goes_on_and_a_purged_log_is_told(server: Server, cursor: Any) -> None:
    run(cursor, "CREATE DATABASE cut_off", "CREATE TABLE cut_off.t (id int primary key)")
    source = source_of(server, "cut_off", **{"server-id": "78"})
    steps = source.steps(None)
    position = until(steps, lambda step: step.caught_up)[-1].position
    # The newest is this one's. Those of sources that other tests have closed end by themselves.
    cursor.execute(
        "SELECT MAX(id) FROM information_schema.processlist WHERE command = 'Binlog Dump'"
    )
    cursor.execute(f"KILL {cursor.fetchone()[0]}")
    with pytest.raises(StorageError, match="the binary log cannot be read"):
        until(steps, lambda _: False)
    run(cursor, "INSERT INTO cut_off.t VALUES (1)", "FLUSH BINARY LOGS")
    run(cursor, "INSERT INTO cut_off.t VALUES (2)")
    assert ids(until(source.steps(position), lambda step: step.caught_up)) == [1, 2]
    source.close()

    def purge() -> None:
        """A file stays, without an error, while the server still sends it to a closed source."""
        cursor.execute("SHOW MASTER STATUS")
        (newest, *_) = cursor.fetchone()
        cursor.execute(f"PURGE BINARY LOGS TO '{newest}'")
        cursor.execute("SHOW BINARY LOGS")
        assert cursor.fetchone()[0] == newest

    servers.eventually(purge, "the purge")
    with pytest.raises(InvalidRequest, match="no longer has the binary log"):
        until(source.steps(position), lambda _: False)
    source.close()


@pytest.mark.parametrize(
    ("grants", "reason"),
    [
        ("SELECT", "BINLOG MONITOR"),
        ("SELECT, BINLOG MONITOR", "REPLICATION SLAVE"),
        ("REPLICATION SLAVE, BINLOG MONITOR", "hides it from the user: correct database-name"),
    ],
)
def test_user_without_a_right_is_told_which(
    server: Server, cursor: Any, tmp_path: Path, grants: str, reason: str
) -> None:
    number = len(reason)
    run(
        cursor,
        f"CREATE DATABASE rights_{number}",
        f"CREATE TABLE rights_{number}.t (id int primary key)",
        f"CREATE USER weak_{number}@'127.0.0.1' IDENTIFIED BY 'a-secret-of-the-tests'",
        f"GRANT {grants} ON *.* TO weak_{number}@'127.0.0.1'",
    )
    more = {"username": f"weak_{number}"}
    given = command(server, tmp_path, "mysql_sync_database", f"rights_{number}", **more)

    assert reason in refusal(given)


def test_pipeline_catches_up_while_changes_keep_coming(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    run(
        cursor,
        "CREATE DATABASE busy",
        "CREATE TABLE busy.t (id int primary key auto_increment, v int)",
        "INSERT INTO busy.t (v) SELECT seq FROM busy.seq_1_to_1000",
    )
    ended = threading.Event()

    def load() -> None:
        other = connect(server)
        while not ended.wait(0.002):
            other.execute("INSERT INTO busy.t (v) VALUES (1), (2)")

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for _ in range(2):
            assert mirror(command(server, tmp_path, "mysql_sync_database", "busy"))["caught_up"]
    finally:
        ended.set()
        thread.join()
    mirror(command(server, tmp_path, "mysql_sync_database", "busy"))

    assert target(tmp_path) == rows(cursor, "busy.t")


def test_odd_names(server: Server, cursor: Any, tmp_path: Path) -> None:
    run(
        cursor,
        "CREATE DATABASE `odd-näme`",
        "CREATE TABLE `odd-näme`.`Tä ble` (`id` int primary key, `select` int, `a``b` int, "
        "`%s` int)",
        "INSERT INTO `odd-näme`.`Tä ble` VALUES (1, 2, 3, 4)",
    )
    given = command(server, tmp_path, "mysql_sync_database", "odd-näme")
    mirror(given)
    run(cursor, "INSERT INTO `odd-näme`.`Tä ble` VALUES (2, 3, 4, 5)")
    mirror(given)

    assert target(tmp_path, "`Tä ble`") == [(1, 2, 3, 4), (2, 3, 4, 5)]


def test_versioned_tables_are_refused(server: Server, cursor: Any) -> None:
    run(
        cursor,
        "CREATE DATABASE versioned",
        "CREATE TABLE versioned.t (id int primary key, v int) WITH SYSTEM VERSIONING",
        "INSERT INTO versioned.t VALUES (1, 1), (2, 2)",
        "UPDATE versioned.t SET v = 5 WHERE id = 1",
        "DELETE FROM versioned.t WHERE id = 2",
    )

    for more in ({}, EARLIEST):
        with pytest.raises(Unsupported, match="system versioning"):
            read(server, "versioned", **more)


def test_statement_reads_the_definition_of_its_own_table_again(
    server: Server, cursor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the log describes the table as before."""
    run(
        cursor,
        "CREATE DATABASE defined",
        *(f"CREATE TABLE defined.t{n} (id int primary key, f tinyint)" for n in range(9)),
    )
    asked: list[str] = []
    whole_read = connection.read_columns

    def counted(given: Any, database: str, table: str) -> Any:
        asked.append(table)
        return whole_read(given, database, table)

    monkeypatch.setattr(log_batches, "read_columns", counted)
    source = source_of(server, "defined", **{"scan.startup.mode": "latest-offset"})
    steps = source.steps(None)
    until(steps, lambda step: step.caught_up)
    for turn in range(3):
        run(cursor, *(f"INSERT INTO defined.t{n} VALUES ({turn}, 1)" for n in range(9)))
        found = [next(steps)]
        while len(ids(found)) < 9:
            found.append(next(steps))
        run(cursor, f"ALTER TABLE defined.t{turn} COMMENT 'turn {turn}', MODIFY f tinyint(1)")
    source.close()

    assert sorted(asked) == sorted([*(f"t{n}" for n in range(9)), "t0", "t1"])
    last = {each.table.name: each for step in found for each in step.batches}
    assert {name: each.schema.comment for name, each in last.items() if each.schema.comment} == {
        "t0": "turn 0",
        "t1": "turn 1",
    }
    assert last["t1"].rows.column("f").to_pylist() == [True]


@pytest.mark.parametrize(
    ("database", "statement", "ends"),
    [
        ("logged_other", "INSERT INTO x VALUES (1)", False),
        ("logged_other", "UPDATE x SET id = 7 -- logged.a in a comment", False),
        ("logged_other", "UPDATE x, logged.a SET a.id = 7", True),
        ("logged_other", "INSERT INTO `logged` . `a` VALUES (9)", True),
        ("logged_other", "INSERT INTO logged.left_out VALUES (1)", False),
        ("logged", "INSERT INTO logged_other.x VALUES (2)", False),
        ("logged", "DELETE FROM left_out USING left_out JOIN a", True),
        ("logged", "INSERT INTO triggering VALUES (1)", True),
    ],
)
def test_statement_in_the_log_ends_the_pipelines_of_its_tables_alone(
    server: Server, cursor: Any, database: str, statement: str, *, ends: bool
) -> None:
    run(
        cursor,
        "DROP DATABASE IF EXISTS logged",
        "DROP DATABASE IF EXISTS logged_other",
        "CREATE DATABASE logged",
        "CREATE DATABASE logged_other",
        "CREATE TABLE logged.a (id int primary key)",
        "CREATE TABLE logged.left_out (id int primary key)",
        "CREATE TABLE logged.triggering (id int primary key)",
        "CREATE TRIGGER logged.fires AFTER INSERT ON logged.triggering FOR EACH ROW "
        "INSERT INTO logged.a VALUES (NEW.id)",
        "CREATE TABLE logged_other.x (id int primary key)",
    )
    more = {"scan.startup.mode": "latest-offset", "table-name": "a"}
    source = source_of(server, "logged", **more)
    steps = source.steps(None)
    until(steps, lambda step: step.caught_up)
    session = connect(server)
    run(session, f"USE {database}", "SET SESSION binlog_format = STATEMENT", statement)
    run(cursor, "INSERT INTO logged.a VALUES (100)")

    if ends:
        with pytest.raises(InvalidRequest, match="a statement in place of rows"):
            until(steps, lambda step: bool(step.batches))
    else:
        assert ids(until(steps, lambda step: bool(step.batches))) == [100]
    source.close()


def test_user_who_may_only_read_rows_is_warned_of_foreign_keys(
    server: Server, cursor: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run(
        cursor,
        "CREATE DATABASE cascades",
        "CREATE TABLE cascades.p (id int primary key)",
        "CREATE TABLE cascades.c (id int primary key, p int, "
        "FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
        "CREATE TABLE cascades.plain (id int primary key, p int comment 'ON DELETE CASCADE', "
        "FOREIGN KEY (p) REFERENCES p (id))",
        "CREATE USER reads_only@'127.0.0.1' IDENTIFIED BY 'a-secret-of-the-tests'",
        "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reads_only@'127.0.0.1'",
    )
    source_of(server, "cascades", username="reads_only").tables()

    warned = [record.message for record in caplog.records if "foreign key" in record.message]
    assert [text.rpartition("=")[2] for text in warned] == ["cascades.c"]


KEYS = (
    "CREATE TABLE keys_.tiny (shop int, kind tinyint(1), v int, primary key (shop, kind))",
    "CREATE TABLE keys_.fine (k time(6) primary key, v int)",
    "CREATE TABLE keys_.members (k set('a', 'b') primary key, v int)",
    "CREATE TABLE keys_.days (k date primary key, v int)",
    "CREATE TABLE keys_.moments (k datetime(3) primary key, v int)",
    "CREATE TABLE keys_.fall (ts timestamp not null default '2000-01-01', primary key (ts), v int)",
)
KEY_ROWS = (
    "INSERT INTO keys_.tiny VALUES (1, 0, 1), (1, 1, 2), (1, 2, 3), (1, 3, 4)",
    "INSERT INTO keys_.fine VALUES ('01:02:03.123001', 1), ('01:02:03.123002', 2), (-300000, 3)",
    "INSERT INTO keys_.members VALUES ('a', 1), ('a,b', 2), ('', 3)",
    "INSERT INTO keys_.days VALUES ('0000-00-00', 1), ('1970-01-01', 2), ('2024-00-10', 3)",
    "INSERT INTO keys_.moments VALUES (0, 1), ('1970-01-01', 2), ('2024-00-10 01:02:03.5', 3)",
    "SET time_zone = '+00:00'",
    "INSERT INTO keys_.fall VALUES ('2024-10-27 00:30:00', 1), ('2024-10-27 01:30:00', 2), (0, 3)",
)


def test_different_keys_of_the_source_stay_different(
    server: Server, cursor: Any, tmp_path: Path
) -> None:
    """By the snapshot, and by the log: the rows of the log replace those of the snapshot."""
    run(cursor, "CREATE DATABASE keys_", *KEYS, *KEY_ROWS)
    names = ("tiny", "fine", "members", "days", "moments", "fall")
    flags = ("--type_mapping=key-dates-to-string",)
    zone = {"server-time-zone": "Europe/Berlin"}
    mirror(command(server, tmp_path, "mysql_sync_database", "keys_", *flags, **zone))
    first = {name: target(tmp_path, name) for name in names}
    run(cursor, *(f"UPDATE keys_.{name} SET v = v + 10" for name in names))
    mirror(command(server, tmp_path, "mysql_sync_database", "keys_", *flags, **zone))
    second = {name: target(tmp_path, name) for name in names}

    assert first["tiny"] == [(1, 0, 1), (1, 1, 2), (1, 2, 3), (1, 3, 4)]
    assert first["fine"] == [("-30:00:00", 3), ("01:02:03.123001", 1), ("01:02:03.123002", 2)]
    assert first["members"] == [("", 3), ("a", 1), ("a,b", 2)]
    assert first["days"] == [("0000-00-00", 1), ("1970-01-01", 2), ("2024-00-10", 3)]
    assert first["moments"] == [
        ("0000-00-00 00:00:00", 1),
        ("1970-01-01 00:00:00", 2),
        ("2024-00-10 01:02:03.500", 3),
    ]
    assert first["fall"] == [
        ("0000-00-00 00:00:00", 3),
        ("2024-10-27 02:30:00", 1),
        ("2024-10-27 02:30:00+01:00", 2),
    ]
    assert second == {
        name: [(*row[:-1], int(str(row[-1])) + 10) for row in rows] for name, rows in first.items()
    }


def test_dates_outside_the_calendar_in_a_key(server: Server, cursor: Any, tmp_path: Path) -> None:
    run(
        cursor,
        "CREATE DATABASE zeros",
        "CREATE TABLE zeros.t (k date primary key)",
        "CREATE TABLE zeros.later LIKE zeros.t",
        "CREATE TABLE zeros.moments (k datetime(3), i int, primary key (i, k))",
        "INSERT INTO zeros.t VALUES ('0000-00-00'), ('1970-01-01'), ('2024-00-10')",
        "INSERT INTO zeros.later VALUES ('1970-01-01')",
        "INSERT INTO zeros.moments VALUES ('2024-02-00', 1), ('1970-01-01 01:02:03.5', 2)",
    )
    given = command(server, tmp_path, "mysql_sync_database", "zeros")
    mirror(given)
    assert target(tmp_path) == [("0000-00-00",), ("1970-01-01",), ("2024-00-10",)]
    assert [row[0] for row in target(tmp_path, "moments")] == [
        "1970-01-01 01:02:03.500000", "2024-02-00 00:00:00"
    ]  # fmt: skip
    assert target(tmp_path, "later") == [(date(1970, 1, 1),)]

    # The type stays when no such date is left; a table that has none at the start keeps its type.
    run(
        cursor,
        "DELETE FROM zeros.t WHERE k <> '1970-01-01'",
        "INSERT INTO zeros.t VALUES ('2024-00-11'), ('2024-01-11')",
        "UPDATE zeros.moments SET k = '0000-00-00' WHERE i = 1",
        "INSERT INTO zeros.later VALUES ('0000-00-00')",
    )
    (held,) = mirror(given, ends_with=3)["quarantine"]
    assert held["table"] == "later"
    assert "key-dates-to-string" in held["reason"]
    assert target(tmp_path) == [("1970-01-01",), ("2024-00-11",), ("2024-01-11",)]
    assert [row[0] for row in target(tmp_path, "moments")] == [
        "0000-00-00 00:00:00", "1970-01-01 01:02:03.500000"
    ]  # fmt: skip

    lc.connect(tmp_path).drop_table("m.later")
    asked = ["cdc", "resync", "mysql_sync_database-m", f"--warehouse={tmp_path}"]
    assert ran([*asked, "--tables=later"]).code == 0
    run(cursor, "INSERT INTO zeros.later VALUES ('2024-01-00')")
    mirror(given)
    assert mirror(given)["quarantine"] == []
    assert target(tmp_path, "later") == [("0000-00-00",), ("1970-01-01",), ("2024-01-00",)]
