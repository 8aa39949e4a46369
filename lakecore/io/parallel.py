"""Reads small files concurrently: on an object store, latency dominates."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

READERS = 8
"""The number of files read concurrently."""

Key = TypeVar("Key")
Value = TypeVar("Value")


def read_all(read: Callable[[Key], Value], keys: Sequence[Key]) -> list[Value]:
    """The result of `read` for each key, in order; raises the first error."""
    if len(keys) <= 1:
        return [read(key) for key in keys]
    with ThreadPoolExecutor(min(READERS, len(keys))) as pool:
        return list(pool.map(read, keys))
