"""How much of the memory budget the buffers of a writer and a batch of rows may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.frames.incoming import BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakecore.table.writes.bucket_buffer import BucketBuffer
    from lakecore.table.writes.postponed_buffer import PostponedBuffer

BUFFER_SHARE = 0.35
"""The share of the budget for buffered rows. Sorting and encoding need more memory."""
_BUFFER_SHARE_LEAST = 0.3
_BUFFER_SHARE_FREE = 0.4
_LIBRARIES_BYTES = 128 << 20
"""Memory that the libraries take. It matters only if the budget is small."""
UNLEASED_BYTES = 1 << 20
"""Bytes that a writer may buffer without a lease."""
_BATCH_SHARE = 1 / 8
_BLOB_BYTES_MAX = 512 << 20
"""Open files of BLOB values take at most so much memory, whatever the budget: they are few then."""


def batch_limit(budget_bytes: int) -> int:
    """The largest size of a batch in bytes.

    If several rows share the bytes of a value, the bytes count for each row.
    """
    return max(UNLEASED_BYTES, min(BYTES_MAX, int(budget_bytes * _BATCH_SHARE)))


def buffer_limit(budget_bytes: int) -> int:
    """The most bytes that all buffers of a writer may hold."""
    available_bytes = int((budget_bytes - _LIBRARIES_BYTES) * _BUFFER_SHARE_FREE)
    least = int(budget_bytes * _BUFFER_SHARE_LEAST)
    return max(least, min(int(budget_bytes * BUFFER_SHARE), available_bytes))


def held_bytes(buffer: BucketBuffer | PostponedBuffer) -> int:
    """The memory in bytes that a buffer takes."""
    return buffer.size_bytes + buffer.blob_bytes


def limit_open_files(buffers: Collection[BucketBuffer | PostponedBuffer]) -> None:
    """End the largest open files of BLOB values until the others take little memory."""
    while sum(each.blob_bytes for each in buffers) > _BLOB_BYTES_MAX:
        max(buffers, key=lambda each: each.blob_bytes).end_blobs()
