"""Values that never change, kept while they are used: the oldest go first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Cache(Generic[Key, Value]):
    """The last used values, up to a total weight and number. Safe to share between threads."""

    def __init__(self, weight_max: int, count_max: int | None = None) -> None:
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._weight = 0
        self._weight_max = weight_max
        self._count_max = count_max
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """The value of the key, which counts as used now; None if it is not kept."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Key, value: Value, weight: int) -> None:
        """Keep a value; one that is kept already stays."""
        with self._lock:
            if key in self._values:
                return
            self._values[key] = (value, weight)
            self._weight += weight
            while len(self._values) > 1 and self._is_full():
                _, (_, gone) = self._values.popitem(last=False)
                self._weight -= gone

    def _is_full(self) -> bool:
        too_many = self._count_max is not None and len(self._values) > self._count_max
        return too_many or self._weight > self._weight_max
