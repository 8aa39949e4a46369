"""Merges sorted runs window by window; a window is a range of keys.

1. Hold one batch of each run.
2. The bound is the smallest last key among the runs that have more batches: no later batch can hold
   a key at or below the bound.
3. The rows up to the bound are the window: merge them and yield the result.
4. Refill the runs that are used up, and continue with step 2.

With `k` runs, `BATCHES_HELD * k` batches are in memory: the current batch of each run, and the next
two, which are read while windows merge. The rows of a window depend only on the runs, not on read
speed: whether a run has more batches follows from its row count, or the merge waits for the batch.

If a batch exceeds its share of the budget because its rows are large, nothing is read ahead: one
batch of each run is held. If these batches alone exceed the whole budget, an error is raised,
because the process would run out of memory. All rows of a key are merged in one window; a key whose
rows would exceed the budget is an error too.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.io.files.data_files import BatchSize
from lakecore.io.freed_memory import release_freed
from lakecore.lsm.levels import SortedRun, runs_are_ordered
from lakecore.memory import Budget, Share, process_budget
from lakecore.merge import interim_function
from lakecore.merge.deduplicate import KEEP_ALL, whole_keys
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import MergeFunction, MergeSpec, Slice
from lakecore.model.arrow_arrays import size_of
from lakecore.model.rows import KIND_FIELD, SEQUENCE_FIELD
from lakecore.model.types import Field, arrow_type
from lakecore.plan.splits import may_hold_deletions
from lakecore.table.file_reader.late_casts import (
    NO_LATE_CASTS,
    LateCasts,
    casts_after_merge,
    flags_of,
)
from lakecore.table.sections.large_rows import places_of

if TYPE_CHECKING:
    from lakecore.io.spill import SpillDirectory, SpilledRun
    from lakecore.model.files import Split
    from lakecore.table.file_reader.read_plan import ReadPlan
    from lakecore.table.file_reader.row_groups import Places

_AHEAD = 2
BATCHES_HELD = 1 + _AHEAD
"""The batches of a run that are in memory: the current one, and those read ahead."""
_LARGE_PART = 6
"""A batch is large if it exceeds a run's share of the budget divided by this: twice the planned
size of a batch. No batch is read ahead while a large batch is held."""
_HELD_LEAST_BYTES = 64 << 20
"""Batches of this total size may be held under any budget."""
_KEY_LEAST_BYTES = 32 << 20
_KEY_ROW_BYTES = 96
"""Bytes that merging takes for each row of a key with many rows, in addition to its values."""


def merge_slices(
    runs: Sequence[Iterator[Slice]],
    merge: MergeFunction,
    spec: MergeSpec,
    budget: Budget | None = None,
    readers: int = 1,
) -> Generator[pa.Table, None, None]:
    """Merge sorted runs, each an iterator of slices, window by window. Closes the runs at the end.

    `readers` runs are read concurrently, each by one thread at a time. The rows of a key must not
    span two slices of a run; see `with_whole_keys`. Raises InvalidRequest if one batch of every
    run, taken together, exceeds `budget` (None: the budget of the process), or if a key has too
    many rows for it.
    """
    budget_bytes = (process_budget() if budget is None else budget).size_bytes
    held_max_bytes = max(budget_bytes, _HELD_LEAST_BYTES)
    large_bytes = held_max_bytes // (_LARGE_PART * max(1, len(runs)))
    ahead = reader_threads(readers)
    cursors = [_Cursor(slices, ahead, large_bytes) for slices in runs]
    try:
        yield from _merge_windows(cursors, merge, spec, held_max_bytes)
    finally:
        for cursor in cursors:
            cursor.close()
        ahead.shutdown(wait=not on_reader())
    # Everything has been read: the threads are idle, and any thread may wait for their end.
    ahead.shutdown()


class _Here(threading.local):
    """What the current thread is for."""

    reads_ahead = False


_HERE = _Here()


def reader_threads(count: int) -> ThreadPoolExecutor:
    """A pool of threads that read ahead, which `on_reader` recognises."""

    def begin() -> None:
        _HERE.reads_ahead = True

    return ThreadPoolExecutor(count, "lakecore-read", begin)


def on_reader() -> bool:
    """Whether the current thread reads ahead, or is a Polars thread in a callback.

    NOTE: never wait for readers in such a thread. A dropped iterator is finalised in the thread
    that drops the last reference. If a reading thread waited there for another reader, or for
    itself, it could deadlock; its pool ends when the current read is done. A Polars thread in a
    callback must not block either: it may be the one the read is waiting for.
    """
    if _HERE.reads_ahead:
        return True
    # Python represents a thread that it did not start by a thread of this class.
    foreign = isinstance(threading.current_thread(), threading._DummyThread)  # noqa: SLF001
    return _CALLED_BACK.under_way > 0 and foreign


class _CalledBack:
    """Counts the running reads in which Polars threads may call lakecore's code."""

    def __init__(self) -> None:
        self.under_way = 0
        self._lock = threading.Lock()

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count one more read inside the `with` block."""
        with self._lock:
            self.under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self.under_way -= 1


_CALLED_BACK = _CalledBack()
called_back = _CALLED_BACK.one_more
"""A context manager for reads in which Polars threads may call lakecore's code; see `on_reader`."""


