"""A primary-key table with deletion vectors: scans of many commits, and the price of the marks.

200 commits of 100 000 rows into 2 M keys, each compacted by its write, with vectors and without,
in turns. Then the table with vectors is scanned beside Polars and DuckDB on its bare files, which
do not leave out the marked rows. Seconds of the processor count, because machines are shared.

`python -m bench vectors [commits=NUMBER]` measures another number of commits.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import polars as pl

import lakecore
from bench.data import COLUMNS, MILLION, rows
from bench.report import Figures, console, promise

COMMITS = 200
WITH, WITHOUT = "with vectors", "without"


def run(runs: int = 3, scale: float = 1.0, commits: int = COMMITS) -> bool:
    """Measure; whether every promise was kept."""
    per_commit = int(100_000 * scale)
    with tempfile.TemporaryDirectory(prefix="lakecore-bench-") as home:
        tables = {
            name: lakecore.open_table(
                Path(home) / text,
                create=True,
                schema=COLUMNS,
                primary_keys=["id"],
                options={"bucket": "1", "deletion-vectors.enabled": text},
            )
            for name, text in ((WITH, "true"), (WITHOUT, "false"))
        }
        chance = np.random.default_rng(5)
        writing = Figures("a commit, compaction included", rows=per_commit)
        for number in range(commits):
            ids = np.unique(chance.integers(0, int(2 * MILLION * scale), per_commit))
            data = rows(ids, seed=number)
            for name, table in tables.items():
                writing.time(name, partial(table.write, data))
        writing.show(WITH)
        # The mean, because commits differ: most compact level 0 alone, some the whole bucket.
        means = {name: float(np.mean(each)) for name, each in writing.cpu_seconds.items()}
        kept = promise(
            "write with vectors: times the processor seconds of one without",
            means[WITH] / means[WITHOUT],
            2.0,
            at_least=False,
        )
        kept &= _scans(tables[WITH], runs)
    console.print()
    return kept


def _scans(table: lakecore.Table, runs: int) -> bool:
    found = table.explain()
    console.print(f"{found.raw_files} files, {found.deletion_vectors} with vectors")
    files = table.inspect.files()["file_path"].to_list()
    connection, dataset = duckdb.connect(), table.to_arrow_dataset()
    connection.register("ours", dataset)
    total = [pl.sum("amount"), pl.max("price"), pl.len()]
    sums, key = "sum(amount), max(price), count(*)", pl.col("id") == 1
    query = f"SELECT {sums} FROM "
    bare = f"read_parquet({files!r})"
    kept = True
    for task, ours, theirs in (
        (
            "scan of all columns, Polars",
            table.to_polars,
            pl.scan_parquet(files).select(list(COLUMNS)).collect,
        ),
        (
            "sum, max and count, Polars",
            lambda: table.scan().select(total).collect(),
            lambda: pl.scan_parquet(files).select(total).collect(),
        ),
        (
            "sum, max and count, DuckDB",
            lambda: table.to_duckdb(connection).aggregate(sums).fetchall(),
            lambda: connection.sql(query + bare).fetchall(),
        ),
        (
            "sum, max and count of a registered dataset, DuckDB",
            lambda: connection.sql(query + "ours").fetchall(),
            lambda: connection.sql(query + bare).fetchall(),
        ),
        (
            "one key, Polars",
            lambda: table.scan().filter(key).collect(),
            lambda: pl.scan_parquet(files).filter(key).collect(),
        ),
    ):
        reading = Figures(task)
        for _ in range(3 * runs):
            reading.time("lakecore", ours)
            reading.time("bare files", theirs)
        reading.show("bare files")
        text = f"{task}: times the processor seconds on the bare files"
        kept &= promise(text, reading.cpu_ratio("lakecore", "bare files"), 1.1, at_least=False)
    return kept


def main(words: list[str]) -> int:
    """Measure with the settings in these words; 0 if every promise was kept."""
    match [word.split("=", 1) for word in words]:
        case []:
            return 0 if run() else 1
        case [["commits", text]]:
            return 0 if run(commits=int(text)) else 1
    console.print(f"unknown: {words}; known: commits=NUMBER")
    return 2
