"""Faults on a cluster of two executors of their own: `python -m tests.spark.cluster DIRECTORY`.

Each scenario writes to a table under the directory, while something goes wrong once, after a task
has written its files. Prints a JSON object: scenario -> what there is after.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spark_bridge
from lakecore.errors import LakecoreError
from spark_bridge import write_frame
from spark_bridge.task import partition_function
from tests.spark.cluster_verbs import VERBS, play_verb
from tests.spark.conftest import CONF, spark_environment
from tests.spark.frames import files_of, frame, held, live_files_of, table_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    import lakecore as lc
    from spark_bridge.task import WriteTask

    Batches = Iterator[pa.RecordBatch]

MASTER = "local-cluster[2,1,1024]"
ROWS = pl.DataFrame(
    [(i, f"v{i % 3}", i % 11) for i in range(4000)],
    schema={"id": pl.Int64, "v": pl.String, "n": pl.Int32},
    orient="row",
)


def once(mark: str) -> bool:
    """Whether nobody was here before, on any executor."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_executor() -> None:
    """Kill the JVM above this worker and the process that forks workers."""
    daemon = os.getppid()
    status = Path(f"/proc/{daemon}/status").read_text()
    jvm = int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{jvm}/cmdline").read_bytes()
    os.kill(jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    message = "the task fails after it has written"
    raise RuntimeError(message)


def failing(fault: Callable[[], None], mark: str, *, always: bool = False) -> Any:
    """In place of `partition_function`: the fault comes after the files of partition 0."""

    def function(task: WriteTask) -> Callable[[Batches], Batches]:
        write = partition_function(task)

        def write_and_fail(batches: Batches) -> Batches:
            outcome = list(write(batches))
            context = TaskContext.get()
            if context is not None and context.partitionId() == 0 and (always or once(mark)):
                fault()
            yield from outcome

        return write_and_fail

    return function


def run_twice(task: WriteTask) -> Callable[[Batches], Batches]:
    """In place of `partition_function`: each task runs in two attempts, of which one counts."""
    write = partition_function(task)

    def write_twice(batches: Batches) -> Batches:
        rows = list(batches)
        list(write(iter(rows)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TaskContext, "attemptNumber", lambda _: 1)
            yield from write(iter(rows))

    return write_twice


def state_of(table: lc.Table) -> dict[str, Any]:
    return {
        "right": held(table) == sorted(ROWS.rows(), key=repr),
        "snapshots": table.inspect.snapshots().height,
        "files_not_live": len(files_of(table) - live_files_of(table)),
    }


def play(spark: SparkSession, home: Path, name: str, function: Any) -> dict[str, Any]:
    """Write while the function is in the place of `partition_function`."""
    table = table_at(home / name, bucket="3")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(write_frame, "partition_function", function)
            result = spark_bridge.write(frame(spark, ROWS), table, commit_user="job", identifier=1)
    except (LakecoreError, PySparkException, Py4JJavaError) as error:
        return {"error": str(error)[:200], "files": len(files_of(table))}
    again = spark_bridge.write(frame(spark, ROWS), table, commit_user="job", identifier=1)
    return {
        **state_of(table),
        "leftovers": result.leftovers,
        "rows": result.rows,
        "again": again.already_committed,
    }


def _always() -> bool:
    return True


def main(home: Path) -> None:
    os.environ.update(spark_environment())
    builder = SparkSession.builder.master(MASTER).appName("lakecore faults")
    for key, value in CONF.items():
        builder = builder.config(key, value)
    spark = (
        builder.config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.executor.memory", "1g")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    mark = str(home / "mark-")
    scenarios = {
        "raised": failing(fail, mark + "raised"),
        "worker_killed": failing(kill_worker, mark + "worker"),
        "executor_killed": failing(kill_executor, mark + "executor"),
        "run_twice": run_twice,
        "always_raised": failing(fail, mark + "always", always=True),
        "always_killed": failing(kill_worker, mark + "always", always=True),
    }
    found = {}
    for name, each in scenarios.items():
        began = time.monotonic()
        found[name] = play(spark, home, name, each)
        sys.stderr.write(f"{name}: {time.monotonic() - began:.0f} s, {found[name]}\n")
    for verb in VERBS:
        for name, fault in (("worker", kill_worker), ("executor", kill_executor), ("always", None)):
            place = home / f"{verb}-{name}"
            first_time = partial(once, f"{place}-mark") if fault else _always
            began = time.monotonic()
            outcome = play_verb(spark, place, verb, fault or kill_worker, first_time)
            found[f"{verb}_{name}"] = outcome
            sys.stderr.write(f"{place.name}: {time.monotonic() - began:.0f} s, {outcome}\n")
    sys.stdout.write(json.dumps(found) + "\n")
    work = Path(pyspark.__file__).parent / "work" / spark.sparkContext.applicationId
    spark.stop()
    # A local cluster has its executors write below Spark's own installation.
    shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