def _merge_windows(
    cursors: list[_Cursor], merge: MergeFunction, spec: MergeSpec, held_max_bytes: int
) -> Iterator[pa.Table]:
    while True:
        held_bytes = key_rows = 0
        for cursor in cursors:
            cursor.fill()
            held_bytes += cursor.size_bytes
            if cursor.size_bytes > Share.MANY_OF_A_KEY.of(held_max_bytes):
                key_rows += cursor.key_rows
            if held_bytes > held_max_bytes:
                raise InvalidRequest(
                    "rows are too large to be merged within the memory budget: set "
                    "lakecore.memory-budget higher, or compact fewer runs at a time",
                    budget_bytes=held_max_bytes,
                    runs=len(cursors),
                    batch_bytes=cursor.size_bytes,
                )
        if key_rows * _KEY_ROW_BYTES > Share.KEY_ROWS.of(held_max_bytes):
            raise InvalidRequest(
                "one key has more rows than the memory budget lets its merge engine see at once: "
                "write them in several commits, or set lakecore.memory-budget higher",
                rows=key_rows,
                budget_bytes=held_max_bytes,
            )
        held = [cursor for cursor in cursors if cursor.pending is not None]
        if not held:
            return
        lasts = [cursor.last_key() for cursor in held if not cursor.at_last_batch]
        bound = min(lasts) if lasts else None
        window = [part for cursor in held if (part := cursor.take_up_to(bound)) is not None]
        yield from (table for table in merge(window, spec) if table.num_rows)
        # Free the merged window before the next rows are read.
        del window


class _Cursor:
    """One sorted run, read batch by batch. Holds one batch and reads ahead `_AHEAD` more.

    If rows are large, nothing is read ahead. At most one reader thread works for a cursor at a
    time; its lock guards all shared state.
    """

    def __init__(
        self, slices: Iterator[Slice], readers: ThreadPoolExecutor, large_bytes: int
    ) -> None:
        self._slices = slices
        self._readers = readers
        self._large_bytes = large_bytes
        self._changed = threading.Condition()
        self._ready: deque[tuple[Slice, int]] = deque()
        self._reading = False
        self._ended = False
        self._closed = self._abandoned = False
        self._error: BaseException | None = None
        self._held_bytes = 0
        self.pending: Slice | None = None
        with self._changed:
            self._read_on()

    @property
    def at_last_batch(self) -> bool:
        """Whether it is known that no rows follow the held ones."""
        assert self.pending is not None
        if self.pending.more is not None:
            return not self.pending.more
        if self._held_bytes > self._large_bytes:
            # The next batch has not been read yet.
            return False
        with self._changed:
            return not self._wait_for_next()

    @property
    def size_bytes(self) -> int:
        """The bytes of the held batch as it was read, or 0."""
        return 0 if self.pending is None else self._held_bytes

    @property
    def key_rows(self) -> int:
        """The number of rows held, if the batch may repeat a key; 0 if each key in it is unique."""
        held = self.pending
        return 0 if held is None or held.unique else held.keys.length

    def fill(self) -> None:
        """If no rows are held, hold the next batch, if there is one."""
        if self.pending is not None:
            return
        with self._changed:
            self._held_bytes = 0
            if self._wait_for_next():
                self.pending, self._held_bytes = self._ready.popleft()
            self._read_on()

    def last_key(self) -> tuple[object, ...]:
        assert self.pending is not None
        return self.pending.keys.at(self.pending.keys.length - 1)

    def take_up_to(self, bound: tuple[object, ...] | None) -> Slice | None:
        """Take the held rows with keys at or below the bound (None: all); other rows stay."""
        held = self.pending
        assert held is not None
        length = held.keys.length
        count = length if bound is None else held.keys.count_up_to(bound)
        self.pending = None if count == length else held.cut(count, length)
        if count == 0:
            return None
        return held if count == length else held.cut(0, count)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            if self._reading and on_reader():
                self._abandoned = True
                return
            self._changed.wait_for(lambda: not self._reading)
        self._close_slices()

    def _wait_for_next(self) -> bool:
        """Whether there are rows after those held. Called with the lock held."""
        self._read_on()
        self._changed.wait_for(lambda: not self._reading or self._ready)
        if not self._ready and self._error is not None:
            raise self._error
        return bool(self._ready)

    def _read_on(self) -> None:
        """Start reading the next batch, if there is room for it. Called with the lock held."""
        done = self._reading or self._ended or self._closed or len(self._ready) >= _AHEAD
        newest_bytes = self._ready[-1][1] if self._ready else self._held_bytes
        if not done and newest_bytes <= self._large_bytes:
            coming = self._readers.submit(self._next)
            self._reading = True
            coming.add_done_callback(self._take_in)

    def _next(self) -> Slice | None:
        return None if self._closed else _next_filled(self._slices)

    def _take_in(self, come: Future[Slice | None]) -> None:
        error = come.exception()
        part = None if error is not None else come.result()
        with self._changed:
            self._reading = False
            if part is None:
                self._ended, self._error = True, error
            else:
                self._ready.append((part, size_of(part.rows)))
            self._changed.notify_all()
            # A terminating interpreter accepts no tasks; a waiting consumer then reads by itself.
            with suppress(RuntimeError):
                self._read_on()
        if self._abandoned:
            self._close_slices()

    def _close_slices(self) -> None:
        if isinstance(self._slices, Generator):
            self._slices.close()


