"""A table that gets its primary key while a pipeline runs is mirrored with all its rows."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from tests.services.mirrors import (
    command,
    connect,
    drop_slot,
    environment,
    mirror,
    postgres,
    postgres_command,
    program,
    ran,
    run,
)
from tests.services.servers import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.services.servers import Server


@contextmanager
def running(given: list[str]) -> Iterator[None]:
    """The pipeline as a process."""
    program_of = program([*given, "--interval=0.2 s"])
    process = subprocess.Popen(program_of, env=environment(), stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(60) == 0


def until(warehouse: Path, name: str, ids: list[int]) -> None:
    """Wait until a target has exactly these rows."""

    def has() -> None:
        table = lc.connect(warehouse).get_table(f"m.{name}")
        assert sorted(table.to_arrow().column("id").to_pylist()) == ids

    eventually(has, name)


def left_out(warehouse: Path) -> dict[str, str]:
    shown = ran(["cdc", "status", f"--warehouse={warehouse}", "--json"])
    found: dict[str, str] = json.loads(shown.out.splitlines()[-1])["left_out"]
    return found


def lives(cursor: Any, given: list[str], schema: str, warehouse: Path) -> None:
    """Tables that have no key at the start, and one that comes later and gets its rows without."""
    for name in ("first", "second", "empty"):
        run(cursor, f"CREATE TABLE {schema}.{name} (id int NOT NULL)")
    run(
        cursor,
        f"CREATE TABLE {schema}.good (id int PRIMARY KEY)",
        f"INSERT INTO {schema}.first VALUES (1)",
    )
    mirror(given)
    with running(given):
        run(
            cursor,
            *(f"INSERT INTO {schema}.{name} VALUES (2)" for name in ("first", "second", "good")),
            f"CREATE TABLE {schema}.third (id int NOT NULL)",
            f"INSERT INTO {schema}.third VALUES (1), (2)",
        )
        until(warehouse, "good", [2])
        eventually(lambda: left_out(warehouse)[f"{prefix(given)}{schema}.second"], "the status")
        for name in ("first", "second", "third", "empty"):
            run(cursor, f"ALTER TABLE {schema}.{name} ADD PRIMARY KEY (id)")
        until(warehouse, "first", [1, 2])
        until(warehouse, "second", [2])
        until(warehouse, "third", [1, 2])
        for name in ("first", "second", "third", "empty"):
            run(cursor, f"INSERT INTO {schema}.{name} VALUES (3)")
        run(cursor, f"DELETE FROM {schema}.third WHERE id = 1")
        until(warehouse, "first", [1, 2, 3])
        until(warehouse, "second", [2, 3])
        until(warehouse, "third", [2, 3])
        until(warehouse, "empty", [3])
        eventually(lambda: [*left_out(warehouse)] == [] or 1 / 0, "the status")
    assert mirror(given)["quarantine"] == []


def prefix(given: list[str]) -> str:
    return "postgres." if given[1] == "postgres_sync_database" else ""


def test_tables_of_mariadb_that_get_a_key(
    mariadb_log: Server, quick_heartbeats: None, tmp_path: Path
) -> None:
    del quick_heartbeats
    cursor = connect(mariadb_log)
    run(cursor, "CREATE DATABASE keys_of")
    given = command(mariadb_log, tmp_path, "mysql_sync_database", "keys_of", "--mode=combined")
    lives(cursor, given, "keys_of", tmp_path)


@pytest.mark.parametrize("all_tables", [False, True])
def test_tables_of_postgres_that_get_a_key(
    postgres_log: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, all_tables: bool
) -> None:
    """A publication of all tables also has the rows of those without a key."""
    monkeypatch.setenv("LAKECORE_CDC_LOOK_MS", "200")
    cursor, schema = postgres(postgres_log), f"keys_of_{int(all_tables)}"
    run(cursor, f"CREATE SCHEMA {schema}")
    given = postgres_command(postgres_log, tmp_path, schema, slot=schema)
    if all_tables:
        run(cursor, "CREATE PUBLICATION all_keys FOR ALL TABLES")
        given.append("--postgres_conf=publication.name=all_keys")
    try:
        lives(cursor, given, schema, tmp_path)
    finally:
        run(cursor, "DROP PUBLICATION IF EXISTS all_keys")
        drop_slot(postgres_log, schema)
