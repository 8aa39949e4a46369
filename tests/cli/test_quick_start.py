"""The page `docs/quick-start-sql.md`, as a user runs it: two programs on one warehouse."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import lakecore as lc

PAGE = (Path(__file__).parents[2] / "docs" / "quick-start-sql.md").read_text()
BLOCKS = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
PROGRAM = [sys.executable, "-c", "from lakecore.cli import main; main()", "sql", "--create"]


def started(place: Path, script: str, *more: str) -> subprocess.Popen[str]:
    path = place / f"{len(list(place.iterdir()))}.sql"
    path.write_text(script.replace("/tmp/paimon", str(place / "paimon")))  # noqa: S108 - of the page
    return subprocess.Popen(
        [*PROGRAM, "-w", str(place / "own"), *more, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stopped(program: subprocess.Popen[str]) -> str:
    """What a program that Ctrl-C stops has written to standard error."""
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130, errors
    return errors


def test_the_first_rows_are_those_of_the_comments(tmp_path: Path) -> None:
    catalog = lc.connect(tmp_path / "w", create=True)
    shown = [
        str(catalog.sql(statement).fetchall())
        for statement in re.sub(r" --.*$", "", BLOCKS[0], flags=re.MULTILINE).split(";")[:-1]
    ]

    said = re.findall(r"-- (\(1, .*)$", BLOCKS[0], re.MULTILINE)
    assert len(said) == 2
    assert [f"[{each}]" for each in said] == shown[-2:]


def test_words_are_counted_queried_and_followed(tmp_path: Path) -> None:
    create, write, query, follow, leave = BLOCKS[1:]
    writer = started(tmp_path, create + write)
    snapshots = tmp_path / "paimon" / "default.db" / "word_count" / "snapshot"
    ends = time.monotonic() + 120
    while len(list(snapshots.glob("snapshot-*"))) < 2:
        assert time.monotonic() < ends
        assert writer.poll() is None, writer.communicate()
        time.sleep(0.1)

    batch = started(tmp_path, create + query + leave + "SELECT 1 / 0 AS never;", "--json")
    rows, errors = batch.communicate(timeout=120)
    assert batch.returncode == 0, errors
    words = [json.loads(line) for line in rows.splitlines()]
    assert {row["word"] for row in words} == set("0123456789abcdef")
    assert all(row["cnt"] > 100 for row in words)

    soon = "SET 'continuous.discovery-interval' = '50 ms';"
    each = "SELECT word, cnt FROM word_count;"
    followed = follow.partition(";")[0] + f"; {soon} {each}"
    reader = started(tmp_path, create + followed, "--json")
    assert reader.stdout is not None
    kinds = [json.loads(reader.stdout.readline())["_row_kind"] for _ in range(16 + 2)]
    assert kinds[:16] == ["+I"] * 16
    stopped(reader)

    counted = started(tmp_path, create + follow, "--json")
    assert counted.stdout is not None
    assert json.loads(counted.stdout.readline()).keys() == {"_row_kind", "interval", "interval_cnt"}
    stopped(counted)

    errors = stopped(writer)
    assert re.search(r"^\d[\d,]* rows written, snapshot 1$", errors, re.MULTILINE)
    assert errors.endswith("interrupted\n")
