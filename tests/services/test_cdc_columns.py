"""A column that another one replaces under its name is not taken for it, nor are changed values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lakecore as lc
from tests.services.mirrors import command, connect, mirror, postgres, postgres_command, run

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.services.servers import Server

TABLE = "CREATE TABLE {} (id int primary key, c int, d decimal(10,2), e int)"
ROWS = "INSERT INTO {} VALUES (1, 10, 1.25, 5), (2, 20, 2.75, 6)"
LATER = "INSERT INTO {} (id) VALUES (3)"

ALTERED = {
    "again": ["DROP COLUMN c", "ADD COLUMN c int"],
    "last": ["DROP COLUMN e", "ADD COLUMN e int"],
    "both": ["DROP COLUMN c, ADD COLUMN c int"],
    "stated": ["DROP COLUMN c", "ADD COLUMN c int DEFAULT 7"],
    "named": ["RENAME COLUMN c TO x", "ADD COLUMN c int"],
    "round": ["RENAME COLUMN c TO x", "RENAME COLUMN e TO c", "RENAME COLUMN x TO e"],
}
"""By table, what happens to its columns."""
OF_MARIADB = {
    "rounded": ["MODIFY d decimal(9,1)"],
    "wider": ["MODIFY d decimal(10,1)", "MODIFY d decimal(10,2)"],
    "changed": ["CHANGE c x int, CHANGE e c int", "DROP x", "ADD (f int, x int)"],
    "upper": ["DROP `C`", "ADD c int"],
}
OF_POSTGRES = {"rounded": ["ALTER d TYPE decimal(9,1)"], "cut": ["ALTER d TYPE int"]}


def altered(cursor: Any, schema: str, tables: dict[str, list[str]], *, has_rows: bool) -> None:
    for name, clauses in tables.items():
        for each in clauses:
            run(cursor, f"ALTER TABLE {schema}.{name} {each}")
        if has_rows:
            run(cursor, LATER.format(f"{schema}.{name}"))


def rows_of(cursor: Any, schema: str, name: str) -> list[dict[str, object]]:
    cursor.execute(f"SELECT * FROM {schema}.{name} ORDER BY id")
    names = [each[0] for each in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def mirrored(warehouse: Path, name: str, like: list[dict[str, object]]) -> list[dict[str, object]]:
    """The rows of a target, with the columns of its source: it keeps dropped ones."""
    rows = lc.connect(warehouse).get_table(f"m.{name}").to_arrow().to_pylist()
    found = sorted(rows, key=lambda row: int(row["id"]))
    return [{column: row.get(column) for column in like[0]} for row in found]


def check(cursor: Any, warehouse: Path, schema: str, tables: dict[str, list[str]]) -> None:
    for name in tables:
        source = rows_of(cursor, schema, name)
        assert mirrored(warehouse, name, source) == source, name


def made(cursor: Any, schema: str, tables: dict[str, list[str]]) -> None:
    for name in tables:
        run(cursor, TABLE.format(f"{schema}.{name}"), ROWS.format(f"{schema}.{name}"))


def test_renewed_and_rounded_columns_of_mariadb(
    mariadb_log: Server, quick_heartbeats: None, tmp_path: Path
) -> None:
    del quick_heartbeats
    cursor, tables = connect(mariadb_log), ALTERED | OF_MARIADB
    run(cursor, "CREATE DATABASE columns_of")
    made(cursor, "columns_of", tables)
    given = command(mariadb_log, tmp_path, "mysql_sync_database", "columns_of")
    mirror(given)
    altered(cursor, "columns_of", tables, has_rows=False)
    assert mirror(given)["quarantine"] == []
    check(cursor, tmp_path, "columns_of", tables)
    again = {name: ["DROP COLUMN d", "ADD COLUMN d decimal(10,2)"] for name in tables}
    altered(cursor, "columns_of", again, has_rows=True)
    assert mirror(given)["quarantine"] == []
    check(cursor, tmp_path, "columns_of", tables)


def test_a_copy_of_mariadb_that_replaces_its_table(
    mariadb_log: Server, quick_heartbeats: None, tmp_path: Path
) -> None:
    """As gh-ost does it: no statement on the table drops or adds a column."""
    del quick_heartbeats
    cursor = connect(mariadb_log)
    run(cursor, "CREATE DATABASE copies_of")
    made(cursor, "copies_of", {"t": []})
    given = command(mariadb_log, tmp_path, "mysql_sync_database", "copies_of")
    mirror(given)
    run(cursor, "USE copies_of", "UPDATE t SET e = 1")
    for number, clause, columns in (
        (1, "DROP COLUMN c", "SELECT id, d, e FROM t"),
        (2, "ADD COLUMN c int AFTER e", "SELECT *, NULL FROM t"),
    ):
        run(
            cursor,
            "CREATE TABLE copy LIKE t",
            f"ALTER TABLE copy {clause}",
            f"INSERT INTO copy {columns}",
            f"RENAME TABLE t TO old{number}, copy TO t",
            f"UPDATE t SET e = 1 + {number} WHERE id = 1",
        )
    mirror(given)
    check(cursor, tmp_path, "copies_of", {"t": []})


def test_shards_with_a_renewed_column_are_set_aside(
    mariadb_log: Server, quick_heartbeats: None, tmp_path: Path
) -> None:
    """A new column in one shard after another is followed: no shard had it before."""
    del quick_heartbeats
    cursor = connect(mariadb_log)
    for shard in ("shard_a", "shard_b"):
        run(cursor, f"CREATE DATABASE {shard}")
        run(cursor, TABLE.format(f"{shard}.t"))
        run(cursor, f"INSERT INTO {shard}.t VALUES ({int(shard == 'shard_b')}, 10, 1.25, 5)")
    given = command(mariadb_log, tmp_path, "mysql_sync_database", "shard_.")
    mirror(given)
    for shard in ("shard_a", "shard_b"):
        altered(cursor, shard, {"t": ["ADD COLUMN f int"]}, has_rows=False)
        run(cursor, f"UPDATE {shard}.t SET f = 3")
    assert mirror(given)["quarantine"] == []
    altered(cursor, "shard_a", {"t": ["DROP COLUMN c", "ADD COLUMN c int"]}, has_rows=False)
    (held,) = mirror(given, ends_with=3)["quarantine"]
    assert (held["database"], held["table"]) == ("shard_a", "t")


def test_renewed_and_rounded_columns_of_postgres(
    postgres_log: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakecore.cdc.postgres.source._LOOK_MS", 200)
    cursor, tables = postgres(postgres_log), ALTERED | OF_POSTGRES
    run(cursor, "CREATE SCHEMA columns_of")
    made(cursor, "columns_of", tables)
    given = postgres_command(postgres_log, tmp_path, "columns_of", slot="columns_of")
    try:
        mirror(given)
        altered(cursor, "columns_of", tables, has_rows=False)
        held = mirror(given, ends_with=3)["quarantine"]
        assert [each["table"] for each in held] == ["columns_of.cut"]
        del tables["cut"]
        check(cursor, tmp_path, "columns_of", tables)
        again = {name: ["DROP COLUMN d", "ADD COLUMN d decimal(10,2)"] for name in tables}
        altered(cursor, "columns_of", again, has_rows=True)
        mirror(given)
        check(cursor, tmp_path, "columns_of", tables)
    finally:
        cursor.execute("SELECT pg_drop_replication_slot('columns_of')")
