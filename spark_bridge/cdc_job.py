"""The Spark job of a batch of messages: decode, bring the rows of a bucket together, write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_bridge.cdc_decode import decode_function
from spark_bridge.cdc_values import CHUNK_SCHEMA, ORDER, CdcTask
from spark_bridge.cdc_write import write_function
from spark_bridge.failures import raised_as_own
from spark_bridge.settings import described, settings, transfer
from spark_bridge.task import OUTCOME_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["run_job"]


def run_job(df: DataFrame, task: CdcTask) -> list[bytes]:
    """Run the tasks of a batch. Returns the pickled `WrittenTargets` of each writing task."""
    spark = df.sparkSession
    name = f"lakecore: changes into {task.arguments.database}"
    with raised_as_own(), described(spark, name), settings(spark, transfer(spark, df.schema)):
        chunks = df.mapInArrow(decode_function(task), CHUNK_SCHEMA)
        owned = chunks.repartitionById(task.writers, "owner").sortWithinPartitions(*ORDER)
        rows = owned.mapInArrow(write_function(task), OUTCOME_SCHEMA).collect()
    return [bytes(row.outcome) for row in rows]
