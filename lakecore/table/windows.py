"""Sorted runs -> windows of keys, merged one after another.

1. Hold one batch of each run.
2. The bound is the smallest last key among the runs that have more to give: no later batch can hold
   a key at or below it.
3. The rows up to the bound are the window: merge them, give them out.
4. Refill the runs that are used up, and go on.

Of `k` runs `BATCHES_HELD * k` batches are in memory: of each one is held, the next is known, and
the one after it is read while the window merges. Which rows a window has depends on the runs alone,
not on how fast they are read.

Where a batch is larger than its part of the budget, because a row is, nothing is read ahead of it:
one is held of each run, and more windows are merged. Where even that is more than the whole budget,
it is an error, for the process would run out of memory next.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, wait
from threading import current_thread
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.memory import process_budget
from lakecore.merge.keep_all import whole_keys
from lakecore.merge.spec import Slice
from lakecore.model.arrow_arrays import size_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from lakecore.memory import Budget
    from lakecore.merge.spec import MergeFunction, MergeSpec

READER = "lakecore-read"
"""How the names of the threads that read ahead begin."""
BATCHES_HELD = 3
"""Of each run."""
_LARGE_SHARE = 6
"""The part of the budget, as a divisor, of which a run's share is what a batch may have to be read
ahead of: twice what is planned for it."""
_HELD_LEAST_BYTES = 64 << 20
"""What may be held under any budget."""
_KEY_SHARE = 4
"""What the rows of one key may take, as a divisor of the budget; to merge them takes as much again
and more."""
_KEY_LEAST_BYTES = 32 << 20


def merge_slices(
    runs: Sequence[Iterator[Slice]],
    merge: MergeFunction,
    spec: MergeSpec,
    budget: Budget | None = None,
) -> Generator[pa.Table, None, None]:
    """Sorted streams of slices, merged window by window; closes the streams at the end.

    A key must not go on from one slice of a stream to the next; see `with_whole_keys`. Raises
    InvalidRequest if a batch of each run is more than the budget (None: that of the process).
    """
    budget_bytes = (process_budget() if budget is None else budget).size_bytes
    held_max_bytes = max(budget_bytes, _HELD_LEAST_BYTES)
    large_bytes = held_max_bytes // (_LARGE_SHARE * max(1, len(runs)))
    ahead = ThreadPoolExecutor(1, thread_name_prefix=READER)
    cursors = [_Cursor(slices, ahead, large_bytes) for slices in runs]
    try:
        yield from _merge_windows(cursors, merge, spec, held_max_bytes)
    finally:
        for cursor in cursors:
            cursor.close()
        ahead.shutdown(wait=not on_reader())
    # All is read, so the thread is idle, and to wait for its end is safe from any thread.
    ahead.shutdown()


def on_reader() -> bool:
    """Whether this is a thread that reads ahead.

    NOTE: an iterator that is dropped ends in whatever thread dropped it last; Polars lets go in the
    next one that calls it. A reading thread that waited for another, or for itself, might wait for
    ever: what it ends is let go of when the read under way is done.
    """
    return current_thread().name.startswith(READER)


def _merge_windows(
    cursors: list[_Cursor], merge: MergeFunction, spec: MergeSpec, held_max_bytes: int
) -> Iterator[pa.Table]:
    while True:
        held_bytes = 0
        for cursor in cursors:
            cursor.fill()
            held_bytes += cursor.size_bytes
            if held_bytes > held_max_bytes:
                raise InvalidRequest(
                    "rows are too large to be merged within the memory budget: set "
                    "lakecore.memory-budget higher, or compact fewer runs at a time",
                    budget_bytes=held_max_bytes,
                    runs=len(cursors),
                    batch_bytes=cursor.size_bytes,
                )
        held = [cursor for cursor in cursors if cursor.pending is not None]
        if not held:
            return
        lasts = [cursor.last_key() for cursor in held if not cursor.at_last_batch]
        bound = min(lasts) if lasts else None
        window = [part for cursor in held if (part := cursor.take_up_to(bound)) is not None]
        yield from (table for table in merge(window, spec) if table.num_rows)
        # What comes next is read without what was merged beside it.
        del window


class _Cursor:
    """One sorted run, read batch by batch; two batches ahead, unless they are large.

    `size_bytes` is what the batches have that are held or known.
    """

    def __init__(
        self, slices: Iterator[Slice], ahead: ThreadPoolExecutor, large_bytes: int
    ) -> None:
        self._slices = slices
        self._ahead = ahead
        self._large_bytes = large_bytes
        self._reading: Future[Slice | None] | None = ahead.submit(_next_filled, slices)
        self._next: Slice | None = None
        self._next_bytes = 0
        self._next_known = False
        self._held_bytes = 0
        self.pending: Slice | None = None

    @property
    def at_last_batch(self) -> bool:
        """Whether it is known that nothing comes after the rows held."""
        return self._next_known and self._next is None

    @property
    def size_bytes(self) -> int:
        """The bytes of the batch that is held, in full, and of the next."""
        return (0 if self.pending is None else self._held_bytes) + self._next_bytes

    def fill(self) -> None:
        """Hold the next rows, if none are held and there are more."""
        if self.pending is None and not self.at_last_batch:
            if not self._next_known:
                self._read_on()
            self.pending, self._held_bytes = self._next, self._next_bytes
            # Of a run that has ended, it stays known.
            self._next, self._next_bytes, self._next_known = None, 0, self.pending is None
        small = self.pending is not None and self._held_bytes <= self._large_bytes
        if small and not self._next_known:
            self._read_on()

    def last_key(self) -> tuple[object, ...]:
        """The key of the last row held."""
        assert self.pending is not None
        return self.pending.keys.at(self.pending.keys.length - 1)

    def take_up_to(self, bound: tuple[object, ...] | None) -> Slice | None:
        """The held rows with keys at or below the bound (None: all); the others stay."""
        held = self.pending
        assert held is not None
        length = held.keys.length
        count = length if bound is None else held.keys.count_up_to(bound)
        self.pending = None if count == length else _cut(held, count, length - count)
        if count == 0:
            return None
        return held if count == length else _cut(held, 0, count)

    def close(self) -> None:
        """Stop reading, and close the files."""
        reading = self._reading
        if reading is not None and not reading.cancel() and not on_reader():
            wait([reading])
        slices = self._slices
        if not isinstance(slices, Generator):
            return
        if reading is None or reading.done():
            slices.close()
        else:
            reading.add_done_callback(lambda _: slices.close())

    def _read_on(self) -> None:
        """Know the next batch, and have the one after it read, unless this one is large."""
        reading, self._reading = self._reading, None
        if reading is None:
            reading = self._ahead.submit(_next_filled, self._slices)
        self._next = reading.result()
        self._next_known = True
        if self._next is not None:
            self._next_bytes = size_of(self._next.rows)
            if self._next_bytes <= self._large_bytes:
                self._reading = self._ahead.submit(_next_filled, self._slices)


def in_pieces(tables: Iterable[pa.Table], rows_max: int) -> Iterator[pa.Table]:
    """The tables in pieces of at most so many rows; nothing is copied."""
    for table in tables:
        for start in range(0, table.num_rows, rows_max):
            yield table.slice(start, rows_max)


def with_whole_keys(
    pieces: Iterable[pa.Table], key: Sequence[str], budget: Budget
) -> Iterator[pa.Table]:
    """The sorted rows, no key of which goes on from one table to the next.

    Raises InvalidRequest if the rows of a key take more than their part of the budget.
    """
    return whole_keys(pieces, key, max(budget.size_bytes // _KEY_SHARE, _KEY_LEAST_BYTES))


def _next_filled(slices: Iterator[Slice]) -> Slice | None:
    """The next slice that has rows: deletion vectors may leave none of a batch."""
    return next((part for part in slices if part.keys.length), None)


def _cut(part: Slice, start: int, length: int) -> Slice:
    return Slice(
        rows=part.rows.slice(start, length),
        keys=part.keys.slice(start, length),
        sequence_min=part.sequence_min,
        sequence_max=part.sequence_max,
        commit_order=part.commit_order,
        level=part.level,
        unique=part.unique,
    )
