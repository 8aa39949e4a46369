"""Freed memory: when allocators keep it for reuse, and when it is returned to the system.

An allocator keeps the memory that a thread has freed for that thread. Reusing it is free. Getting
new memory from the system costs as much as filling it, because every page is cleared first: a fifth
of the time of a compaction, if each row group returned its memory. Freed memory is therefore kept
until the process holds a large part of the budget.
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
"""The part of the budget, of memory that the process holds, up to which nothing is given back."""
_REUSED_LEAST_BYTES = 1 << 30
_RESIDENT = "/proc/self/statm"
_CHOSEN = "ARROW_DEFAULT_MEMORY_POOL"
"""By which users choose Arrow's pool themselves."""
_KEPT_MS = 60_000
"""How long freed pages stay with jemalloc: from a compaction to that of the next commit. Arrow has
a second. Of a process that does nothing it takes none back in either case."""


@cache
def encoding_pool() -> pa.MemoryPool:
    """Where encoders take their memory from: the pool that has freed pages soonest at hand."""
    if "jemalloc" in pa.supported_memory_backends():
        if _may_keep(process_budget().size_bytes):
            # It holds for arenas that are not there yet: those of threads, that is, to come.
            pa.jemalloc_set_decay_ms(_KEPT_MS)
        return pa.jemalloc_memory_pool()
    return pa.default_memory_pool()


class _Inside:
    """How many are within `reused_memory`, and the pool to put back after the last."""

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
                # Unless another pool has been set since.
                if pa.default_memory_pool().backend_name == encoding_pool().backend_name:
                    pa.set_memory_pool(self._before)
                self._before = None


_INSIDE = _Inside()


@contextmanager
def reused_memory(budget_bytes: int) -> Iterator[None]:
    """Within it Arrow takes all memory from the encoders' pool, unless the user has chosen one.

    A small budget has no room for it: what the other pool has freed before stays there beside.

    For long work that takes and frees much: Arrow's own pool gives freed pages back meanwhile.
    Decoding cannot be told its pool, so it is that of the process; a buffer goes back to the pool
    that it came from, whichever is set by then.
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
    """Whether there is room to keep what was freed, and no pool that the user has chosen."""
    return not os.environ.get(_CHOSEN) and budget_bytes >= _REUSED_LEAST_BYTES


def release_freed(budget_bytes: int) -> None:
    """Return this thread's freed memory to the system, if the process holds too much."""
    if resident_bytes() > _HELD_SHARE * budget_bytes:
        release_all_freed()


def release_all_freed() -> None:
    """Return this thread's freed memory to the system."""
    pa.default_memory_pool().release_unused()
    encoding_pool().release_unused()
    # The small objects that tell of thousands of columns are the C library's to give back.
    pa.system_memory_pool().release_unused()


def resident_bytes() -> float:
    """The resident memory of the process in bytes; infinity if the system does not report it."""
    try:
        with open(_RESIDENT, "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return float("inf")
