"""Several streams of batches, read concurrently and returned in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

import polars as pl
import pyarrow as pa

from lakecore.model.arrow_arrays import size_of
from lakecore.table.sections.windows import READER, on_reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

_READERS = 2
_TASKS_AHEAD = 4
_TASK_ROWS, _TASK_BATCHES = 65_536, 8
"""A task ends at this many rows or batches: the batches of a merged window are mostly small."""
_AHEAD_BYTES = 64 << 20

Batch = TypeVar("Batch", bound=pa.RecordBatch | pl.DataFrame)
"""A batch of rows: an Arrow record batch or a Polars frame."""


def side_by_side(
    streams: Iterable[Iterator[Batch]],
    ahead_bytes: int = _AHEAD_BYTES,
) -> Generator[Batch, None, None]:
    """The batches of the streams, in order; a few streams are read concurrently.

    From each of these streams, a few batches are read ahead, up to `ahead_bytes`.
    """
    waiting = iter(streams)
    running: deque[_Ahead[Batch]] = deque()
    try:
        while True:
            running.extend(
                _Ahead(each, ahead_bytes) for each in islice(waiting, _READERS - len(running))
            )
            if not running:
                return
            yield from running[0]
            running.popleft().close()
    finally:
        for stream in running:
            stream.close()


class _Ahead(Generic[Batch]):
    """A stream that its own thread reads a few batches ahead.

    NOTE: reading a few batches is a task that ends, not a loop that waits for room. On exit, the
    interpreter waits for every thread. If a consumer dropped the stream without closing it, a
    thread that waited for room would wait for ever, and the exit would hang.
    """

    def __init__(self, stream: Iterator[Batch], ahead_bytes: int) -> None:
        self._stream = stream
        self._ahead_bytes = ahead_bytes
        self._read_bytes = self._given_bytes = 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=READER)
        self._tasks = deque(self._next() for _ in range(_TASKS_AHEAD))

    def __iter__(self) -> Iterator[Batch]:
        while (some := self._tasks.popleft().result()) is not None:
            self._tasks.append(self._next())
            while some:
                batch = some.popleft()
                self._given_bytes += _bytes_of(batch)
                yield batch
                del batch

    def close(self) -> None:
        """Stop reading and release what the stream holds."""
        under_way = [task for task in self._tasks if not task.cancel()]
        self._pool.shutdown(wait=not on_reader())
        stream = self._stream
        if not isinstance(stream, Generator):
            return
        if all(task.done() for task in under_way):
            stream.close()
        else:
            under_way[-1].add_done_callback(lambda _: stream.close())

    def _next(self) -> Future[deque[Batch] | None]:
        return self._pool.submit(self._read)

    def _read(self) -> deque[Batch] | None:
        """The next batches: one, or a few small ones. None at the end of the stream.

        Empty while the batches that wait for the consumer take `ahead_bytes`.
        """
        some: deque[Batch] = deque()
        rows = 0
        while rows < _TASK_ROWS and len(some) < _TASK_BATCHES:
            if self._read_bytes - self._given_bytes >= self._ahead_bytes:
                break
            batch = next(self._stream, None)
            if batch is None:
                return some or None
            self._read_bytes += _bytes_of(batch)
            rows += len(batch)
            some.append(batch)
            del batch
        return some


def _bytes_of(batch: pa.RecordBatch | pl.DataFrame) -> int:
    return int(batch.estimated_size()) if isinstance(batch, pl.DataFrame) else size_of(batch)
