"""The demo runs whole, and checks its own answers."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from lakecore.cli import main
from tests.pictures.figures import terminal

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", *arguments])
    return ended.value.code


@pytest.mark.slow
def test_demo_tells_its_story_and_its_answers_are_those_of_the_csv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    warehouse = tmp_path / "warehouse"

    assert run("--path", str(warehouse)) in (0, None)
    coloured = capsys.readouterr().out
    printed = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", coloured)
    told = " ".join(printed.split())
    for line in (
        "336,776 rows",
        "53 commits: 328,521 upserts, 8,255 deletes",
        "LSM tree: new rows go to new files",
        "sorted run (files in key order",
        "flights.changes(start, end)",
        "+I 5,109 left",
        "a compaction makes a snapshot too, so there are 96 now",
        "the option snapshot.time-retained",
        "6 files, one run for each bucket",
        "15 answers equal plain Polars over the CSV",
    ):
        assert line in told, line
    remedy = "python -m tests.pictures demo"
    assert (ROOT / "docs/img/demo.svg").read_text() == terminal(coloured), remedy
    commands = re.findall(r"^ +(\S*lakecore (\w+) .*)$", printed, re.MULTILINE)
    assert [verb for _, verb in commands] == ["inspect", "read", "sql"]
    for command, _ in commands:  # as a shell finds them
        subprocess.run(shlex.split(command), check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "flights.html").exists()
    assert (warehouse / "demo.db" / "flights" / "snapshot" / "snapshot-54").exists()
