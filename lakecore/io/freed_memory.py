"""Freed memory: when allocators keep it for reuse, and when it is returned to the system.

An allocator keeps the memory that a thread has freed, for the same thread. Reusing such memory
costs nothing. New memory from the system costs as much as filling it, because the system clears
every page first. If each row group returned its memory, a compaction would take 20 % longer. Freed
memory is therefore kept until the process holds a large part of the budget.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.memory import process_budget

if TYPE_CHECKING:
    from collections.abc import Iterator

_HELD_SHARE = 0.75
"""The part of the budget up to which the process keeps freed memory."""
_REUSED_LEAST_BYTES = 1 << 30
_RESIDENT = "/proc/self/statm"
_CHOSEN = "ARROW_DEFAULT_MEMORY_POOL"
"""The environment variable by which users choose Arrow's pool."""
_KEPT_MS = 60_000
"""How long jemalloc keeps freed pages: long enough for the compaction of the next commit.

Arrow's default is one second. In an idle process, jemalloc returns nothing in either case.
"""


@cache
def encoding_pool() -> pa.MemoryPool:
    """The memory pool of the encoders: the one that reuses freed pages fastest."""
    if "jemalloc" in pa.supported_memory_backends():
        if _may_keep(process_budget().size_bytes):
            # The setting applies only to arenas created later, which are those of new threads.
            pa.jemalloc_set_decay_ms(_KEPT_MS)
        return pa.jemalloc_memory_pool()
    return pa.default_memory_pool()


class _Inside:
    """The callers inside `reused_memory`, and the pool to restore after the last one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._before: pa.MemoryPool | None = None

    def enter(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._before = pa.default_memory_pool()
                pa.set_memory_pool(encoding_pool())

    def leave(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._before is not None:
                # Do not replace another pool that was set meanwhile.
                if pa.default_memory_pool().backend_name == encoding_pool().backend_name:
                    pa.set_memory_pool(self._before)
                self._before = None


_INSIDE = _Inside()


@contextmanager
def reused_memory(budget_bytes: int) -> Iterator[None]:
    """Within the block, Arrow uses the encoders' pool, unless the user has chosen a pool.

    The block is long work that allocates and frees much memory: Arrow's own pool would return freed
    pages to the system meanwhile. The pool is set for the whole process, because decoding has no
    argument for it. Each buffer is freed into the pool that it came from. With a small budget, the
    pool is not changed, because the memory that Arrow's own pool keeps would be held in addition.
    """
    if not _may_keep(budget_bytes):
        yield
        return
    _INSIDE.enter()
    try:
        yield
    finally:
        _INSIDE.leave()


def _may_keep(budget_bytes: int) -> bool:
    """Whether the budget allows keeping freed memory, and the user has not chosen a pool."""
    return not os.environ.get(_CHOSEN) and budget_bytes >= _REUSED_LEAST_BYTES


def release_freed(budget_bytes: int) -> None:
    """Return this thread's freed memory to the system, if the process holds too much."""
    if resident_bytes() > _HELD_SHARE * budget_bytes:
        release_all_freed()


def release_all_freed() -> None:
    """Return this thread's freed memory to the system."""
    pa.default_memory_pool().release_unused()
    encoding_pool().release_unused()
    # The many small objects of wide tables are allocated by the C library.
    pa.system_memory_pool().release_unused()


def resident_bytes() -> float:
    """The resident memory of the process in bytes; infinity if the system does not report it."""
    try:
        with open(_RESIDENT, "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return float("inf")
