"""A table whose verbs run as Spark jobs, for lakecore's SQL.

SQL procedures and statements call the verbs of a table. Here the verbs that read or write many rows
are replaced by Spark jobs with the same names and arguments; all others are the table's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore import Table
from lakecore.distributed.values import BATCH_COMMIT_IDENTIFIER
from spark_bridge.change_rows import delete, update
from spark_bridge.compact_buckets import compact
from spark_bridge.maintenance import analyze, by_spark, rescale
from spark_bridge.merge_frame import merge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

    from lakecore import AnalyzeResult, CommitResult, CompactionResult
    from lakecore.distributed.row_verbs import MergeInto
    from lakecore.distributed.values import OptionValue

__all__ = ["SparkTable"]


class SparkTable(Table):
    """A table of lakecore whose verbs run as jobs of `spark`."""

    def __init__(self, table: Table, spark: SparkSession) -> None:
        super().__init__(by_spark(spark, table).context)
        self._spark = spark

    def copy(self, dynamic_options: Mapping[str, OptionValue]) -> SparkTable:
        """The same table with other options."""
        return SparkTable(super().copy(dynamic_options), self._spark)

    def refresh(self) -> SparkTable:
        """The same table with its newest schema."""
        return SparkTable(super().refresh(), self._spark)

    def delete(
        self,
        where: pl.Expr | str,
        *,
        commit_user: str | None = None,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
    ) -> CommitResult:
        """As `Table.delete`, by tasks of Spark."""
        return delete(self._spark, self, where, commit_user=commit_user, identifier=identifier)

    def update(
        self,
        values: Mapping[str, object],
        where: pl.Expr | str | None = None,
        *,
        commit_user: str | None = None,
        identifier: int = BATCH_COMMIT_IDENTIFIER,
    ) -> CommitResult:
        """As `Table.update`, by tasks of Spark."""
        return update(
            self._spark, self, values, where, commit_user=commit_user, identifier=identifier
        )

    def merge(self, source: object, on: Sequence[str] | pl.Expr | str) -> MergeInto:
        """As `Table.merge`; the tasks of Spark merge a source that is a Spark frame."""
        if not hasattr(source, "sparkSession"):
            return super().merge(source, on)
        df: DataFrame = source
        return merge(self._spark, self, df, on)

    def analyze(self, columns: Sequence[str] | str | None = None) -> AnalyzeResult:
        """As `Table.analyze`, by tasks of Spark."""
        return analyze(self._spark, self, columns)

    def compact(  # noqa: PLR0913  the public verb
        self,
        *,
        full: bool = False,
        partitions: Sequence[Mapping[str, object]] | None = None,
        where: pl.Expr | str | None = None,
        buckets: Sequence[int] | None = None,
        max_bytes: int | None = None,
        dry_run: bool = False,
        order_strategy: str | None = None,
        order_by: Sequence[str] | str | None = None,
        partition_idle_time: timedelta | str | None = None,
    ) -> CompactionResult:
        """As `Table.compact`, by tasks of Spark."""
        return compact(
            self._spark,
            self,
            full=full,
            partitions=partitions,
            where=where,
            buckets=buckets,
            max_bytes=max_bytes,
            dry_run=dry_run,
            order_strategy=order_strategy,
            order_by=order_by,
            partition_idle_time=partition_idle_time,
        )

    def rescale(
        self,
        *,
        bucket_num: int | None = None,
        partition: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
        where: pl.Expr | str | None = None,
    ) -> CommitResult:
        """As `Table.rescale`, by tasks of Spark."""
        return rescale(self._spark, self, bucket_num=bucket_num, partition=partition, where=where)
