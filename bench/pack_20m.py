"""Packing of an append table of 200 small files, 20 M rows, beside Polars and Java Paimon.

Polars reads the bare files and writes their rows as one, with the same compression: it knows
nothing of tables. Java packs in one process, started and warm from a table like it.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

import lakecore
from bench.data import COLUMNS, MILLION, rows
from bench.report import Figures, console, promise
from tests.interop import limits
from tests.interop.engines import running_peers

FILES = 200
OPTIONS = {"compaction.min.file-num": "2"}


def run(runs: int = 3, scale: float = 1.0) -> bool:
    """Measure; whether every promise was kept."""
    home = Path(tempfile.mkdtemp(prefix="lakecore-bench-"))
    per_file = int(20 * MILLION * scale) // FILES
    _fill(home / "small", FILES, per_file)
    _fill(home / "warm", 4, per_file)
    packing = Figures("packing of 200 small files", rows=FILES * per_file)
    reading = Figures("scan of all columns to memory", rows=FILES * per_file)
    with running_peers(home) as peers:
        java = peers(limits.JAVA)
        java.compact(home / "warm", full=True)
        for _ in range(runs):
            ours, theirs = _copies(home, 2)
            table = lakecore.open_table(ours)
            packing.time("lakecore", partial(table.compact, full=True))
            packing.time("polars, bare files", partial(_polars, home / "small", home / "polars"))
            packing.time("java", partial(java.compact, theirs, full=True))
            assert table.refresh().inspect.files()["record_count"].sum() == FILES * per_file
            for name, path in (("small files", home / "small"), ("packed", ours)):
                reading.time(name, lakecore.open_table(path).scan().collect)
    packing.show("polars, bare files")
    reading.show("packed")
    kept = promise(
        "packing: times the seconds of Polars, which reads and writes the same rows",
        packing.ratio("lakecore", "polars, bare files"),
        2.0,
        at_least=False,
    )
    kept &= promise(
        "packing: Java's seconds, in times of lakecore's",
        packing.ratio("java", "lakecore"),
        2.5,
        at_least=True,
    )
    console.print()
    shutil.rmtree(home)
    return kept


def _fill(path: Path, files: int, per_file: int) -> None:
    table = lakecore.open_table(path, create=True, schema=COLUMNS, options=OPTIONS)
    for number in range(files):
        first = number * per_file
        table.write(rows(np.arange(first, first + per_file), seed=number))


def _copies(home: Path, count: int) -> list[Path]:
    """So many copies of the table of small files."""
    paths = [home / f"copy-{number}" for number in range(count)]
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(home / "small", path)
    return paths


def _polars(table: Path, out: Path) -> None:
    files = sorted(table.rglob("*.parquet"))
    out.mkdir(exist_ok=True)
    pl.scan_parquet(files).sink_parquet(
        out / "all.parquet", compression="zstd", compression_level=1, row_group_size=262_144
    )
