"""The Spark job of a batch of messages: decode, bring the rows of a bucket together, write."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from spark_bridge.cdc_decode import decode_function
from spark_bridge.cdc_values import CHUNK_SCHEMA, ORDER, CdcTask
from spark_bridge.cdc_write import write_function
from spark_bridge.settings import settings, transfer
from spark_bridge.spread import OUTCOME_SCHEMA, answers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_bridge.cdc_values import WrittenTargets

__all__ = ["run_job"]


def run_job(df: DataFrame, task: CdcTask) -> list[WrittenTargets]:
    """Run the tasks of a batch. Returns the outcome of each writing task; none without messages."""
    spark = df.sparkSession
    name = f"lakecore: changes into {task.arguments.database}"

    def rows() -> DataFrame:
        chunks = df.mapInArrow(decode_function(task), CHUNK_SCHEMA)
        owned = chunks.repartitionById(task.writers, "owner").sortWithinPartitions(*ORDER)
        return owned.mapInArrow(write_function(task), OUTCOME_SCHEMA)

    with settings(spark, transfer(spark, df.schema)):
        found = answers(spark, name, rows, task.writers, or_none=True)
    return cast("list[WrittenTargets]", found)
