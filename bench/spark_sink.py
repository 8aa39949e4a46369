"""Batches of a stream into a table: `python -m bench.spark_sink HOME` prints seconds as JSON.

The source `rate-micro-batch` makes the same batches for each sink: Spark's `noop`, which is Spark
alone, `foreach_batch`, and `format("lakecore")` after `prepare`. The first batches, in which Python
workers start, are not measured.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import lakecore
import spark_bridge
from bench.spark_contender import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

SIZES = (1_000, 100_000)
SINKS = ("noop", "foreach_batch", "format")
BATCHES, WARM = 9, 3
SECONDS_MAX = 300


def seconds_of(spark: SparkSession, sink: str, rows: int, home: Path) -> float:
    """The median seconds of a batch."""
    place = home / f"{sink}-{rows}"
    table = lakecore.open_table(
        place / "table",
        create=True,
        schema={"id": "BIGINT NOT NULL", "time": "TIMESTAMP(6) WITH LOCAL TIME ZONE"},
        primary_keys=["id"],
        options={"bucket": "2", "write-only": "true"},
    )
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    df = source.option("numPartitions", 2).load().selectExpr("value AS id", "timestamp AS time")
    query = (
        _writer(df, sink, table)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    end = time.monotonic() + SECONDS_MAX
    times: dict[int, int] = {}
    while len(times) < BATCHES and time.monotonic() < end and query.isActive:
        for progress in query.recentProgress:
            if progress["numInputRows"]:
                times[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
        time.sleep(0.2)
    query.stop()
    assert len(times) >= BATCHES, query.exception()
    return median(ms for batch, ms in times.items() if WARM <= batch < BATCHES) / 1000


def _writer(df: DataFrame, sink: str, table: lakecore.Table) -> DataStreamWriter:
    if sink == "noop":
        return df.writeStream.format("noop")
    if sink == "foreach_batch":
        return df.writeStream.foreachBatch(spark_bridge.foreach_batch(table))
    prepared = spark_bridge.prepare(df, table)
    return prepared.writeStream.format("lakecore").option("path", table.path)


def main(home: Path) -> None:
    """Print the seconds of each sink and size."""
    spark = session(home, {"spark.python.authenticate.socketTimeout": "120s"})
    spark_bridge.register(spark)
    found = {
        f"{sink} {rows}": seconds_of(spark, sink, rows, home) for rows in SIZES for sink in SINKS
    }
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
