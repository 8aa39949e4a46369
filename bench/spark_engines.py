"""The contenders of the Spark benchmarks: processes that answer requests, and their input rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from tests.interop.setup_peers import spark_jar, spark_python

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.report import Figures

ROOT = Path(__file__).parents[1]
SCALE = float(os.environ.get("BENCH_SPARK_SCALE", "1"))
MILLION = 1_000_000
BUCKETS = "8"
OPTIONS = {"bucket": BUCKETS, "write-only": "true", "file.compression": "zstd"}
_SETTLE_SECONDS = 1.0


@dataclass
class Contender:
    """A process with one Spark, which answers requests."""

    process: subprocess.Popen[str]

    @staticmethod
    def start(
        engine: str, warehouse: Path, heap: str = "6g", environment: Mapping[str, str] | None = None
    ) -> Contender:
        """A Spark that is up."""
        python = str(spark_python()) if engine == "connector" else sys.executable
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [python, "-W", "ignore", "-m", "bench.spark_contender", engine, str(warehouse)],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": path,
                "PYSPARK_PYTHON": python,
                "PYSPARK_DRIVER_PYTHON": python,
                "PAIMON_SPARK_JAR": str(spark_jar()),
                "BENCH_SPARK_HEAP": heap,
                **(environment or {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return Contender(process)

    def ask(self, verb: str, table: str = "", **facts: object) -> dict[str, object]:
        """Send a request and return the answer."""
        stdin, stdout = _pipes(self.process)
        stdin.write(json.dumps({"verb": verb, "table": table, **facts}) + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, f"the contender ended at {verb}"
        answer: dict[str, object] = json.loads(line)
        return answer

    def close(self) -> None:
        """End it."""
        _pipes(self.process)[0].close()
        self.process.wait(60)


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def rows_of(ids: np.ndarray, seed: int) -> pa.Table:
    """Six columns: a BIGINT key, INT, BIGINT, DOUBLE, STRING, INT."""
    random, count = np.random.default_rng(seed), len(ids)
    names = pa.array(random.integers(0, 10**9, count)).cast(pa.string())
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "a": pa.array(random.integers(0, 1000, count), pa.int32()),
            "b": pa.array(random.integers(0, 10**12, count)),
            "c": pa.array(random.random(count)),
            "d": names,
            "e": pa.array(random.integers(0, 50, count), pa.int32()),
        }
    )


def write_input(home: Path) -> list[list[str]]:
    """10 M rows as Parquet: 6 M in random order of their keys, then four updates of 1 M."""
    random = np.random.default_rng(7)
    base, update = int(6 * MILLION * SCALE), int(MILLION * SCALE)
    commits = []
    for number, count in enumerate([base, *[update] * 4]):
        keys = random.permutation(base) if number == 0 else random.choice(base, count, False)
        files = []
        for part, ids in enumerate(np.array_split(keys, 4)):
            path = home / f"input-{number}-{part}.parquet"
            pq.write_table(rows_of(ids, 10 * number + part), path, row_group_size=131_072)
            files.append(str(path))
        commits.append(files)
    return commits


def add(
    figures: Figures, name: str, engine: Contender, verb: str, table: str, **facts: object
) -> object:
    """Run a verb once more, and return what it measured."""
    worked = cpu_seconds(engine.process.pid)
    answer = engine.ask(verb, table, **facts)
    figures.add(name, seconds_of(answer), cpu_seconds(engine.process.pid) - worked)
    return answer["found"]


def settle() -> None:
    """Wait, so that work left behind by one engine (such as dirty pages) does not slow the next."""
    os.sync()
    time.sleep(_SETTLE_SECONDS)


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process and its descendants so far, without workers that have ended."""
    process = psutil.Process(pid)
    times = []
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times.append(each.cpu_times())
    return float(sum(each.user + each.system for each in times))


def seconds_of(answer: Mapping[str, object]) -> float:
    seconds = answer["seconds"]
    assert isinstance(seconds, float)
    return seconds
