"""Blocks on local disk: rows that did not fit in memory, mapped from a file when needed.

If a block is read from its data file a second time, memory had no room to keep it. It is then
written to disk, uncompressed. From then on it is memory-mapped: only the pages that a look-up
touches are read, and nothing is decoded. If memory holds all blocks, nothing is written.

INVARIANT: the disk is only a cache. If a block is missing, it is read from its data file. If the
disk is full or fails, it is not used any more; no look-up fails because of it.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import StorageError
from lakecore.io.spill import SpillDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import pyarrow as pa

    from lakecore.io.spill import SpilledRun

_SEEN_MAX = 1 << 20

log = logging.getLogger("lakecore.lookup")


@dataclass(slots=True)
class _Stored:
    """A block on disk, and when it was used last."""

    run: SpilledRun
    used_ms: int


class DiskBlocks:
    """A cache of named blocks on local disk, at most `size_max_bytes` (None: no limit).

    Thread-safe.

    Rows that were not used for `retention_ms` are deleted. `now_ms` is the clock.
    """

    def __init__(
        self, size_max_bytes: int | None, retention_ms: int, now_ms: Callable[[], int]
    ) -> None:
        self._size_max_bytes = size_max_bytes
        self._retention_ms = retention_ms
        self._now_ms = now_ms
        directory = SpillDirectory(compression=None)
        self._directory: SpillDirectory | None = directory
        # Delete the files even if nobody closes the handle.
        weakref.finalize(self, directory.close)
        self._stored: OrderedDict[Hashable, _Stored] = OrderedDict()
        self._seen: OrderedDict[Hashable, None] = OrderedDict()
        self._size_bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """The bytes on disk."""
        return self._size_bytes

    def get(self, name: Hashable) -> pa.Table | None:
        """The rows with this name, mapped from disk; None if they are not there."""
        with self._lock:
            self._drop_unused()
            found = self._stored.get(name)
            if found is None or self._directory is None:
                return None
            found.used_ms = self._now_ms()
            self._stored.move_to_end(name)
            try:
                return self._directory.mapped_rows(found.run)
            except StorageError:
                self._drop(name)
                return None

    def offer(self, name: Hashable, rows: pa.Table) -> None:
        """Remember that these rows were read; the second time, write them to disk."""
        with self._lock:
            if self._directory is None or name in self._stored:
                return
            if name not in self._seen:
                self._seen[name] = None
                if len(self._seen) > _SEEN_MAX:
                    self._seen.popitem(last=False)
                return
            if self._size_max_bytes is not None and rows.nbytes > self._size_max_bytes:
                return
            self._write(name, rows, self._directory)

    def close(self) -> None:
        """Delete all files. Rows that were returned stay usable."""
        with self._lock:
            self._stored.clear()
            self._size_bytes = 0
            if self._directory is not None:
                self._directory.close()
                self._directory = None

    def _write(self, name: Hashable, rows: pa.Table, directory: SpillDirectory) -> None:
        try:
            run = directory.write(rows.schema, [rows], 0, 0)
        except StorageError as error:
            log.warning("look-ups use no local disk any more: %s", error)
            self._stored.clear()
            self._size_bytes = 0
            directory.close()
            self._directory = None
            return
        self._stored[name] = _Stored(run, self._now_ms())
        self._size_bytes += run.size_bytes
        while self._size_max_bytes is not None and self._size_bytes > self._size_max_bytes:
            self._drop(next(iter(self._stored)))

    def _drop_unused(self) -> None:
        before_ms = self._now_ms() - self._retention_ms
        while self._stored:
            name, oldest = next(iter(self._stored.items()))
            if oldest.used_ms >= before_ms:
                return
            self._drop(name)

    def _drop(self, name: Hashable) -> None:
        dropped = self._stored.pop(name)
        self._size_bytes -= dropped.run.size_bytes
        if self._directory is not None:
            self._directory.remove(dropped.run)
