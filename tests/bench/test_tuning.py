"""The figures of the tuning page are those that the simulator prints."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import pytest

from bench.compaction import SETTINGS, WORKLOADS, simulate
from bench.simulate_scale import simulated

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "tuning.md"
NAMES = {
    "even": "keys of 50 commits, evenly",
    "late": "new keys, and a tenth of old ones",
    "trickle": "loaded, then tenths of commits",
}
ROWS = [
    [cell.strip() for cell in line.strip("| ").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith(("| `", "| defaults")) and line.count(" | ") == 9
]


def test_the_page_has_a_line_for_each_setting() -> None:
    assert len(ROWS) == 7
    assert all(len(row) == 1 + 3 * len(NAMES) for row in ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("`"))
@pytest.mark.sampled(3)
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


# --- a whole table -------------------------------------------------------------------------------


def whole_tables() -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Each line of a table of `simulate_scale`: its settings, all of them, and its figures."""
    base, heads = "", list[str]()
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if line.startswith("Simulated with"):
            base = line.split("`")[1]
        elif line.startswith("| settings"):
            heads = cells[1:]
        elif line.startswith("| `") and base and "=" in cells[0] and heads:
            words = f"{base} {cells[0].strip('`')}".split()
            yield (
                dict(word.split("=", 1) for word in words),
                dict(zip(heads, cells[1:], strict=True)),
            )
        elif not line:
            heads = []


WHOLE = list(whole_tables())


def test_the_page_has_the_tables_of_simulate_scale() -> None:
    assert len(WHOLE) == 28


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "figures"), WHOLE)
@pytest.mark.sampled(4)
def test_figures_of_a_whole_table_are_those_of_the_simulator(
    settings: dict[str, str], figures: dict[str, str]
) -> None:
    found = simulated(settings)

    assert {name: f"{found[name]:,.1f}" for name in figures} == figures
