"""Maintenance of a table by Spark jobs: orphan files, expiry of snapshots, statistics, rescaling.

The driver runs the verbs of `Table`. Tasks do the slow parts: listing directories, deleting files
and reading rows. Results, order and errors are those of the table's own verbs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore import Table
from lakecore.distributed.verbs import RescaleRequest, rescale_table
from lakecore.distributed.verbs import analyze as analyze_table
from spark_bridge.analyze_tasks import SparkMeasure
from spark_bridge.arguments import check_counts, check_spread, named_arguments, opened
from spark_bridge.bulk_files import FEW, SparkFiles
from spark_bridge.placement import parallelism
from spark_bridge.rescale_tasks import SparkRescale
from spark_bridge.settings import require_version
from spark_bridge.task import MEMORY_PER_TASK

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from datetime import timedelta

    import polars as pl
    from pyspark.sql import SparkSession

    from lakecore import AnalyzeResult, CommitResult, ExpiredSnapshots, OrphanFiles
    from lakecore.distributed.values import Time

__all__ = ["analyze", "by_spark", "expire_snapshots", "remove_orphan_files", "rescale"]


def by_spark(spark: SparkSession, table: Table, *, spread: bool | None = None) -> Table:
    """The table with verbs that use Spark jobs to list and delete files.

    `spread`: whether jobs run (True) or the driver works alone (False); by default, jobs run if
    there are more than 2,000 directories or files.
    """
    require_version(spark)
    check_spread(spread)
    if spread is False:
        return table
    files = SparkFiles(
        spark=spark,
        cores=parallelism(spark),
        identifier=table.context.identifier,
        few=0 if spread else FEW,
    )
    return Table(replace(table.context, bulk=files))


@named_arguments
def remove_orphan_files(
    spark: SparkSession,
    table: Table | str | os.PathLike[str],
    older_than: Time | timedelta = "1 d",
    *,
    dry_run: bool = False,
    force: bool = False,
    spread: bool | None = None,
) -> OrphanFiles:
    """Delete orphan files: those that no snapshot, tag, branch or changelog of a table references.

    Arguments, result and errors are those of `Table.remove_orphan_files`. Tasks of Spark list the
    directories of buckets and delete the files; the driver reads the metadata.

    - `spread`: whether Spark jobs run (True) or the driver works alone (False). Default: a Spark
      job lists the directories if there are more than 2,000, and a Spark job deletes the files if
      there are more than 2,000.

        spark_bridge.remove_orphan_files(spark, "/data/shop/orders", "3 d", dry_run=True).paths
    """
    by = by_spark(spark, opened(table), spread=spread)
    return by.remove_orphan_files(older_than, dry_run=dry_run, force=force)


@named_arguments
def expire_snapshots(  # noqa: PLR0913  the public verb
    spark: SparkSession,
    table: Table | str | os.PathLike[str],
    *,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: Time | timedelta | None = None,
    max_deletes: int | None = None,
    dry_run: bool = False,
    spread: bool | None = None,
) -> ExpiredSnapshots:
    """Expire the oldest snapshots of a table and delete the files that only they need.

    Arguments, result and errors are those of `Table.expire_snapshots`. The driver decides what is
    deleted, and in which order; tasks of Spark delete the files.

    - `spread`: as for `remove_orphan_files`.

        spark_bridge.expire_snapshots(spark, "/data/shop/orders", retain_max=20, retain_min=5)
    """
    by = by_spark(spark, opened(table), spread=spread)
    return by.expire_snapshots(
        retain_max=retain_max,
        retain_min=retain_min,
        older_than=older_than,
        max_deletes=max_deletes,
        dry_run=dry_run,
    )


@named_arguments
def analyze(
    spark: SparkSession,
    table: Table | str | os.PathLike[str],
    columns: Sequence[str] | str | None = None,
    *,
    spread: bool | None = None,
) -> AnalyzeResult:
    """Compute statistics of the newest snapshot by tasks of Spark, and store them.

    Arguments, result and errors are those of `Table.analyze`.

    - `spread`: whether tasks read the table (True) or the driver (False). Default: tasks, if the
      files to read have more than 256 MiB.

        spark_bridge.analyze(spark, "/data/shop/orders", ["id", "price"]).statistics
    """
    require_version(spark)
    check_spread(spread)
    measure = SparkMeasure(spark=spark, spread=spread)
    return analyze_table(opened(table).context, columns, measure)


@named_arguments
def rescale(  # noqa: PLR0913  the public verb
    spark: SparkSession,
    table: Table | str | os.PathLike[str],
    *,
    bucket_num: int | None = None,
    partition: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
    where: pl.Expr | str | None = None,
    spread: bool | None = None,
    memory_per_task: int = MEMORY_PER_TASK,
) -> CommitResult:
    """Give partitions of a table another number of buckets by tasks of Spark, in one commit.

    Arguments, result and errors are those of `Table.rescale`. No row is shuffled: a task rewrites
    the old buckets whose rows go to the same new buckets. The number of tasks for a partition is
    the greatest common divisor of its old and its new number of buckets, so a multiple of the old
    number is the best choice.

    - `spread`: whether tasks do the work (True) or the driver (False). Default: tasks, if more than
      256 MiB of files are rewritten in more than one part.
    - `memory_per_task`: the most bytes of rows and files that a task holds.

        spark_bridge.rescale(spark, "/data/shop/orders", bucket_num=16)
    """
    require_version(spark)
    check_spread(spread)
    check_counts(memory_per_task=memory_per_task)
    partitions = [partition] if isinstance(partition, Mapping) else partition
    request = RescaleRequest(bucket_num=bucket_num, partitions=partitions, where=where)
    run = SparkRescale(
        spark=spark, cores=parallelism(spark), memory_bytes=memory_per_task, spread=spread
    )
    return rescale_table(opened(table).context, request, run=run)
