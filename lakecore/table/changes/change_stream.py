"""A stream as a program reads it: a loop over snapshots, with `for` or with `async for`.

The loop polls for the next snapshot at an interval. Closing the stream or Ctrl-C ends a wait early.

INVARIANT: a snapshot that was found is kept until it is returned. If a task is cancelled or Ctrl-C
interrupts a step, the next call returns the same snapshot.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from lakecore.forks import require_threads
from lakecore.table.changes.follow import Found, Nothing

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    import polars as pl
    import pyarrow as pa

    from lakecore.io.ambient import Ambient
    from lakecore.table.changes.changes import ChangesSource
    from lakecore.table.changes.follow import Follower
    from lakecore.table.changes.progress import Progress

Rows = TypeVar("Rows")
_NAP_SECONDS = 0.1
"""How long a wait lasts before it checks whether the stream was closed."""


class StreamReader:
    """The position of a stream, which all its iterators share."""

    def __init__(
        self,
        follower: Follower,
        progress: Progress,
        ambient: Ambient,
        *,
        poll_seconds: float,
        frame: Callable[[ChangesSource], pl.LazyFrame],
        batches: Callable[[ChangesSource], pa.RecordBatchReader],
    ) -> None:
        self.progress = progress
        self.frame = frame
        self.batches = batches
        self._follower = follower
        self._ambient = ambient
        self._poll_seconds = poll_seconds
        self._lock = threading.Lock()
        self._ready: Found | None = None
        self._begun = False
        self.closed = threading.Event()

    def look(self) -> Found | Nothing:
        """The next changes, or why there are none; never waits. Changes are kept until `take`."""
        require_threads()
        with self._lock:
            if self.closed.is_set():
                return Nothing.MORE
            if self._ready is not None:
                return self._ready
            self.progress.asked()
            found = self._follower.step()
            if isinstance(found, Found):
                self._begin(state=found)
                self._ready = found
                return found
            self._begin(state=None)
            next_id = self._follower.next_id
            if next_id is not None:
                self.progress.passed(next_id)
            return found

    def _begin(self, state: Found | None) -> None:
        """Once the start is known, record a new consumer, unless the stream first reads a state."""
        next_id = self._follower.next_id
        if self._begun or next_id is None:
            return
        self._begun = True
        if not self._follower.began_with_state:
            self.progress.begin(next_id if state is None else state.snapshot_id)

    def take(self, found: Found) -> bool:
        """Mark the changes as returned to the caller. False if another thread has taken them."""
        with self._lock:
            if self._ready is not found:
                return False
            self._ready = None
            self.progress.give(found.snapshot_id)
            return True

    def confirm(self, snapshot_id: int | None) -> None:
        """Record that this snapshot and all before it are done; None: all that were returned."""
        with self._lock:
            self.progress.confirm(snapshot_id)

    def wait(self) -> None:
        left = self._poll_seconds
        while left > 0 and not self.closed.is_set():
            self._ambient.sleep(min(left, _NAP_SECONDS))
            left -= _NAP_SECONDS

    async def wait_async(self) -> None:
        left = self._poll_seconds
        while left > 0 and not self.closed.is_set():
            await self._ambient.sleep_async(min(left, _NAP_SECONDS))
            left -= _NAP_SECONDS

    def close(self) -> None:
        self.closed.set()
        with self._lock:
            self._ready = None
            self.progress.close()


class ChangeStream(Generic[Rows]):
    """The changes of a table, snapshot by snapshot: an iterator, and an asynchronous one.

    Returned by `Table.stream`. Each item is a pair: the id of a snapshot, and its changes. The loop
    waits when it has read all snapshots, and ends after the snapshot `until`.

        with table.stream(until="latest") as stream:
            for snapshot_id, changes in stream:
                changes.collect()
    """

    def __init__(self, reader: StreamReader, show: Callable[[ChangesSource], Rows]) -> None:
        self._reader = reader
        self._show = show

    @property
    def next_snapshot(self) -> int | None:
        """The first snapshot that was not returned yet: a new stream would continue with it.

        Keep it with your results, and pass it as `from_snapshot` after a restart. None if nothing
        was returned and the start is not known yet.

            stream.next_snapshot
        """
        return self._reader.progress.given

    def commit(self, snapshot_id: int | None = None) -> None:
        """Record in the consumer that this snapshot, and all before it, are done.

        Without `snapshot_id`, everything that was returned is done. Call it after the results are
        stored (https://paimon.apache.org/docs/master/flink/consumer-id/).

        Raises InvalidRequest if the stream has no `consumer_id`, or has not returned the snapshot.

            stream.commit()
        """
        self._reader.confirm(snapshot_id)

    def to_batches(self) -> ChangeStream[pa.RecordBatchReader]:
        """The same stream, with a reader of Arrow batches in place of each lazy frame.

        A reader returns the rows of one snapshot batch by batch, so that memory does not grow with
        the snapshot. Both streams share one position: read from one of them.

            for snapshot_id, reader in table.stream(until="latest").to_batches():
                for batch in reader:
                    batch.num_rows
        """
        return ChangeStream(self._reader, self._reader.batches)

    def close(self) -> None:
        """End the stream: a loop that waits for snapshots ends, also one in another thread.

        With `consumer.mode=at-least-once`, what is done is recorded. The snapshot that was returned
        last is done only if the loop has asked for another one.

            stream.close()
        """
        self._reader.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, Rows]:
        while True:
            found = self._reader.look()
            if isinstance(found, Found):
                rows = self._show(found.source)
                if self._reader.take(found):
                    return found.snapshot_id, rows
            elif found is Nothing.MORE:
                self.close()
                raise StopIteration
            else:
                self._reader.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, Rows]:
        while True:
            found = await asyncio.to_thread(self._reader.look)
            if isinstance(found, Found):
                rows = self._show(found.source)
                if self._reader.take(found):
                    return found.snapshot_id, rows
            elif found is Nothing.MORE:
                await asyncio.to_thread(self.close)
                raise StopAsyncIteration
            else:
                await self._reader.wait_async()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)
