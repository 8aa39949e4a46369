"""Full compaction of 6 M rows in 5 runs, 1 and 8 buckets, beside Java Paimon 1.4.2.

Both compact copies of one table that lakecore wrote, each in a process of its own that is warm: it
has compacted a small table before. Java compacts the buckets of a writer one after the other.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from bench.merge_6m import Contender
from bench.report import Figures, console, promise
from tests.interop.engines import PeerEngine, start
from tests.interop.limits import JAVA
from tests.interop.setup_peers import set_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WANTED = 5.0
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
    kept = True
    directory = Path(tempfile.mkdtemp(prefix="lakecore-bench-"))
    java = start(JAVA, directory)
    try:
        small = _written(directory / "small", 0.02, {"bucket": "1"})
        for copy in _copies(small, 1):
            java.compact(copy, full=True)
        for engine, options in ENGINES.items():
            for buckets in ("1", "8") if engine == "deduplicate" else ("1",):
                name = f"{engine}, {buckets} bucket(s)"
                source = _written(directory / name, scale, {**options, "bucket": buckets})
                figures = Figures(f"full compaction, {name}", rows=int(6e6 * scale))
                for turn, copy in enumerate(_copies(source, 2 * runs)):
                    if turn % 2:
                        _by_java(figures, java, copy)
                    else:
                        _by_lakecore(figures, copy, small)
                figures.show("lakecore")
                reached = figures.ratio("java", "lakecore")
                kept &= promise(f"{name}: times as fast as Java", reached, WANTED, at_least=True)
                shutil.rmtree(source.parents[1])
                console.print()
    finally:
        java.peer.close()
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


def _by_lakecore(figures: Figures, path: Path, small: Path) -> None:
    with closing(Contender("lakecore")) as contender:
        for copy in _copies(small, 1):
            contender.ask("open", warehouse=str(copy.parents[1]))
            contender.ask("compact")
        contender.ask("open", warehouse=str(path.parents[1]))
        answer = contender.ask("compact")
    figures.add("lakecore", answer["seconds"], answer["cpu_seconds"])


def _by_java(figures: Figures, java: PeerEngine, path: Path) -> None:
    worked = _cpu_seconds(java)
    began = time.perf_counter()
    java.compact(path, full=True)
    figures.add("java", time.perf_counter() - began, _cpu_seconds(java) - worked)


def _cpu_seconds(java: PeerEngine) -> float:
    """The processor time of its process so far."""
    stat = Path(f"/proc/{java.peer.pid}/stat").read_text(encoding="utf-8")
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
