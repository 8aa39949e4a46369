"""The simulation of compaction counts what picking brings about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.compaction import SETTINGS, WORKLOADS, Bucket, main, simulate

if TYPE_CHECKING:
    from collections.abc import Mapping

BY_NAME = {workload.name: workload for workload in WORKLOADS}
SHORT = {**SETTINGS, "commits": "60", "commit-rows": "1000"}
SMALL_FILES = {"target-file-size": "400 kb"}


def simulated(name: str, options: Mapping[str, str]) -> Bucket:
    return simulate(BY_NAME[name], {**SMALL_FILES, **options}, SHORT)


@pytest.mark.parametrize("name", BY_NAME)
def test_no_more_runs_are_left_than_the_trigger(name: str) -> None:
    bucket = simulated(name, {"num-sorted-run.compaction-trigger": "4"})

    assert max(bucket.runs) <= 4
    assert bucket.compactions > 10


@pytest.mark.parametrize("name", BY_NAME)
def test_bucket_compacted_in_full_each_time_holds_nothing_twice(name: str) -> None:
    bucket = simulated(name, {"compaction.total-size-threshold": "1 gb"})

    assert bucket.fulls == bucket.compactions >= 59
    assert max(bucket.runs) == 1
    assert max(bucket.merged) == 0
    assert max(bucket.space) == pytest.approx(1, abs=0.01)


def test_new_keys_in_order_are_stored_once_and_never_merged() -> None:
    bucket = simulated("new keys, in order", {})

    assert max(bucket.merged) == 0
    assert max(bucket.space) == pytest.approx(1, abs=0.01)
    assert bucket.live.sum() == pytest.approx(60_000)


def test_higher_trigger_writes_less_and_leaves_more_runs() -> None:
    eager = simulated("keys of 50 commits, evenly", {"num-sorted-run.compaction-trigger": "2"})
    lazy = simulated("keys of 50 commits, evenly", {"num-sorted-run.compaction-trigger": "12"})

    assert lazy.rewritten_bytes < eager.rewritten_bytes
    assert sum(lazy.runs) > sum(eager.runs)
    assert lazy.live.sum() == pytest.approx(eager.live.sum())


@pytest.mark.parametrize("argument", ["commits", "commits=many", "num-level=3", "num-levels=1"])
def test_argument_that_is_no_setting_is_refused(argument: str) -> None:
    assert main([argument]) == 2


def test_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["commits=10", "picking=2.1", "num-levels=3"]) == 0

    printed = capsys.readouterr().out
    assert "num-levels=3" in printed
    assert all(name in printed for name in BY_NAME)
