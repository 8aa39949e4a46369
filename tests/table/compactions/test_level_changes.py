"""A full-compaction changelog adds up, whatever number of levels who compacts goes by."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import polars as pl
import pytest

import lakecore as lc
from lakecore.model.schema_change import SchemaChange
from lakecore.testing import apply_changes, assert_same_rows

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.handle import Table

TRIGGER, LEVELS = "num-sorted-run.compaction-trigger", "num-levels"


def made(path: Path, **options: str) -> tuple[lc.Session, Table]:
    session = lc.connect(path, create=True)
    session.create_database("d")
    stated = {
        "bucket": "1",
        "changelog-producer": "full-compaction",
        **{key.replace("_", "-"): text for key, text in options.items()},
    }
    columns = {"id": "INT NOT NULL", "v": "INT"}
    return session, session.create_table("d.t", columns, primary_keys=["id"], options=stated)


@pytest.mark.parametrize(("option", "value"), [(TRIGGER, "10"), (LEVELS, "9"), (LEVELS, "2")])
def test_other_number_of_levels_tells_no_row_twice(tmp_path: Path, option: str, value: str) -> None:
    session, table = made(tmp_path)
    table.write([{"id": key, "v": 0} for key in (1, 2, 3)])
    table.compact(full=True)
    session.alter_table("d.t", [SchemaChange.set_option(option, value)])
    table = session.get_table("d.t")
    ((_, state),) = table.stream(until="latest")

    table.write([{"id": 2, "v": 5}])
    table.delete("id = 3")
    table.compact(full=True)

    assert state.collect().rows() == [("+I", 1, 0), ("+I", 2, 0), ("+I", 3, 0)]
    assert table.changes(2).collect().rows() == [("-U", 2, 0), ("+U", 2, 5), ("-D", 3, 0)]


def test_trigger_of_one_object_leaves_the_changelog_as_it_is(tmp_path: Path) -> None:
    _, table = made(tmp_path, write_only="true")
    for turn in range(4):
        table.write([{"id": key, "v": turn} for key in range(4)])
    table.copy({TRIGGER: "4"}).compact()
    table.delete("id = 3")
    table.write([{"id": 2, "v": 9}])
    table.compact(full=True)

    assert_same_rows(apply_changes(table.changes(), ["id"]), table)


def test_fewer_levels_keep_full_compactions_due(tmp_path: Path) -> None:
    options = {"full-compaction.delta-commits": "3", TRIGGER: "2", LEVELS: "6"}
    session, table = made(tmp_path, **options)
    noise = random.Random(1)
    table.write([{"id": key, "v": noise.randrange(1 << 31)} for key in range(5_000)])
    table.compact(full=True)
    session.alter_table("d.t", [SchemaChange.set_option(LEVELS, "3")])
    table = session.get_table("d.t")
    for key in range(9):
        table.write([{"id": 100_000 + key, "v": 0}])

    told = apply_changes(table.changes(), ["id"])
    assert table.count() - told.num_rows < 3


@pytest.mark.parametrize("seed", range(16))
def test_changelog_adds_up_however_levels_are_counted(tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    session, table = made(tmp_path, **{TRIGGER: drawn.choice("25")})
    known = []
    for _ in range(14):
        match drawn.randrange(6):
            case 0:
                change = SchemaChange.set_option(LEVELS, drawn.choice(["2", "3", "4", "9"]))
                session.alter_table("d.t", [change])
                table = session.get_table("d.t")
            case 1:
                table.compact(full=drawn.random() < 0.5)
            case 2:
                table.copy({LEVELS: drawn.choice(["2", "3", "7"])}).compact()
            case 3:
                table.delete(pl.col("id") % 5 == drawn.randrange(5))
            case _:
                size = drawn.choice([1, 4, 400])
                keys = sorted(drawn.sample(range(500), size))
                table.write([{"id": key, "v": drawn.randrange(9)} for key in keys])
        for number, state in table.stream(until="latest"):
            known.append((number, apply_changes(state, ["id"])))
    table.compact(full=True)

    assert_same_rows(apply_changes(table.changes(), ["id"]), table)
    for number, rows in known:
        assert_same_rows(apply_changes(table.changes(number), ["id"], rows), table)
