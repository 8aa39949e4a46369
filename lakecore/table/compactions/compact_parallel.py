"""Compacts several buckets concurrently, one thread each, under the common memory budget.

The number of threads is limited by the processors and by the budget, but is at least one. A single
bucket is compacted in the calling thread. When one bucket fails, the others stop after their
current window and remove their files.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from lakecore.memory import Budget
    from lakecore.model.files import CommitMessage, DataFile

ROOM_BYTES = 256 << 20
"""Memory for each bucket that is compacted concurrently: its windows and their encoding."""
WORKER = "lakecore-compact"


class PlannedBucket(Protocol):
    """The work planned for one bucket."""

    @property
    def partition(self) -> bytes:
        """The serialized partition."""
        ...

    @property
    def bucket(self) -> int:
        """The bucket number."""
        ...

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files that will be replaced, or change their level."""
        ...

    @property
    def row_count(self) -> int:
        """The rows of these files, as stored."""
        ...


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
