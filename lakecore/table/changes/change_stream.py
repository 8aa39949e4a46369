"""A stream as a program reads it: a loop over snapshots, with `for` or with `async for`.

The loop polls for the next snapshot at an interval. Closing the stream or Ctrl-C ends a wait early.

INVARIANT: a snapshot that was found is kept until it is returned. If a task is cancelled or Ctrl-C
interrupts a step, the next call returns the same snapshot.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from lakecore.errors import InvalidRequest
from lakecore.forks import require_threads
from lakecore.options import ConsumerMode
from lakecore.table.changes.follow import Follower, Found, Nothing
from lakecore.table.maintenance.consumers import write_consumer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import polars as pl
    import pyarrow as pa

    from lakecore.io.ambient import Ambient
    from lakecore.table.changes.changes import ChangesSource
    from lakecore.table.context import TableContext

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

        Keep the id with your results, and pass it as `from_snapshot` after a restart. None if
        nothing was returned and the start is not known yet.

            stream.next_snapshot
        """
        return self._reader.progress.given

    def commit(self, snapshot_id: int | None = None) -> None:
        """Record in the consumer that this snapshot, and all before it, are done.

        Without `snapshot_id`, everything that was returned is done. Call `commit` after the results
        are stored (https://paimon.apache.org/docs/master/flink/consumer-id/).

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

    def __exit__(self, *_: object) -> None:
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


# --- progress ------------------------------------------------------------------------------------
# How far the reader of a stream is, and which progress its consumer file records.
#
# - `consumer.mode=exactly-once`: progress is recorded when the reader says that a snapshot is done.
#   If the reader stops before that, it gets the snapshot again.
# - `consumer.mode=at-least-once`: a request for the next snapshot marks the previous one as done.
#   Progress is recorded at most once in each interval, and when the stream ends or is closed.
#
# In both modes, snapshots without changes that follow a done snapshot are done too. Such snapshots
# are recorded at most once in each interval, so that snapshots of compactions can expire.
#
# INVARIANT: a snapshot is recorded only after all snapshots before it were returned and done.


class Progress:
    """The progress of one stream.

    A position is the id of the next snapshot: all snapshots before it were returned, or are done.
    """

    def __init__(
        self, context: TableContext, consumer_id: str | None, recorded: int | None, every_ms: int
    ) -> None:
        """`recorded` is the content of the consumer file; None if there is no file."""
        self._context = context
        self._consumer_id = consumer_id
        self._confirms = context.options.consumer_mode is ConsumerMode.EXACTLY_ONCE
        self._every_ms = every_ms
        self._recorded = recorded
        self._recorded_ms = context.ambient.now_ms()
        self._done: int | None = None
        self.given: int | None = None
        """The next snapshot after all returned ones; None before the first."""

    def begin(self, next_id: int) -> None:
        """Note that the stream starts with the changes of snapshot `next_id`, without a state.

        A new consumer is recorded now, so that nothing that it needs expires.
        """
        self.given = self._done = next_id
        if self._consumer_id is not None and self._recorded is None:
            self._write(next_id)

    def give(self, snapshot_id: int) -> None:
        """Note that a snapshot was returned to the reader."""
        self.given = snapshot_id + 1

    def asked(self) -> None:
        """Note that the reader asks for more. At-least-once: all returned snapshots are done."""
        if not self._confirms:
            self._done = self.given
        self._record_in_time()

    def passed(self, next_id: int) -> None:
        """Note that all snapshots before `next_id` were returned or skipped."""
        if self.given is not None and self._done == self.given:
            self._done = next_id
        self.given = next_id
        self._record_in_time()

    def confirm(self, snapshot_id: int | None) -> None:
        """Record that this snapshot and all before it are done; None: all that were returned."""
        if self._consumer_id is None:
            raise InvalidRequest(
                "the stream has no consumer to record progress for; give it a consumer_id",
                table=self._context.identifier,
            )
        if isinstance(snapshot_id, bool) or not isinstance(snapshot_id, int | None):
            raise InvalidRequest("a snapshot id must be a whole number", snapshot_id=snapshot_id)
        done = self.given if snapshot_id is None else snapshot_id + 1
        if done is None:
            return
        if self.given is None or done > self.given:
            raise InvalidRequest(
                "the stream has not returned this snapshot yet",
                snapshot_id=snapshot_id,
                consumer_id=self._consumer_id,
                table=self._context.identifier,
            )
        if done < (self._done or 1):
            raise InvalidRequest(
                "a later snapshot is already recorded as done; use reset_consumer to go back",
                snapshot_id=snapshot_id,
                next_snapshot=self._done,
                consumer_id=self._consumer_id,
                table=self._context.identifier,
            )
        self._done = done
        self._write(done)

    def close(self) -> None:
        """Record the progress, unless it is recorded already."""
        if self._done is not None and self._recorded != self._done:
            self._write(self._done)

    def _record_in_time(self) -> None:
        if self._done is None or self._consumer_id is None or self._done == self._recorded:
            return
        if self._context.ambient.now_ms() - self._recorded_ms >= self._every_ms:
            self._write(self._done)

    def _write(self, next_id: int) -> None:
        if self._consumer_id is None:
            return
        write_consumer(self._context, self._consumer_id, next_id)
        self._recorded, self._recorded_ms = next_id, self._context.ambient.now_ms()
