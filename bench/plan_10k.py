"""Opening a table and planning 10 000 files, cold (a new process) and warm."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from statistics import median

import numpy as np

import lakecore
from bench.data import COLUMNS, rows
from bench.report import Figures, console, promise
from lakecore.table.commits.commit import CommitRequest, commit

COLD = """
import json, sys, time
def timed(work):
    began, worked = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - worked
def open_and_plan():
    global table, first
    import lakecore
    table = lakecore.open_table(sys.argv[1])
    first = table.explain()
cold = timed(open_and_plan)
warm = timed(table.explain)
filtered = timed(lambda: table.explain(where="amount > 500000000"))
print(json.dumps({"files": first.files_kept, "cold": cold, "warm": warm, "filtered": filtered}))
"""

NAMES = {
    "cold: import, open, plan": "cold",
    "warm": "warm",
    "warm, with a filter on values": "filtered",
}


def run(runs: int = 5) -> bool:
    """Measure; whether every promise was kept."""
    warehouse = tempfile.mkdtemp(prefix="lakecore-bench-")
    catalog = lakecore.connect(warehouse, create=True)
    catalog.create_database("bench")
    table = catalog.create_table(
        "bench.t", COLUMNS, primary_keys=["id"], options={"bucket": "100", "write-only": "true"}
    )
    # The metadata of 100 commits of 100 files each; planning never opens the files themselves.
    writer = table.new_write()
    writer.write(rows(np.arange(20_000), seed=7))
    messages = writer.prepare_commit()
    for number in range(100):
        added = [
            replace(
                message,
                base_snapshot_id=number or None,
                new_files=tuple(
                    replace(
                        file,
                        name=f"{number}-{file.name}",
                        sequence_min=file.sequence_min + number * 1_000_000,
                        sequence_max=file.sequence_max + number * 1_000_000,
                    )
                    for file in message.new_files
                ),
            )
            for message in messages
        ]
        commit(table.context, CommitRequest(messages=added, user="bench"))
    figures = Figures("open and plan 10 000 files")
    for _ in range(runs):
        ran = subprocess.run(
            [sys.executable, "-c", COLD, table.path], check=True, capture_output=True, text=True
        )
        answer = json.loads(ran.stdout)
        assert answer["files"] == 10_000, answer
        for name, key in NAMES.items():
            figures.add(name, *answer[key])
    figures.show("warm")
    shutil.rmtree(warehouse)
    cold = median(figures.seconds["cold: import, open, plan"])
    kept = promise("cold, seconds", cold, 1.5, at_least=False)
    kept &= promise("warm, seconds", median(figures.seconds["warm"]), 0.1, at_least=False)
    console.print()
    return kept
