"""Merged read of 6 M rows in 5 runs by the engines that fold, beside paimon-rust and a plain scan.

Two tables of one bucket, with 30 % nulls in each of seven columns: partial-update, and aggregation
by sum, max, last_non_null_value and listagg. Each is read whole, and its numbers alone.
"""

from __future__ import annotations

import shutil
import tempfile

from bench.data import FOLD_OPTIONS, NUMBERS
from bench.merge_6m import Contender
from bench.report import Figures, console, promise
from tests.interop import setup_peers

NULLS = 0.3


def run(runs: int = 3, scale: float = 1.0) -> bool:
    """Measure; whether every promise was kept."""
    setup_peers.set_up()
    kept = True
    for engine in FOLD_OPTIONS:
        reads = Figures(f"merged read to memory, {engine}", rows=int(6e6 * scale))
        numbers = Figures(f"merged read of numbers, {engine}", rows=int(6e6 * scale))
        warehouse = tempfile.mkdtemp(prefix="lakecore-bench-")
        writer = Contender("lakecore")
        writer.ask("load", scale=scale, nulls=NULLS)
        options = {"bucket": "1", "write-only": "true", **FOLD_OPTIONS[engine]}
        writer.ask("create", warehouse=warehouse, options=options)
        writer.ask("write")
        found: set[int] = set()
        for _ in range(runs):
            for name in ("lakecore", "native", "polars"):
                contender = Contender(name)
                contender.ask("open", warehouse=warehouse)
                for _ in range(3):
                    answer = contender.ask("read")
                    reads.add(name, answer["seconds"], answer["cpu_seconds"])
                    if name != "polars":
                        found.add(int(answer["rows"]))
                    answer = contender.ask("read", columns=NUMBERS)
                    numbers.add(name, answer["seconds"], answer["cpu_seconds"])
                contender.close()
        writer.close()
        shutil.rmtree(warehouse)
        if len(found) != 1:
            message = f"the contenders read different numbers of rows: {found}"
            raise RuntimeError(message)
        for figures in (reads, numbers):
            figures.show("lakecore")
        for figures, other, least in ((reads, "native", True), (numbers, "polars", False)):
            reached = figures.ratio(*(other, "lakecore") if least else ("lakecore", other))
            text = f"{figures.task}: times {'as fast as' if least else 'the seconds of'} {other}"
            kept &= promise(text, reached, 3.0, at_least=least)
        console.print()
    return kept
