"""Full compaction of 6 M rows in 5 runs, beside Java Paimon 1.4.2 and Paimon's Spark connector.

All compact copies of one table that lakecore wrote, each in one process of its own for all runs,
that is warm: it has compacted a small table before. Java compacts the buckets of a writer one after
the other; Spark runs on `local[2]`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import lakecore
from bench.merge_6m import Contender
from bench.report import Figures, console, promise
from bench.spark_engines import Contender as Spark
from bench.spark_engines import add, cpu_seconds
from tests.interop.engines import PeerEngine, start
from tests.interop.limits import JAVA
from tests.interop.setup_peers import set_up, set_up_spark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WANTED = {"java": 5.0, "spark": 3.0}
ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.amount.aggregate-function": "sum",
        "fields.quantity.aggregate-function": "max",
    },
}


def run(runs: int = 3, scale: float = 1.0) -> bool:
    """Measure; whether every promise was kept."""
    set_up()
    set_up_spark()
    kept = True
    directory = Path(tempfile.mkdtemp(prefix="lakecore-bench-"))
    java = start(JAVA, directory)
    (directory / "spark" / "bench.db").mkdir(parents=True)
    spark = Spark.start("connector", directory / "spark")
    own = Contender("lakecore")
    try:
        small = _written(directory / "small", 0.02, {"bucket": "1"})
        for copy in _copies(small, 1):
            _by_lakecore(own, copy)
        for copy in _copies(small, 1):
            java.compact(copy, full=True)
        for name in _spark_copies(small, directory / "spark"):
            spark.ask("compact", name)
        for engine, options in ENGINES.items():
            for buckets in ("1", "8") if engine == "deduplicate" else ("1",):
                name = f"{engine}, {buckets} bucket(s)"
                source = _written(directory / name, scale, {**options, "bucket": buckets})
                figures = Figures(f"full compaction, {name}", rows=int(6e6 * scale))
                for _ in range(runs):
                    for copy in _copies(source, 1):
                        answer = _by_lakecore(own, copy)
                        figures.add("lakecore", answer["seconds"], answer["cpu_seconds"])
                    for copy in _copies(source, 1):
                        _by_java(figures, java, copy)
                    for copy_name in _spark_copies(source, directory / "spark"):
                        _by_spark(figures, spark, directory / "spark", copy_name)
                figures.show("lakecore")
                for peer, wanted in WANTED.items():
                    reached = figures.ratio(peer, "lakecore")
                    text = f"{name}: times as fast as {peer}"
                    kept &= promise(text, reached, wanted, at_least=True)
                shutil.rmtree(source.parents[1])
                console.print()
    finally:
        own.close()
        java.peer.close()
        spark.close()
        shutil.rmtree(directory)
    return kept


def _written(warehouse: Path, scale: float, options: Mapping[str, str]) -> Path:
    """A table with five runs in each bucket."""
    with closing(Contender("lakecore")) as contender:
        contender.ask("load", scale=scale)
        options = {"write-only": "true", **options}
        contender.ask("create", warehouse=str(warehouse), options=options)
        contender.ask("write")
    return warehouse / "bench.db" / "t"


def _copies(source: Path, count: int) -> Iterator[Path]:
    """Copies of a table, one at a time, on a disk that has nothing else to write."""
    warehouse = source.parents[1]
    for _ in range(count):
        copy = warehouse.with_name(f"copy of {warehouse.name}")
        shutil.copytree(warehouse, copy)
        os.sync()
        yield copy / "bench.db" / "t"
        shutil.rmtree(copy)


def _spark_copies(source: Path, warehouse: Path) -> Iterator[str]:
    """The name of a copy of a table in Spark's warehouse: one that it has not seen before."""
    home = Path(tempfile.mkdtemp(prefix="t", dir=warehouse / "bench.db"))
    shutil.copytree(source, home, dirs_exist_ok=True)
    os.sync()
    yield home.name
    shutil.rmtree(home)


def _by_lakecore(own: Contender, path: Path) -> Mapping[str, float]:
    own.ask("open", warehouse=str(path.parents[1]))
    return own.ask("compact")


def _by_java(figures: Figures, java: PeerEngine, path: Path) -> None:
    worked = cpu_seconds(java.peer.pid)
    began = time.perf_counter()
    java.compact(path, full=True)
    figures.add("java", time.perf_counter() - began, cpu_seconds(java.peer.pid) - worked)


def _by_spark(figures: Figures, spark: Spark, warehouse: Path, name: str) -> None:
    add(figures, "spark", spark, "compact", name)
    files = lakecore.open_table(str(warehouse / "bench.db" / name)).inspect.files()
    assert files["level"].n_unique() == 1, "Spark compacted in full"
