"""A table of a real server is read again in ranges, while its rows change and processes die."""

from __future__ import annotations

import os
import random
import re
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.cdc.mysql.source import MySqlSource
from lakecore.cdc.postgres.source import PostgresSource
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
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.cdc.events import Step

WITHIN_SECONDS = 120
SEEDS = range(int(os.environ.get("LAKECORE_CDC_SEEDS", "2")))
ROWS = 16


@dataclass
class Mirror:
    """A schema of a server with the tables `big` and `other`, and its pipeline."""

    schema: str
    cursor: Any
    given: list[str]
    warehouse: Path
    source: type[Any]

    def run(self, *statements: str) -> None:
        for each in statements:
            self.cursor.execute(each.replace("big", f"{self.schema}.big")
                                .replace("other", f"{self.schema}.other"))  # fmt: skip

    def fill(self) -> None:
        """Rows with negative keys, and many rows of one first value."""
        keys = [(first, second) for first in range(-30, 31) for second in range(1 + first % 3)]
        keys += [(2, second) for second in range(100, 150)]
        listed = ", ".join(f"({first}, {second}, 'first')" for first, second in keys)
        self.run(
            "CREATE TABLE big (a int, b int, v varchar(20), PRIMARY KEY (a, b))",
            "CREATE TABLE other (a int PRIMARY KEY, v varchar(20))",
            f"INSERT INTO big VALUES {listed}",
            "INSERT INTO other VALUES (1, 'first')",
        )

    def damage(self) -> None:
        """Rows of the target of `big` are changed by somebody."""
        keys = [(first, second) for first in range(-20, 20, 3) for second in (0, 1, 120, 700)]
        columns = [pa.array(each, pa.int32()) for each in zip(*keys, strict=True)]
        wrong = pa.table([*columns, ["wrong"] * len(keys)], ["a", "b", "v"])
        lc.connect(self.warehouse).get_table("m.big").write(wrong)

    def resync(self, tables: str = "big") -> None:
        name = f"{self.given[1]}-m"
        done = ran(["cdc", "resync", name, f"--warehouse={self.warehouse}", f"--tables={tables}"])
        assert done.code == 0, done.err

    @property
    def requested(self) -> bool:
        return any((self.warehouse / ".cdc" / f"{self.given[1]}-m").glob("resync-*.json"))

    def change(self, chance: random.Random) -> None:
        """A random statement on each of the tables."""
        first, second = chance.randrange(-40, 40), chance.choice([0, 1, 110, 120, 200])
        at, value = f"a = {first} AND b = {second}", f"'v{chance.randrange(1000)}'"
        row = f"{first}, {second}, {value}"
        statements = (
            (f"DELETE FROM big WHERE {at}", f"INSERT INTO big VALUES ({row})"),
            (f"UPDATE big SET v = {value} WHERE a % 4 = {first % 4}",),
            (f"DELETE FROM big WHERE a = {first}",),
            (f"UPDATE big SET b = b + {1000 + chance.randrange(10**6)} WHERE {at}",),
            (f"DELETE FROM big WHERE a = 2 AND b % 3 = {second % 3}",),
        )
        chosen = chance.choice([*statements, *statements[:1] * 4])
        self.run(*chosen, f"UPDATE other SET v = {value}")

    def check(self) -> None:
        for name in ("big", "other"):
            self.run(f"SELECT * FROM {name}")
            found = lc.connect(self.warehouse).get_table(f"m.{name}").to_arrow().to_pylist()
            mirrored = sorted(tuple(each.values()) for each in found)
            assert mirrored == sorted(self.cursor.fetchall()), name


@pytest.fixture(params=["mariadb", "postgres"])
def mirrored(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mirror]:
    """A pipeline that has caught up, and whose target of `big` was then damaged."""
    monkeypatch.setenv("LAKECORE_CDC_RANGE_ROWS", str(ROWS))
    server = request.getfixturevalue(f"{request.param}_log")
    schema = f"ranges_{abs(hash(tmp_path)) % 10**9}"
    if request.param == "mariadb":
        request.getfixturevalue("quick_heartbeats")
        cursor, source = connect(server), MySqlSource
        given = command(server, tmp_path, "mysql_sync_database", schema, "--interval=0.2 s")
        cursor.execute(f"CREATE DATABASE {schema}")
    else:
        cursor, source = postgres(server), PostgresSource  # type: ignore[assignment]
        given = postgres_command(server, tmp_path, schema, "--interval=0.2 s", slot=schema)
        cursor.execute(f"CREATE SCHEMA {schema}")
    found = Mirror(schema, cursor, given, tmp_path, source)
    found.fill()
    mirror(given)
    found.damage()
    yield found
    if request.param == "postgres":
        drop_slot(server, schema)


