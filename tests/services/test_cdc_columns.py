"""A column that another one replaces under its name is not taken for it, nor are changed values."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

import lakecore as lc
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

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_table_of_mariadb_that_another_one_replaces_under_its_name(
    mariadb_log: Server, quick_heartbeats: None, tmp_path: Path
) -> None:
    del quick_heartbeats
    cursor = connect(mariadb_log)
    tables: dict[str, list[str]] = {name: [] for name in ("made", "again", "swapped", "moved", "k")}
    run(cursor, "CREATE DATABASE replaced_of")
    made(cursor, "replaced_of", tables)
    given = command(mariadb_log, tmp_path, "mysql_sync_database", "replaced_of")
    mirror(given)
    run(
        cursor,
        "USE replaced_of",
        "DROP TABLE made, again",
        f"{TABLE.format('made')} SELECT 7 AS id, 8 AS c",
        "CREATE TABLE copy (id int primary key, c int, d decimal(10,2), e int, z int DEFAULT 7)",
        "INSERT INTO copy SELECT id, c * 10, d, e, 9 FROM swapped",
        "RENAME TABLE swapped TO old, copy TO swapped",
        "ALTER TABLE moved RENAME TO moved_old",
        "CREATE TABLE IF NOT EXISTS k (id int)",
        LATER.format("k"),
    )
    mirror(given)
    run(cursor, f"CREATE TABLE IF NOT EXISTS {TABLE.removeprefix('CREATE TABLE ').format('again')}")
    run(cursor, LATER.format("again"), "CREATE OR REPLACE TABLE moved LIKE old")
    run(cursor, LATER.format("moved"))
    mirror(given)
    check(cursor, tmp_path, "replaced_of", tables)


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
        drop_slot(postgres_log, "columns_of")


@pytest.mark.parametrize("seen", [False, True], ids=["", "after the pipeline saw it"])
@pytest.mark.parametrize("later", [False, True], ids=["", "and has another row"])
def test_a_copy_of_postgres_that_replaces_its_table(
    postgres_log: Server, tmp_path: Path, *, seen: bool, later: bool
) -> None:
    cursor, schema = postgres(postgres_log), f"copies_{seen:d}{later:d}"
    run(cursor, f"CREATE SCHEMA {schema}")
    made(cursor, schema, {"t": []})
    given = postgres_command(postgres_log, tmp_path, schema, slot=schema)
    try:
        mirror(given)
        run(
            cursor,
            f"CREATE TABLE {schema}.copy (LIKE {schema}.t INCLUDING ALL)",
            f"INSERT INTO {schema}.copy SELECT id, c * 10, d, e FROM {schema}.t",
        )
        if seen:
            mirror(given)
        run(
            cursor,
            f"ALTER TABLE {schema}.t RENAME TO old",
            f"ALTER TABLE {schema}.copy RENAME TO t",
        )
        if later:
            run(cursor, LATER.format(f"{schema}.t"))
        mirror(given)
        check(cursor, tmp_path, schema, {"t": []})
    finally:
        drop_slot(postgres_log, schema)


def test_a_column_comes_back_after_the_pipeline_saw_that_it_was_dropped(
    mariadb_log: Server, postgres_log: Server, quick_heartbeats: None, tmp_path: Path
) -> None:
    del quick_heartbeats
    slot = postgres_command(postgres_log, tmp_path / "p", "back_of", slot="back_of")
    for cursor, given, verb, warehouse in (
        (postgres(postgres_log), slot, "SCHEMA", tmp_path / "p"),
        (
            connect(mariadb_log),
            command(mariadb_log, tmp_path / "m", "mysql_sync_database", "back_of"),
            "DATABASE",
            tmp_path / "m",
        ),
    ):
        run(cursor, f"CREATE {verb} back_of")
        made(cursor, "back_of", {"t": [], "u": []})
        mirror(given)
        altered(cursor, "back_of", {"t": ["DROP COLUMN c"]}, has_rows=False)
        altered(cursor, "back_of", {"u": ["DROP COLUMN c"]}, has_rows=True)
        mirror(given)
        altered(cursor, "back_of", {"t": ["ADD COLUMN c int"]}, has_rows=False)
        altered(cursor, "back_of", {"u": ["ADD COLUMN c int"]}, has_rows=False)
        mirror(given)
        check(cursor, warehouse, "back_of", {"t": [], "u": []})
    drop_slot(postgres_log, "back_of")


def test_a_copy_with_another_type_is_set_aside_before_its_first_row(
    mariadb_log: Server, quick_heartbeats: None, tmp_path: Path
) -> None:
    """No statement on the table changes the type. Its target has all rows before the copy."""
    del quick_heartbeats
    cursor = connect(mariadb_log)
    run(cursor, "CREATE DATABASE typed_of")
    made(cursor, "typed_of", {"t": [], "u": []})
    given = command(mariadb_log, tmp_path, "mysql_sync_database", "typed_of")
    mirror(given)
    run(
        cursor,
        "USE typed_of",
        LATER.format("t"),
        "CREATE TABLE copy LIKE t",
        "ALTER TABLE copy MODIFY e varchar(20)",
        "INSERT INTO copy SELECT * FROM t",
        "RENAME TABLE t TO old, copy TO t",
        LATER.format("u"),
    )
    for ends_with in (3, 0):
        (held,) = mirror(given, ends_with=ends_with)["quarantine"]
        assert held["table"] == "t"
        assert "the type of a column changed at the source" in held["reason"]
    assert [row["id"] for row in mirrored(tmp_path, "t", [{"id": 0}])] == [1, 2, 3]
    check(cursor, tmp_path, "typed_of", {"u": []})

    run(cursor, "ALTER TABLE t MODIFY e int", LATER.format("u").replace("3", "4"))
    asked = ran(["cdc", "resync", "mysql_sync_database-m", f"--warehouse={tmp_path}", "--tables=t"])
    assert asked.code == 0, asked.err
    assert mirror(given)["quarantine"] == []
    check(cursor, tmp_path, "typed_of", {"t": [], "u": []})


SEEN_LATE = {
    "none": ["ADD COLUMN f int", "ALTER COLUMN id SET NOT NULL"],
    "again": ["ADD COLUMN f int", "DROP COLUMN f", "ADD COLUMN f int"],
    "gap": ["ADD COLUMN f int, DROP COLUMN c", "DROP COLUMN f", "ADD COLUMN f int"],
    "named": ["ADD COLUMN f int", "RENAME COLUMN f TO x", "ADD COLUMN f int"],
    "rounded": ["ADD COLUMN f decimal(10,2)", "ALTER f TYPE decimal(9,1)"],
    "wider": ["ADD COLUMN f int", "ALTER f TYPE bigint", "ALTER f SET NOT NULL"],
    "text": ["ADD COLUMN f int", "ALTER f TYPE varchar(20)"],
}
"""By table, the changes of a new column `f`; it gets values after the first one."""


def test_a_column_that_changed_before_its_rows_were_read(
    postgres_log: Server, tmp_path: Path
) -> None:
    """When the pipeline reads the values, the database has another column, or another type."""
    cursor = postgres(postgres_log)
    run(cursor, "CREATE SCHEMA late_of")
    made(cursor, "late_of", SEEN_LATE)
    given = postgres_command(postgres_log, tmp_path, "late_of", slot="late_of")
    try:
        mirror(given)
        for name, (first, *later) in SEEN_LATE.items():
            altered(cursor, "late_of", {name: [first]}, has_rows=False)
            run(cursor, f"UPDATE late_of.{name} SET f = 12.25")
            altered(cursor, "late_of", {name: later}, has_rows=False)
        done = ran([*given, "--until=caught-up"])
        (held,) = json.loads(done.out.splitlines()[-1])["quarantine"]
        assert (held["table"], done.code) == ("late_of.text", 3)
        assert "the type of a column changed at the source" in held["reason"]
        check(cursor, tmp_path, "late_of", {name: [] for name in SEEN_LATE if name != "text"})
        again = re.findall(r"table is read again. table=postgres.late_of.(\w+)", done.err)
        assert sorted({*again}) == ["again", "gap", "named", "rounded", "text"]
    finally:
        drop_slot(postgres_log, "late_of")


def test_types_of_mariadb_that_the_log_has_as_bytes(
    mariadb_log: Server, quick_heartbeats: None, tmp_path: Path
) -> None:
    """Their texts in the log are those that the server prints."""
    del quick_heartbeats
    cursor, chance = connect(mariadb_log), random.Random(7)
    words = [["0", "0", "0", f"{chance.randrange(1 << 16):x}"] for _ in range(8)]
    addresses = [":".join(chance.choice(each) for each in words) for _ in range(40)]
    addresses += ["::", "::1", "1::", "::ffff:10.0.0.1", "::10.0.0.1", "fe80::1:0:0:1"]
    values = [
        f"({at}, '{UUID(int=chance.getrandbits(128) >> at % 120 << at % 120)}', "
        f"'{chance.randrange(256)}.0.{at}.0', '{address}')"
        for at, address in enumerate(addresses)
    ]
    run(cursor, "CREATE DATABASE bytes_of")
    for name in ("read", "logged"):
        run(cursor, f"CREATE TABLE bytes_of.{name} (id int, u uuid, a inet4, b inet6, "
                    "PRIMARY KEY (u, id))")  # fmt: skip
    run(cursor, f"INSERT INTO bytes_of.read VALUES {', '.join(values)}")
    given = command(mariadb_log, tmp_path, "mysql_sync_database", "bytes_of")
    mirror(given)
    run(cursor, "INSERT INTO bytes_of.logged SELECT * FROM bytes_of.read")
    run(cursor, "INSERT INTO bytes_of.logged (id, u) VALUES (99, UUID())")
    mirror(given)
    check(cursor, tmp_path, "bytes_of", {"read": [], "logged": []})


STATED = (
    "--exclude_column=t.hidden",
    "--column-type=t.n=DECIMAL(20, 4)",
    "--column-type=t.c=STRING",
    "--column-type=t.id=STRING",
)


def stated(cursor: Any, schema: str, given: list[str], warehouse: Path, hidden: str) -> None:
    """One column is left out, and others have types that the user states."""
    table = f"{schema}.t"
    run(cursor, f"CREATE TABLE {table} (id int primary key, hidden {hidden}, n int, c bigint)")
    run(cursor, f"INSERT INTO {table} (id, n, c) VALUES (1, 2, 3)")
    assert "columns=[t.hiden]" in refusal([*given, "--exclude_column=t.hiden"])
    mirror(given)
    run(
        cursor,
        f"INSERT INTO {table} (id, n, c) VALUES (2, 3, 4)",
        f"UPDATE {table} SET hidden = NULL, c = 5 WHERE id = 1",
    )
    mirror(given)
    found = lc.connect(warehouse).get_table("m.t")
    assert [str(each.type) for each in found.context.schema.fields] == [
        "STRING NOT NULL", "DECIMAL(20, 4)", "STRING"
    ]  # fmt: skip
    assert sorted(found.to_arrow().to_pylist(), key=lambda row: str(row["id"])) == [
        {"id": "1", "n": 2, "c": "5"},
        {"id": "2", "n": 3, "c": "4"},
    ]

    run(cursor, f"ALTER TABLE {table} ADD COLUMN pending int")
    checked = ran(["cdc", "check", *given[1:]])
    assert (checked.code, "no problems" in checked.out) == (0, True), checked.out
    typo = "--exclude_column=t.hiden"
    assert "problem: no table has such a column" in ran(["cdc", "check", *given[1:], typo]).out
    again = ran([*given, typo, "--until=caught-up"])
    assert "a flag has no effect" in again.err
    assert "columns=[t.hiden]" in again.err
    run(cursor, f"INSERT INTO {table} (id, pending) VALUES (3, 1)")
    mirror(given)
    run(cursor, f"ALTER TABLE {table} DROP COLUMN pending", f"ALTER TABLE {table} ADD pending date")
    checked = ran(["cdc", "check", *given[1:]])
    assert checked.code == 1
    assert re.search(rf"problem: (\w+\.)?{table}: .*pending", checked.out), checked.out


def test_columns_of_mariadb_with_a_treatment_of_their_own(
    mariadb_log: Server, quick_heartbeats: None, tmp_path: Path
) -> None:
    del quick_heartbeats
    cursor = connect(mariadb_log)
    run(cursor, "CREATE DATABASE stated_of")
    given = command(mariadb_log, tmp_path, "mysql_sync_database", "stated_of", *STATED)
    stated(cursor, "stated_of", [*given, "--mode=combined"], tmp_path, "time(6)")


def test_columns_of_postgres_with_a_treatment_of_their_own(
    postgres_log: Server, tmp_path: Path
) -> None:
    cursor = postgres(postgres_log)
    run(cursor, "CREATE SCHEMA stated_of")
    given = postgres_command(postgres_log, tmp_path, "stated_of", *STATED, slot="stated_of")
    try:
        stated(cursor, "stated_of", given, tmp_path, "int[]")
        shown = ran(["cdc", "status", f"--warehouse={tmp_path}", "--json"])
        assert "lsn" in shown.out
        assert "columns" not in shown.out, "a position for people is a place"
    finally:
        drop_slot(postgres_log, "stated_of")
