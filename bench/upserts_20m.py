"""Tables that are written all day: 200 commits of 100 000 rows, and 1 000 rows into 20 M.

Writes compact by themselves. After the commits the table is read, and read again once it has been
compacted in full, beside Polars on its bare files. Upserts of 1 000 rows go in turns into a table
of 1 M rows and one of 20 M, or, by `python -m bench upserts rows=100000000`, one of another size,
and then those alone.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

import lakecore
from bench.data import COLUMNS, MILLION, rows
from bench.report import Figures, console, promise

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lakecore.table.handle import Table

COMMITS = 200
UPSERTS = 24
CHUNK = 500_000


def run(runs: int = 3, scale: float = 1.0) -> bool:
    """Measure; whether every promise was kept."""
    home = Path(tempfile.mkdtemp(prefix="lakecore-bench-"))
    kept = _written_all_day(home, runs, int(100_000 * scale))
    kept &= _upserts(home, int(20 * MILLION * scale))
    console.print()
    shutil.rmtree(home)
    return kept


def main(words: list[str]) -> int:
    """Measure the upserts into a table of the size in these words; 0 if the promise was kept."""
    match [word.split("=", 1) for word in words]:
        case [["rows", text]]:
            with tempfile.TemporaryDirectory(prefix="lakecore-bench-") as home:
                return 0 if _upserts(Path(home), int(text)) else 1
    console.print(f"unknown: {words}; known: rows=NUMBER")
    return 2


def _written_all_day(home: Path, runs: int, per_commit: int) -> bool:
    keys = 20 * per_commit
    table = _table(home / "day")
    chance = np.random.default_rng(3)
    writing = Figures(f"{COMMITS} commits, each compacts what it is time for", rows=per_commit)
    compactions = 0
    for number in range(COMMITS):
        ids = np.unique(chance.integers(0, keys, per_commit))
        data = rows(ids, seed=number)
        made: list[int] = []
        writing.time("a commit", lambda data=data, made=made: made.extend(_ids(table, data)))  # type: ignore[misc]
        compactions += len(made) - 1
    runs_left = table.inspect.files()["level"].n_unique()
    console.print(f"{compactions} of {COMMITS} commits compacted; levels in use: {runs_left}")
    compacted = home / "compacted"
    shutil.copytree(home / "day", compacted)
    whole = lakecore.open_table(compacted)
    whole.compact(full=True)
    files = whole.inspect.files()["file_path"].to_list()
    left, full, bare = "as it was left", "compacted in full", "polars, bare files"
    faces = {
        "to_arrow": Figures("all columns to Arrow, by lakecore's reader", rows=keys),
        # Of files that need no merge it is Polars' own scan.
        "scan": Figures("scan of all columns to memory, by Polars", rows=keys),
    }
    for _ in range(3 * runs):
        for name, path in ((left, home / "day"), (full, compacted)):
            read = lakecore.open_table(path)
            faces["to_arrow"].time(name, read.to_arrow)
            faces["scan"].time(name, read.to_polars)
        faces["scan"].time(bare, pl.scan_parquet(files).select(list(COLUMNS)).collect)
    writing.show("a commit")
    kept = True
    for face, reading in faces.items():
        reading.show(full)
        text = f"{face}, compacted as it is written: times the seconds of one compacted in full"
        kept &= promise(text, reading.ratio(left, full), 2.0, at_least=False)
    return kept & promise(
        "scan, compacted in full: times the seconds of Polars on the bare files",
        faces["scan"].ratio(full, bare),
        1.1,
        at_least=False,
    )


def _upserts(home: Path, large: int) -> bool:
    small = min(MILLION, large // 20)
    base, other = (f"into {size / MILLION:g} M rows" for size in (small, large))
    sizes = {base: small, other: large}
    tables = {}
    for name, size in sizes.items():
        tables[name] = _table(home / str(size))
        tables[name].write(_chunks(size))
        tables[name].compact(full=True)
    chance = np.random.default_rng(4)
    upserting = Figures("upsert of 1 000 rows, compactions included", rows=1_000)
    for number in range(UPSERTS):
        for name, table in tables.items():
            data = rows(np.unique(chance.integers(0, sizes[name], 1_000)), seed=number)
            upserting.time(name, partial(table.write, data))
    upserting.show(base)
    return promise(
        f"upsert of 1 000 rows {other}: times the seconds of one {base}",
        upserting.ratio(other, base),
        1.2,
        at_least=False,
    )


def _table(path: Path) -> Table:
    return lakecore.open_table(
        path, create=True, schema=COLUMNS, primary_keys=["id"], options={"bucket": "1"}
    )


def _ids(table: Table, data: pa.Table) -> tuple[int, ...]:
    return table.write(data).snapshot_ids


def _chunks(count: int) -> Iterator[pa.Table]:
    for start in range(0, count, CHUNK):
        yield rows(np.arange(start, min(start + CHUNK, count)), seed=start)
