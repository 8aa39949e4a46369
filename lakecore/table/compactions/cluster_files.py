"""Clustering of a table without a key or buckets: rewrites files with their rows sorted.

- *Sort compaction* (`Table.compact(order_strategy=...)`): all files of a partition are sorted.
- *Incremental clustering* (`clustering.incremental`): the files of a partition form an LSM tree, in
  which each file of level 0 and each level above is a run. Universal compaction picks runs
  (`lsm/universal.py`), and their rows are sorted into files of the output level. With `full`, all
  runs are sorted into the last level, unless they are already there, sorted by the same columns.

https://paimon.apache.org/docs/master/append-table/incremental-clustering/

The rows of the table do not change: all rows are copied, except those that a deletion vector marks.
Two differences from Paimon:

- rows with ids keep their ids; Paimon assigns new ones;
- a sort compaction replaces only the files that were read. Paimon commits it as an overwrite of the
  partitions, which removes rows that others appended in the meantime.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lakecore.errors import LakecoreError
from lakecore.frames.source import reading
from lakecore.io.files.file_format import Checks
from lakecore.lsm.levels import SortedRun
from lakecore.lsm.universal import CompactionPolicy, Moment, pick, pick_full
from lakecore.memory import Share
from lakecore.merge.curves import incremental_ordering
from lakecore.model.files import CommitMessage, FileSource
from lakecore.plan.row_ids import with_tracking_columns
from lakecore.table.compactions.compact_plan import files_by_bucket
from lakecore.table.compactions.pack_files import alone, check_copied, rewritten
from lakecore.table.reads.scan import vectors_of
from lakecore.table.reads.source import TableSource
from lakecore.table.run_writer.file_shape import data_shape, new_place
from lakecore.table.run_writer.rolling_writer import RollingWriter
from lakecore.table.sections.external_sort import ExternalSort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakecore.lsm.universal import CompactionUnit
    from lakecore.merge.curves import Ordering
    from lakecore.model.files import DataFile, Vectors
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.options import TableOptions
    from lakecore.table.compactions.compact_plan import BucketFiles
    from lakecore.table.context import TableContext

RowsDone: TypeAlias = "Callable[[int], None]"
"""Called with the number of rows read since the last call."""
_SORT_LEAST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """Files of a partition whose rows are sorted into new files of a level."""

    partition: bytes
    bucket: int
    total_buckets: int
    base_snapshot_id: int | None
    files: tuple[DataFile, ...]
    level: int
    ordering: Ordering
    vectors: Vectors

    @property
    def row_count(self) -> int:
        """The rows of these files, as stored."""
        return sum(file.row_count for file in self.files)


def plan_sorting(
    context: TableContext, snapshot: Snapshot, entries: Iterable[ManifestEntry], ordering: Ordering
) -> list[Clustering]:
    """A sort compaction of each of these partitions, with all of their files."""
    buckets = files_by_bucket(entries, snapshot.id)
    return _clusterings(
        context, snapshot, [(bucket, bucket.files, 0) for bucket in buckets], ordering
    )


def plan_incremental(
    context: TableContext,
    snapshot: Snapshot,
    entries: Iterable[ManifestEntry],
    others: Iterable[ManifestEntry] = (),
    *,
    full: bool,
) -> list[Clustering]:
    """The next step of incremental clustering for each of these partitions.

    `others` are the files of partitions that were not chosen. If such a partition had no write for
    `clustering.history-partition.idle-to-full-sort`, it is clustered in full.
    """
    options = context.options
    policy = incremental_policy(options)
    found: list[tuple[BucketFiles, tuple[DataFile, ...], int]] = []
    for bucket in files_by_bucket(entries, snapshot.id):
        unit = _unit(context, bucket.files, policy, full=full)
        if unit is not None:
            found.append((bucket, unit.files, unit.level_output))
    for bucket in _idle(context, files_by_bucket(others, snapshot.id), policy):
        unit = _unit(context, bucket.files, policy, full=True)
        if unit is not None:
            found.append((bucket, unit.files, unit.level_output))
    return _clusterings(context, snapshot, found, incremental_ordering(options))


def incremental_policy(options: TableOptions) -> CompactionPolicy:
    """The policy of universal compaction here: it uses only the sizes and the number of runs."""
    return replace(
        CompactionPolicy.of(options),
        offpeak_hours=frozenset(),
        full_interval_ms=None,
        total_size_bytes_min=None,
        incremental_size_bytes_max=None,
        level_0_every=None,
        rewrite_all=False,
        deletion_vectors=False,
    )


def _unit(
    context: TableContext, files: Sequence[DataFile], policy: CompactionPolicy, *, full: bool
) -> CompactionUnit | None:
    runs = level_runs_of(files)
    if not full:
        return pick(runs, policy, Moment(now_ms=0, hour=0))
    sorted_alike = [
        context.history.schema(file.schema_id).options.get("clustering.columns")
        == context.schema.options.get("clustering.columns")
        for file in files
    ]
    # Files of the last level that were sorted by other columns are sorted again.
    stale = () if all(sorted_alike) else {file.name for file in files}
    return pick_full(runs, policy, stale)


def level_runs_of(files: Sequence[DataFile]) -> list[SortedRun]:
    """The runs of a partition: each file of level 0, then each level above; they may overlap."""
    levels: dict[int, list[DataFile]] = defaultdict(list)
    for file in files:
        levels[file.level].append(file)
    newest = [SortedRun(files=(file,)) for file in levels.pop(0, [])]
    return [*newest, *(SortedRun(files=tuple(own)) for _, own in sorted(levels.items()))]


def _idle(
    context: TableContext, buckets: Sequence[BucketFiles], policy: CompactionPolicy
) -> list[BucketFiles]:
    """The idle partitions that have files outside of the last level, the longest idle first."""
    idle_ms = context.options.clustering_history_partition_idle_to_full_sort_ms
    if idle_ms is None or not context.schema.partition_keys:
        return []
    before_ms = context.ambient.local_wall_clock_ms() - idle_ms
    last = policy.level_count - 1
    found: list[tuple[int, BucketFiles]] = []
    for bucket in buckets:
        times = [file.creation_time_ms or 0 for file in bucket.files if file.level < last]
        if times and max(times) < before_ms:
            found.append((max(times), bucket))
    found.sort(key=lambda each: each[0])
    return [bucket for _, bucket in found][: context.options.clustering_history_partition_limit]


def _clusterings(
    context: TableContext,
    snapshot: Snapshot,
    found: Iterable[tuple[BucketFiles, tuple[DataFile, ...], int]],
    ordering: Ordering,
) -> list[Clustering]:
    vectors = vectors_of(context.history, snapshot)
    planned = [
        Clustering(
            partition=bucket.partition,
            bucket=bucket.bucket,
            total_buckets=bucket.total_buckets,
            base_snapshot_id=bucket.base_snapshot_id,
            files=files,
            level=level,
            ordering=ordering,
            vectors=vectors.get((bucket.partition, bucket.bucket), {}),
        )
        for bucket, files, level in found
    ]
    if not context.options.row_tracking_enabled:
        check_copied(context, (file for clustering in planned for file in clustering.files))
    return planned


def cluster_files(context: TableContext, work: Clustering, rows_done: RowsDone) -> CommitMessage:
    """Write the sorted files of a partition and return the message. A failure removes the files."""
    if context.options.row_tracking_enabled:
        # The rows keep their ids.
        context = replace(context, schema=with_tracking_columns(context.schema))
    place = new_place(context, context.partitions.path(work.partition), work.bucket)
    shape = data_shape(context.schema, context.options)
    writer = RollingWriter(place, replace(shape, level=work.level, source=FileSource.COMPACT))
    try:
        after = _sort(context, work, writer, rows_done)
    except BaseException:
        # A file that cannot be removed is an orphan; report the original error instead.
        with suppress(LakecoreError, OSError):
            writer.abort()
        raise
    return rewritten(context, work, after)


def _sort(
    context: TableContext, work: Clustering, writer: RollingWriter, rows_done: RowsDone
) -> tuple[DataFile, ...]:
    source = TableSource(
        context=context, snapshot=None, table_schema=context.schema, as_stored=True
    )
    splits = [alone(context, work, file) for file in work.files]
    # Always verify checksums: damaged data must not be rewritten as valid data.
    plan = replace(source.read_plan(splits, None), checks=Checks.ALWAYS)
    runs_at_once = context.options.local_sort_max_num_file_handles
    read = written = 0
    first = min(file.sequence_min for file in work.files)
    wanted = Share.SORT.of(context.budget.size_bytes)
    with (
        context.budget.acquire_up_to(wanted, _SORT_LEAST_BYTES) as lease,
        ExternalSort(work.ordering, context.budget, lease.size_bytes, runs_at_once) as sort,
    ):
        with reading(source.read(splits, plan)) as batches:
            for batch in batches:
                sort.add(pa.Table.from_batches([batch]))
                read += batch.num_rows
                rows_done(batch.num_rows)
                del batch
        for rows in sort.sorted():
            writer.write(rows, first + written)
            written += rows.num_rows
            del rows
    marked = any(file.name in work.vectors for file in work.files)
    assert read == written, "a sort keeps all rows"
    assert read == work.row_count or (marked and read < work.row_count), "not all rows were read"
    rows_done(work.row_count - read)
    return writer.close()
