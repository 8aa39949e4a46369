"""Sorting an append table far larger than the budget, and the files that a read then skips.

`python -m bench cluster [GB=10] [BUDGET=512] [ORDER=zorder]`

The table has two columns of random numbers and the columns of the other benchmarks, with 200 random
bytes in each row. The sort runs in a separate process, whose peak resident memory is measured,
including about 170 MiB for the libraries. Then a read selects 10 % of the values of each of the two
columns.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.child import ran, tell, within
from bench.data import COLUMNS, rows
from bench.report import console, promise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAYLOAD_BYTES = 200
ROW_STORED_BYTES = 270
"""The approximate size of a row in a file."""
CHUNK_ROWS = 100_000
SPAN = 1 << 30
SETTINGS = {"GB": "10", "BUDGET": "512", "ORDER": "zorder"}
SKIPPED_SHARE = 0.8
FILES = 200


def make(directory: str, size_bytes: int, budget_mib: int) -> int:
    """Write the table. Returns its number of rows."""
    import lakecore

    catalog = lakecore.connect(directory, create=True)
    catalog.create_database("bench")
    table = catalog.create_table(
        "bench.t",
        {"x": "BIGINT", "y": "BIGINT", **COLUMNS, "data": "BYTES"},
        options={
            "lakecore.memory-budget": f"{budget_mib} mb",
            "target-file-size": f"{max(1 << 20, size_bytes // FILES)} b",
        },
    )
    count = size_bytes // ROW_STORED_BYTES
    return table.write(_chunks(count)).rows


def _chunks(total: int) -> Iterator[pa.Table]:
    for start in range(0, total, CHUNK_ROWS):
        count = min(CHUNK_ROWS, total - start)
        random = np.random.default_rng(start)
        part = rows(np.arange(start, start + count), seed=start)
        ends = np.arange(0, (count + 1) * PAYLOAD_BYTES, PAYLOAD_BYTES, dtype=np.int32)
        data = pa.py_buffer(random.bytes(count * PAYLOAD_BYTES))
        for name in ("x", "y"):
            part = part.append_column(name, pa.array(random.integers(0, SPAN, count)))
        yield part.append_column(
            "data", pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), data])
        )


def sort(directory: str, order: str) -> int:
    """Sort the table. Returns its number of rows afterwards."""
    import lakecore

    table = lakecore.open_table(directory + "/bench.db/t")
    return table.compact(order_strategy=order, order_by=["x", "y"]).rows_after or 0


def run(arguments: Sequence[str] = ()) -> bool:
    """Measure. Returns whether every promise was kept."""
    import lakecore

    settings = SETTINGS | dict(text.split("=", 1) for text in arguments)
    budget, order = int(settings["BUDGET"]), settings["ORDER"]
    directory = tempfile.mkdtemp(prefix="lakecore-bench-")
    size = int(float(settings["GB"]) * 1e9)
    count = ran("bench.cluster", "make", directory, size, budget).rows
    took = ran("bench.cluster", "sort", directory, order)
    assert took.rows == count, (took.rows, count)
    kept = within(budget, took, f"sort, {settings['GB']} GB, {order}")
    tenth = SPAN // 10
    where = f"x BETWEEN {3 * tenth} AND {4 * tenth} AND y BETWEEN {6 * tenth} AND {7 * tenth}"
    found = lakecore.open_table(directory + "/bench.db/t").explain(where=where)
    console.print(f"a box of 1 %: {found.files_kept} of {found.files_total} files are read")
    kept &= promise(
        "  files that a box of 1 % skips",
        1 - found.files_kept / found.files_total,
        SKIPPED_SHARE,
        at_least=True,
    )
    shutil.rmtree(directory)
    console.print()
    return kept


def child(verb: str, directory: str, *others: str) -> int:
    """Run a verb in this process. Returns the number of rows afterwards."""
    if verb == "make":
        return make(directory, *map(int, others))
    return sort(directory, *others)


if __name__ == "__main__":
    tell(lambda: child(*sys.argv[1:]))
