"""Scan of an append table of 6 M rows, beside Polars and DuckDB on its bare Parquet files."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import polars as pl

import lakecore
from bench.data import COLUMNS, MILLION, rows
from bench.report import Figures, console, promise


def run(runs: int = 10, scale: float = 1.0) -> bool:
    """Measure; whether every promise was kept."""
    warehouse = tempfile.mkdtemp(prefix="lakecore-bench-")
    catalog = lakecore.connect(warehouse, create=True)
    catalog.create_database("bench")
    table = catalog.create_table("bench.t", COLUMNS)
    count = int(6 * MILLION * scale)
    table.write(rows(np.arange(count), seed=7))
    files = [str(path) for path in Path(warehouse).rglob("*.parquet")]
    connection = duckdb.connect()
    plain = f"SELECT {{}} FROM read_parquet({files})"
    totals = "sum(amount), count(*), max(price)"
    scan = Figures("scan of all columns to memory", rows=count)
    total = Figures("sum, count, max by DuckDB", rows=count)
    cities = Figures("sum, count, max a city by DuckDB", rows=count)
    scans = [
        ("polars, bare files", lambda: pl.scan_parquet(files).collect()),
        ("lakecore", lambda: table.scan().collect()),
    ]
    for _ in range(runs):
        # Who comes second finds memory at hand that the first has freed.
        scans.reverse()
        for name, read in scans:
            scan.time(name, read)
        total.time("lakecore", lambda: table.to_duckdb(connection).aggregate(totals).fetchall())
        total.time("duckdb, bare files", lambda: connection.sql(plain.format(totals)).fetchall())
        cities.time(
            "lakecore", lambda: table.to_duckdb(connection).aggregate(f"city, {totals}").fetchall()
        )
        cities.time(
            "duckdb, bare files",
            lambda: connection.sql(plain.format(f"city, {totals}") + " GROUP BY city").fetchall(),
        )
    for figures in (scan, total, cities):
        figures.show(next(name for name in figures.seconds if name != "lakecore"))
    kept = promise(
        "scan: times the seconds of Polars on the bare files",
        scan.ratio("lakecore", "polars, bare files"),
        1.15,
        at_least=False,
    )
    for figures in (total, cities):
        reached = figures.ratio("lakecore", "duckdb, bare files")
        text = f"{figures.task}: times the seconds of DuckDB on the bare files"
        kept &= promise(text, reached, 2.0, at_least=False)
    console.print()
    shutil.rmtree(warehouse)
    return kept
