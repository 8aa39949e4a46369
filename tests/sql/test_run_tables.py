"""CREATE TABLE ... AS TABLE and CREATE DATABASE ... AS DATABASE over a folder of messages."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.cdc import pipeline as launch
from lakecore.cdc.sink_parts import Progress
from lakecore.errors import AlreadyExists, InvalidRequest, LakecoreError, NotFound, Unsupported
from lakecore.session import sql_engine

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.cdc.pipeline import Pipeline

UNTIL = "/*+ OPTIONS('until' = 'caught-up', 'value.format' = 'maxwell-json') */"


def put(folder: Path, name: str, *events: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(event) + "\n" for event in events))


def insert(table: str, **data: Any) -> object:
    about = {"database": "shop", "table": table, "primary_key_columns": ["id"]}
    return {**about, "type": "insert", "data": data}


@pytest.fixture
def session(tmp_path: Path) -> lc.Session:
    put(tmp_path / "in" / "shop", "1.json", insert("orders", id=1, day="2024-05-06"))
    found = lc.connect(tmp_path / "w", create=True)
    found.sql(f"CREATE CATALOG src WITH ('type' = 'files', 'path' = '{tmp_path}/in')")
    return found


def rows(session: lc.Session, table: str) -> list[tuple[Any, ...]]:
    return sorted(session.sql(f"SELECT * FROM {table}").fetchall())


def test_a_table_follows_a_source_and_continues_when_run_again(
    session: lc.Session, tmp_path: Path
) -> None:
    text = f"""
        CREATE TABLE IF NOT EXISTS d.orders (PRIMARY KEY (id, year) NOT ENFORCED)
        PARTITIONED BY (year) WITH ('bucket' = '1')
        AS TABLE src.shop {UNTIL}
        ADD COLUMN (year AS year(`day`), `up` AS date_format(day, 'yyyy/MM'))
    """
    told: list[tuple[str, Progress]] = []
    sql_engine(session).on_checkpoint(lambda name, progress: told.append((name, progress)))
    first = session.sql(text)
    put(tmp_path / "in" / "shop", "2.json", insert("orders", id=2, day="2025-01-01"))
    second = session.sql(text)

    assert rows(session, "d.orders") == [
        ("1", "2024-05-06", 2024, "2024/05"),
        ("2", "2025-01-01", 2025, "2025/01"),
    ]
    table = session.get_table("d.orders")
    assert table.schema.primary_keys == ("id", "year")
    assert table.schema.partition_keys == ("year",)
    assert first.columns == [
        *("pipeline", "checkpoint", "rows", "tables", "rows_left_out", "caught_up"),
        "tables_in_quarantine",
    ]
    assert first.fetchall() == [("files_sync_table-d.orders", 1, 1, 1, 0, True, 0)]
    assert second.fetchall() == [("files_sync_table-d.orders", 2, 1, 1, 0, True, 0)]
    assert {name for name, _ in told} == {"files_sync_table-d.orders"}


def test_a_database_follows_a_source(session: lc.Session, tmp_path: Path) -> None:
    put(tmp_path / "in" / "shop", "2.json", insert("users", id=7), insert("tmp_x", id=8))
    session.sql("SET 'cdc.until' = 'caught-up'")
    session.sql(
        "CREATE DATABASE lake WITH ('bucket' = '2') AS DATABASE src.shop "
        "INCLUDING TABLE 'o.*|u.*|t.*' EXCLUDING TABLE 'tmp_.*' "
        "/*+ OPTIONS('value.format' = 'maxwell-json', 'table-suffix' = '_m') */"
    )

    assert session.list_tables("lake") == ("orders_m", "users_m")
    assert rows(session, "lake.users_m") == [("7",)]
    assert session.get_table("lake.orders_m").options.bucket == 2


def test_ctrl_c_ends_it_after_a_commit(session: lc.Session) -> None:
    # The reading verbs see the first commit; then the signal comes.
    def interrupt() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not session.table_exists("d.t"):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        session.sql(
            "CREATE TABLE d.t AS TABLE src.shop "
            "/*+ OPTIONS('value.format' = 'maxwell-json', 'interval' = '1 h') */"
        )
    thread.join()

    assert rows(session, "d.t") == [("1", "2024-05-06")]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_as_table_without_a_source_is_a_query(session: lc.Session) -> None:
    session.sql("CREATE DATABASE d")
    session.sql("CREATE TABLE d.a AS SELECT 1 AS n")
    session.sql("CREATE TABLE d.b AS TABLE d.a")

    assert rows(session, "d.b") == [(1,)]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("CREATE TABLE d.t AS TABLE src.no_such " + UNTIL, InvalidRequest, "folder"),
        ("CREATE TABLE d.t AS TABLE src.a.b " + UNTIL, InvalidRequest, "one folder"),
        ("CREATE TABLE d.t AS TABLE src " + UNTIL, NotFound, "name a table or a database"),
        ("CREATE TABLE d.t AS TABLE nope.t ADD COLUMN y AS year(a)", NotFound, "known=[src]"),
        ("CREATE DATABASE x AS DATABASE nope.d", NotFound, "known=[src]"),
        ("CREATE TABLE d.t (a INT) AS TABLE src.shop", Unsupported, "clauses=[columns]"),
        ("CREATE TABLE d.t COMMENT 'x' AS TABLE src.shop", Unsupported, "clauses=[COMMENT]"),
        ("CREATE OR REPLACE TABLE d.t AS TABLE src.shop", Unsupported, "clauses=[OR REPLACE]"),
        ("CREATE TABLE d.t AS TABLE src.shop ADD COLUMN a AS year(b) FIRST", Unsupported, "FIRST"),
        ("CREATE TABLE d.t AS TABLE src.shop ADD COLUMN a", InvalidRequest, "expected AS"),
        (
            "CREATE TABLE d.t AS TABLE src.shop ADD COLUMN a AS b + 1",
            InvalidRequest,
            "expected '('",
        ),
        (
            "CREATE TABLE d.t AS TABLE src.shop ADD COLUMN a AS date_format(b, 'y, M')",
            InvalidRequest,
            "has none of ,()=",
        ),
        ("CREATE TABLE d.t AS TABLE src.shop /*+ OPTIONS('x' = '1') */", InvalidRequest, "x"),
        (
            """CREATE TABLE d.t (PRIMARY KEY (a) NOT ENFORCED) AS TABLE src.shop
            /*+ OPTIONS('primary-keys' = 'b') */""",
            InvalidRequest,
            "option=primary_keys",
        ),
        (
            """CREATE DATABASE x AS DATABASE src.shop /*+ OPTIONS('a' = '1') */
            INCLUDING ALL TABLES /*+ OPTIONS('a' = '2') */""",
            InvalidRequest,
            "given twice: a",
        ),
        ("CREATE DATABASE x AS DATABASE src.shop INCLUDING 'a'", InvalidRequest, "expected TABLE"),
        (
            "CREATE TABLE d.t AS TABLE src.shop /*+ OPTIONS('path' = '/') */",
            InvalidRequest,
            "options=[path]",
        ),
        ("USE CATALOG src", Unsupported, "not queried"),
        ("SELECT * FROM src.shop.t", LakecoreError, "src"),
        ("SET 'cdc.until' = 'later'", Unsupported, "caught-up"),
    ],
)
def test_wrong_statement_says_what_to_do(
    session: lc.Session, text: str, kind: type[LakecoreError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        session.sql(text)

    assert message in str(caught.value)
    assert not session.database_exists("x")


def test_a_target_that_exists_needs_if_not_exists(session: lc.Session) -> None:
    session.sql("CREATE DATABASE d")
    session.sql("CREATE TABLE d.t (id STRING)")

    with pytest.raises(AlreadyExists, match="IF NOT EXISTS"):
        session.sql(f"CREATE TABLE d.t AS TABLE src.shop {UNTIL}")
    with pytest.raises(AlreadyExists, match="IF NOT EXISTS"):
        session.sql("CREATE DATABASE d AS DATABASE src.shop")


def test_the_interval_is_that_of_checkpoints(
    session: lc.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def run_pipeline(_catalog: object, pipeline: Pipeline, *_: object, **__: object) -> Progress:
        seen.append(pipeline.interval_seconds)
        return Progress(caught_up=True)

    monkeypatch.setattr(launch, "run_pipeline", run_pipeline)
    text = "CREATE TABLE IF NOT EXISTS d.t AS TABLE src.shop"
    session.sql(text)
    for given in ("180000", "3 min", "250 ms"):
        session.sql(f"SET 'execution.checkpointing.interval' = '{given}'")
        session.sql(text)
    session.sql(f"{text} /*+ OPTIONS('interval' = '1.5 min') */")

    assert seen == [10, 180, 180, 0.25, 90]
    with pytest.raises(Unsupported, match="parameters"):
        session.sql(text, [1])


def test_catalogs_are_listed_and_dropped(session: lc.Session) -> None:
    assert session.sql("SHOW CATALOGS").fetchall() == [("paimon",), ("src",)]
    with pytest.raises(AlreadyExists):
        session.sql("CREATE CATALOG src WITH ('type' = 'files', 'path' = '/x')")
    session.sql("DROP CATALOG src")
    assert session.sql("SHOW CATALOGS").fetchall() == [("paimon",)]
