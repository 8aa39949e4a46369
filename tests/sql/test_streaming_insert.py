"""INSERT from generated rows: a commit each interval, and the same rows as a batch."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.session import sql_engine
from lakecore.sql import streaming

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.writes.stream_write import IngestResult


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def sleep(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> lc.Session:
    monkeypatch.setattr(streaming, "SYSTEM", Clock())
    found = lc.connect(tmp_path / "w", create=True)
    found.sql("CREATE TABLE counts (w STRING PRIMARY KEY NOT ENFORCED, n BIGINT, least INT)")
    found.sql("SET 'execution.checkpointing.interval' = '1 ms'")
    return found


def generate(session: lc.Session, rows: int | None = 5_000) -> None:
    end = "" if rows is None else f", 'number-of-rows' = '{rows}'"
    session.sql(
        "CREATE TEMPORARY TABLE g (w STRING, v INT) WITH ('connector' = 'datagen', "
        "'fields.w.length' = '1', 'rows-per-second' = '1000000', 'fields.v.null-rate' = '0.1'"
        f"{end})"
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT w, COUNT(*), MIN(v) FROM g GROUP BY w",
        "SELECT upper(`w`) AS key, count(v), max(v) FROM g WHERE v > 0 GROUP BY key",
        "SELECT w || '!', SUM(v % 100), MAX(v) FROM g GROUP BY 1",
        "SELECT 'all', COUNT(*), NULL FROM g GROUP BY 1, 3",
    ],
)
def test_groups_equal_those_of_a_batch(session: lc.Session, query: str) -> None:
    generate(session)
    wanted = session.sql(query).fetchall()
    seen: list[IngestResult] = []
    sql_engine(session).on_commit(seen.append)
    session.sql("SET 'execution.runtime-mode' = 'streaming'")
    ((snapshot, rows),) = session.sql(f"INSERT INTO counts {query}").fetchall()
    session.sql("SET 'execution.runtime-mode' = 'batch'")

    assert sorted(session.sql("SELECT * FROM counts").fetchall()) == sorted(wanted)
    assert len(seen) == 5
    assert (seen[-1].snapshot_ids[-1], seen[-1].rows) == (snapshot, rows)


def test_rows_of_a_plain_select_are_each_inserted_once(session: lc.Session) -> None:
    generate(session)
    session.sql("CREATE TABLE rows (n BIGINT, w STRING)")
    session.sql("SET 'execution.runtime-mode' = 'streaming'")
    session.sql("INSERT INTO rows (w, n) SELECT w, v FROM g WHERE v IS NOT NULL")
    session.sql("SET 'execution.runtime-mode' = 'batch'")
    wanted = session.sql("SELECT v, w FROM g WHERE v IS NOT NULL").fetchall()

    assert sorted(session.sql("SELECT * FROM rows").fetchall()) == sorted(wanted)


def test_an_interrupt_leaves_what_was_committed(session: lc.Session) -> None:
    generate(session, None)
    seen: list[int] = []

    def told(done: IngestResult) -> None:
        seen.append(done.rows)
        if len(seen) == 3:
            raise KeyboardInterrupt

    sql_engine(session).on_commit(told)
    with pytest.raises(KeyboardInterrupt):
        session.sql("INSERT INTO counts SELECT w, COUNT(*), 1 FROM g GROUP BY w, 3")
    ((total,),) = session.sql("SELECT sum(n) FROM counts").fetchall()

    assert total == 3_000
    with pytest.raises(InvalidRequest, match="the generated rows have no end"):
        session.sql("SELECT * FROM g LIMIT 3").fetchall()


def test_ctrl_c_while_duckdb_computes_a_step_is_an_interrupt(session: lc.Session) -> None:
    generate(session, None)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        session.sql(
            "INSERT INTO counts SELECT w, COUNT(*), max(length(repeat(w, 100000))) "
            "FROM g GROUP BY w"
        )
    timer.join()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT w, COUNT(DISTINCT v), 1 FROM g GROUP BY w",
        "SELECT w, COUNT(*) + 1, 1 FROM g GROUP BY w",
        "SELECT w, AVG(v), 1 FROM g GROUP BY w",
        "SELECT w, COUNT(*) FILTER (v > 1), 1 FROM g GROUP BY w, 3",
        "SELECT 'x', COUNT(*), 1 FROM g GROUP BY w, 1, 3",
        "SELECT w, COUNT(*), 1 FROM g GROUP BY w, 3 HAVING COUNT(*) > 3",
        "SELECT w, row_number() OVER (), 1 FROM g",
        "SELECT DISTINCT w, 1, 1 FROM g",
        "SELECT w, v, 1 FROM g LIMIT 4",
        "SELECT a.w, b.v, 1 FROM g AS a JOIN g AS b ON a.v = b.v",
        "SELECT w, v, 1 FROM (SELECT * FROM g)",
        "SELECT w, v, 1 FROM g WHERE v > (SELECT max(n) FROM counts)",
        "WITH x AS (SELECT * FROM g) SELECT w, v, 1 FROM x",
        "SELECT w, v, 1 FROM g UNION ALL SELECT w, v, 1 FROM g",
        "SELECT w, COUNT(*), 1 FROM g GROUP BY ROLLUP (w, 3)",
    ],
)
def test_queries_that_need_all_rows_are_refused(session: lc.Session, query: str) -> None:
    generate(session, None)

    with pytest.raises(Unsupported, match="a streaming INSERT selects"):
        session.sql(f"INSERT INTO counts {query}")


def test_groups_need_a_primary_key(session: lc.Session) -> None:
    generate(session, None)
    session.sql("CREATE TABLE rows (w STRING, n BIGINT)")

    with pytest.raises(InvalidRequest, match="the table needs a primary key"):
        session.sql("INSERT INTO rows SELECT w, COUNT(*) FROM g GROUP BY w")
    with pytest.raises(InvalidRequest, match="the interval is"):
        session.sql("SET 'execution.checkpointing.interval' = 'often'")
