"""Cases that users of other lakes published, done by lakecore.

- apache/iceberg-python#3129: 1 M rows (383 MiB) upserted into a table took 17.5 minutes. Here the
  table holds 2 M rows, and half of the upserted keys are among them.
- delta-io/delta-rs#4422: a MERGE of few rows, which updates rows whose hash has changed and inserts
  new ones, grew from 0.6 to 4.3 GB of memory between two versions. Here 1 000 rows are merged into
  a table of 4 M rows in 12 partitions.

Each verb runs in a process of its own, without a budget that a user would have to set.
"""

from __future__ import annotations

import sys
import tempfile
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import lakecore
from bench.child import ran, tell
from bench.data import MILLION
from bench.report import console

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 100_000
TEXT_BYTES = 370
PARTS = 12


def run() -> bool:
    """Measure; there is no promise to keep, as the published cases ran on other machines."""
    with tempfile.TemporaryDirectory(prefix="lakecore-bench-") as home:
        for case, rows, done in (("upsert", 2 * MILLION, MILLION), ("merge", 4 * MILLION, 1000)):
            for verb, count in (("load", rows), (case, done)):
                took = ran("bench.published", case, verb, f"{home}/{case}", count)
                console.print(
                    f"{case}: {verb} of {count:,} rows: {took.seconds:.1f} s, "
                    f"{took.cpu_seconds:.1f} s of CPU, peak {took.peak_mib:.0f} MiB"
                )
    console.print()
    return True


def _blocks(case: str, first: int, count: int, hashed: int) -> Iterator[pa.Table]:
    """Rows of the keys from `first` on; `hashed` changes their values."""
    chance = np.random.default_rng(hashed)
    for start in range(first, first + count, BLOCK):
        keys = np.arange(start, min(start + BLOCK, first + count))
        values = {"id": keys, "hash": keys * 31 + hashed}
        if case == "merge":
            yield pa.table({"part": keys % PARTS, **values, "value": keys / 3})
        else:
            text = chance.bytes(TEXT_BYTES * len(keys) // 2).hex()
            texts = [text[at : at + TEXT_BYTES] for at in range(0, len(text), TEXT_BYTES)]
            yield pa.table({**values, "text": texts[: len(keys)]})


def _verb(case: str, verb: str, path: str, count: int) -> int:
    if verb == "load":
        first = next(_blocks(case, 0, 1, 0))
        table = lakecore.open_table(
            path,
            create=True,
            schema=first.schema,
            primary_keys=["id"] if case == "upsert" else ["part", "id"],
            partition_keys=[] if case == "upsert" else ["part"],
            options={"bucket": "4" if case == "upsert" else "1"},
        )
        return table.write(_blocks(case, 0, count, 0)).rows
    table = lakecore.open_table(path)
    if verb == "upsert":
        return table.write(_blocks(case, 3 * count // 2, count, 7)).rows
    changed = next(_blocks(case, 4 * MILLION - count // 2, count, 7))
    merge = table.merge(changed, on=["part", "id"])
    merge = merge.when_matched_update_all("source.hash <> target.hash")
    return merge.when_not_matched_insert_all().execute().rows


if __name__ == "__main__":
    tell(lambda: _verb(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
