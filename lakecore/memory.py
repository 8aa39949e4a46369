"""The memory budget of the process, shared by every read, write and compaction in it.

A window or a buffer takes a *lease* before it fills memory and releases it afterwards. A holder
that cannot get a lease waits (`acquire`), takes less (`acquire_up_to`), or spills.

A cache *keeps* memory that it can lose at any time. Kept bytes never delay a lease: when leases and
caches together exceed the budget, caches give memory back until they fit. Caches keep at most a
quarter of the budget.

What a holder takes at most is a `Share` of the budget. `PLANS` states which shares a verb holds at
the same time, and a test adds them up.

A lease counts the bytes that its holder plans to hold. It does not count memory that allocators
keep in addition; docs/decisions has the measurements.

INVARIANT: the leased bytes exceed the budget in two cases only. A lease larger than the whole
budget is granted when no other lease exists: a row of 100 MB must be readable under a budget of
64 MB. `acquire_up_to` always grants its minimum: a reader that waited for its own lease would
deadlock.

    lakecore.memory.set_process_budget("2 gb")
    lakecore.memory.process_budget().size_bytes  # 2147483648
"""

from __future__ import annotations

import gc
import threading
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol, Self
from weakref import WeakSet

from lakecore.errors import InvalidRequest
from lakecore.forks import require_threads
from lakecore.options import SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

BUDGET_DEFAULT_BYTES = 1 << 30
LARGE_LEAST_BYTES = 1 << 20
"""Rows with fewer bytes are never large, whatever the budget."""
PATIENCE_SECONDS = 5.0
"""How long a lease is waited for before the garbage collector is asked for forgotten ones."""


class Share(Enum):
    """Parts of the budget, each as a fraction with what it is for."""

    # Caches.
    KEPT = 1, 4, "all caches together"
    VIEW_MASKS = 1, 32, "the masks of all views of SQL queries"
    FOOTERS = 1, 32, "the Parquet footers that DuckDB caches"

    # Reads and merges.
    BATCHES = 1, 4, "the batches of a read, or of the runs that it merges"
    OPEN_RUNS = 1, 4, "open runs, in addition to their batches"
    AHEAD = 1, 8, "batches that wait for the consumer"
    BLOBS = 1, 8, "BLOB values that are read together"
    KEY = 1, 4, "the rows of one key; merging them takes as much again"
    DECIDING = 1, 8, "the columns that decide which rows of a section survive, and their flags"
    CHUNK = 1, 8, "row groups that Polars decodes together"
    SCAN_MASKS = 1, 64, "the masks of the rows of a scan by an engine"
    LINE_FILES = 1, 2, "DuckDB, while it reads files of rows"
    PAGE_QUERY = 1, 4, "DuckDB, for a query on the page of `lakecore ui`"

    # Compactions.
    WINDOWS = 1, 6, "the windows of a merge whose rows are encoded at the same time"
    ENCODING = 1, 4, "the rows that are encoded, for data files and changelogs"
    UPPER_LEVELS = 1, 8, "reading the levels in which a compaction looks up keys"
    SORT = 1, 4, "the rows that are sorted together"

    # Writes.
    BUFFERS = 7, 20, "buffered rows; sorting and encoding them needs more memory"
    BUFFERS_LEAST = 3, 10, "buffered rows if the budget is small"
    BUFFERS_FREE = 2, 5, "buffered rows, of what the libraries leave of the budget"
    BATCH = 1, 8, "a batch of incoming rows"
    KEY_INDEX = 1, 8, "the index of keys that may move to another partition"

    # Changes of rows.
    SOURCE = 1, 8, "a part of the source of a MERGE"
    SENT = 1, 16, "the source of a MERGE that every task of Spark gets, of the memory of a task"
    CHANGED = 1, 8, "the changed rows of files that are written together"
    WAITING = 1, 64, "changed rows before they are spilled"

    # Bounds within one of the shares above.
    LARGE_ROW = 1, 64, "a row that is large: only one is held at a time"
    UNBUFFERED_ROW = 7, 80, "a row that is written at once, not buffered"
    PIECE = 1, 256, "a piece of a spilled run"
    RELEASED = 1, 32, "freed memory before it is returned to the system"
    MANY_OF_A_KEY = 1, 64, "a batch that may hold many rows of one key"
    KEY_ROWS = 1, 2, "the rows of one key without their values"
    WINDOW_ROWS = 1, 256, "a row of a window of keys: as many rows as bytes"

    def __init__(self, over: int, under: int, meaning: str) -> None:
        self.over, self.under, self.meaning = over, under, meaning

    def of(self, size_bytes: int) -> int:
        """The part that the share is of a number of bytes."""
        return size_bytes * self.over // self.under


