"""Small files read side by side: on an object store the waits are what takes the time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

READERS = 8
"""How many files are read at once."""

Key = TypeVar("Key")
Value = TypeVar("Value")


def read_all(read: Callable[[Key], Value], keys: Sequence[Key]) -> list[Value]:
    """What `read` gives for each key, in order; the first error of a key is raised."""
    if len(keys) <= 1:
        return [read(key) for key in keys]
    with ThreadPoolExecutor(min(READERS, len(keys))) as pool:
        return list(pool.map(read, keys))
