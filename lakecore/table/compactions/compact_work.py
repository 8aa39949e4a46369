"""Chooses how to compact: merge runs (tables with a key), or pack or cluster files (without one).

Only this module knows all kinds of compaction; `verbs/compaction.py` commits the messages.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from lakecore.errors import InvalidRequest, LakecoreError, Uncomputable
from lakecore.frames.source import reading
from lakecore.io.ambient import forked
from lakecore.io.files.file_format import Checks
from lakecore.lsm.levels import SortedRun
from lakecore.lsm.universal import CompactionPolicy, CompactionUnit, Moment, pick, pick_full
from lakecore.memory import Budget, Share
from lakecore.merge.curves import Ordering, incremental_ordering
from lakecore.model.files import CommitMessage, DataFile, FileSource, Vectors
from lakecore.plan.row_ids import anchor_of, by_row_ids, with_tracking_columns
from lakecore.table.compactions.compact_bucket import compact_bucket
from lakecore.table.compactions.compact_plan import (
    BucketCompaction,
    BucketFiles,
    IdlePicks,
    files_by_bucket,
    plan_buckets,
)
from lakecore.table.compactions.pack_files import (
    Packing,
    alone,
    check_copied,
    pack_files,
    plan_packing,
    plan_row_ranges,
    rewritten,
)
from lakecore.table.reads.scan import VectorsOfBuckets
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.told import told
from lakecore.table.run_writer.file_shape import data_shape, new_place
from lakecore.table.run_writer.rolling_writer import RollingWriter
from lakecore.table.sections.external_sort import ExternalSort
from lakecore.table.vectors import BucketVectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.options import TableOptions
    from lakecore.table.context import TableContext


# --- clustering -----------------------------------------------------------------------------------
# Clustering of a table without a key or buckets: rewrites files with their rows sorted.
#
# - *Sort compaction* (`Table.compact(order_strategy=...)`): all files of a partition are sorted.
# - *Incremental clustering* (`clustering.incremental`): the files of a partition form an LSM tree,
#   in which each file of level 0 and each level above is a run. Universal compaction picks runs
#   (`lsm/universal.py`), and their rows are sorted into files of the output level. With `full`, all
#   runs are sorted into the last level, unless they are already there, sorted by the same columns.
#
# https://paimon.apache.org/docs/master/append-table/incremental-clustering/
#
# The rows of the table do not change: all rows are copied, except those that a deletion vector
# marks. Two differences from Paimon:
#
# - rows with ids keep their ids; Paimon assigns new ones;
# - a sort compaction replaces only the files that were read. Paimon commits it as an overwrite of
#   the partitions, which removes rows that others appended in the meantime.

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
    vectors = VectorsOfBuckets(context.history, snapshot)
    planned = [
        Clustering(
            partition=bucket.partition,
            bucket=bucket.bucket,
            total_buckets=bucket.total_buckets,
            base_snapshot_id=bucket.base_snapshot_id,
            files=files,
            level=level,
            ordering=ordering,
            vectors=vectors.of(bucket.partition, bucket.bucket),
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


# --- compact work ----------


# --- compact parallel ----------------------------------------------------------------------------
# Compacts several buckets concurrently, one thread each, under the common memory budget.
#
# The number of threads is limited by the processors and by the budget, but is at least one. A
# single bucket is compacted in the calling thread. When one bucket fails, the others stop after
# their current window and remove their files.

ROOM_BYTES = 256 << 20
"""Memory for each bucket that is compacted concurrently: its windows and their encoding."""
WORKER = "lakecore-compact"


class PlannedBucket(Protocol):
    """The work planned for one bucket."""

    @property
    def partition(self) -> bytes:
        """The serialized partition."""

    @property
    def bucket(self) -> int:
        """The bucket number."""

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files that will be replaced, or change their level."""

    @property
    def row_count(self) -> int:
        """The rows of these files, as stored."""


