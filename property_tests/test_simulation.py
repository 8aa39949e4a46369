"""Many actors on one table, by seeds: nothing is lost or doubled, and what is planted is found.

`make simulate SEEDS=10000` plays more of them; see `property_tests/simulation`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from property_tests.profile import sized
from property_tests.simulation.planted import PLANTED
from property_tests.simulation.scenario import draw
from property_tests.simulation.shrink import shrink
from property_tests.simulation.simulate import simulate
from property_tests.simulation.swarm import play_many, quietly

ROOT = Path(__file__).parents[1]
SEEDS_MAX = 2_000
"""Within so many seeds each planted fault has to be found."""
QUICK = {  # found within a few seconds; the others take longer
    "conflicts_are_not_checked",
    "numbers_are_not_looked_up",
    "snapshots_are_not_created_at_once",
    "lost_replies_are_lost_races",
}


def test_nothing_is_wrong_with_a_hundred_seeds() -> None:
    assert play_many(range(100)) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", sized(range(100, 2_100, 500), quick=range(100, 101)))
def test_nothing_is_wrong_with_many_seeds(first: int) -> None:
    assert play_many(range(first, first + sized(500, quick=25))) == []


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in sized(list(PLANTED), quick=sorted(QUICK))
    ],
)
def test_planted_fault_is_found(fault: str) -> None:
    with PLANTED[fault](), quietly():
        found = next(filter(None, (simulate(draw(at)).violation for at in range(SEEDS_MAX))), None)

    assert found


def test_failing_seed_is_made_smaller_and_fails_again() -> None:
    with PLANTED["snapshots_are_not_created_at_once"](), quietly():
        run = next(run for run in map(simulate, map(draw, range(SEEDS_MAX))) if run.violation)
        smaller = shrink(run, runs_max=100)
        again = simulate(smaller.scenario)

    assert again.violation == smaller.violation
    assert again.digest == smaller.digest
    assert len(str(smaller.scenario)) < len(str(run.scenario))


def _digests(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "property_tests.simulation", "--digests", "--seeds", "10"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_seed_has_one_trace_in_every_process() -> None:
    first = _digests("1")

    assert len(first.split()) == 10
    assert _digests("2") == first
