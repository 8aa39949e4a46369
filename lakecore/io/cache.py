"""Values that never change, kept while they are used: the oldest go first.

What a cache keeps counts in the memory budget. It drops its oldest values when caches keep more
than their share, and any value when a lease needs the memory.

INVARIANT: the budget calls a cache without holding its own lock, so that a cache may call the
budget under its lock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from lakecore.memory import process_budget

if TYPE_CHECKING:
    from lakecore.memory import Budget

Key = TypeVar("Key")
Value = TypeVar("Value")


class Cache(Generic[Key, Value]):
    """The last used values. Safe to share between threads.

    `weight_bytes` is about what one unit of weight takes. The newest value stays although it
    exceeds the share of caches, until a lease needs the memory.
    """

    def __init__(
        self, weight_bytes: int, count_max: int | None = None, budget: Budget | None = None
    ) -> None:
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._weight_bytes = weight_bytes
        self._count_max = count_max
        self._budget = process_budget() if budget is None else budget
        self._lock = threading.Lock()
        self._size_bytes = 0
        self._budget.add_keeper(self)

    @property
    def size_bytes(self) -> int:
        """About what the values take."""
        return self._size_bytes

    def get(self, key: Key) -> Value | None:
        """The value of the key, which counts as used now; None if it is not kept."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def newest(self) -> Value | None:
        """The value that was kept or used last."""
        with self._lock:
            return next(reversed(self._values.values()))[0] if self._values else None

    def put(self, key: Key, value: Value, weight: int) -> None:
        """Keep a value; one that is kept already stays."""
        with self._lock:
            if key in self._values:
                return
            size_bytes = weight * self._weight_bytes
            self._values[key] = (value, size_bytes)
            self._size_bytes += size_bytes
            while len(self._values) > 1 and (self._has_too_many() or not self._budget.caches_fit()):
                self._drop_oldest()

    def give_back(self, size_bytes: int) -> int:
        """Drop the oldest values, of this size or all; the bytes that were dropped."""
        with self._lock:
            before = self._size_bytes
            while self._values and before - self._size_bytes < size_bytes:
                self._drop_oldest()
            return before - self._size_bytes

    def _drop_oldest(self) -> None:
        _, (_, size_bytes) = self._values.popitem(last=False)
        self._size_bytes -= size_bytes

    def _has_too_many(self) -> bool:
        return self._count_max is not None and len(self._values) > self._count_max
