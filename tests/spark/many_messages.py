"""A write of many files with small limits: `python -m tests.spark.many_messages DIRECTORY [TASKS
FILES LIMIT]`.

Each task answers as if it had written FILES files, one in each partition; LIMIT is
`spark.driver.maxResultSize`. Prints what the driver took, as JSON: the memory of its Python process
counts from the moment before the write.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import polars as pl
import pyspark
import pytest
from pyspark.sql import SparkSession

import spark_bridge
from bench.child import peak_mib
from lakecore.distributed import of_job
from spark_bridge import write_frame
from spark_bridge.spread import answer
from spark_bridge.task import answered
from spark_bridge.worker import partition_number
from tests.spark.conftest import CONF, spark_environment
from tests.spark.frames import frame, table_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    import lakecore as lc
    from lakecore import CommitMessage
    from spark_bridge.task import WriteTask

    Batches = Iterator[pa.RecordBatch]

MASTER = "local-cluster[2,1,1024]"
COLUMNS = {"p": "INT NOT NULL", "id": "BIGINT NOT NULL", **{f"s{n}": "STRING" for n in range(6)}}
ROWS = pl.DataFrame(
    {"p": [0, 1], "id": [7, 8], **{f"s{n}": ["text of one", "text of two"] for n in range(6)}},
    schema_overrides={"p": pl.Int32},
)


def many_files(sample: CommitMessage, per_task: int) -> Any:
    """In place of `partition_function`: messages of files that nobody wrote."""

    def files(job: str) -> Sequence[CommitMessage]:
        number = partition_number()
        chance = Random(number)
        names = of_job(job)
        (file,) = sample.new_files
        found = []
        for place in range(per_task):
            low, high = sorted(chance.randbytes(8) for _ in range(2))
            key_min, key_max = file.key_min[:12] + low, file.key_max[:12] + high
            own = replace(
                file,
                name=f"data-{names.new_uuid()}-{place}.parquet",
                size_bytes=chance.randrange(1 << 20, 1 << 27),
                row_count=1,
                key_min=key_min,
                key_max=key_max,
                key_stats=replace(file.key_stats, min_values=key_min, max_values=key_max),
            )
            partition = sample.partition[:12] + place.to_bytes(4, "little") + bytes(4)
            found.append(replace(sample, partition=partition, bucket=number, new_files=(own,)))
        return found

    def function(given: WriteTask) -> Callable[[Batches], Batches]:
        def write(batches: Batches) -> Batches:
            list(batches)
            messages = tuple(files(given.job))
            yield answer(partition_number(), answered(given, lambda: (messages, per_task)))

        return write

    return function


def main(home: Path, tasks: str = "20", per_task: str = "2000", limit: str = "12m") -> None:
    os.environ.update(spark_environment())
    builder = SparkSession.builder.master(MASTER).appName("lakecore messages")
    for key, value in CONF.items():
        builder = builder.config(key, value)
    spark = (
        builder.config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.driver.memory", "1g")
        .config("spark.driver.maxResultSize", limit)
        .config("spark.executor.memory", "1g")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    table = table_at(
        home / "t",
        COLUMNS,
        keys=("p", "id"),
        partitions=("p",),
        bucket=tasks,
        write_only="true",
    )
    with table.new_write() as writer:
        writer.write(ROWS[:1])
        (sample,) = writer.prepare_commit()
    df = frame(spark, ROWS)
    df.count()
    function = many_files(replace(sample, base_snapshot_id=None), int(per_task))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_frame, "partition_function", function)
        found = measured(df, table, int(tasks))
    sys.stdout.write(json.dumps(found) + "\n")
    work = Path(pyspark.__file__).parent / "work" / spark.sparkContext.applicationId
    spark.stop()
    shutil.rmtree(work, ignore_errors=True)


def measured(df: DataFrame, table: lc.Table, tasks: int) -> dict[str, float]:
    """What the write takes."""
    before = peak_mib(reset=True)
    began, worked = time.monotonic(), time.process_time()
    done = spark_bridge.write(df, table, tasks=tasks)
    return {
        "files": done.files,
        "listed": int(table.inspect.manifests()["num_added_files"].sum()),
        "manifests": table.inspect.manifests().height,
        "driver_mib": round(peak_mib() - before),
        "driver_cpu_seconds": round(time.process_time() - worked, 1),
        "seconds": round(time.monotonic() - began),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