PLANS: Mapping[str, tuple[Share, ...]] = {
    "read": (Share.BATCHES, Share.OPEN_RUNS, Share.AHEAD, Share.BLOBS),
    "read, one key has many rows": (Share.BATCHES, Share.KEY, Share.KEY),
    "read by Polars": (*(Share.DECIDING,) * 2, *(Share.CHUNK,) * 3, Share.AHEAD),
    "scan by an engine": (*(Share.DECIDING,) * 2, Share.SCAN_MASKS),
    "query": (Share.BATCHES, Share.AHEAD, Share.VIEW_MASKS, Share.FOOTERS),
    "query of the page": (
        Share.PAGE_QUERY,
        Share.BATCHES,
        Share.AHEAD,
        Share.VIEW_MASKS,
        Share.FOOTERS,
    ),
    "import": (Share.LINE_FILES, Share.BUFFERS),
    "write": (Share.BUFFERS, Share.BATCH, Share.KEY_INDEX),
    "write, sorted": (Share.SORT, Share.BATCH, Share.ENCODING),
    "compaction": (Share.WINDOWS, Share.OPEN_RUNS, Share.ENCODING, Share.UPPER_LEVELS),
    "clustering": (Share.SORT, Share.BATCHES, Share.ENCODING),
    "MERGE": (Share.SOURCE, Share.BATCHES, Share.BUFFERS, Share.BATCH),
    "MERGE in a task of Spark": (Share.SENT, Share.SOURCE, Share.BATCHES, Share.BUFFERS),
    "MERGE of columns": (Share.SOURCE, Share.BATCHES, Share.CHANGED, Share.WAITING),
}
"""For each verb, the shares that it may hold at the same time. Caches give way to them."""


