"""`python -m bench.spark [NAME …]`: Spark jobs by the bridge, compared with Paimon's connector for
Spark.

Names: write, read, memory, sink, compact, merge, append. Without one, all. Both Sparks read the
same Parquet files, alternately, in one run. Exits with 1 if a promise was not kept.
`BENCH_SPARK_SCALE=0.1` uses a tenth of the rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import psutil
import pyarrow.parquet as pq

from bench.report import Figures, console, promise
from bench.spark_engines import (
    BUCKETS,
    MILLION,
    OPTIONS,
    ROOT,
    SCALE,
    Contender,
    add,
    cpu_seconds,
    rows_of,
    seconds_of,
    settle,
    write_input,
)
from bench.spark_verbs import append, compact, merge

if TYPE_CHECKING:
    from collections.abc import Callable

WRITE_RATIO_MIN = 2.0
READ_RATIO_MIN, RAW_RATIO_MIN = 1.0, 0.9
WARM_READS = 5
WORKER_MIB_MAX, JVM_MIB_MAX = 700, 1536
SINK_SECONDS_MAX = 0.5


def write(home: Path) -> bool:
    """The same five commits by both, in turn; whether the bridge is as fast as promised.

    Twice, to a table each: what the JVM compiles is most of what the first time takes.
    """
    commits = write_input(home)
    rows = int(10 * MILLION * SCALE)
    task = f"write {rows:,} rows x 6 columns, {BUCKETS} buckets, local[2]"
    times = Figures(f"{task}, the first time", rows), Figures(f"{task}, again", rows)
    engines = {name: Contender.start(name, home / name) for name in ("bridge", "connector")}
    try:
        for name, engine in engines.items():
            # Starting up and the first Python worker are not measured.
            engine.ask("create", "warm", options=OPTIONS)
            engine.ask("write", "warm", files=commits[-1])
            console.print(f"  {name} is up")
        for table, figures in zip(("first", "again"), times, strict=True):
            for engine in engines.values():
                engine.ask("create", table, options=OPTIONS)
            total = {name: [0.0, 0.0] for name in engines}
            for number, files in enumerate(commits):
                for name, engine in engines.items():
                    settle()
                    worked = cpu_seconds(engine.process.pid)
                    seconds = seconds_of(engine.ask("write", table, files=files))
                    worked = cpu_seconds(engine.process.pid) - worked
                    total[name] = [total[name][0] + seconds, total[name][1] + worked]
                    console.print(f"  commit {number + 1}: {name} {seconds:.1f} s")
            for name, (seconds, worked) in total.items():
                figures.add(name, seconds, worked)
    finally:
        for engine in engines.values():
            engine.close()
    for figures in times:
        figures.show("connector")
    ratio = times[1].ratio("connector", "bridge")
    return promise("rows/s of the connector's, again", ratio, WRITE_RATIO_MIN, at_least=True)


def read(home: Path) -> bool:
    """Five runs read by both from the same files, then one run beside Spark's bare Parquet."""
    commits = write_input(home)
    rows = int(10 * MILLION * SCALE)
    engines = {name: Contender.start(name, home / "shared") for name in ("bridge", "connector")}
    kept: list[bool] = []
    try:
        bridge = engines["bridge"]
        bridge.ask("create", "t", options=OPTIONS)
        for files in commits:
            bridge.ask("write", "t", files=files)
        console.print(f"  {rows:,} rows in {len(commits)} runs of {BUCKETS} buckets")
        for verb in ("read", "aggregate"):
            cold, warm = Figures(f"{verb}, the first time", rows), Figures(f"{verb}, again", rows)
            answers = set()
            for number in range(1 + WARM_READS):
                for name, engine in engines.items():
                    answer = add(cold if number == 0 else warm, name, engine, verb, "t")
                    answers.add(str(answer))
            assert len(answers) == 1, answers
            for figures in (cold, warm):
                figures.show("connector")
                what = f"{figures.task}: rows/s of the connector's"
                ratio = figures.ratio("connector", "bridge")
                kept.append(promise(what, ratio, READ_RATIO_MIN, at_least=True))
        compacted = bridge.ask("compact", "t")["found"]
        raw = Figures("one run", int(6 * MILLION * SCALE))
        for _ in range(2 + WARM_READS):
            add(raw, "Spark's Parquet", bridge, "scan", "t", files=compacted)
            add(raw, "bridge", bridge, "read", "t")
        raw.show("Spark's Parquet")
        ratio = raw.ratio("Spark's Parquet", "bridge")
        kept.append(promise("rows/s of Spark's own", ratio, RAW_RATIO_MIN, at_least=True))
    finally:
        for engine in engines.values():
            engine.close()
    return all(kept)


def memory(home: Path) -> bool:
    """One bucket of 20 M rows: the largest Python worker, and the JVM."""
    rows = int(20 * MILLION * SCALE)
    files = []
    for part in range(20):
        ids = np.random.default_rng(part).permutation(rows // 20) * 20 + part
        path = home / f"big-{part}.parquet"
        pq.write_table(rows_of(ids, part), path, row_group_size=131_072)
        files.append(str(path))
    engine = Contender.start("bridge", home / "memory", heap="1g")
    try:
        engine.ask("create", "t", options={**OPTIONS, "bucket": "1"})
        with _Peaks(engine.process.pid) as peaks:
            answer = engine.ask("write", "t", files=files)
    finally:
        engine.close()
    console.print(f"  {rows:,} rows into one bucket: {seconds_of(answer):.0f} s, {answer['found']}")
    kept = [
        promise("MiB, largest Python worker", peaks.worker_mib, WORKER_MIB_MAX, at_least=False),
        promise("MiB, JVM", peaks.jvm_mib, JVM_MIB_MAX, at_least=False),
    ]
    return all(kept)


class _Peaks:
    """The most memory that the JVM and any Python worker below a process held, while it looks."""

    def __init__(self, pid: int) -> None:
        self.worker_mib = 0.0
        self.jvm_mib = 0.0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            try:
                for process in psutil.Process(self._pid).children(recursive=True):
                    mib = process.memory_info().rss / 2**20
                    if process.name() == "java":
                        self.jvm_mib = max(self.jvm_mib, mib)
                    elif "pyspark.daemon" in " ".join(process.cmdline()):
                        self.worker_mib = max(self.worker_mib, mib)
            except psutil.NoSuchProcess:
                continue


def sink(home: Path) -> bool:
    """Batches of a stream into a table, beside a sink that does nothing."""
    command = [sys.executable, "-W", "ignore", "-m", "bench.spark_sink", str(home)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "PYSPARK_PYTHON": sys.executable,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    kept = []
    for name, seconds in found.items():
        sink_name, _, rows = name.partition(" ")
        console.print(f"  {sink_name}, {int(rows):,} rows: {seconds:.2f} s a batch")
        if sink_name != "noop":
            above = seconds - found[f"noop {rows}"]
            what = f"s a batch above noop, {sink_name}, {int(rows):,} rows"
            kept.append(promise(what, above, SINK_SECONDS_MAX, at_least=False))
    return all(kept)


BENCHMARKS: dict[str, Callable[[Path], bool]] = {
    "write": write,
    "read": read,
    "memory": memory,
    "sink": sink,
    "compact": compact,
    "merge": merge,
    "append": append,
}


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all; 0 if every promise was kept."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        console.print(f"unknown: {unknown}; known: {list(BENCHMARKS)}")
        return 2
    kept = []
    for name in names or list(BENCHMARKS):
        with tempfile.TemporaryDirectory(prefix="lakecore-bench-") as home:
            kept.append(BENCHMARKS[name](Path(home)))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
