"""Which files of an append table go together: Java Paimon decides as we do, on hundreds of buckets.

`packing/java-VERSION.jsonl`, a case a line, is what `tests/interop/record_packing.py` wrote and
explains. And the fixtures: a scenario of a bucket in order is played whole; tables of Java's that
have no key are packed, or refused by what stands in the way.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.lsm.packing import PackingPolicy, pick_adjacent_full, pick_small, picks_adjacent
from lakecore.model.files import DataFile
from lakecore.options import parse_options
from tests.golden.test_replays import Scenario, alike, canonical, common, described, play

if TYPE_CHECKING:
    from lakecore.lsm.packing import Group

TRACES = sorted((Path(__file__).parent / "packing").glob("*.jsonl"))
FIXTURES = Path(__file__).parent / "fixtures"


@dataclass(frozen=True)
class Case:
    """One recorded bucket."""

    recorded: dict[str, Any]

    @property
    def policy(self) -> PackingPolicy:
        return PackingPolicy.of(parse_options(self.recorded["options"]))

    @property
    def files(self) -> list[DataFile]:
        return [
            DataFile(
                name=str(number),
                size_bytes=size,
                row_count=10,
                sequence_min=10 * number,
                sequence_max=10 * number + 9,
                schema_id=0,
            )
            for number, size in enumerate(self.recorded["sizes"])
        ]


def numbers(group: Group) -> list[int]:
    return [int(file.name) for file in group]


@pytest.fixture(params=TRACES, ids=lambda trace: trace.stem)
def trace(request: pytest.FixtureRequest) -> list[Case]:
    return [Case(json.loads(line)) for line in request.param.read_text().splitlines()]


def test_java_groups_the_same_small_files(trace: list[Case]) -> None:
    assert len(trace) == 300
    for case in trace:
        groups = sorted(numbers(group) for group in pick_small(case.files, case.policy))

        assert groups == case.recorded["small"], case.recorded


def test_java_picks_the_same_neighbours(trace: list[Case]) -> None:
    for case in trace:
        picks = [numbers(group) for group in picks_adjacent(case.files, case.policy)]

        assert picks == case.recorded["picks"], case.recorded


def test_java_takes_the_same_files_in_full(trace: list[Case]) -> None:
    for case in trace:
        group = pick_adjacent_full(case.files, case.policy)

        assert (None if group is None else numbers(group)) == case.recorded["full"], case.recorded


def test_recorded_buckets_are_of_all_kinds(trace: list[Case]) -> None:
    for decision in ("small", "picks", "full"):
        taken = sum(bool(case.recorded[decision]) for case in trace)

        assert 0.2 < taken / len(trace) < 0.8


# --- fixtures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", ["expected.json", "expected-head.json"])
def test_scenario_of_buckets_in_order_makes_the_snapshots_and_files_that_java_made(
    expected: str, tmp_path: Path
) -> None:
    scenario = Scenario(f"append_fixed_bucket/{expected}")
    content = json.loads((FIXTURES / "append_fixed_bucket" / expected).read_text("utf-8"))
    java = {
        kind: {line["snapshot"]: line for line in content["results"] if line["line"] == kind}
        for kind in ("snapshot", "files", "read")
    }
    table = lc.open_table(
        tmp_path / "t",
        create=True,
        schema={column.name: column.type.text for column in scenario.columns},
        options=scenario.schema["options"],
    )
    for step in content["scenario"]["steps"]:
        if step["op"] == "write":
            play(table, step, scenario.columns)
        else:
            table.compact(full=step["full"])
    history = table.context.history
    latest = history.latest_snapshot()
    assert latest is not None

    assert latest.id == max(java["snapshot"]) == 6
    for number, line in java["snapshot"].items():
        snapshot = history.snapshot(number)

        assert (snapshot.commit_kind, snapshot.total_record_count, snapshot.delta_record_count) == (
            line["kind"],
            line["totalRecords"],
            line["deltaRecords"],
        )
        ours, theirs = common(
            [
                alike(described(entry, table, scenario), scenario)
                for entry in history.live_entries(snapshot)
            ],
            [alike(canonical(each, scenario), scenario) for each in java["files"][number]["data"]],
        )
        assert ours == theirs


@pytest.mark.parametrize("kind", ["table", "table-head"])
@pytest.mark.parametrize(
    "name",
    [
        "append_all_types_orc",
        "append_all_types_parquet",
        "append_fixed_bucket",
    ],
)
def test_table_of_java_keeps_its_rows(name: str, kind: str, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / name / kind, tmp_path / "t")
    table = lc.open_table(tmp_path / "t")
    before = table.to_arrow()
    options = {"compaction.force-rewrite-all-files": "true"}

    result = table.copy(options).compact(full=True)

    assert result.rows_after == result.rows_before == before.num_rows
    assert result.files_after == result.buckets
    assert table.to_arrow().equals(before)


@pytest.mark.parametrize("name", ["append_deletion_vectors", "head_append_dv_bitmap64"])
def test_deletion_vectors_of_java_are_added_to_and_dropped(name: str, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / name / "table-head", tmp_path / "t")
    table = lc.open_table(tmp_path / "t")
    before = table.to_polars().sort("k")
    gone = min(before["k"].to_list())
    table.delete(f"k = {gone}")
    left = before.filter(before["k"] != gone)

    assert table.inspect.table_indexes().height
    assert table.to_polars().sort("k").equals(left)
    table.compact(full=True)
    assert table.to_polars().sort("k").equals(left)
    assert not table.inspect.table_indexes().height
    assert table.inspect.files()["record_count"].sum() == left.height


def test_rows_of_java_keep_their_ids(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "head_row_tracking" / "table-head", tmp_path / "t")
    table = lc.open_table(tmp_path / "t")
    ids = table.inspect.system_table("row_tracking")
    before = ids.to_polars().sort("_ROW_ID")

    table.compact(full=True)

    assert table.inspect.files().height == 1
    assert ids.to_polars().sort("_ROW_ID").equals(before)
