"""Peak memory of compacting, and of streaming, a bucket far larger than the budget.

`python -m bench big_bucket [GB=10] [BUDGET=512] [ENGINE=…] [PRODUCER=…]`

A bucket of a last level with 60 % of the rows and six overlapping runs of level 0, made of keys
with some columns and 200 random bytes each. Each verb runs in a process of its own, whose greatest
resident memory counts: with the libraries, which alone take some 170 MiB.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.child import Ran, compact, ran, stream, tell, within
from bench.data import COLUMNS, rows
from bench.report import console

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


PAYLOAD_BYTES = 200
ROW_STORED_BYTES = 260
"""About what a row takes in a file."""
UPDATES = 6
BASE_SHARE = 0.6
CHUNK_ROWS = 100_000
SETTINGS = {"GB": "10", "BUDGET": "512", "ENGINE": "", "PRODUCER": ""}
CASES = (
    ("deduplicate", "none"),
    ("deduplicate", "lookup"),
    ("partial-update", "none"),
    ("partial-update", "lookup"),
)


def make(directory: str, size_bytes: int, engine: str, producer: str, budget_mib: int) -> int:
    """Write the bucket; how many keys it has."""
    import lakecore

    catalog = lakecore.connect(directory, create=True)
    catalog.create_database("bench")
    table = catalog.create_table(
        "bench.t",
        {**COLUMNS, "data": "BYTES"},
        primary_keys=["id"],
        options={
            "bucket": "1",
            "write-only": "true",
            "lakecore.memory-budget": f"{budget_mib} mb",
            "merge-engine": engine,
            "changelog-producer": producer,
        },
    )
    total = size_bytes // ROW_STORED_BYTES
    base = int(total * BASE_SHARE)
    update = (total - base) // UPDATES
    known = np.zeros(int(base * 2.1) + 1, bool)
    known[np.arange(base) * 2] = True
    table.write(_chunks(np.arange(base) * 2, 0))
    table.compact(full=True)
    for number in range(1, UPDATES + 1):
        ids = np.random.default_rng(number).choice(len(known), update, replace=False)
        ids.sort()
        known[ids] = True
        table.write(_chunks(ids, number))
    return int(np.count_nonzero(known))


def _chunks(ids: np.ndarray, seed: int) -> Iterator[pa.Table]:
    for start in range(0, len(ids), CHUNK_ROWS):
        part = rows(ids[start : start + CHUNK_ROWS], seed=seed * 1_000_000 + start)
        count = part.num_rows
        random = np.random.default_rng(start).bytes(count * PAYLOAD_BYTES)
        ends = np.arange(0, (count + 1) * PAYLOAD_BYTES, PAYLOAD_BYTES, dtype=np.int32)
        data = pa.Array.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(random)]
        )
        yield part.append_column("data", data)


def child(verb: str, directory: str, *others: str) -> int:
    """A verb, in this process; how many rows it left or saw."""
    if verb == "make":
        size, engine, producer, budget = others
        return make(directory, int(size), engine, producer, int(budget))
    return stream(directory) if verb == "stream" else compact(directory, full=verb == "full")


def measured(*arguments: object) -> Ran:
    """What a verb took, in a process of its own."""
    return ran("bench.big_bucket", *arguments)


def run(arguments: Sequence[str] = ()) -> bool:
    """Measure; whether every promise was kept."""
    settings = SETTINGS | dict(text.split("=", 1) for text in arguments)
    budget = int(settings["BUDGET"])
    size = int(float(settings["GB"]) * 1e9)
    kept = True
    for engine, producer in CASES:
        if settings["ENGINE"] not in {"", engine} or settings["PRODUCER"] not in {"", producer}:
            continue
        directory = tempfile.mkdtemp(prefix="lakecore-bench-")
        keys = measured("make", directory, size, engine, producer, budget).rows
        verbs = ("stream", "step", "full") if producer == "lookup" else ("stream", "full")
        for verb in verbs:
            took = measured(verb, directory)
            assert verb == "step" or took.rows == keys, (took.rows, keys)
            said = f"{verb}, {settings['GB']} GB, {engine}, changelog {producer}"
            kept &= within(budget, took, said)
        shutil.rmtree(directory)
    console.print()
    return kept


if __name__ == "__main__":
    tell(lambda: child(*sys.argv[1:]))
