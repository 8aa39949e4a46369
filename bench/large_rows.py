"""Peak memory of tables whose rows have 100 MB, under a budget of 512 MiB.

`RUNS` commits of `ROWS` keys each, the same in every commit: a number, and a column of random bytes
or of text that a codec makes a quarter of. They are compacted, written anew, read, and compacted
again, now with rows of before. Each verb runs in a process of its own, whose greatest resident
memory counts: with the libraries, which alone take some 170 MiB.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.child import Ran, compact, ran, stream, tell, within
from bench.report import console

if TYPE_CHECKING:
    from collections.abc import Iterator

ROW_BYTES = 100_000_000
BUDGET_MIB = 512
RUNS = 2
ROWS = 4
CASES = (
    ("BYTES", "deduplicate", "none"),
    ("STRING", "deduplicate", "full-compaction"),
    ("STRING", "partial-update", "none"),
    ("BYTES", "partial-update", "lookup"),
    ("BYTES", "aggregation", "none"),
)
"""Of each the type of the column, the merge engine, and the changelog producer."""
VERBS = {"write": RUNS * ROWS, "stream": ROWS, "compact": ROWS}
"""How many rows each writes, sees or leaves."""
STEPS = ("write", "compact", "write", "stream", "compact")
_WORDS = 200_000


def _row(kind: str, key: int, seed: int) -> pa.RecordBatch:
    chance = np.random.default_rng(seed)
    if kind == "BYTES":
        data = chance.bytes(ROW_BYTES)
    else:
        words = " ".join(f"word{number}" for number in chance.integers(0, 5_000, _WORDS)).encode()
        data = (words * (ROW_BYTES // len(words) + 1))[:ROW_BYTES]
    value = pa.array([data], pa.large_binary())
    value = value if kind == "BYTES" else value.cast(pa.large_string())
    number = pa.array([seed], pa.int32())
    return pa.record_batch({"id": pa.array([key], pa.int64()), "n": number, "data": value})


def _write(directory: str, kind: str, engine: str, producer: str) -> int:
    import lakecore

    table = lakecore.open_table(
        directory + "/bench.db/t",
        create=True,
        schema={"id": "BIGINT NOT NULL", "n": "INT", "data": kind},
        primary_keys=["id"],
        options={
            "bucket": "1",
            "write-only": "true",
            "merge-engine": engine,
            "changelog-producer": producer,
            "lakecore.memory-budget": f"{BUDGET_MIB} mb",
        },
    )

    def batches(run: int) -> Iterator[pa.RecordBatch]:
        return (_row(kind, key, run * ROWS + key) for key in range(ROWS))

    return sum(table.write(batches(run)).rows for run in range(RUNS))


def measured(verb: str, directory: str, *case: str) -> Ran:
    """What a verb took, in a process of its own."""
    return ran("bench.large_rows", verb, directory, *case)


def run() -> bool:
    """Measure; whether every promise was kept."""
    kept = True
    for case in CASES:
        warehouse = tempfile.mkdtemp(prefix="lakecore-bench-")
        for step in STEPS:
            took = measured(step, warehouse, *case)
            assert took.rows == VERBS[step], (step, took.rows)
            kind, engine, producer = case
            said = f"{step} {RUNS} runs of {ROWS} rows of 100 MB, {kind}, {engine}"
            kept &= within(BUDGET_MIB, took, f"{said}, changelog {producer}")
        shutil.rmtree(warehouse)
    console.print()
    return kept


if __name__ == "__main__":
    called, place, *others = sys.argv[1:]
    tell(
        {
            "write": lambda: _write(place, *others),
            "stream": lambda: stream(place),
            "compact": lambda: compact(place),
        }[called]
    )
