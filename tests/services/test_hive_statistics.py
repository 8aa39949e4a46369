"""Statistics of partitions in a Hive Metastore, as Java's reporter states them."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import StorageError
from lakecore.io.hive.client import HiveClient
from tests.services.hive import client, empty, hive_options
from tests.services.java import java
from tests.services.setup import HIVE_STATISTICS, PAIMON_HIVE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.services.servers import Server

COLUMNS = {"id": "INT NOT NULL", "v": "STRING", "dt": "STRING NOT NULL"}
IDLE = "partition.idle-time-to-report-statistic"
LISTED = {"bucket": "1", "metastore.partitioned-table": "true"}
COUNTS = ("numFiles", "totalSize", "numRows")
TIMES = ("lastUpdateTime", "transient_lastDdlTime")


@pytest.fixture
def options(hive: Server, tmp_path: Path) -> dict[str, str]:
    empty(hive)
    return hive_options(hive, tmp_path)


@pytest.fixture
def ours(options: dict[str, str]) -> lc.Session:
    session = lc.connect(options, create=True)
    session.create_database("stats")
    return session


def created(session: lc.Session, idle: str = "1 ms") -> lc.Table:
    return session.create_table(
        "stats.t",
        COLUMNS,
        primary_keys=["id", "dt"],
        partition_keys=["dt"],
        options={**LISTED, IDLE: idle},
    )


def rows(dt: str, *ids: int) -> list[dict[str, object]]:
    return [{"id": each, "v": "a", "dt": dt} for each in ids]


def stated(hive: Server, dt: str, table: str = "t") -> dict[str, str]:
    found = client(hive).partition("stats", table, [dt])
    return {} if found is None else dict(found.parameters or {})


def counts(hive: Server, dt: str, table: str = "t") -> Sequence[int]:
    parameters = stated(hive, dt, table)
    return [int(parameters[key]) for key in COUNTS if key in parameters]


def test_batch_commits_state_what_java_states(
    ours: lc.Session, options: dict[str, str], hive: Server
) -> None:
    table = created(ours)
    table.write(rows("a=b", 1, 2, 3) + rows("x", 1))
    table.write(rows("a=b", 2))
    before = stated(hive, "a=b")

    live = table.inspect.files()
    own = live.filter(live["partition"] == "{a=b}")
    assert counts(hive, "a=b") == [2, own["file_size_in_bytes"].sum(), 4]
    assert counts(hive, "x")[::2] == [1, 1]
    assert before["totalBuckets"] == "1"
    assert before[TIMES[0]] == before[TIMES[1]]
    # Java's own reporter comes to the same numbers.
    milliseconds = f"{int(before[TIMES[0]])}000"
    assert java(HIVE_STATISTICS, options, "stats.t", "dt=a%3Db", milliseconds)[-1] == "ok"
    assert stated(hive, "a=b") == before
    # Java's catalog still reads and writes the table and its partitions.
    said = java(PAIMON_HIVE, options, "read stats.t", "write stats.t 9 1 x", "read stats.t")
    assert said[::2] == ["[1, 1, 2, 3]", "[1, 1, 2, 3, 9]"]
    table.compact(full=True)
    assert counts(hive, "a=b")[::2] == [1, 3]
    assert counts(hive, "x")[::2] == [1, 2]


def test_table_made_by_java_is_reported(
    ours: lc.Session, options: dict[str, str], hive: Server
) -> None:
    create = f"create stats.j partitioned metastore.partitioned-table=true {IDLE}=1h"
    java(PAIMON_HIVE, options, create, "write stats.j 1 3 x")
    assert "lastUpdateTime" not in stated(hive, "x", "j")

    ours.get_table("stats.j").write(rows("y", 1))
    assert counts(hive, "y", "j")[::2] == [1, 1]
    assert "lastUpdateTime" not in stated(hive, "x", "j")
    ours.sql("CALL sys.repair('stats.j')")
    assert counts(hive, "x", "j")[::2] == [3, 3]


def test_emptied_partition_is_not_listed(ours: lc.Session, hive: Server) -> None:
    table = created(ours)
    table.write(rows("a", 1) + rows("b", 1))
    table.drop_partition({"dt": "a"})

    assert stated(hive, "a") == {}
    assert counts(hive, "b")[::2] == [1, 1]
    table.create_branch("kept")
    table.drop_partition({"dt": "b"})
    # A branch keeps the partition in the list.
    assert counts(hive, "b") == [0, 0, 0]


def test_stream_reports_partitions_that_are_idle(ours: lc.Session, hive: Server) -> None:
    table = created(ours, "1 s")
    context = table.context
    now = [context.ambient.now_ms()]
    metastore = context.publication.metastore  # type: ignore[attr-defined]
    ambient = replace(metastore.ambient, now_ms=lambda: now[0])
    object.__setattr__(metastore, "ambient", ambient)
    stream = table.new_stream_write("a-job")

    def commit(number: int, dt: str) -> None:
        stream.write(rows(dt, number))
        stream.commit(number, stream.prepare_commit(number))

    commit(1, "a")
    assert "lastUpdateTime" not in stated(hive, "a")
    now[0] += 1001
    commit(2, "b")
    assert counts(hive, "a")[::2] == [1, 1]
    assert "lastUpdateTime" not in stated(hive, "b")
    table.write(rows("c", 1))
    assert counts(hive, "b")[::2] == counts(hive, "c")[::2] == [1, 1]


def test_failed_report_leaves_the_commit_and_comes_later(
    ours: lc.Session,
    hive: Server,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = created(ours)
    for call in ("partition", "alter_statistics"):
        with monkeypatch.context() as broken, caplog.at_level(logging.WARNING):

            def fail(*_: object) -> None:
                raise StorageError("the metastore is gone")

            broken.setattr(HiveClient, call, fail)
            caplog.clear()
            table.write(rows(call, 1))
        assert "partitions not copied" in caplog.text
        assert "lastUpdateTime" not in stated(hive, call)
    assert table.count() == 2
    table.write(rows("later", 1))
    for dt in ("partition", "alter_statistics", "later"):
        assert counts(hive, dt)[::2] == [1, 1]


def test_without_the_option_nothing_is_reported(ours: lc.Session, hive: Server) -> None:
    table = created(ours, "0 ms")
    table.write(rows("a", 1))

    assert "lastUpdateTime" not in stated(hive, "a")
    ours.sql("CALL sys.repair('stats.t')")
    assert "lastUpdateTime" not in stated(hive, "a")
    ours.alter_table("stats.t", [lc.SchemaChange.set_option(IDLE, "1 h")])
    ours.get_table("stats.t").write(rows("a", 2))
    assert counts(hive, "a")[::2] == [2, 2]
