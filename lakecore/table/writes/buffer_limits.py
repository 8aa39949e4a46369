"""How much of the memory budget the buffers of a writer and a batch of rows may take."""

from __future__ import annotations

from lakecore.frames.incoming import BYTES_MAX

BUFFER_SHARE = 0.35
"""Part of the budget for buffered rows. Sorting and encoding need memory in addition."""
_BUFFER_SHARE_LEAST = 0.3
_BUFFER_SHARE_FREE = 0.4
_LIBRARIES_BYTES = 128 << 20
"""Memory of the libraries, subtracted from a budget below the default before shares are taken."""
UNLEASED_BYTES = 1 << 20
"""Bytes that a writer may buffer without a lease."""
_BATCH_SHARE = 1 / 8


def batch_limit(budget_bytes: int) -> int:
    """The largest size of a batch in bytes.

    A value that several rows share counts for each of them.
    """
    return max(UNLEASED_BYTES, min(BYTES_MAX, int(budget_bytes * _BATCH_SHARE)))


def buffer_limit(budget_bytes: int) -> int:
    """The most bytes that all buffers of a writer may hold."""
    available_bytes = int((budget_bytes - _LIBRARIES_BYTES) * _BUFFER_SHARE_FREE)
    least = int(budget_bytes * _BUFFER_SHARE_LEAST)
    return max(least, min(int(budget_bytes * BUFFER_SHARE), available_bytes))
