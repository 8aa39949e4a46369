"""The command that simulates a table prints its figures, and its races end as such races do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bench.simulate_scale import main, races, simulated
from lakecore.options import parse_options

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ("commits=60", "rate=10 kb", "keys=60 mb")
SWEEP = ("--sweep", "bucket=2,20", "num-sorted-run.compaction-trigger=5,10")


def test_sweep_prints_a_line_for_each_combination(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"

    assert main(["--json", "--html", str(page), *SMALL, *SWEEP]) == 0

    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["bucket"] for each in found] == ["2", "2", "20", "20"]
    assert found[0]["PUT"] < found[2]["PUT"]
    assert found[1]["write"] < found[0]["write"]
    assert found[0]["req. $"] < found[2]["req. $"]
    assert page.read_text(encoding="utf-8").count("<rect") == 3 * len(found)


def test_one_table_is_printed_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "store=local"]) == 0
    assert "attempts" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["commits=many", "num-level=3", "--sweeps", "store=tape"])
def test_argument_that_is_no_setting_is_refused(word: str) -> None:
    assert main([word]) == 2


def test_skewed_buckets_write_as_many_bytes_in_fewer_large_buckets() -> None:
    given = dict(word.split("=", 1) for word in SMALL) | {"bucket": "40"}
    even, skewed = simulated(given), simulated(given | {"skew": "1"})

    assert skewed["write"] == pytest.approx(even["write"], rel=0.1)
    assert skewed["files"] == pytest.approx(even["files"], rel=0.2)


def test_races_repeat_more_often_with_more_writers_and_longer_windows() -> None:
    options = parse_options({}, creating=True)
    alone, some, many = (races(options, writers, 0, 0.2) for writers in (1, 5, 50))
    slow = races(options, 10, 10, 10)

    assert (alone.attempts, alone.failed) == (1, 0)
    assert alone.commits_s == pytest.approx(5, rel=0.05)
    assert alone.attempts < some.attempts < many.attempts
    assert many.p99_s > 5 * many.median_s
    assert slow.failed > 0
    assert slow.commits_s <= 1 / 8
