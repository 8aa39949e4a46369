"""Java Paimon's compaction decisions on hundreds of buckets are ours.

`picking/java-VERSION.jsonl`, a case a line, is what `tests/interop/record_picking.py` wrote and
explains. `java-1.4.2` is that release; `java-2.1` has the rule that 2.1 brings.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.lsm.levels import SortedRun, level_runs
from lakecore.lsm.universal import (
    CompactionPolicy,
    Moment,
    Reason,
    Rewrite,
    Step,
    pick,
    pick_full,
    unit_steps,
)
from lakecore.options import parse_options
from tests.tables import files, ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.lsm.universal import CompactionUnit
    from lakecore.model.files import DataFile

TRACES = sorted((Path(__file__).parent / "picking").glob("*.jsonl"))
NOW_MS = 1 << 40


@dataclass(frozen=True)
class Case:
    """One recorded bucket, and what is decided for it here."""

    recorded: dict[str, Any]
    low_levels_anyway: bool

    @cached_property
    def policy(self) -> CompactionPolicy:
        found = CompactionPolicy.of(parse_options(self.recorded["options"]))
        return replace(found, low_levels_anyway=self.low_levels_anyway)

    @cached_property
    def files(self) -> list[DataFile]:
        return files(self.recorded["files"])

    @cached_property
    def runs(self) -> tuple[SortedRun, ...]:
        return level_runs(self.files, *ranks(self.files))

    def pick(self, *, idle_picks: int = 0, just_full: bool = False) -> CompactionUnit | None:
        last = NOW_MS if just_full or self.recorded["last_full"] == "now" else None
        moment = Moment(now_ms=NOW_MS, hour=12, last_full_ms=last, idle_picks=idle_picks)
        return pick(self.runs, self.policy, moment)

    def decisions(self) -> list[Any] | None:
        """As recorded: one pick, or of a gentle look-up so many in a row."""
        if "lookup-compact" not in self.recorded["options"]:
            return self._shown(self.pick())
        idle, just_full, found = 0, False, []
        for _ in self.recorded["pick"]:
            unit = self.pick(idle_picks=idle, just_full=just_full)
            found.append(self._shown(unit))
            just_full = just_full or (unit is not None and unit.is_full)
            if unit is None:
                idle += 1
            elif unit.reason is Reason.LEVEL_0:
                idle = 0
        return found

    def steps(self, unit: CompactionUnit | None) -> list[str] | None:
        """What the unit's compaction does, as recorded."""
        if unit is None:
            return None
        done = unit_steps(unit, *ranks(unit.files), self.policy)
        drops = "d" if unit.drops_deletions else ""
        return [
            f"r{self._sections(step)}>{unit.level_output}{drops}"
            if isinstance(step, Rewrite)
            else f"u{self._number(step.file)}>{unit.level_output}"
            for step in done
        ]

    def _shown(self, unit: CompactionUnit | None) -> list[Any] | None:
        if unit is None:
            return None
        return [unit.level_output, [self._number(file) for file in unit.files]]

    def _sections(self, step: Step) -> str:
        assert isinstance(step, Rewrite)
        return "/".join(
            ",".join(map(str, sorted(self._number(f) for run in section for f in run.files)))
            for section in step.sections
        )

    def _number(self, file: DataFile) -> int:
        return self._numbers[file.name]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {file.name: number for number, file in enumerate(self.files)}


def cases(trace: Path) -> Sequence[Case]:
    newer = trace.stem == "java-2.1"
    return [Case(json.loads(line), newer) for line in trace.read_text().splitlines()]


@pytest.fixture(params=TRACES, ids=lambda trace: trace.stem)
def trace(request: pytest.FixtureRequest) -> Sequence[Case]:
    return cases(request.param)


def test_java_picks_the_same_runs_for_the_same_level(trace: Sequence[Case]) -> None:
    assert len(trace) == 300
    for case in trace:
        assert case.decisions() == case.recorded["pick"], case.recorded


def test_java_merges_moves_and_leaves_the_same_files(trace: Sequence[Case]) -> None:
    for case in trace:
        assert case.steps(case.pick()) == case.recorded["task"], case.recorded


def test_java_compacts_the_same_in_full(trace: Sequence[Case]) -> None:
    for case in trace:
        unit = pick_full(case.runs, case.policy)

        assert case.steps(unit) == case.recorded["full_task"], case.recorded


def test_a_pick_is_of_two_runs_or_of_level_0(trace: Sequence[Case]) -> None:
    for case in trace:
        unit = case.pick()
        if unit is not None:
            assert len(unit.runs) > 1 or unit.runs[0].level == 0, case.recorded


def test_traces_of_the_releases_differ() -> None:
    picks = [[case.recorded["pick"] for case in cases(trace)] for trace in TRACES]

    assert sum(one != other for one, other in zip(*picks, strict=True)) > 5
