"""Chooses how to compact: merge runs (tables with a key), or pack or cluster files (without one).

Only this module knows all kinds of compaction; `verbs/compaction.py` commits the messages.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from lakecore.errors import InvalidRequest, LakecoreError, Uncomputable
from lakecore.io.ambient import forked
from lakecore.plan.row_ids import anchor_of, by_row_ids
from lakecore.table.compactions.cluster_files import (
    Clustering,
    cluster_files,
    plan_incremental,
    plan_sorting,
)
from lakecore.table.compactions.compact_bucket import compact_bucket
from lakecore.table.compactions.compact_plan import BucketCompaction, plan_buckets
from lakecore.table.compactions.pack_files import (
    Packing,
    pack_files,
    plan_packing,
    plan_row_ranges,
)
from lakecore.table.reads.told import told
from lakecore.table.vectors import BucketVectors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from lakecore.memory import Budget
    from lakecore.merge.curves import Ordering
    from lakecore.model.files import CommitMessage, DataFile
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.compactions.compact_plan import IdlePicks
    from lakecore.table.context import TableContext


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
        """Count `more` rows as done."""
        with self._lock:
            self._rows_done += more
            self._report()

    def bucket(self) -> None:
        """Count one bucket as done."""
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

    With `ordering`, it sorts all rows. `step_bytes` is the size of an item of work, where files can
    be split that way. `idle` counts how often a long-running job found nothing to do in a bucket.
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
        # Its key decides what the caller does; the verbs of a table replace this error (`gated`).
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
# It returns the buckets whose rows cannot be merged, with the error that names the key; any other
# error ends the step. Nothing is visible before the caller commits the messages.

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
