"""Ten thousand commits: what a commit and a plan cost at the 100th, the 1 000th and the last.

Where there is memory for files (`/dev/shm`), the table lies there: fsync, which takes most of a
small commit's time on a disk and is the same for each, would hide what grows.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

import lakecore
from bench.data import COLUMNS, rows
from bench.plan_10k import COLD
from bench.report import Figures, console, promise
from lakecore.table.commits import commit as table_commit

if TYPE_CHECKING:
    from lakecore.model.files import CommitMessage
    from lakecore.table.handle import Table

AT = (100, 1_000, 10_000)
WINDOW = 60
USER = "job"


def run(commits: int = AT[-1]) -> bool:
    """Measure; whether every promise was kept."""
    memory = Path("/dev/shm")  # noqa: S108  a place, not a name
    warehouse = tempfile.mkdtemp(prefix="lakecore-bench-", dir=memory if memory.is_dir() else None)
    catalog = lakecore.connect(warehouse, create=True)
    catalog.create_database("bench")
    table = catalog.create_table(
        "bench.t", COLUMNS, primary_keys=["id"], options={"bucket": "1", "write-only": "true"}
    )
    writer = table.new_write()
    writer.write(rows(np.arange(20), seed=7))
    (message,) = writer.prepare_commit()
    points = [at for at in AT if at <= commits]
    latency = Figures("a commit of one file, seconds")
    plans = Figures("a plan of all files, seconds")
    size_bytes: dict[int, int] = {}
    seconds: list[float] = []
    for number in range(1, commits + 1):
        began = time.perf_counter()
        commit(table, message, number)
        seconds.append(time.perf_counter() - began)
        if number + WINDOW in points:
            size_bytes[number + WINDOW] = stored(table)
        if number in points:
            for each in seconds[-WINDOW:]:
                latency.add(f"at commit {number:,}", each, each)
            size_bytes[number] = (stored(table) - size_bytes[number]) // WINDOW
            for _ in range(3):
                for name, measured in plan(table, number).items():
                    plans.add(f"{name}, {number:,} commits", *measured)
    first, last = (f"at commit {at:,}" for at in (points[0], points[-1]))
    newcomer = time.perf_counter()
    commit(lakecore.open_table(table.path), message, commits + 1, user="another")
    newcomer = time.perf_counter() - newcomer
    latency.show(first)
    plans.show(f"warm, {points[0]:,} commits")
    for at in points:
        console.print(f"  metadata written by a commit, at {at:,}: {size_bytes[at] / 1024:.1f} KiB")
    console.print(
        f"  first commit of a new numbered user, times a commit: "
        f"{newcomer / median(latency.seconds[last]):.0f}"
    )
    shutil.rmtree(warehouse)
    kept = promise("median commit, last to first", latency.ratio(last, first), 1.5, at_least=False)
    growth = size_bytes[points[-1]] / size_bytes[points[0]]
    kept &= promise("metadata a commit, last to first", growth, 5, at_least=False)
    cold = [median(plans.cpu_seconds[f"cold, {at:,} commits"]) for at in (points[0], points[-1])]
    kept &= promise("cold plan, CPU, last to first", cold[1] / cold[0], 2, at_least=False)
    console.print()
    return kept


def commit(table: Table, message: CommitMessage, number: int, user: str = USER) -> None:
    """Commit one more file, of which only the metadata exist."""
    (file,) = message.new_files
    added = replace(
        file, name=f"data-{table.context.ambient.new_uuid()}-0.parquet", sequence_min=number * 100
    )
    latest = table.context.history.latest_snapshot_id()
    messages = [replace(message, base_snapshot_id=latest, new_files=(added,))]
    request = table_commit.CommitRequest(messages=messages, user=user, identifier=number)
    table_commit.commit(table.context, request)


def stored(table: Table) -> int:
    """The bytes of all metadata of the table."""
    folders = ("manifest", "snapshot")
    return sum(
        each.stat().st_size for folder in folders for each in Path(table.path, folder).iterdir()
    )


def plan(table: Table, files: int) -> dict[str, tuple[float, float]]:
    """Seconds, and those of the processor, of opening and planning in a new process, and again."""
    ran = subprocess.run(
        [sys.executable, "-c", COLD, table.path], check=True, capture_output=True, text=True
    )
    answer = json.loads(ran.stdout)
    assert answer["files"] == files, answer
    return {"cold": tuple(answer["cold"]), "warm": tuple(answer["warm"])}
