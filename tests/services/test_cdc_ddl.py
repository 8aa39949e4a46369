"""A random machine of DDL, rows and kills. A seed determines every statement.

The law: each target equals its source table, or the table is in quarantine, and a statement that
no target can follow is the reason. After `resync`, each target equals its source table.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass, field
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
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.servers import Server

FIRST = int(os.environ.get("LAKECORE_CDC_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("LAKECORE_CDC_SEEDS", "1")))
ROUNDS = int(os.environ.get("LAKECORE_CDC_ROUNDS", "2"))
STATEMENTS = 20
TYPES = ("int", "bigint", "varchar(20)", "decimal(10,2)")
WIDER = {"int": "bigint", "varchar(20)": "varchar(60)", "decimal(10,2)": "decimal(14,2)"}
OTHER = {"int": "varchar(20)", "bigint": "varchar(20)", "decimal(10,2)": "int"}


@dataclass
class Model:
    """A table of the source: its columns with their types, and what happened to it.

    `broken`: statements that no target follows. `stale`: statements after which a target keeps what
    its source lacks, as documented: the table is read again at the end.
    """

    name: str
    key: str = "id"
    columns: dict[str, str] = field(default_factory=lambda: {"id": "int", "v": "varchar(20)"})
    parts: bool = False
    gone: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)


class Machine:
    """Random statements on the tables of one schema."""

    def __init__(self, cursor: Any, schema: str, seed: int, *, is_mysql: bool) -> None:
        self.cursor, self.schema, self.is_mysql = cursor, schema, is_mysql
        self.chance = random.Random(seed)
        self.tables: dict[str, Model] = {}
        self.count = 0
        self.log: list[str] = []
        self.run(f"CREATE {'DATABASE' if is_mysql else 'SCHEMA'} {schema}")
        for _ in range(3):
            self.create()

    def run(self, *statements: str) -> None:
        self.log += statements
        for each in statements:
            self.cursor.execute(each)

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def at(self, table: Model) -> str:
        return f"{self.schema}.{table.name}"

    def step(self) -> None:
        """One statement; most of them change rows."""
        table = self.chance.choice(list(self.tables.values()))
        if self.chance.random() < 0.65:
            self.rows(table)
            return
        verbs = [self.add, self.drop, self.rename, self.widen, self.retype, self.truncate]
        verbs += [self.again, self.swapped, self.key, self.copied, self.replaced, self.retarget]
        if self.is_mysql:
            verbs += [self.statement, self.partition]
        self.chance.choice(verbs)(table) if len(self.tables) < 9 else self.add(table)

    # --- rows

    def value(self, table: Model, column: str) -> str:
        kind = table.columns[column]
        if column[0] in "ik":  # it was a key, and may be NOT NULL
            return str(self.chance.randrange(1000))
        if self.chance.random() < 0.1:
            return "NULL"
        number = self.chance.randrange(1000)
        return f"'w{number}'" if kind.startswith("varchar") else str(number)

    def rows(self, table: Model) -> None:
        key, name = self.chance.randrange(40), self.at(table)
        others = [each for each in table.columns if each != table.key]
        match self.chance.randrange(5):
            case 0 | 1:
                listed = ", ".join([table.key, *others])
                values = ", ".join([str(key), *(self.value(table, each) for each in others)])
                self.run(
                    f"DELETE FROM {name} WHERE {table.key} = {key}",
                    f"INSERT INTO {name} ({listed}) VALUES ({values})",
                )
            case 2 if others:
                column = self.chance.choice(others)
                value = self.value(table, column)
                self.run(f"UPDATE {name} SET {column} = {value} WHERE {table.key} % 5 = {key % 5}")
            case 3:
                self.run(f"UPDATE {name} SET {table.key} = {table.key} + 1000 + {self.count} "
                         f"WHERE {table.key} = {key}")  # fmt: skip
                self.count += 2000
            case _:
                self.run(f"DELETE FROM {name} WHERE {table.key} = {key}")

    # --- what a target follows

    def create(self, *, parts: bool = False) -> Model:
        table = Model(self.fresh("t"), parts=parts)
        listed = ", ".join(f"{name} {kind}" for name, kind in table.columns.items())
        ranges = (
            " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (20), "
            "PARTITION p1 VALUES LESS THAN MAXVALUE)"
        )
        self.run(
            f"CREATE TABLE {self.at(table)} ({listed}, PRIMARY KEY (id)){ranges if parts else ''}",
            f"INSERT INTO {self.at(table)} VALUES (1, 'a'), (2, 'b'), (30, NULL)",
        )
        self.tables[table.name] = table
        return table

    def add(self, table: Model) -> None:
        name, kind = self.fresh("c"), self.chance.choice(TYPES)
        if table.gone and self.chance.random() < 0.7:
            name, kind = table.gone.popitem()
        self.run(f"ALTER TABLE {self.at(table)} ADD COLUMN {name} {kind}")
        table.columns[name] = kind

    def _column(self, table: Model, kinds: Any) -> str | None:
        found = [n for n, kind in table.columns.items() if n[0] in "vc" and kind in kinds]
        return self.chance.choice(found) if found else None

    def drop(self, table: Model) -> None:
        if column := self._column(table, table.columns.values()):
            self.run(f"ALTER TABLE {self.at(table)} DROP COLUMN {column}")
            table.gone[column] = table.columns.pop(column)

    def again(self, table: Model) -> None:
        """A column is dropped, and another one gets its name, sometimes in the same statement."""
        if column := self._column(table, table.columns.values()):
            clauses = [f"DROP COLUMN {column}", f"ADD COLUMN {column} {table.columns[column]}"]
            if self.chance.random() < 0.5:
                clauses = [", ".join(clauses)]
            self.run(*(f"ALTER TABLE {self.at(table)} {each}" for each in clauses))

    def swapped(self, table: Model) -> None:
        """A column gets another name, and a new one gets the name that it had."""
        if column := self._column(table, table.columns.values()):
            kind = table.columns[column]
            self.rename(table, column)
            self.run(f"ALTER TABLE {self.at(table)} ADD COLUMN {column} {kind}")
            table.columns[column] = kind

    def _retype(self, table: Model, column: str, kind: str) -> None:
        if self.is_mysql:
            self.run(f"ALTER TABLE {self.at(table)} MODIFY {column} {kind}")
        else:
            self.run(
                f"ALTER TABLE {self.at(table)} ALTER {column} TYPE {kind} USING {column}::{kind}"
            )
        table.columns[column] = kind

    def widen(self, table: Model) -> None:
        if column := self._column(table, WIDER):
            self._retype(table, column, WIDER[table.columns[column]])

    def truncate(self, table: Model) -> None:
        self.run(f"TRUNCATE TABLE {self.at(table)}")

    def copied(self, table: Model) -> None:
        copy = Model(self.fresh("t"), key=table.key, columns=dict(table.columns))
        self.run(f"CREATE TABLE {self.at(copy)} AS SELECT * FROM {self.at(table)}")
        time.sleep(self.chance.choice([0, 0, 0.5]))  # its rows may be passed over: it has no key
        self.run(f"ALTER TABLE {self.at(copy)} ADD PRIMARY KEY ({copy.key})")
        self.tables[copy.name] = copy

    def partition(self, table: Model) -> None:
        del table
        found = [each for each in self.tables.values() if each.parts]
        chosen = self.chance.choice(found) if found else self.create(parts=True)
        self.run(f"ALTER TABLE {self.at(chosen)} TRUNCATE PARTITION p0")

    # --- what a target does not follow

    def rename(self, table: Model, column: str | None = None) -> None:
        if column := column or self._column(table, table.columns.values()):
            name = self.fresh("c")
            self.run(f"ALTER TABLE {self.at(table)} RENAME COLUMN {column} TO {name}")
            table.columns[name] = table.columns.pop(column)
            table.stale.append("a renamed column is a new one")

    def retype(self, table: Model) -> None:
        if column := self._column(table, OTHER):
            kind = OTHER[table.columns[column]]
            table.broken.append(f"{column} becomes {kind}")
            self._retype(table, column, kind)

    def key(self, table: Model) -> None:
        if table.columns[table.key] == "int":
            self._retype(table, table.key, "bigint")
            table.broken.append("the key becomes BIGINT")

    def replaced(self, table: Model) -> None:
        """The table is dropped, and another one of its name comes."""
        self.run(f"DROP TABLE {self.at(table)}")
        table.columns, table.key = {"id": "int", "v": "varchar(20)"}, "id"
        table.gone = {}
        table.parts = False
        table.broken.append("another table has its name")
        self.run(f"CREATE TABLE {self.at(table)} (id int, v varchar(20), PRIMARY KEY (id))")
        self.run(f"INSERT INTO {self.at(table)} VALUES (7, 'x')")

    def retarget(self, table: Model) -> None:
        """The key moves to another column."""
        if table.parts or table.columns[table.key] not in {"int", "bigint"}:
            return
        name = self.fresh("k")
        where = self.at(table)
        drop = "PRIMARY KEY" if self.is_mysql else f"CONSTRAINT {self._constraint(table)}"
        self.run(
            f"ALTER TABLE {where} ADD COLUMN {name} bigint",
            f"UPDATE {where} SET {name} = {table.key}",
            f"ALTER TABLE {where} DROP {drop}",
            f"ALTER TABLE {where} ADD PRIMARY KEY ({name})",
        )
        if not self.is_mysql:
            self.run(f"ALTER TABLE {where} ALTER {table.key} DROP NOT NULL")
        table.columns[name], table.key = "bigint", name
        table.broken.append("another key")
        # The former key stays a column, and its values need not be unique any more.

    def _constraint(self, table: Model) -> str:
        self.cursor.execute(
            f"SELECT conname FROM pg_constraint WHERE contype = 'p' "
            f"AND conrelid = '{self.at(table)}'::regclass"
        )
        return str(self.cursor.fetchone()[0])

    def statement(self, table: Model) -> None:
        if column := self._column(table, {"varchar(20)", "varchar(60)"}):
            self.run(
                f"USE {self.schema}",
                "SET SESSION binlog_format = STATEMENT",
                f"UPDATE {table.name} SET {column} = 'logged' WHERE {table.key} < 10",
                "SET SESSION binlog_format = ROW",
            )
            table.broken.append("a statement in the log")

    # --- the law

    def rows_of(self, table: Model) -> dict[object, dict[str, object]]:
        listed = ", ".join(table.columns)
        self.cursor.execute(f"SELECT {listed} FROM {self.at(table)}")
        rows = [dict(zip(table.columns, row, strict=True)) for row in self.cursor.fetchall()]
        return {row[table.key]: row for row in rows}


def rows_in(warehouse: Path, table: Model) -> dict[object, dict[str, object]]:
    found = lc.connect(warehouse).get_table(f"m.{table.name}").to_arrow().to_pylist()
    return {row[table.key]: {n: row.get(n) for n in table.columns} for row in found}


def play(machine: Machine, warehouse: Path, given: list[str]) -> None:
    mirror(given)
    for _ in range(ROUNDS):
        process = subprocess.Popen(program(given), env=environment(), stderr=subprocess.DEVNULL)
        for _ in range(STATEMENTS):
            machine.step()
            time.sleep(0.02)
        time.sleep(machine.chance.random())
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    done = ran([*given, "--until=caught-up"])
    assert done.code in {0, 3}, done.err
    assert json.loads(done.out.splitlines()[-1])["caught_up"], "a signal ended the pipeline"
    held = {each["table"].rpartition(".")[2]: each for each in quarantine_of(warehouse)}
    for name, table in machine.tables.items():
        if name in held:
            assert table.broken or table.stale, (name, held[name])
        elif not table.stale:
            assert rows_in(warehouse, table) == machine.rows_of(table), name
    again = [table for table in machine.tables.values() if table.name in held or table.stale]
    for table in again:
        if table.broken:
            lc.connect(warehouse).drop_table(f"m.{table.name}", ignore_if_not_exists=True)
    if again:
        names = ",".join(f"{machine.schema}.{each.name}" for each in again)
        label = f"{given[1]}-m"
        asked = ran(["cdc", "resync", label, f"--warehouse={warehouse}", f"--tables={names}"])
        assert asked.code == 0, asked.err
        last = mirror(given)
        assert (last["quarantine"], last["not_read_again"]) == ([], {})
    for name, table in machine.tables.items():
        assert rows_in(warehouse, table) == machine.rows_of(table), name


def quarantine_of(warehouse: Path) -> list[dict[str, Any]]:
    done = ran(["cdc", "status", f"--warehouse={warehouse}", "--json"])
    found: list[dict[str, Any]] = json.loads(done.out.splitlines()[-1])["quarantine"]
    return found


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """For every second seed, a table is read again in several ranges."""
    if seed % 2 == 0:
        monkeypatch.setenv("LAKECORE_CDC_RANGE_ROWS", str(1 + seed % 7))


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("seed", SEEDS)
def test_tables_of_mariadb_are_equal_or_set_aside(
    mariadb_log: Server, quick_heartbeats: None, tmp_path: Path, seed: int
) -> None:
    del quick_heartbeats
    machine = Machine(connect(mariadb_log), f"machine_{seed}", seed, is_mysql=True)
    given = command(
        mariadb_log, tmp_path, "mysql_sync_database", machine.schema,
        "--mode=combined", "--interval=0.2 s",
    )  # fmt: skip
    play(machine, tmp_path, given)


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("seed", SEEDS)
def test_tables_of_postgres_are_equal_or_set_aside(
    postgres_log: Server, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakecore.cdc.postgres.source._LOOK_MS", 200)
    if seed % 3:  # also in the processes that are killed
        monkeypatch.setenv("LAKECORE_CDC_LOOK_MS", str(seed % 3 * 50))
    machine = Machine(postgres(postgres_log), f"machine_{seed}", seed, is_mysql=False)
    given = postgres_command(
        postgres_log, tmp_path, machine.schema, "--interval=0.2 s", slot=machine.schema
    )
    try:
        play(machine, tmp_path, given)
    finally:
        drop_slot(postgres_log, machine.schema)
