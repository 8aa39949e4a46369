"""Tags and branches that Java made: listed, read, written on, deleted and fast-forwarded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lakecore as lc

FIXTURE = Path(__file__).parent / "fixtures" / "tag_branch_consumer_statistics"
MAIN = [(1, "b", 2), (3, "c", 3)]
DEV = [(1, "a", 1), (2, "branch", 2)]


@pytest.fixture(params=["table", "table-head"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> lc.Table:
    return lc.open_table(shutil.copytree(FIXTURE / request.param, tmp_path / "t"))


def held(table: lc.Table, tag: str | None = None) -> list[tuple[object, ...]]:
    return sorted(table.to_polars(tag=tag).rows())


def test_tags_and_branches_are_those_of_java(table: lc.Table) -> None:
    assert [(tag.name, tag.snapshot_id) for tag in table.tags()] == [("v1", 1)]
    assert [branch.name for branch in table.branches()] == ["dev"]
    assert held(table) == MAIN
    assert held(table, "v1") == [(1, "a", 1)]
    assert held(table.branch("dev")) == DEV


def test_tag_of_an_expired_snapshot_goes_and_its_branch_stays(table: lc.Table) -> None:
    table.create_tag("again", snapshot_id=1)
    assert table.delete_tag("v1").files.data_files == 0
    assert held(table, "again") == [(1, "a", 1)]

    assert table.delete_tag("again").files.data_files == 0
    assert held(table.branch("dev")) == DEV

    table.delete_branch("dev")
    assert table.branches() == ()
    assert held(table) == MAIN


def test_branch_is_written_and_becomes_the_state_of_the_table(table: lc.Table) -> None:
    table.branch("dev").write([{"k": 4, "v": "new", "n": 4}])
    table.fast_forward("dev")

    assert held(table) == [*DEV, (4, "new", 4)]
    table.write([{"k": 5, "v": "main", "n": 5}])
    assert held(lc.open_table(table.path)) == [*DEV, (4, "new", 4), (5, "main", 5)]
    assert held(table.branch("dev")) == [*DEV, (4, "new", 4)]
