"""Peak memory of writing 50 M rows, and of streaming through them, under a budget of 1 GiB."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile

from bench.report import console, promise

BUDGET_MIB = 1024

CHILD = """
import json, resource, sys, time
import numpy as np
import lakecore
from bench.data import COLUMNS, rows
verb, warehouse, count, buckets = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
began, seen = time.perf_counter(), 0
def batches():
    # Blocks of keys in random order, shuffled inside: no run comes sorted.
    random = np.random.default_rng(3)
    blocks = random.permutation(count // 1000)
    for start in range(0, count, 500_000):
        at = np.arange(start, start + 500_000)
        yield rows(random.permutation(blocks[at // 1000] * 1000 + at % 1000), seed=start)
if verb == "write":
    catalog = lakecore.connect(warehouse, create=True)
    catalog.create_database("bench")
    keys = ["id"] if buckets != "-1" else []
    table = catalog.create_table("bench.t", COLUMNS, primary_keys=keys,
        options={"bucket": buckets, "write-only": "true"} if keys else {})
    seen = table.write(batches()).rows
else:
    table = lakecore.open_table(warehouse + "/bench.db/t")
    for batch in table.to_batches():
        seen += batch.num_rows
assert seen == count, seen
print(json.dumps({"seconds": time.perf_counter() - began,
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def run(count: int = 50_000_000) -> bool:
    """Measure; whether every promise was kept."""
    kept = True
    kinds = {"1": "primary key, 1 bucket", "8": "primary key, 8 buckets", "-1": "append"}
    for buckets, kind in kinds.items():
        warehouse = tempfile.mkdtemp(prefix="lakecore-bench-")
        for verb in ("write", "stream"):
            ran = subprocess.run(
                [sys.executable, "-c", CHILD, verb, warehouse, str(count), buckets],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            answer = json.loads(ran.stdout)
            rate = count / answer["seconds"] / 1e6
            console.print(f"{verb} {count / 1e6:g} M rows, {kind}: {rate:.2f} M rows/s")
            text = "  peak memory over the budget of 1 GiB"
            kept &= promise(text, answer["peak_mib"] / BUDGET_MIB, 1.2, at_least=False)
        shutil.rmtree(warehouse)
    console.print()
    return kept
