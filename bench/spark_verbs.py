"""Compaction, MERGE and appends by Spark jobs, compared with the connector and with one process.

Python has one thread in every process except "local". Threads of Arrow still encode beside it, so
"local, one core" may use one core only: what two workers on two cores are compared with.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from bench.report import Figures, promise
from bench.spark_engines import (
    BUCKETS,
    MILLION,
    OPTIONS,
    SCALE,
    Contender,
    add,
    rows_of,
    settle,
    write_input,
)

if TYPE_CHECKING:
    from pathlib import Path

LOCAL_RATIO_MIN = 1.5
CONNECTOR_RATIO_MIN = 3.0
SPREAD_RATIO_MIN = 1.6
RUNS = 3
ONE_THREAD = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}


def compact(home: Path) -> bool:
    """A full compaction of five runs in eight buckets, of a copy of the table each time."""
    commits = write_input(home)
    rows = int(10 * MILLION * SCALE)
    figures = Figures(f"full compaction, {rows:,} rows in 5 runs of {BUCKETS} buckets", rows)
    bridge = Contender.start("bridge", home / "bridge", environment=ONE_THREAD)
    engines = {"bridge": bridge}
    try:
        bridge.ask("create", "t", options=OPTIONS)
        for files in commits:
            bridge.ask("write", "t", files=files)
        made = home / "bridge" / "bench.db" / "t"
        engines["connector"] = Contender.start("connector", home / "connector")
        engines["local, one core"] = Contender.start(
            "local", home / "one", environment={**ONE_THREAD, "BENCH_ONE_CORE": "1"}
        )
        engines["local"] = Contender.start("local", home / "local")
        places = {"bridge": "bridge", "connector": "connector", "local": "local"}
        for number in range(RUNS):
            for name, engine in engines.items():
                place = home / places.get(name, "one") / "bench.db" / f"t{number}"
                shutil.copytree(made, place)
                settle()
                add(figures, name, engine, "compact", f"t{number}")
                shutil.rmtree(place)
    finally:
        for engine in engines.values():
            engine.close()
    figures.show("connector")
    return all(
        [
            promise(
                "the speed of one process on one core",
                figures.ratio("local, one core", "bridge"),
                LOCAL_RATIO_MIN,
                at_least=True,
            ),
            promise(
                "the speed of the connector",
                figures.ratio("connector", "bridge"),
                CONNECTOR_RATIO_MIN,
                at_least=True,
            ),
        ]
    )


def merge(home: Path) -> bool:
    """A MERGE of 50 000 rows into 5 M rows: half of them update, the others are inserted."""
    count, source = int(5 * MILLION * SCALE), int(50_000 * SCALE)
    base = home / "base.parquet"
    random = np.random.default_rng(3)
    pq.write_table(rows_of(random.permutation(count), 1), base, row_group_size=131_072)
    figures = Figures(f"MERGE of {source:,} rows into {count:,}", source)
    engines = {name: Contender.start(name, home / name) for name in ("bridge", "connector")}
    try:
        for engine in engines.values():
            engine.ask("create", "t", options=OPTIONS)
            engine.ask("write", "t", files=[str(base)])
        for number in range(RUNS):
            half = source // 2
            old = random.choice(count, half, replace=False)
            new = count + number * half + np.arange(half)
            path = home / f"source-{number}.parquet"
            pq.write_table(rows_of(np.concatenate([old, new]), 20 + number), path)
            for name, engine in engines.items():
                settle()
                add(figures, name, engine, "merge", "t", files=[str(path)])
        sums = {str(engine.ask("aggregate", "t")["found"]) for engine in engines.values()}
        assert len(sums) == 1, sums
    finally:
        for engine in engines.values():
            engine.close()
    figures.show("connector")
    ratio = figures.ratio("connector", "bridge")
    return promise("the speed of the connector", ratio, CONNECTOR_RATIO_MIN, at_least=True)


def append(home: Path) -> bool:
    """The rows of one day into a table without a key: by all tasks, and by one."""
    rows = int(5 * MILLION * SCALE)
    files = []
    for part, ids in enumerate(np.array_split(np.arange(rows), 4)):
        path = home / f"day-{part}.parquet"
        pq.write_table(rows_of(ids, part), path, row_group_size=131_072)
        files.append(str(path))
    figures = Figures(f"append of {rows:,} rows of one day", rows)
    engine = Contender.start("bridge", home / "bridge", environment=ONE_THREAD)
    try:
        for number in range(RUNS + 1):
            for name, verb in (("all tasks", "append"), ("one task", "append one")):
                engine.ask("create append", f"{verb.replace(' ', '_')}_{number}")
                settle()
                table = f"{verb.replace(' ', '_')}_{number}"
                if number:
                    add(figures, name, engine, verb, table, files=files)
                else:
                    engine.ask(verb, table, files=files[:1])
    finally:
        engine.close()
    figures.show("one task")
    ratio = figures.ratio("one task", "all tasks")
    return promise("the speed of one task", ratio, SPREAD_RATIO_MIN, at_least=True)
