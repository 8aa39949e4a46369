"""A cache with a limit in bytes; the least recently used entries are dropped first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from lakecore.memory import Budget, process_budget

Key = TypeVar("Key")
Value = TypeVar("Value")


class Cache(Generic[Key, Value]):
    """The most recently used values. Thread-safe.

    `weight_bytes` is the approximate size of one unit of weight. A value that alone exceeds the
    share of caches is not kept. The newest of the others is kept until a lease needs the memory.
    """

    def __init__(
        self,
        weight_bytes: int,
        count_max: int | None = None,
        budget: Budget | None = None,
        size_max_bytes: int | None = None,
    ) -> None:
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._weight_bytes = weight_bytes
        self._count_max = count_max
        self._size_max_bytes = size_max_bytes
        self._budget = process_budget() if budget is None else budget
        self._lock = threading.Lock()
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The approximate size of the values."""
        return self._size_bytes

    def get(self, key: Key) -> Value | None:
        """The value of the key, marked as used now; None if it is not cached."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def newest(self) -> Value | None:
        """The value that was added or used last; None if the cache is empty."""
        with self._lock:
            return next(reversed(self._values.values()))[0] if self._values else None

    def put(self, key: Key, value: Value, weight: int) -> None:
        """Add a value. If the key is cached already, its value is kept."""
        with self._lock:
            if key in self._values:
                return
            size_bytes = weight * self._weight_bytes
            if size_bytes > self._budget.cache_bytes_max:
                return
            self._values[key] = (value, size_bytes)
            self._size_bytes += size_bytes
            self._budget.note_growth(self, size_bytes)
            while len(self._values) > 1 and (self._has_too_many() or not self._budget.caches_fit()):
                self._drop_oldest()

    def take(self, key: Key) -> Value | None:
        """Remove the value of the key, and return it; None if it is not cached."""
        with self._lock:
            value, size_bytes = self._values.pop(key, (None, 0))
            self._dropped(size_bytes)
            return value

    def give_back(self, size_bytes: int) -> int:
        """Drop the oldest values until this many bytes are freed, or all. Returns their size."""
        with self._lock:
            before = self._size_bytes
            while self._values and before - self._size_bytes < size_bytes:
                self._drop_oldest()
            return before - self._size_bytes

    def _drop_oldest(self) -> None:
        _, (_, size_bytes) = self._values.popitem(last=False)
        self._dropped(size_bytes)

    def _dropped(self, size_bytes: int) -> None:
        self._size_bytes -= size_bytes
        if not self._values:
            self._budget.note_empty(self)

    def _has_too_many(self) -> bool:
        too_large = self._size_max_bytes is not None and self._size_bytes > self._size_max_bytes
        return too_large or (self._count_max is not None and len(self._values) > self._count_max)