P = TypeVar("P", bound=PlannedBucket)
RowsDone: TypeAlias = "Callable[[int], None]"
Compact: TypeAlias = "Callable[[P, RowsDone], CommitMessage | None]"
"""Writes the compacted files of a bucket, and reports the number of rows read.

Returns None if the bucket stays unchanged.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionProgress:
    """The progress of a compaction: the buckets and stored rows that are done and planned.

    `buckets_done` and `rows_done` never decrease. The planned counts (`buckets`, `rows`) grow if a
    plan is made again, or if compacted buckets need more compaction.
    """

    buckets_done: int
    buckets: int
    rows_done: int
    rows: int


Progress: TypeAlias = "Callable[[CompactionProgress], None]"


class Tally:
    """Counts the work done in all plans of a compaction, and reports it. Thread-safe."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._buckets = self._buckets_done = self._rows = self._rows_done = 0

    def begin(self, plan: Sequence[PlannedBucket]) -> None:
        """Set the planned counts to the work done plus this plan, and report them."""
        with self._lock:
            self._buckets = self._buckets_done + len(plan)
            self._rows = self._rows_done + sum(planned.row_count for planned in plan)
            self._report()

    def rows(self, more: int) -> None:
        with self._lock:
            self._rows_done += more
            self._report()

    def bucket(self) -> None:
        with self._lock:
            self._buckets_done += 1
            self._report()

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(
                CompactionProgress(
                    buckets_done=self._buckets_done,
                    buckets=self._buckets,
                    rows_done=self._rows_done,
                    rows=self._rows,
                )
            )


def compact_buckets(
    plan: Sequence[P],
    compact: Compact[P],
    budget: Budget,
    tally: Tally,
    messages: list[CommitMessage],
) -> None:
    """Append the message of each bucket, in the order of the plan, also if another bucket fails."""
    count = worker_count(budget, len(plan))
    if count <= 1:
        for planned in plan:
            message = compact(planned, tally.rows)
            messages += [] if message is None else [message]
            tally.bucket()
        return
    stop = threading.Event()
    done: dict[int, CommitMessage] = {}

    def rows_done(more: int) -> None:
        if stop.is_set():
            raise _StoppedError
        tally.rows(more)

    def one(at: int, planned: P) -> None:
        if stop.is_set():
            raise _StoppedError
        try:
            message = compact(planned, rows_done)
            if message is not None:
                done[at] = message
            tally.bucket()
        except BaseException:
            stop.set()
            raise

    running: list[Future[None]] = []
    try:
        with ThreadPoolExecutor(count, thread_name_prefix=WORKER) as pool:
            running += [pool.submit(one, at, planned) for at, planned in enumerate(plan)]
            try:
                wait(running)
            finally:
                # If this thread is interrupted, stop all buckets; the `with` block waits for them.
                stop.set()
    finally:
        messages += [done[at] for at in sorted(done)]
    failures = (each.exception() for each in running)
    for failure in failures:
        if failure is not None and not isinstance(failure, _StoppedError):
            raise failure


def worker_count(budget: Budget, buckets: int) -> int:
    """How many buckets to compact concurrently."""
    room = (budget.size_bytes - budget.used_bytes) // ROOM_BYTES
    processors: int = pa.cpu_count()
    return max(1, min(buckets, processors, room))


class _StoppedError(Exception):
    """Another bucket has failed, so this one stops."""


# --- compact work --------------------------------------------------------------------------------

