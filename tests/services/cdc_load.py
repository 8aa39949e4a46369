"""A random load of changes over several tables of MariaDB, and what the targets must equal.

A seed determines every statement: rows of all types, changes of keys, deletions, transactions with
savepoints and rollbacks, and DDL between them. Values come from a pool for each type, as literals
of SQL, and rows are compared column by column: the load must not be what takes the time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    import lakecore as lc

TYPES = {
    "ti": "tinyint(1)",
    "tu": "tinyint unsigned",
    "su": "smallint unsigned",
    "mi": "mediumint",
    "bu": "bigint unsigned",
    "d": "decimal(30,10)",
    "f": "float",
    "g": "double",
    "v": "varchar(40)",
    "l": "varchar(40) character set latin1",
    "x": "text",
    "b": "varbinary(20)",
    "dt": "date",
    "dm": "datetime(6)",
    "ts": "timestamp(3) null",
    "tm": "time(3)",
    "y": "year",
    "bt": "bit(20)",
    "e": "enum('a','b','ü')",
    "s": "set('p','q','r')",
    "j": "json",
}
POOL = 64
WIDER = {"int": "bigint", "varchar(30)": "varchar(60)", "decimal(10,2)": "decimal(14,2)"}
ADDED = ("int", "varchar(30)", "decimal(10,2)", "datetime(3)", "double", "set('u','v')")


def value(kind: str, chance: random.Random) -> object:  # noqa: C901, PLR0912 - a case a type
    """A value that the column takes, mostly; null for one in eight."""
    if chance.random() < 0.125:
        return None
    name = kind.split("(", maxsplit=1)[0].split(maxsplit=1)[0]
    match name:
        case "tinyint" if "(1)" in kind:
            return chance.choice([0, 1])
        case "tinyint":
            return chance.choice([0, 255, chance.randrange(256)])
        case "smallint":
            return chance.choice([0, 65535])
        case "mediumint":
            return chance.choice([-8388608, 8388607, -1])
        case "int":
            return chance.randrange(-(2**31), 2**31)
        case "bigint":
            return chance.choice([0, 2**64 - 1, chance.randrange(2**64)])
        case "decimal":
            whole = chance.choice([0, 1, 99999999, -(10**7)])
            return f"{whole}.{chance.randrange(100):02}"
        case "float" | "double":
            return chance.choice([0.1, -1.5e30, 3.0, chance.random()])
        case "varchar" if "latin1" in kind:
            return chance.choice(["", "é€ü", "plain"])
        case "varchar" | "text":
            return chance.choice(["", "😀 four bytes", "x" * chance.randrange(30), "a'b\\c\n"])
        case "varbinary":
            return chance.choice([b"", b"\0\xff", chance.randbytes(10)])
        case "date":
            return chance.choice(["0000-00-00", "2024-02-29", "1000-01-01", "9999-12-31"])
        case "datetime":
            return chance.choice(["0000-00-00 00:00:00", "2024-02-29 12:34:56.789"])
        case "timestamp":
            return chance.choice(["2024-02-29 12:34:56.789", "2038-01-19 03:14:07.999"])
        case "time":
            return chance.choice(["00:00:00", "23:59:59.999", "01:02:03.4"])
        case "year":
            return chance.choice([0, 1901, 2155])
        case "bit":
            return chance.randrange(2**20)
        case "enum":
            return chance.choice(["a", "b", "ü", ""])
        case "set":
            names = kind.partition("(")[2].rstrip(")").replace("'", "").split(",")
            return ",".join(each for each in names if chance.random() < 0.5)
        case _:
            return chance.choice(['{"a": 1}', "[1, null]", '"ü"'])


@dataclass
class Keys:
    """The keys of a table: any of them can be drawn, or removed, at once."""

    listed: list[int] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    greatest: int = 0

    def add(self, key: int) -> None:
        self.places[key] = len(self.listed)
        self.listed.append(key)
        self.greatest = max(self.greatest, key)

    def remove(self, key: int) -> None:
        place, last = self.places.pop(key), self.listed.pop()
        if last != key:
            self.listed[place] = last
            self.places[last] = place

    def undo(self, done: list[tuple[int, bool]]) -> None:
        """Take back additions (True) and removals (False)."""
        for key, added in reversed(done):
            (self.remove if added else self.add)(key)


@dataclass
class Load:
    """The tables of a database, and how they are changed."""

    connect: dict[str, Any]
    database: str
    count: int
    seed: int = 1
    columns: dict[str, dict[str, str]] = field(default_factory=dict)
    keys: dict[str, Keys] = field(default_factory=dict)
    pools: dict[str, list[str]] = field(default_factory=dict)
    done: list[tuple[int, bool]] = field(default_factory=list)
    added: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.reconnect()
        self.run(f"CREATE DATABASE {self.database}")
        for number in range(self.count):
            name = f"t{number}"
            self.columns[name] = dict(TYPES)
            listed = ", ".join(f"{column} {kind}" for column, kind in TYPES.items())
            # One table in three has a key that is no integer, one an index by two columns.
            key = ("id int primary key", "id varchar(20) primary key", "id int, k2 int default 0")
            more = ", primary key (id, k2)" if number % 3 == 2 else ""
            self.run(f"CREATE TABLE {self.database}.{name} ({key[number % 3]}, {listed}{more})")
            self.keys[name] = Keys()

    def reconnect(self) -> None:
        pymysql = import_module("pymysql")
        self.connection = pymysql.connect(**self.connect, charset="utf8mb4", autocommit=True)
        self.cursor = self.connection.cursor()
        self.cursor.execute("SET sql_mode=''")

    def run(self, text: str) -> None:
        self.cursor.execute(text)

    def literals(self, kind: str, count: int) -> list[str]:
        """Random values of a type, as SQL."""
        pool = self.pools.get(kind)
        if pool is None:
            escape = self.connection.escape
            pool = [escape(value(kind, self.chance)) for _ in range(POOL)]
            self.pools[kind] = pool
        return self.chance.choices(pool, k=count)

    def insert(self, table: str, keys: list[int]) -> None:
        columns = self.columns[table]
        drawn = [self.literals(kind, len(keys)) for kind in columns.values()]
        rows = (f"({','.join(row)})" for row in zip(map(str, keys), *drawn, strict=True))
        self.run(
            f"INSERT INTO {self.database}.{table} (id, {', '.join(columns)}) VALUES "
            + ",".join(rows)
        )

    def change(self) -> int:
        """One random transaction; returns how many rows it changed."""
        table = self.chance.choice(list(self.columns))
        keys = self.keys[table]
        self.done = []
        count = 0
        self.run("BEGIN")
        for _ in range(self.chance.choice([1, 1, 2, 5])):
            if self.chance.random() < 0.1:
                self.run("SAVEPOINT s")
                self.insert(table, [keys.greatest + 1])
                self.run("ROLLBACK TO SAVEPOINT s")
            count += self._statement(table, keys)
        if self.chance.random() < 0.1:
            self.run("ROLLBACK")
            keys.undo(self.done)
            return 0
        self.run("COMMIT")
        return count

    def _add(self, keys: Keys, key: int) -> None:
        keys.add(key)
        self.done.append((key, True))

    def _remove(self, keys: Keys, key: int) -> None:
        keys.remove(key)
        self.done.append((key, False))

    def _statement(self, table: str, keys: Keys) -> int:
        draw = self.chance.random()
        if draw < 0.45 or len(keys.listed) < 5:
            start = keys.greatest + self.chance.choice([1, 1, 50])
            fresh = [start + at for at in range(self.chance.choice([1, 3, 20]))]
            self.insert(table, fresh)
            for key in fresh:
                self._add(keys, key)
            return len(fresh)
        some = self.chance.sample(keys.listed, min(len(keys.listed), self.chance.choice([1, 4])))
        name = f"{self.database}.{table}"
        listed = ", ".join(f"'{key}'" for key in some)  # a text also finds an integer by its index
        if draw < 0.8:
            column = self.chance.choice(list(self.columns[table]))
            (new,) = self.literals(self.columns[table][column], 1)
            self.run(f"UPDATE {name} SET {column} = {new} WHERE id IN ({listed})")
        elif draw < 0.9:
            self.run(f"DELETE FROM {name} WHERE id IN ({listed})")
            for key in some:
                self._remove(keys, key)
        else:
            new_key = keys.greatest + 1
            self.run(f"UPDATE {name} SET id = {new_key} WHERE id = '{some[0]}'")
            self._remove(keys, some[0])
            self._add(keys, new_key)
            return 1
        return len(some)

    def define(self) -> None:
        """One random DDL statement: a column is added, widened or dropped."""
        table = self.chance.choice(list(self.columns))
        name = f"{self.database}.{table}"
        draw = self.chance.random()
        columns = self.columns[table]
        new = [column for column in columns if column.startswith("n")]
        if draw < 0.5 or not new:
            self.added += 1
            kind = self.chance.choice(ADDED)
            after = self.chance.choice(list(columns))
            self.run(f"ALTER TABLE {name} ADD COLUMN n{self.added} {kind} AFTER {after}")
            columns[f"n{self.added}"] = kind
        elif draw < 0.7:
            column = self.chance.choice(new)
            if columns[column] in WIDER:
                columns[column] = WIDER[columns[column]]
                self.run(f"ALTER TABLE {name} MODIFY {column} {columns[column]}")
        else:
            column = self.chance.choice(new)
            self.run(f"ALTER TABLE {name} DROP COLUMN {column}")
            del columns[column]

    def rows(self, table: str) -> pa.Table:
        """The rows at the source as texts, by the columns that it has now."""
        kinds = {"id": "int", **self.columns[table]}
        listed = ", ".join(_printed(column, kind) for column, kind in kinds.items())
        pymysql = import_module("pymysql")
        raw = pymysql.connect(
            **self.connect, charset="utf8mb4", autocommit=True, conv={}, use_unicode=False
        )
        cursor = raw.cursor()
        cursor.execute("SET time_zone='+00:00'")
        cursor.execute(f"SELECT {listed} FROM {self.database}.{table}")
        columns = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(kinds)
        raw.close()
        return _sorted(
            {
                column: _each(pa.array(values, pa.binary()).cast(pa.string()), _floated(kind))
                for (column, kind), values in zip(kinds.items(), columns, strict=True)
            }
        )


def target_rows(session: lc.Session, table: str, columns: dict[str, str]) -> pa.Table:
    """The rows of a target, as `Load.rows` prints those of its source."""
    found = session.get_table(table).to_arrow()
    printed = {}
    for column, kind in {"id": "int", **columns}.items():
        if column not in found.column_names:
            printed[column] = pa.nulls(found.num_rows, pa.string())
            continue
        values = found.column(column).combine_chunks()
        if pa.types.is_list(values.type):
            printed[column] = pc.binary_join(values, ",")
        else:
            printed[column] = _each(values, partial(_text, kind=kind))
    return _sorted(printed)


def difference(source: pa.Table, target: pa.Table) -> str:
    """Where two tables differ; empty if they are equal."""
    if source.num_rows != target.num_rows:
        return f"rows: {source.num_rows} at the source, {target.num_rows} in the target"
    for name in source.column_names:
        pairs = zip(source["id"], source[name], target["id"], target[name], strict=True)
        if source[name] != target[name]:
            unequal = [tuple(each.as_py() for each in pair) for pair in pairs if pair[1] != pair[3]]
            return f"{name}: {len(unequal)} rows, such as {unequal[:5]}"
    return ""


def _sorted(columns: dict[str, pa.Array]) -> pa.Table:
    return pa.table(columns).sort_by("id").combine_chunks()


def _each(values: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    """The texts of values; equal values are printed once."""
    encoded = values.dictionary_encode()
    texts = [None if each is None else text(each) for each in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _floated(kind: str) -> Callable[[Any], str]:
    return (lambda given: str(float(given))) if kind in {"float", "double"} else str


def _printed(column: str, kind: str) -> str:
    """The text of a column in the form that `target_rows` uses."""
    name = kind.split("(", maxsplit=1)[0].split(maxsplit=1)[0]
    match name:
        case "float" | "double":
            return f"{column} + 0e0"
        case "bit":
            return f"HEX({column} + 0)"
        case "varbinary":
            return f"HEX({column})"
        case "date" | "datetime":
            return f"IF({column} = '0000-00-00', NULL, CAST({column} AS CHAR))"
        case _:
            return f"CAST({column} AS CHAR)"


def _text(given: Any, kind: str) -> str:
    name = kind.split("(", maxsplit=1)[0].split(maxsplit=1)[0]
    digits = int(kind.partition("(")[2].rstrip(")").partition(")")[0] or 0) if name in {
        "datetime", "timestamp", "time"} else 0  # fmt: skip
    match name:
        case "tinyint" if "(1)" in kind:
            return str(int(given))
        case "float" | "double":
            return str(float(given))
        case "bit":
            return f"{int.from_bytes(given, 'big'):X}"
        case "varbinary":
            return str(given.hex().upper())
        case "datetime" | "timestamp" | "time":
            form = "%H:%M:%S" if name == "time" else "%Y-%m-%d %H:%M:%S"
            whole = str(given.strftime(form))
            return whole + (f".{given.microsecond:06}"[: digits + 1] if digits else "")
        case "date":
            return str(given)
        case "year":
            return f"{given:04}"
        case "decimal":
            return f"{given:f}"
        case _:
            return str(given)
