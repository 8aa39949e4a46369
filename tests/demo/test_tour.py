"""The demo runs whole, and checks its own answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakecore.cli import main

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", *arguments])
    return ended.value.code


def test_demo_tells_its_story_and_its_answers_are_those_of_the_csv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse = tmp_path / "warehouse"

    assert run("--path", str(warehouse)) in (0, None)
    told = capsys.readouterr().out
    for line in (
        "336,776 rows",
        "53 commits: 328,521 upserts, 8,255 deletes",
        "LSM tree: new rows go to new files",
        "sorted run (files in key order",
        "flights.changes(start, end)",
        "+I 5,109 left",
        "13 answers equal plain Polars over the CSV",
    ):
        assert line in told, line
    assert (warehouse / "demo.db" / "flights" / "snapshot" / "snapshot-54").exists()
