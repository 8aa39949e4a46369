"""Finds the query whose batch a function of `foreachBatch` processes."""

from __future__ import annotations

from pickle import PickleError
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from lakecore import Unsupported
from spark_bridge.stream_commit import QUERY_ID

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NotSent", "query_of"]

_RUN = "spark.jobGroup.id"
"""While a query runs, this local property is the id of the run, which is new after a restart."""


class NotSent(Unsupported, PickleError):
    """A function for `foreachBatch` that Spark Connect was to send to its server.

    The function would not learn the id of its query there, and could not tell a repeated batch from
    a new one. `foreachBatch` lets this error through because it is a PickleError.
    """

    def __init__(self, verb: str, instead: str) -> None:
        super().__init__(
            "through Spark Connect, a function of foreachBatch does not learn which query it "
            f"belongs to, so a repeated batch could be written twice: {instead}",
            verb=verb,
        )

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Unsupported, (self.message,)


def query_of(spark: SparkSession) -> tuple[str | None, str | None]:
    """The ids of the query and of its run in which this thread runs a batch.

    None outside of a query, and through Spark Connect, which does not tell them.
    """
    try:
        context = spark.sparkContext
    except PySparkException:
        return None, None
    query: str | None = context.getLocalProperty(QUERY_ID)
    run: str | None = context.getLocalProperty(_RUN)
    return query, run