def counted(slices: Iterable[Slice], row_count: int) -> Iterator[Slice]:
    """The slices of a run of `row_count` rows. In each, `more` says whether more rows follow."""
    left = row_count
    for part in slices:
        left -= part.rows.num_rows
        yield replace(part, more=left > 0)
        del part


def in_pieces(tables: Iterable[pa.Table], rows_max: int) -> Iterator[pa.Table]:
    """The tables in pieces of at most `rows_max` rows, without copying."""
    for table in tables:
        for start in range(0, table.num_rows, rows_max):
            yield table.slice(start, rows_max)


def with_whole_keys(
    pieces: Iterable[pa.Table], key: Sequence[str], budget: Budget
) -> Iterator[pa.Table]:
    """The sorted rows in tables such that no key spans two tables.

    Raises InvalidRequest if the rows of a key take more than their share of the budget.
    """
    return whole_keys(pieces, key, max(Share.KEY.of(budget.size_bytes), _KEY_LEAST_BYTES))


def _next_filled(slices: Iterator[Slice]) -> Slice | None:
    """The next slice with rows. Deletion vectors may remove all rows of a batch."""
    return next((part for part in slices if part.keys.length), None)


# --- windows plan --------------------------------------------------------------------------------
# How the runs of a section are merged in windows, decided from metadata.

# --- rounds --------------------------------------------------------------------------------------
# Merges many sorted runs of level 0 to a few runs on local disk, so that a merge fits the budget.
#
# An open run holds pages of each of its columns in addition to its batches. If the runs of a
# section would hold more than their share of the budget:
#
# 1. the runs of level 0 are split into groups of neighbours, in commit order;
# 2. each group is merged, window by window, into one run on local disk, and closed;
# 3. these runs and the runs of the other levels are merged.
#
# A group is merged by the table's merge function if that may merge the rows of a key in several
# steps; otherwise all rows are kept (`interim_function`). Tombstones are always kept.

