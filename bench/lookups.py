"""Look-ups by key, with and without a cache, and file indexes that leave out files.

`python -m bench lookups rows=NUMBER` measures another size.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

import lakecore as lc

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.table.handle import Table

ROWS = 20_000_000
BATCH = 100_000
SINGLES = 500
FILES = 1_000
ROOM = {"lakecore.memory-budget": "8 gb", "lookup.cache-max-memory-size": "2 gb"}
_WRITTEN = 2_000_000


def seconds(work: Callable[[], object]) -> float:
    """The time that one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def keyed(root: str, rows: int) -> Table:
    """A table of one key and three values, compacted."""
    columns = {"id": "BIGINT NOT NULL", "a": "BIGINT", "b": "DOUBLE", "c": "STRING"}
    table = lc.open_table(
        f"{root}/keyed",
        create=True,
        schema=columns,
        primary_keys=["id"],
        options={"bucket": "4", "write-only": "true"},
    )
    for start in range(0, rows, _WRITTEN):
        ids = np.arange(start, min(rows, start + _WRITTEN))
        values = {
            "id": ids,
            "a": ids * 3,
            "b": ids / 7,
            "c": np.char.add("n", (ids % 997).astype(str)),
        }
        table.write(values)
    table.copy({"write-only": "false"}).compact(full=True)
    return table


def indexed(root: str, files: int) -> Table:
    """A table without a key whose files cannot be told apart by their statistics."""
    table = lc.open_table(
        f"{root}/indexed",
        create=True,
        schema={"id": "BIGINT", "v": "STRING"},
        options={
            "file-index.bloom-filter.columns": "id",
            "file-index.bloom-filter.id.items": "200",
            "file-index.bloom-filter.id.fpp": "0.0001",
            "write-only": "true",
        },
    )
    random = np.random.default_rng(1)
    ids = random.permutation(files * 200)
    write = table.new_write()
    messages = []
    for part in np.split(ids, files):
        write.write({"id": part, "v": part.astype(str)})
        messages += write.prepare_commit()
    table.commit(messages)
    write.close()
    return table


def run(rows: int = ROWS) -> bool:
    """Measure and print; whether the promises of docs/lookups.md were kept on this machine."""
    random = np.random.default_rng(7)
    with tempfile.TemporaryDirectory(prefix="lakecore-bench-") as root:
        keyed(root, rows)
        path = f"{root}/keyed"
        some, other = random.integers(0, rows, 2).tolist()
        lc.open_table(path).lookup({"id": other})  # modules are imported
        table = lc.open_table(path)
        cold = seconds(lambda: table.lookup({"id": some}))
        print(f"cold first key, {rows:,} rows: {1e3 * cold:.1f} ms")
        # All blocks fit the cache: it may take a quarter of the budget.
        table = lc.open_table(path).copy(ROOM)
        opening = seconds(lambda: table.open_lookup().close())
        lookup = table.open_lookup()
        first = seconds(lambda: lookup.rows({"id": some}))
        print(f"a handle opens in {1e3 * opening:.1f} ms; its first key: {1e3 * first:.1f} ms")
        lookup.rows({"id": np.arange(0, rows, max(1, rows // 400_000))})
        batches = [random.integers(0, rows, BATCH) for _ in range(8)]
        times = [seconds(partial(lookup.rows, {"id": batch})) for batch in batches]
        rate = BATCH / statistics.median(times) / 1e6
        cached = lookup.cached_bytes >> 20
        print(f"warm, batches of {BATCH:,}: {rate:.2f} M keys/s; cache {cached} MiB")
        keys = random.integers(0, rows, SINGLES).tolist()
        single = sorted(seconds(partial(lookup.rows, {"id": key})) for key in keys)
        half, most = 1e3 * statistics.median(single), 1e3 * single[int(0.99 * SINGLES)]
        print(f"warm, one key: p50 {half:.2f} ms, p99 {most:.2f} ms")
        index = indexed(root, FILES)
        keys = random.integers(0, FILES * 200, 20).tolist()
        kept = max(index.explain(where=f"id = {key}").files_kept for key in keys)
        print(f"Bloom filters: a key leaves at most {kept} of {FILES:,} files")
        return cold < 0.05 and rate >= 1 and half < 1 and kept <= 2


def main(arguments: list[str]) -> int:
    """Measure tables of another size: `rows=NUMBER`."""
    stated = dict(each.split("=", 1) for each in arguments)
    return 0 if run(int(stated.get("rows", ROWS))) else 1
