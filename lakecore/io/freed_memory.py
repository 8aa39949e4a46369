"""Memory that was freed: who keeps it for the next, and when it goes back to the system.

An allocator keeps what a thread has freed, for that thread. To have it again from there is free;
to have it anew from the system costs as much as to fill it, since every page is cleared first: a
fifth of all that a compaction does, if each row group gave back what encoding it took. So freed
memory stays where it is until the process holds a good part of the budget.
"""

from __future__ import annotations

import os
from functools import cache

import pyarrow as pa

_HELD_SHARE = 0.75
"""The part of the budget, of memory that the process holds, up to which nothing is given back."""
_RESIDENT = "/proc/self/statm"


@cache
def encoding_pool() -> pa.MemoryPool:
    """Where encoders take their memory from: the pool that has freed pages soonest at hand."""
    if "jemalloc" in pa.supported_memory_backends():
        return pa.jemalloc_memory_pool()
    return pa.default_memory_pool()


def release_freed(budget_bytes: int) -> None:
    """Give back what this thread has freed, if the process holds much beside its budget."""
    if resident_bytes() > _HELD_SHARE * budget_bytes:
        pa.default_memory_pool().release_unused()
        encoding_pool().release_unused()
        # The small objects that tell of thousands of columns are the C library's to give back.
        pa.system_memory_pool().release_unused()


def resident_bytes() -> float:
    """What the process holds of the machine's memory; infinity where that is not told."""
    try:
        with open(_RESIDENT, "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return float("inf")
