"""`lakecore compact --watch`: a real process beside real writers, until a signal ends it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.table.handle import Table

PROGRAM = "from lakecore.cli import main; main()"
WRITER = """
import sys
import lakecore as lc

table = lc.open_table(sys.argv[1])
for turn in range(int(sys.argv[3])):
    own = 100 * int(sys.argv[2])
    table.write([{"id": own + n, "v": turn} for n in range(10)])
"""
WRITERS, COMMITS, TRIGGER = 2, 10, 3
ROWS = 1_000_000


def made(warehouse: Path, **options: str) -> Table:
    catalog = lc.connect(warehouse, create=True)
    catalog.create_database("d")
    return catalog.create_table(
        "d.t",
        {"id": "INT NOT NULL", "v": "INT"},
        primary_keys=["id"],
        options={
            "bucket": "2",
            "write-only": "true",
            "num-sorted-run.compaction-trigger": str(TRIGGER),
            "commit.min-retry-wait": "1 ms",
            "commit.max-retries": "100",
            **options,
        },
    )


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes, none of which is left."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for each in processes:
        each.kill()
        each.communicate()


def watch(table: Table, started: list[subprocess.Popen[str]], *more: str) -> subprocess.Popen[str]:
    """A job that has begun to watch."""
    job = start(PROGRAM, "compact", table.path, "--watch", "--interval", "0.05", *more)
    started.append(job)
    assert job.stdout is not None
    assert "watching" in job.stdout.readline()
    return job


def committed(job: subprocess.Popen[str]) -> str:
    """The next line of a commit."""
    assert job.stdout is not None
    return job.stdout.readline()


def end(job: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str, str]:
    """The exit code and what else the job wrote, sent a signal."""
    job.send_signal(number)
    assert job.stdout is not None
    assert job.stderr is not None
    out, err = job.stdout.read(), job.stderr.read()
    return job.wait(60), out, err


def live_files(table: Table) -> set[str]:
    paths = table.inspect.files()["file_path"]
    return {path.rpartition("/")[2] for path in paths}


def runs_max(table: Table) -> int:
    """The most files of a bucket, each a run, as the rows are few."""
    return max(Counter(table.inspect.files()["bucket"].to_list()).values())


def test_job_keeps_up_with_writers_and_ends_cleanly_on_a_signal(
    tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    table = made(tmp_path / "w")
    job = watch(table, started)
    writers = [start(WRITER, table.path, str(at), str(COMMITS)) for at in range(WRITERS)]
    started += writers
    for each in writers:
        assert each.wait(120) == 0, each.communicate()
    lines = [committed(job)]
    while runs_max(table) > TRIGGER:
        lines.append(committed(job))

    code, out, err = end(job, signal.SIGINT)

    assert (code, err) == (0, "")
    lines += out.splitlines()
    assert re.search(r"^\d\d:\d\d:\d\d stopped after \d+ commits$", lines.pop())
    line = r"^\d\d:\d\d:\d\d snapshot \d+: [12] buckets, \d+ files, [\d.]+ \w+ -> \d+ files, "
    assert all(re.search(line, each) for each in lines)
    kinds = table.inspect.snapshots()["commit_kind"].to_list()
    assert kinds.count("COMPACT") == len(lines) > 1
    wanted = [(100 * at + n, COMMITS - 1) for at in range(WRITERS) for n in range(10)]
    assert sorted(table.to_polars().rows()) == wanted


def test_signal_in_the_middle_of_a_step_leaves_no_file_behind(
    tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    table = made(tmp_path / "w", bucket="1")
    for turn in range(3):
        column = pa.array(range(turn, ROWS, 3), pa.int32())
        table.write(pa.table({"id": column, "v": column}))
    bucket = tmp_path / "w" / "d.db" / "t" / "bucket-0"
    before = sorted(path.name for path in bucket.iterdir())
    job = watch(table, started)
    while sorted(path.name for path in bucket.iterdir()) == before:
        assert job.poll() is None

    code, out, err = end(job, signal.SIGTERM)

    assert (code, err) == (0, "")
    steps = int(re.search(r"stopped after (\d+) commits", out)[1])  # type: ignore[index]
    after = {path.name for path in bucket.iterdir()}
    if steps == 0:
        assert sorted(after) == before
    assert live_files(table) <= after <= {*before, *live_files(table)}
    assert table.to_arrow().num_rows == ROWS


def test_setback_is_said_and_outlived(tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    table = made(tmp_path / "w")
    job = watch(table, started)
    # A table directory that cannot be read for a while, as a mount that has gone.
    snapshots = tmp_path / "w" / "d.db" / "t" / "snapshot"
    snapshots.symlink_to(snapshots)  # every look at it is an error of the system
    assert job.stderr is not None
    said = job.stderr.readline()
    snapshots.unlink()
    for turn in range(4):
        table.write([{"id": n, "v": turn} for n in range(9)])
    done = committed(job)
    code, _, _ = end(job, signal.SIGINT)

    assert "once more in 1 s: the storage refused" in said
    assert re.search("snapshot [45]", done)
    assert code == 0


def test_what_cannot_be_watched_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = made(tmp_path / "w")
    for arguments, said in (
        (["--watch", "--dry-run"], "--watch and --dry-run cannot be combined"),
        (["--max-bytes", "much"], "--max-bytes"),
        (["--max-bytes", "0 b"], "at least 1"),
    ):
        with pytest.raises(SystemExit) as exited:
            main(["compact", table.path, *arguments])

        assert exited.value.code == 1
        assert said in capfd.readouterr().err


def test_max_bytes_of_a_single_compaction(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = made(tmp_path / "w")
    for turn in range(3):
        table.write([{"id": n, "v": turn} for n in range(9)])
    with pytest.raises(SystemExit):
        main(["compact", "--full", table.path, "--max-bytes", "1 kb", "--dry-run"])
    planned = capfd.readouterr().out
    with pytest.raises(SystemExit):
        main(["compact", "--full", table.path, "--max-bytes", "1 kb"])
    done = capfd.readouterr().out

    assert re.search(r"steps: +2\ndry run", planned)
    assert re.search(r"steps: +2\nsnapshot: +5", done)


def test_watch_prints_a_json_object_per_commit(
    tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    table = made(tmp_path / "w")
    arguments = ("compact", table.path, "--watch", "--interval", "0.05", "--json")
    job = start(PROGRAM, *arguments)
    started.append(job)
    for turn in range(4):
        table.write([{"id": n, "v": turn} for n in range(9)])
    step = json.loads(committed(job))
    code, out, err = end(job, signal.SIGINT)

    assert step["files_before"] > step["files_after"] > 0
    assert step["snapshot_ids"]
    assert code == 0
    assert all(json.loads(line)["buckets"] for line in out.splitlines())
    assert "watching" in err
    assert "stopped after" in err
