"""The figures of the tuning page are those that the simulator prints."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import mean

import pytest

from bench.compaction import SETTINGS, WORKLOADS, simulate

PAGE = Path(__file__).parents[2] / "docs" / "tuning.md"
NAMES = {
    "even": "keys of 50 commits, evenly",
    "late": "new keys, and a tenth of old ones",
    "trickle": "loaded, then tenths of commits",
}
ROWS = [
    [cell.strip() for cell in line.strip("| ").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith(("| `", "| defaults"))
]


def test_the_page_has_a_line_for_each_setting() -> None:
    assert len(ROWS) == 7
    assert all(len(row) == 1 + 3 * len(NAMES) for row in ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("`"))
def test_figures_are_those_of_the_simulator(row: list[str]) -> None:
    options = dict(re.findall(r"`(.+)=(.+)`", row[0]))
    found: list[str] = []
    for name in NAMES.values():
        (workload,) = [each for each in WORKLOADS if each.name == name]
        bucket = simulate(workload, options, SETTINGS)
        written = bucket.flushed_bytes + bucket.rewritten_bytes
        found += [
            f"{written / bucket.flushed_bytes:.2f}",
            f"{mean(bucket.runs):.1f}",
            f"{mean(bucket.space):.2f}",
        ]

    assert row[1:] == found
