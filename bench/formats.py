"""Peak memory of tables in ORC and in Avro, under a budget of 512 MiB.

`python -m bench formats [FORMAT=…] [ROWS=20e6] [BUDGET=512]`

`RUNS` commits of one bucket with a key, and of a table without one: their rows come in no order,
and a quarter of the keys of each are new. They are written, streamed and compacted. Each verb runs
in a process of its own, whose greatest resident memory counts: with the libraries, which alone take
some 170 MiB.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

import numpy as np

from bench.child import Ran, compact, ran, stream, tell, within
from bench.data import COLUMNS, rows
from bench.report import console

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

RUNS = 4
CHUNK_ROWS = 200_000
_PRIME = 1_000_000_007
SETTINGS = {"FORMAT": "", "ROWS": "", "BUDGET": "512"}
ROWS = {"orc": 20_000_000, "avro": 1_000_000}
"""Of all commits; records in Avro are encoded one by one."""


def _chunks(run_rows: int, seed: int) -> Iterator[pa.Table]:
    """The rows of a run, in no order: of the keys of the run before it has all but a quarter."""
    keys = 2 * run_rows
    for start in range(0, run_rows, CHUNK_ROWS):
        at = np.arange(start, min(start + CHUNK_ROWS, run_rows)) + seed * run_rows // RUNS
        yield rows(at * _PRIME % keys, seed=seed * 1_000_000 + start)


def write(directory: str, file_format: str, total_rows: int, key: str, budget_mib: int) -> int:
    """Write all runs; how many rows."""
    import lakecore

    table = lakecore.open_table(
        directory + "/bench.db/t",
        create=True,
        schema=COLUMNS,
        primary_keys=[key] if key else [],
        options={
            **({"bucket": "1", "write-only": "true"} if key else {}),
            "file.format": file_format,
            "lakecore.memory-budget": f"{budget_mib} mb",
        },
    )
    run_rows = total_rows // RUNS
    return sum(table.write(_chunks(run_rows, seed)).rows for seed in range(RUNS))


def measured(verb: str, directory: object, *arguments: object) -> Ran:
    """What a verb took, in a process of its own."""
    return ran("bench.formats", verb, directory, *arguments)


def run(arguments: Sequence[str] = ()) -> bool:
    """Measure; whether every promise was kept."""
    settings = SETTINGS | dict(text.split("=", 1) for text in arguments)
    budget = int(settings["BUDGET"])
    kept = True
    for file_format in [settings["FORMAT"]] if settings["FORMAT"] else [*ROWS]:
        total = int(float(settings["ROWS"] or ROWS[file_format]))
        for key in ("id", ""):
            warehouse = tempfile.mkdtemp(prefix="lakecore-bench-")
            kind = "primary key" if key else "append"
            seen = set()
            for verb in ("write", "stream", "compact", "stream"):
                shape = (file_format, total, key, budget) if verb == "write" else ()
                took = measured(verb, warehouse, *shape)
                seen.add(took.rows)
                said = f"{verb} {total / 1e6:g} M rows in {RUNS} runs, {file_format}, {kind}"
                kept &= within(budget, took, said)
            shutil.rmtree(warehouse)
    console.print()
    return kept


if __name__ == "__main__":
    called, place, *others = sys.argv[1:]
    if called == "write":
        name, count, named, mebibytes = others
        tell(lambda: write(place, name, int(count), named, int(mebibytes)))
    else:
        tell(lambda: stream(place) if called == "stream" else compact(place))
