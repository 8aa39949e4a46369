"""Maintenance of a table by Spark jobs: orphan files, expiry of snapshots, statistics, rescaling.

The driver runs the verbs of `Table`. Tasks do the slow parts: listing directories, deleting files
and reading rows. Results, order and errors are those of the table's own verbs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from lakecore import (
    AnalyzeResult,
    CommitResult,
    CompactionResult,
    ExpiredSnapshots,
    OrphanFiles,
    Table,
)
from lakecore.distributed import (
    IN_THREADS,
    CompactionRequest,
    FileStatus,
    MemoryStore,
    RescaleRequest,
    Store,
    Time,
    check_flags,
    compact_table,
    idle_ms,
    read_all,
    rescale_table,
    unguarded,
)
from lakecore.distributed import analyze as analyze_table
from spark_bridge.arguments import check_counts, check_spread, named_arguments, opened
from spark_bridge.compact_tasks import SparkMeasure, SparkRescale, SparkRunner
from spark_bridge.placement import parallelism
from spark_bridge.settings import require_version
from spark_bridge.spread import spread
from spark_bridge.task import MEMORY_PER_TASK

if TYPE_CHECKING:
    import os
    from datetime import timedelta

    import polars as pl
    from pyspark.sql import SparkSession


# --- bulk files ----------------------------------------------------------------------------------
# Lists many directories and deletes many files in tasks of Spark jobs.
#
# A storage request takes from a few to some hundred milliseconds, and a table may have millions of
# files. The driver decides what is listed and deleted, in which order, with lakecore's own code.

FEW = 2_000
"""The driver alone lists up to this many directories, and deletes up to this many files."""
_TASKS_PER_CORE = 4
_PART_MAX = 10_000
_AT_ONCE = 100_000
"""The most paths of one job, because the driver holds all paths of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFiles:
    """`BulkFiles` that works in tasks of Spark jobs. `identifier` names the table in Spark's UI.

    `few`: up to this many directories or files, the driver does the work.
    """

    spark: SparkSession
    cores: int
    identifier: str
    few: int = FEW

    def list_all(self, store: Store, directories: Sequence[str]) -> Sequence[Sequence[FileStatus]]:
        """The content of each directory, in order."""
        if len(directories) <= self.few or isinstance(unguarded(store), MemoryStore):
            return IN_THREADS.list_all(store, directories)
        found: list[Sequence[FileStatus]] = []
        for some in _chunks(directories, _AT_ONCE):
            name = f"lakecore: list {self.identifier}, {len(some)} directories"
            parts, _ = spread(self.spark, name, self._parts(some), partial(_listed, store))
            for part in parts:
                found += part
        return found

    def delete_all(self, store: Store, paths: Iterable[str]) -> None:
        """Delete the files; absent ones are ignored."""
        left = iter(paths)
        while some := list(islice(left, _AT_ONCE)):
            if len(some) <= self.few or isinstance(unguarded(store), MemoryStore):
                IN_THREADS.delete_all(store, some)
                continue
            name = f"lakecore: delete files of {self.identifier}, {len(some)} files"
            spread(self.spark, name, self._parts(some), partial(_deleted, store))

    def _parts(self, paths: Sequence[str]) -> list[Sequence[str]]:
        """The paths in parts of about equal size, in order."""
        size = max(1, min(_PART_MAX, -(-len(paths) // (self.cores * _TASKS_PER_CORE))))
        return list(_chunks(paths, size))


def _chunks(paths: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(paths), size):
        yield paths[start : start + size]


def _listed(store: Store, directories: Sequence[str]) -> Sequence[Sequence[FileStatus]]:
    return read_all(store.list, directories)


def _deleted(store: Store, paths: Sequence[str]) -> int:
    IN_THREADS.delete_all(store, paths)
    return len(paths)


# --- compact buckets -----------------------------------------------------------------------------
# `compact`: compacts the buckets of a table in tasks of Spark jobs, with one commit for each job.
#
# With the code of `Table.compact`, the driver plans, commits, and plans again if another commit
# took the files; executors write the files. The result is the same, including changelogs.

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

    - `max_bytes`: commit a snapshot each time whole buckets of that many bytes are compacted.
      Default for a full compaction of a table with a primary key: 4 GiB for each core.
    - `memory_per_task`: the most bytes of rows and files that a task holds, in addition to the
      memory of Python itself.

    Raises what `Table.compact` raises. If tasks or the driver die, committed steps stay, and the
    table is otherwise unchanged.

        spark_bridge.compact(spark, orders, full=True, where="dt >= '2025-01-01'")
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


# --- maintenance ---------------------------------------------------------------------------------


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

        spark_bridge.remove_orphan_files(spark, orders, "3 d", dry_run=True).paths
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

        spark_bridge.expire_snapshots(spark, orders, retain_max=20, retain_min=5)
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