_COLUMN_BYTES = 768 << 10
"""Bytes of memory for the pages of a column, stored and decoded."""
_ROW_GROUP_BYTES = 24 << 20
"""Bytes of memory for the decoded row groups and the footer of a run with many columns."""
_DECODED_RATIO = 4
_AT_ONCE_MIN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How runs are merged in rounds. Each call of `open_run` reads a run from its start.

    `readers` runs of a round are read concurrently.
    """

    merge: MergeFunction
    spec: MergeSpec
    budget: Budget
    spills: SpillDirectory
    open_run: Callable[[SortedRun], Iterator[Slice]]
    commit_order: Callable[[SortedRun], int]
    readers: int = 1

    def streams(self, runs: Sequence[SortedRun], at_once: int) -> list[Iterator[Slice]]:
        """The rows of the runs; runs of level 0 are merged first, at most `at_once` in a group."""
        level_0 = sorted((run for run in runs if run.level == 0), key=self.commit_order)
        others = [run for run in runs if run.level != 0]
        count = -(-len(level_0) // at_once)
        step = max(1, -(-len(level_0) // max(1, count)))
        groups = [level_0[start : start + step] for start in range(0, len(level_0), step)]
        merged = [self._merged(group) for group in groups]
        return [*merged, *(self.open_run(run) for run in others)]

    def _merged(self, group: Sequence[SortedRun]) -> Iterator[Slice]:
        """The rows of the single run that a group of runs is merged into."""
        interim = interim_function(self.merge)
        spec = replace(self.spec, keep_deletions=True, in_key_order=True)
        low = min(run.sequence_min for run in group)
        high = max(run.sequence_max for run in group)
        slices = [self.open_run(run) for run in group]
        merging = merge_slices(slices, interim, spec, self.budget, self.readers)
        with closing(merging) as merged:
            first = next(merged, None)
            if first is None:
                return iter(())
            piece_bytes = max(1, Share.PIECE.of(self.budget.size_bytes))
            row_bytes = max(1, size_of(first) // first.num_rows)
            rows_max = max(1, piece_bytes // row_bytes)

            def pieces() -> Iterator[pa.Table]:
                for table in chain([first], merged):
                    yield from in_pieces([table], rows_max)
                    release_freed(self.budget.size_bytes)

            run = self.spills.write(first.schema, pieces(), low, high)
        release_freed(self.budget.size_bytes)
        order = max(self.commit_order(each) for each in group)
        return counted(self._slices(run, order, unique=interim is not KEEP_ALL), run.row_count)

    def _slices(self, run: SpilledRun, commit_order: int, *, unique: bool) -> Iterator[Slice]:
        tables: Iterable[pa.Table] = (
            pa.Table.from_batches([batch]) for batch in self.spills.read(run)
        )
        if not unique:
            tables = with_whole_keys(tables, self.spec.key, self.budget)
        for rows in tables:
            yield Slice(
                rows=rows,
                keys=order_columns([rows.column(name) for name in self.spec.key]),
                sequence_min=run.sequence_min,
                sequence_max=run.sequence_max,
                commit_order=commit_order,
                unique=unique,
            )
            del rows


def runs_at_once(runs: Sequence[SortedRun], columns: int, budget: Budget) -> int:
    """How many of these runs may be open at the same time, with that many columns each."""
    most = min(_COLUMN_BYTES * columns, _ROW_GROUP_BYTES)
    held = [
        min(most, _DECODED_RATIO * max((file.size_bytes for file in run.files), default=0))
        for run in runs
    ]
    mean = max(1, sum(held) // max(1, len(held)))
    return max(_AT_ONCE_MIN, Share.OPEN_RUNS.of(budget.size_bytes) // mean)


# --- windows plan --------------------------------------------------------------------------------

_BATCH_ROWS_MAX = 262_144
_ROW_BYTES = 16
"""Memory of a row in addition to its values, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """How the runs of a section are merged, window by window.

    - `fields`: the columns that are read;
    - `places`: columns merged by place, because rows are large (`row_groups.py`);
    - `late`: casts after the merge (`late_casts.py`);
    - `open_runs`: the most runs that are open at once;
    - `rounds`: whether there are more runs, which are first merged into fewer.
    """

    fields: tuple[Field, ...]
    places: Places | None
    late: LateCasts
    open_runs: int
    rounds: bool


def section_windows(split: Split, plan: ReadPlan, budget: Budget) -> Windows:
    """How a read merges a section."""
    fields = merge_fields([SortedRun(files=files) for files in split.runs], plan)
    places = places_of(split, fields, plan) if budget.is_large(split.row_bytes) else None
    late = NO_LATE_CASTS if places is not None else casts_after_merge(split.files, fields, plan)
    return windows_with(split, plan, budget, places, late)


def windows_with(
    split: Split, plan: ReadPlan, budget: Budget, places: Places | None, late: LateCasts
) -> Windows:
    """How a section is merged, given the columns merged by place and the late casts."""
    runs = [SortedRun(files=files) for files in split.runs]
    fields = merge_fields(runs, plan)
    fields = (*fields, *late.fields, *flags_of(split.files, fields, plan, late))
    open_runs = runs_at_once(runs, len(fields), budget)
    rounds = len(runs) > open_runs
    return Windows(fields=fields, places=places, late=late, open_runs=open_runs, rounds=rounds)


def merge_fields(runs: Sequence[SortedRun], plan: ReadPlan) -> tuple[Field, ...]:
    """The columns to read: the requested ones, the key, and those that decide the winners."""
    spec, schema = plan.merge, plan.schema
    fields = [schema.field(name) for name in spec.columns_for(plan.columns)]
    if plan.system_columns or spec.sequence or not runs_are_ordered(runs):
        fields.append(SEQUENCE_FIELD)
    if plan.system_columns or any(may_hold_deletions(file) for run in runs for file in run.files):
        fields.append(KIND_FIELD)
    return tuple(fields)


def batch_size(fields: Sequence[Field], batch_bytes: int) -> BatchSize:
    """The size of batches of these columns that take about `batch_bytes` during a merge.

    The estimate of a row includes its values, its encoded key, a position, and masks.
    """
    kinds = [arrow_type(field.type) for field in fields]
    least = sum(kind.bit_width if pa.types.is_primitive(kind) else 32 for kind in kinds) / 8
    rows = max(1, min(int(batch_bytes / (least + _ROW_BYTES)), _BATCH_ROWS_MAX))
    return BatchSize(rows, max(1, batch_bytes))
