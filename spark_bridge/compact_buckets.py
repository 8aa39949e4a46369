"""`compact`: compacts the buckets of a table in tasks of Spark jobs, with one commit for each job.

With the code of `Table.compact`, the driver plans, commits, and plans again if another commit took
the files; executors write the files. The result is the same, including changelogs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.distributed.values import check_flags
from lakecore.distributed.verbs import CompactionRequest, compact_table, idle_ms
from spark_bridge.arguments import check_counts, named_arguments, opened
from spark_bridge.compact_tasks import SparkRunner
from spark_bridge.placement import parallelism
from spark_bridge.settings import require_version
from spark_bridge.task import MEMORY_PER_TASK

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    import polars as pl
    from pyspark.sql import SparkSession

    from lakecore import CompactionResult, Table

__all__ = ["compact"]

GROUP_BYTES_PER_CORE = 4 << 30
"""The default `max_bytes` of a full compaction, for each core: the bytes of one commit."""


@named_arguments
def compact(  # noqa: PLR0913  the public verb
    spark: SparkSession,
    table: Table | str | os.PathLike[str],
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
    memory_per_task: int = MEMORY_PER_TASK,
) -> CompactionResult:
    """Compact the buckets of a table, or of the table at a path, by tasks of Spark.

    The arguments and the result are those of `Table.compact`. A bucket is compacted by one task.
    Small buckets share a task; the largest buckets start first.

    - `max_bytes`: commit a snapshot each time whole buckets of that many bytes are compacted. A
      full compaction of a table with a primary key does so by default, every 4 GiB for each core.
    - `memory_per_task`: the most bytes of rows and files that a task holds, in addition to the
      memory of Python itself.

    Raises what `Table.compact` raises. If tasks or the driver die, committed steps stay, and the
    table is otherwise unchanged.

        spark_bridge.compact(spark, "/data/shop/orders", full=True, where="day >= '2025-01-01'")
    """
    require_version(spark)
    check_flags(full=full, dry_run=dry_run)
    check_counts(memory_per_task=memory_per_task)
    context = opened(table).context
    cores = parallelism(spark)
    if max_bytes is None and full and context.schema.primary_keys and not dry_run:
        max_bytes = cores * GROUP_BYTES_PER_CORE
    request = CompactionRequest(
        full=full,
        partitions=partitions,
        where=where,
        buckets=buckets,
        max_bytes=max_bytes,
        dry_run=dry_run,
        order_strategy=order_strategy,
        order_by=order_by,
        partition_idle_ms=idle_ms(partition_idle_time, order_by),
    )
    runner = SparkRunner(spark=spark, cores=cores, memory_bytes=memory_per_task)
    return compact_table(context, request, run=runner)
