"""Which files of an append table go together: Java Paimon decides as we do, on hundreds of buckets.

`packing/java-VERSION.jsonl`, a case a line, is what `tests/interop/record_packing.py` wrote and
explains.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.lsm.packing import PackingPolicy, pick_adjacent_full, pick_small, picks_adjacent
from lakecore.model.files import DataFile
from lakecore.options import parse_options

if TYPE_CHECKING:
    from lakecore.lsm.packing import Group

TRACES = sorted((Path(__file__).parent / "packing").glob("*.jsonl"))


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
