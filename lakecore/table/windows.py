"""Sorted runs -> windows of keys, merged one after another.

1. Hold one batch of each run.
2. The bound is the smallest last key among the runs that have more to give: no later batch can hold
   a key at or below it.
3. The rows up to the bound are the window: merge them, give them out.
4. Refill the runs that are used up, and go on.

Of `k` runs `BATCHES_HELD * k` batches are in memory: of each one is held, the next is known, and
the one after it is read while the window merges. Which rows a window has depends on the runs alone,
not on how fast they are read.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, wait
from threading import current_thread
from typing import TYPE_CHECKING

from lakecore.merge.spec import Slice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lakecore.merge.spec import MergeFunction, MergeSpec

READER = "lakecore-read"
"""How the names of the threads that read ahead begin."""
BATCHES_HELD = 3
"""Of each run."""


def merge_slices(
    runs: Sequence[Iterator[Slice]], merge: MergeFunction, spec: MergeSpec
) -> Generator[pa.Table, None, None]:
    """Sorted streams of slices, merged window by window; closes the streams at the end.

    A key must not go on from one slice of a stream to the next; see `whole_keys`.
    """
    ahead = ThreadPoolExecutor(1, thread_name_prefix=READER)
    cursors = [_Cursor(slices, ahead) for slices in runs]
    try:
        yield from _merge_windows(cursors, merge, spec)
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
    cursors: list[_Cursor], merge: MergeFunction, spec: MergeSpec
) -> Iterator[pa.Table]:
    while True:
        for cursor in cursors:
            cursor.fill()
        held = [cursor for cursor in cursors if cursor.pending is not None]
        if not held:
            return
        lasts = [cursor.last_key() for cursor in held if not cursor.at_last_batch]
        bound = min(lasts) if lasts else None
        window = [part for cursor in held if (part := cursor.take_up_to(bound)) is not None]
        yield from (table for table in merge(window, spec) if table.num_rows)


class _Cursor:
    """One sorted run, read batch by batch; two batches ahead."""

    def __init__(self, slices: Iterator[Slice], ahead: ThreadPoolExecutor) -> None:
        self._slices = slices
        self._ahead = ahead
        self._reading = ahead.submit(_next_filled, slices)
        self._next: Slice | None = None
        self._started = False
        self.pending: Slice | None = None

    @property
    def at_last_batch(self) -> bool:
        """Whether nothing comes after the rows held."""
        return self._next is None

    def fill(self) -> None:
        """Hold the next rows, if none are held and there are more."""
        if not self._started:
            self._started = True
            self._read_on()
        if self.pending is None and self._next is not None:
            self.pending = self._next
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
        if not self._reading.cancel() and not on_reader():
            wait([self._reading])
        slices = self._slices
        if not isinstance(slices, Generator):
            return
        if self._reading.done():
            slices.close()
        else:
            self._reading.add_done_callback(lambda _: slices.close())

    def _read_on(self) -> None:
        self._next = self._reading.result()
        if self._next is not None:
            self._reading = self._ahead.submit(_next_filled, self._slices)


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
