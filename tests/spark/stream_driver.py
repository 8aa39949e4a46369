"""A driver that dies: `python -m tests.spark.stream_driver DIRECTORY`.

It streams the table `from` into the table `to`, and kills its own process after a batch is
committed in the table, and before Spark records that: the second one, if Spark has limits.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import spark_bridge
from tests.spark.conftest import CONF, spark_environment
from tests.spark.streams import HAS_LIMITS, ONE_SNAPSHOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(home: Path) -> None:
    os.environ.update(spark_environment())
    builder = SparkSession.builder.master("local[2]")
    for key, value in CONF.items():
        builder = builder.config(key, value)
    spark = builder.config("spark.sql.warehouse.dir", str(home / "warehouse")).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    sink = spark_bridge.foreach_batch(str(home / "to"))

    def write(rows: DataFrame, batch: int) -> None:
        sink(rows, batch)
        if batch == int(HAS_LIMITS):
            os.killpg(0, signal.SIGKILL)

    df = spark_bridge.read_stream(
        spark,
        str(home / "from"),
        changelog=False,
        from_snapshot=1,
        options=ONE_SNAPSHOT,
    )
    query = (
        df.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