def test_changes_of_another_table_are_committed_between_two_ranges(
    mirrored: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = mirrored.source.read_again
    starts: list[int | None] = []
    seen: list[str] = []

    def meanwhile(self: Any, table: Any, after: Any, start: int | None = None) -> Iterator[Step]:
        other = lc.connect(mirrored.warehouse).get_table("m.other")
        seen.append(other.to_arrow().to_pylist()[0]["v"])
        for number, step in enumerate(read(self, table, after, start)):
            yield step
            mirrored.run(
                f"UPDATE other SET v = 'range {len(starts)}'",
                f"UPDATE big SET v = 'range {len(starts)}' WHERE (a + b) % 5 = {number}",
                f"DELETE FROM big WHERE a = {16 - 2 * len(starts)}",
                f"INSERT INTO big VALUES ({-140 + len(starts)}, {number}, 'new')",
            )
        starts.append(start)

    monkeypatch.setattr(mirrored.source, "read_again", meanwhile)
    mirrored.resync()
    # On a busy machine, a short interval is over before the pipeline has caught up.
    mirror([each.replace("--interval=0.2 s", "--interval=60 s") for each in mirrored.given])

    assert starts[0] is None
    assert len(starts) > 5
    assert starts.index(2) == starts.index(3) - 1, "all rows of one value are in one range"
    assert seen == ["first", *(f"range {number}" for number in range(len(starts) - 1))]
    mirrored.check()


def ranges(told: Path) -> list[int]:
    """The ends of the ranges that processes have read."""
    return [int(each) for each in re.findall(r"up_to=(-?\d+)", told.read_text())]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_equals_its_source_after_kills_and_random_changes(
    mirrored: Mirror, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, several ranges are read before a kill: there are enough.
    monkeypatch.setenv("LAKECORE_CDC_RANGE_ROWS", str(ROWS // 2))
    chance = random.Random(seed)
    mirrored.resync()
    told = mirrored.warehouse / "told"
    told.touch()
    ends = time.monotonic() + WITHIN_SECONDS
    kills = 0
    while mirrored.requested:
        done = len(ranges(told))
        goal = chance.choice([1, 2, 3]) if kills < 4 else 1000
        with told.open("a") as log:
            process = subprocess.Popen(program(mirrored.given), env=environment(), stderr=log)
        while len(ranges(told)) - done < goal and mirrored.requested:
            assert time.monotonic() < ends, told.read_text()
            mirrored.change(chance)
            time.sleep(0.02)
        if goal == 2:
            mirrored.run("DELETE FROM big WHERE a % 5 <> 0")
        process.kill()
        process.wait()
        kills += 1
    mirror(mirrored.given)

    starts = ranges(told)
    assert len(starts) > 3
    assert starts == sorted(starts), "a kill repeats no range that was committed"
    assert kills > 2
    mirrored.check()


def test_a_table_that_is_truncated_or_altered_meanwhile(
    mirrored: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = mirrored.source.read_again
    starts: list[int | None] = []

    def meanwhile(self: Any, table: Any, after: Any, start: int | None = None) -> Iterator[Step]:
        starts.append(start)
        if len(starts) == 3:
            mirrored.run(
                "UPDATE big SET v = 'before'",
                "ALTER TABLE big ADD COLUMN w varchar(9) DEFAULT 'new'",
            )
        yield from read(self, table, after, start)
        if len(starts) == 5:
            mirrored.run(
                "UPDATE big SET v = 'gone'",
                "TRUNCATE TABLE big",
                *(f"INSERT INTO big VALUES ({each}, 0, 'after', 'w')" for each in range(-30, 30)),
            )

    monkeypatch.setattr(mirrored.source, "read_again", meanwhile)
    mirrored.resync()
    mirror(mirrored.given)

    assert starts[3] is None
    assert len(starts) > 7
    mirrored.check()
