"""A changelog by look-up: 10 000 changed keys against a bucket whose rows lie in the last level.

`python -m bench lookup_10m`, or `python -m bench lookup rows=100000000` for another size. What is
timed is the compaction of the 10 000 rows with their changelog, less its commit:

- *near*: the keys lie in one hundredth of the row groups;
- *all over*: they lie anywhere, so that every row group is touched;
- *scan*: what a look-up all over cannot go below, a scan of the key column and then of the touched
  row groups, with all columns.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

import lakecore
from bench.data import COLUMNS, rows
from bench.report import Figures, console, promise
from lakecore.table.commits.commit_change import delete_files
from lakecore.table.compactions.compact_bucket import compact_bucket
from lakecore.table.compactions.compact_plan import files_by_bucket, plan_bucket

if TYPE_CHECKING:
    from lakecore.table.compactions.compact_plan import BucketFiles
    from lakecore.table.handle import Table

KEYS = 10_000
CHUNK_ROWS = 1_000_000
NEAR_SECONDS_MAX = 2.0
SPREAD_RATIO_MAX = 1.5
SETTINGS = {"rows": "10000000", "runs": "3"}


def main(words: list[str]) -> int:
    """Measure with the settings in these words; 0 if every promise was kept."""
    given = dict(word.split("=", 1) for word in words)
    unknown = sorted(given.keys() - SETTINGS.keys())
    if unknown:
        console.print(f"unknown: {unknown}; known: {list(SETTINGS)}")
        return 2
    settings = {name: int(text) for name, text in {**SETTINGS, **given}.items()}
    return 0 if run(settings["rows"], settings["runs"]) else 1


def run(row_count: int = int(SETTINGS["rows"]), runs: int = int(SETTINGS["runs"])) -> bool:
    """Measure; whether every promise was kept."""
    warehouse = tempfile.mkdtemp(prefix="lakecore-bench-")
    try:
        table = _filled(warehouse, row_count)
        chance = np.random.default_rng(11)
        near = row_count // 2 + chance.choice(row_count // 100, KEYS, replace=False)
        anywhere = chance.choice(row_count, KEYS, replace=False)
        figures = Figures(f"changelog of {KEYS} keys by look-up into {row_count} rows")
        for name, keys in (("near", near), ("all over", anywhere)):
            bucket = _bucket_with(table, np.sort(keys))
            for _ in range(runs):
                figures.time(name, partial(_compact, table, bucket))
        for _ in range(runs):
            figures.time("scan", partial(_scan, table))
        figures.show("scan")
        seconds = median(figures.seconds["near"])
        ratio = figures.ratio("all over", "scan")
        promises = [
            promise("seconds near", seconds, NEAR_SECONDS_MAX, at_least=False),
            promise("all over, times a scan", ratio, SPREAD_RATIO_MAX, at_least=False),
        ]
        return all(promises)
    finally:
        shutil.rmtree(warehouse)


def _filled(warehouse: str, row_count: int) -> Table:
    """A table of one bucket, its rows in the last level."""
    catalog = lakecore.connect(warehouse, create=True)
    catalog.create_database("bench")
    options = {"bucket": "1", "changelog-producer": "lookup", "write-only": "true"}
    table = catalog.create_table("bench.t", COLUMNS, primary_keys=["id"], options=options)
    for start in range(0, row_count, CHUNK_ROWS):
        table.write(rows(np.arange(start, min(start + CHUNK_ROWS, row_count)), seed=start))
    table.copy({"changelog-producer": "none"}).compact(full=True)
    return table.refresh()


def _bucket_with(table: Table, keys: np.ndarray) -> BucketFiles:
    """The bucket as a writer of these keys sees it before its commit."""
    history = table.context.history
    snapshot = history.latest_snapshot()
    assert snapshot is not None
    (bucket,) = files_by_bucket(history.live_entries(snapshot), snapshot.id)
    with table.new_write() as writer:
        writer.write(rows(keys, seed=12))
        (message,) = writer.prepare_commit()
    return replace(bucket, files=(*bucket.files, *message.new_files))


def _compact(table: Table, bucket: BucketFiles) -> None:
    plan = plan_bucket(table.context, bucket, {}, full=False)
    assert plan is not None
    message = compact_bucket(table.context, plan, lambda _: None)
    told = sum(file.row_count for file in message.compact_changelog_files)
    assert told == 2 * KEYS, told
    delete_files(table.context, [message])


def _scan(table: Table) -> None:
    for columns in (["id"], None):
        for _ in table.to_batches(columns):
            pass