Work: TypeAlias = BucketCompaction | Packing | Clustering
"""An item of a plan: one for each bucket; unordered buckets may have several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkKind:
    """What a compaction does: rewrite all files (`full`), or only those that are due.

    With `ordering`, the compaction sorts all rows. `step_bytes`: the size of an item of work, for
    files that can be split. `idle` counts how often a long-running job found nothing to do in a
    bucket.
    """

    full: bool
    step_bytes: int | None = None
    ordering: Ordering | None = None
    idle: IdlePicks | None = None


def plan_work(
    context: TableContext,
    snapshot: Snapshot,
    entries: Sequence[ManifestEntry],
    kind: WorkKind,
    others: Sequence[ManifestEntry] = (),
) -> Sequence[Work]:
    """The work to do on these live files.

    `others` are the live files of all other partitions, if the caller chose only some partitions:
    see `plan_incremental`.
    """
    full = kind.full
    if context.schema.primary_keys:
        return plan_buckets(context, snapshot, entries, full=full, idle=kind.idle)
    if kind.ordering is not None:
        return plan_sorting(context, snapshot, entries, kind.ordering)
    if context.options.clustering_incremental:
        return plan_incremental(context, snapshot, entries, others, full=full)
    if context.options.data_evolution_enabled:
        return plan_row_ranges(context, snapshot, entries, full=full)
    return plan_packing(context, snapshot, entries, full=full, step_bytes=kind.step_bytes)


def do_work(context: TableContext, work: Work, rows_done: RowsDone) -> CommitMessage:
    """Write the new files of one item and return the message. A failure removes the files."""
    failure: LakecoreError | None = None
    try:
        return _done(context, work, rows_done)
    except Uncomputable:
        # The key in the error decides what the caller does; the verbs of a table replace this error
        # (`gated`).
        raise
    except InvalidRequest as error:
        if not context.options.query_auth_enabled:
            raise
        failure = told(error, context)
    raise failure


def _done(context: TableContext, work: Work, rows_done: RowsDone) -> CommitMessage:
    if isinstance(work, Packing):
        return pack_files(context, work, rows_done)
    if isinstance(work, Clustering):
        return cluster_files(context, work, rows_done)
    return compact_bucket(context, work, rows_done)


def left_to_plan(
    context: TableContext,
    messages: Sequence[CommitMessage],
    entries: Sequence[ManifestEntry],
    *,
    clusters: bool = False,
) -> list[ManifestEntry]:
    """The entries that are still to be planned after these messages.

    In an unordered bucket, these are the files that no message replaces. Any other bucket with a
    message is done, and so is a partition that was clustered (`clusters`).
    """
    clusters = clusters or context.options.clustering_incremental
    if not context.schema.primary_keys and context.options.bucket < 0 and not clusters:
        packed = {file.name for message in messages for file in message.compact_before}
        return [entry for entry in entries if entry.file.name not in packed]
    there = {(message.partition, message.bucket) for message in messages}
    return [entry for entry in entries if (entry.partition, entry.bucket) not in there]


# --- drop vectors --------------------------------------------------------------------------------
# Removes the deletion vectors of files that a compaction of a table without a key replaces.
#
# A compaction of a table with data evolution keeps deleted rows at their positions, so the new file
# gets the vectors of the files that it replaces.
#
# Several messages of a step may replace files whose vectors are in one index file, so the index
# files are written once for all messages of a bucket, just before the commit. (A compaction of a
# table with a key also marks rows, and writes its vectors itself: `compact_bucket.py`.)


def without_vectors(
    context: TableContext, snapshot: Snapshot | None, messages: Sequence[CommitMessage]
) -> list[CommitMessage]:
    """The messages, with the changes of index files added to the first message of each bucket.

    `snapshot` must be the one that the compactions have read. On failure, the index files that were
    written are removed.
    """
    if context.schema.primary_keys:
        return list(messages)
    buckets: dict[tuple[bytes, int], list[int]] = defaultdict(list)
    for at, message in enumerate(messages):
        if any(index is not None for _, index in message.vectors_read or ()):
            buckets[message.partition, message.bucket].append(at)
    done = list(messages)
    written: list[BucketVectors] = []
    try:
        for (partition, bucket), inside in buckets.items():
            vectors = BucketVectors.of(context, snapshot, partition, bucket)
            written.append(vectors)
            for at in inside:
                vectors.drop(file.name for file in messages[at].compact_before)
                if context.options.data_evolution_enabled:
                    _keep_marks(vectors, messages[at])
            files = vectors.write()
            done[inside[0]] = replace(
                messages[inside[0]],
                compact_index_files=files.added,
                compact_deleted_index_files=files.deleted,
            )
    except BaseException:
        for vectors in written:
            vectors.abort()
        raise
    return done


def _keep_marks(vectors: BucketVectors, message: CommitMessage) -> None:
    """Mark the deleted rows of the replaced files in the new file."""
    (after,) = message.compact_after
    for group in by_row_ids(message.compact_before):
        positions = vectors.positions(anchor_of(group).name)
        moved = (group[0].first_row_id or 0) - (after.first_row_id or 0)
        vectors.mark(after.name, positions + moved)


# --- compact runner ------------------------------------------------------------------------------
# What compacts the buckets of a step: threads of this process, or another engine.
#
# A `Runner` compacts planned work and appends the message of each item, also if another item fails.
# The runner returns the buckets whose rows cannot be merged, with the error that names the key; any
# other error ends the step. Nothing is visible before the caller commits the messages.

Failures: TypeAlias = "dict[tuple[bytes, int], Uncomputable]"
"""The error of each bucket that cannot be compacted, by partition and bucket number."""
Runner: TypeAlias = "Callable[[TableContext, Sequence[Work], Tally, list[CommitMessage]], Failures]"


def run_here(
    context: TableContext, works: Sequence[Work], tally: Tally, messages: list[CommitMessage]
) -> Failures:
    """Compact in threads of this process, under the memory budget of the table."""
    failed: Failures = {}
    # Seeded here, so that file names do not depend on the order of threads.
    own = {id(work): forked(context.ambient) for work in works}

    def compact(work: Work, rows_done: RowsDone) -> CommitMessage | None:
        try:
            return do_work(replace(context, ambient=own[id(work)]), work, rows_done)
        except Uncomputable as error:
            failed[work.partition, work.bucket] = error
            return None

    compact_buckets(works, compact, context.budget, tally, messages)
    return failed
