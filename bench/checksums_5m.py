"""What checksums cost: the first read of an append table of 5 M rows, with and without them.

Before each read its files are touched, so that they count as never seen, and the operating system
is asked to forget their bytes. `to_arrow`, `to_polars` and `to_duckdb` read all columns. CPU time
is compared: a disk and its cache make the other vary more than checksums do.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import lakecore
from bench.data import COLUMNS, MILLION, rows
from bench.report import Figures, console, promise

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore import Table

OFF = {"lakecore.verify-checksums": "false"}
READS: dict[str, Callable[[Table], object]] = {
    "to_arrow": lambda table: table.to_arrow(),
    "to_polars": lambda table: table.to_polars(),
    "to_duckdb": lambda table: table.to_duckdb().to_arrow_table(),
}


def run(runs: int = 7, scale: float = 1.0) -> bool:
    """Measure; whether every promise was kept."""
    warehouse = tempfile.mkdtemp(prefix="lakecore-bench-")
    catalog = lakecore.connect(warehouse, create=True)
    catalog.create_database("bench")
    table = catalog.create_table("bench.t", COLUMNS)
    count = int(5 * MILLION * scale)
    table.write(rows(np.arange(count), seed=7))
    files = [*Path(warehouse).rglob("*.parquet")]
    size = sum(path.stat().st_size for path in files)
    console.print(f"{count} rows in {len(files)} files, {size / 1e6:.0f} MB")
    tables = [("without checksums", table.copy(OFF)), ("with checksums", table)]
    kept = True
    for name, read in READS.items():
        figures = Figures(f"first read, {name}", rows=count)
        for _ in range(runs):
            # Who comes second finds memory at hand that the first has freed.
            tables.reverse()
            for contender, given in tables:
                for path in files:
                    _forget(path)
                figures.time(contender, lambda read=read, given=given: read(given))  # type: ignore[misc]
        figures.show("without checksums")
        kept &= promise(
            f"{name}: times the CPU seconds without checksums",
            figures.cpu_ratio("with checksums", "without checksums"),
            1.25,
            at_least=False,
        )
    shutil.rmtree(warehouse)
    console.print()
    return kept


def _forget(path: Path) -> None:
    """Make a file look new, and its bytes leave memory."""
    path.touch()
    number = os.open(path, os.O_RDONLY)
    os.fsync(number)
    os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(number)
