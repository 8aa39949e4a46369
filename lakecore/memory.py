"""The memory budget of the process, shared by every read, write and compaction in it.

A window, a buffer or a cache takes a *lease* before it fills memory and gives it back after. Who
cannot get a lease waits (`acquire`), or makes do with less (`acquire_up_to`), or spills.

Parts of the budget: a read or a merge takes a quarter for its batches; a compaction a sixth, up to
a quarter for encoding, and an eighth for look-ups; writers buffer a quarter to a third. A lease
says what its holder means to hold, not what allocators keep beside it: docs/decisions has what was
measured.

INVARIANT: the bytes leased exceed the budget in two cases only. A lease larger than the whole
budget is granted alone: one row of 100 MB must still be read under a budget of 64 MB. And
`acquire_up_to` gives its least however little is left: a reader that waited for itself would wait
for ever.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from lakecore.errors import InvalidRequest
from lakecore.forks import require_threads
from lakecore.options import SIZE

if TYPE_CHECKING:
    from types import TracebackType

BUDGET_DEFAULT_BYTES = 1 << 30


@dataclass(slots=True, eq=False)
class Lease:
    """A part of the budget; a context manager that gives it back."""

    budget: Budget
    size_bytes: int

    def release(self) -> None:
        """Give the lease back; more than once does no harm."""
        self.budget.resize(self, 0)

    def resize(self, size_bytes: int) -> bool:
        """Grow or shrink the lease; False, and no change, if the budget has no room to grow."""
        return self.budget.resize(self, size_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class Budget:
    """Bytes that may be held at once."""

    def __init__(self, size_bytes: int = BUDGET_DEFAULT_BYTES) -> None:
        self.size_bytes = size_bytes
        self._used = 0
        self._is_set = False
        self._changed = threading.Condition()

    @property
    def used_bytes(self) -> int:
        """Bytes leased now."""
        return self._used

    def acquire(self, size_bytes: int, timeout_seconds: float | None = None) -> Lease:
        """A lease of that size; waits until there is room. TimeoutError past the timeout."""
        require_threads()
        with self._changed:
            if not self._changed.wait_for(lambda: self._fits(size_bytes), timeout_seconds):
                message = f"no room for a lease of {size_bytes} bytes within the memory budget"
                raise TimeoutError(message)
            self._used += size_bytes
            return Lease(self, size_bytes)

    def acquire_up_to(self, wanted_bytes: int, least_bytes: int) -> Lease:
        """A lease of at most `wanted_bytes`, as large as there is room for now. Never waits.

        It has `least_bytes` in any case.
        """
        require_threads()
        with self._changed:
            free = self.size_bytes - self._used
            size_bytes = max(least_bytes, min(wanted_bytes, free))
            self._used += size_bytes
            return Lease(self, size_bytes)

    def set_size(self, size_bytes: int) -> None:
        """Change the size; leases that are out stay as they are."""
        with self._changed:
            self._is_set = True
            self.size_bytes = size_bytes
            self._changed.notify_all()

    def set_default_size(self, size_bytes: int) -> None:
        """Change the size, unless it was set before."""
        if not self._is_set:
            self.set_size(size_bytes)

    def resize(self, lease: Lease, size_bytes: int) -> bool:
        """Change a lease in place; False, and no change, if it cannot grow now."""
        with self._changed:
            delta = size_bytes - lease.size_bytes
            if delta > 0 and not self._fits(delta, held=lease.size_bytes):
                return False
            self._used += delta
            lease.size_bytes = size_bytes
            self._changed.notify_all()
            return True

    def _fits(self, size_bytes: int, held: int = 0) -> bool:
        alone = self._used == held
        return alone or self._used + size_bytes <= self.size_bytes


_process = Budget()


def process_budget() -> Budget:
    """The budget of this process."""
    return _process


def set_process_budget(size: int | str) -> None:
    """Change the size of this process's budget; leases that are out stay as they are.

    `size` is a number of bytes, or a size as in options: "2 gb". It goes before the option
    `lakecore.memory-budget` that tables store. Raises InvalidRequest for what is no size.

        lakecore.memory.set_process_budget("2 gb")
    """
    try:
        size_bytes: object = SIZE.parse(size) if isinstance(size, str) else size
    except ValueError as error:
        raise InvalidRequest("not a size of memory", size=size, allowed=error) from error
    if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or size_bytes < 1:
        raise InvalidRequest("a budget is a number of bytes, at least 1, or its text", size=size)
    _process.set_size(size_bytes)
