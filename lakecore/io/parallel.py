"""Reads and deletes small files concurrently, because on an object store latency dominates."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

READERS = 8
"""The number of files read or removed concurrently."""
_AT_ONCE = 10_000

Key = TypeVar("Key")
Value = TypeVar("Value")


def read_all(read: Callable[[Key], Value], keys: Sequence[Key]) -> list[Value]:
    """The result of `read` for each key, in order; raises the first error."""
    if len(keys) <= 1:
        return [read(key) for key in keys]
    with ThreadPoolExecutor(min(READERS, len(keys))) as pool:
        return list(pool.map(read, keys))


def delete_all(delete: Callable[[str], None], paths: Iterable[str]) -> int:
    """Call `delete` for each path, several at a time. Returns how many; raises the first error."""
    count = 0
    left = iter(paths)
    while some := list(islice(left, _AT_ONCE)):
        read_all(delete, some)
        count += len(some)
    return count