@dataclass(slots=True, eq=False)
class Lease:
    """A part of the budget; a context manager that releases it on exit."""

    budget: Budget
    size_bytes: int

    def release(self) -> None:
        """Release the lease. Releasing it again has no effect."""
        self.budget.resize(self, 0)

    def resize(self, size_bytes: int) -> bool:
        """Resize the lease. Returns False and changes nothing if the budget has no room."""
        return self.budget.resize(self, size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Keeper(Protocol):
    """A cache, which can give back its memory at any time."""

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes that it keeps now."""

    def give_back(self, size_bytes: int) -> int:
        """Drop values of about this size; returns the number of bytes that were dropped."""


class Budget:
    """A limit of bytes that may be leased at the same time."""

    def __init__(self, size_bytes: int = BUDGET_DEFAULT_BYTES) -> None:
        self.size_bytes = size_bytes
        self._used = 0
        self._keepers: WeakSet[Keeper] = WeakSet()
        self._kept_most = 0  # at least `kept_bytes`: to count many caches at each lease is slow
        self._is_set = False
        self._changed = threading.Condition()

    @property
    def used_bytes(self) -> int:
        """Bytes leased now."""
        return self._used

    def acquire(self, size_bytes: int, timeout_seconds: float | None = None) -> Lease:
        """A lease of that size. Waits until there is room; raises TimeoutError at the timeout."""
        require_threads()
        soon = (
            PATIENCE_SECONDS if timeout_seconds is None else min(timeout_seconds, PATIENCE_SECONDS)
        )
        with self._changed:
            fits = self._changed.wait_for(lambda: self._fits(size_bytes), soon)
        if not fits:
            # Readers that were dropped within a circle of references still hold their leases.
            gc.collect()
        with self._changed:
            if not self._changed.wait_for(lambda: self._fits(size_bytes), timeout_seconds):
                message = f"no room for a lease of {size_bytes} bytes within the memory budget"
                raise TimeoutError(message)
            self._used += size_bytes
        self._make_room()
        return Lease(self, size_bytes)

    def acquire_up_to(self, wanted_bytes: int, least_bytes: int) -> Lease:
        """A lease of at most `wanted_bytes`, limited by the room left now. Never waits.

        The lease has at least `least_bytes`, even if the budget has no room.
        """
        require_threads()
        with self._changed:
            free = self.size_bytes - self._used
            size_bytes = max(least_bytes, min(wanted_bytes, free))
            self._used += size_bytes
        self._make_room()
        return Lease(self, size_bytes)

    def is_large(self, row_bytes: float, share: Share = Share.LARGE_ROW) -> bool:
        """Whether a row of this size takes at least this share of the budget."""
        return row_bytes >= max(share.of(self.size_bytes), LARGE_LEAST_BYTES)

    @property
    def kept_bytes(self) -> int:
        """Bytes that caches keep now."""
        with self._changed:
            self._kept_most = sum(keeper.size_bytes for keeper in self._keepers)
            return self._kept_most

    @property
    def cache_bytes_max(self) -> int:
        """The bytes that all caches together may keep."""
        return Share.KEPT.of(self.size_bytes)

    def note_growth(self, keeper: Keeper, size_bytes: int) -> None:
        """A cache calls this after it has grown by this many bytes: from now on it is counted."""
        with self._changed:
            self._keepers.add(keeper)
            self._kept_most += size_bytes

    def note_empty(self, keeper: Keeper) -> None:
        """A cache calls this when it keeps nothing: with many tables, most caches are empty."""
        with self._changed:
            self._keepers.discard(keeper)

    def caches_fit(self) -> bool:
        """Whether the caches keep at most their share, and leave enough memory for leases."""
        with self._changed:
            room = min(self.cache_bytes_max, self.size_bytes - self._used)
            return self._kept_most <= room or self.kept_bytes <= room

    def set_size(self, size_bytes: int) -> None:
        """Change the size; existing leases keep theirs."""
        with self._changed:
            self._is_set = True
            self.size_bytes = size_bytes
            self._changed.notify_all()
        self._make_room()

    def set_default_size(self, size_bytes: int) -> None:
        """Change the size, unless `set_size` was called before."""
        if not self._is_set:
            self.set_size(size_bytes)

    def resize(self, lease: Lease, size_bytes: int) -> bool:
        """Resize the lease. Returns False and changes nothing if the budget has no room for it."""
        with self._changed:
            delta = size_bytes - lease.size_bytes
            if delta > 0 and not self._fits(delta, held=lease.size_bytes):
                return False
            self._used += delta
            lease.size_bytes = size_bytes
            self._changed.notify_all()
        if delta > 0:
            self._make_room()
        return True

    def _make_room(self) -> None:
        """Ask caches to free memory for leases.

        A cache is called without the lock of the budget. It takes its own lock, and two threads
        that take both locks in different orders would wait for each other for ever.
        """
        with self._changed:
            room = self.size_bytes - self._used
            excess = self.kept_bytes - room if self._kept_most > room else 0
            keepers = tuple(self._keepers) if excess > 0 else ()
        for keeper in keepers:
            excess -= keeper.give_back(excess) if excess > 0 else 0

    def _fits(self, size_bytes: int, held: int = 0) -> bool:
        alone = self._used == held
        return alone or self._used + size_bytes <= self.size_bytes


_process = Budget()


def process_budget() -> Budget:
    """The budget of this process."""
    return _process


def set_process_budget(size: int | str) -> None:
    """Set the memory budget of this process; existing leases keep their size.

    `size` is a number of bytes, or a size with a unit as in table options: "2 gb". It takes
    precedence over the option `lakecore.memory-budget` that a table stores. Raises InvalidRequest
    if `size` is not a size.

        lakecore.memory.set_process_budget("2 gb")
    """
    try:
        size_bytes: object = SIZE.parse(size) if isinstance(size, str) else size
    except ValueError as error:
        raise InvalidRequest("not a size of memory", size=size, allowed=error) from error
    if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or size_bytes < 1:
        raise InvalidRequest("a budget is a number of bytes, at least 1, or its text", size=size)
    _process.set_size(size_bytes)
