"""`faulty_warehouse` and `every_call`: a warehouse in memory whose storage fails as a seed says.

A warehouse has one process at a time. `connect` returns a session of the living process, and starts
a new one if the last has died. After a crash, earlier sessions cannot do anything.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Self

from lakecore.catalog.catalog import Catalog
from lakecore.catalog.filesystem import DirectoryNames
from lakecore.catalog.options import parse_catalog_options
from lakecore.io.ambient import Clock, seeded
from lakecore.io.stores.store import MemoryStore, Store
from lakecore.session import Session
from lakecore.testing.stores import Faults, FaultyStore, Listings, Shared, StoreCall, copy_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


_PATH = "memory://warehouse"
_NO_FAULTS = Faults()
_SHOWN_CALLS = 8


class FaultyWarehouse:
    """A warehouse in memory, as `faulty_warehouse` returns it.

    `seed` and `faults` are the arguments of `faulty_warehouse`; `path` is the URI of the warehouse.
    `clock` is the clock of its sessions, which moves by `advance`, and when a session waits.
    `files` is the storage without faults.

        warehouse.clock.advance(60_000)
        warehouse.files.list(warehouse.path)
    """

    path = _PATH

    def __init__(
        self,
        seed: int,
        faults: Faults,
        files: MemoryStore | None = None,
        *,
        crash_after: bool | None = None,
    ) -> None:
        """`files`: the initial content. `crash_after`: whether the last call has its effect."""
        self.seed = seed
        self.faults = faults
        self.clock = Clock()
        self.files = MemoryStore(seeded(seed, self.clock)) if files is None else files
        self._shared = Shared(Listings(faults.listing_lag_ms, self.clock.now_ms))
        self._processes = [
            FaultyStore(self.files, faults, seed, self._shared, crash_after=crash_after)
        ]
        self._sessions = 0

    def __repr__(self) -> str:
        return f"FaultyWarehouse(seed={self.seed}, {self.faults}, {len(self.trace)} calls)"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Note the seed and the last calls in an error that leaves the block."""
        if error is not None:
            error.add_note(self.told())

    def told(self) -> str:
        """The seed, the faults and the last calls, as a failed test shows them."""
        calls = [f"  {call}" for call in self.trace[-_SHOWN_CALLS:]]
        return "\n".join(
            [f"faulty warehouse: seed={self.seed} {self.faults}; its last calls:", *calls]
        )

    @property
    def crashes(self) -> int:
        """The number of processes that have died."""
        return sum(process.is_dead for process in self._processes)

    @property
    def trace(self) -> tuple[StoreCall, ...]:
        """Every call of the storage until now, with the fault that it met.

        The calls of `connect(faults=False)` and of `files` are not included.
        """
        return tuple(self._shared.trace)

    @property
    def store(self) -> Store:
        """The storage as the living process reaches it, for programs that have no session.

        If the process has died, a new one starts.

            warehouse.store.put_if_absent(f"{warehouse.path}/x", b"1")
        """
        if self._processes[-1].is_dead:
            survived = replace(self.faults, crash_at=None)
            seed = self.seed + len(self._processes)
            self._processes.append(FaultyStore(self.files, survived, seed, self._shared))
        return self._processes[-1]

    def connect(self, *, faults: bool = True) -> Session:
        """A session on the warehouse, in the living process; with `faults=False`, without faults.

        If the process has died, a new one starts, which `crash_at` does not kill again.

            warehouse.connect(faults=False).get_table("shop.orders").count()
        """
        self._sessions += 1
        store = self.store if faults else self.files
        ambient = seeded(self.seed * 1000 + self._sessions, self.clock)
        options = parse_catalog_options({"warehouse": _PATH})
        return Session(Catalog(DirectoryNames(_PATH, store, options, ambient)))

    def crash(self) -> None:
        """Kill the process now.

        Its sessions cannot do anything afterwards; the next `connect` starts a new process.

            session = warehouse.connect()
            warehouse.crash()
            restarted = warehouse.connect()
        """
        self._processes[-1].kill()
        self._shared.trace.append(StoreCall("crash", ""))

    def disarm(self) -> None:
        """Switch off `crash_at` from now on; other faults stay."""
        self._processes[-1].fail_at = None

    def until_crash(self) -> UntilCrash:
        """A block that ends early, without an error, if the process dies within the block.

        Errors of a living process leave the block.

            with warehouse.until_crash():
                load(warehouse.connect())
            load(warehouse.connect())  # the process was started again
        """
        return UntilCrash(self)


class UntilCrash:
    """The block of `FaultyWarehouse.until_crash`."""

    def __init__(self, warehouse: FaultyWarehouse) -> None:
        self._warehouse = warehouse
        self._crashes = warehouse.crashes

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return self._warehouse.crashes > self._crashes


def faulty_warehouse(seed: int = 0, faults: Faults = _NO_FAULTS) -> FaultyWarehouse:
    """A warehouse in memory whose storage fails as the seed says.

    Which call fails depends on the seed, the call, its path and how often it was made before.
    lakecore reads several files in parallel, so the order of calls may differ between two runs.

    `connect()` returns a session, `crash()` ends its process, `trace` lists the calls of the
    storage. The context manager notes the seed and the last calls in an error that leaves the
    block.

        with faulty_warehouse(7, Faults(crash_at=12)) as warehouse:
            with warehouse.until_crash():
                load(warehouse.connect())
            load(warehouse.connect())
    """
    return FaultyWarehouse(seed, faults)


def every_call(
    operation: Callable[[FaultyWarehouse], object],
    check: Callable[[FaultyWarehouse], object],
    *,
    setup: Callable[[FaultyWarehouse], object] | None = None,
    power_loss: bool = False,
) -> int:
    """Kill the process at each store call of an operation in turn, and check what is left.

    The process dies twice at each call that changes something: before and after the effect of the
    call. Each run begins with the warehouse that `setup` has made. `check` gets the warehouse after
    the crash: `warehouse.connect()` is a session of a new process, and `warehouse.crashes` is 0 in
    the last run, in which the operation ends. With `power_loss`, a crash brings back some files
    that were deleted shortly before.

    Returns the number of calls. Errors of `operation` and `check` are raised, with the call and the
    last calls as a note. The runs are deterministic if the operation makes its calls in one order.

        every_call(
            operation=lambda warehouse: load(warehouse.connect()),
            check=lambda warehouse: verify(warehouse.connect()),
            setup=lambda warehouse: create(warehouse.connect()),
        )
    """
    begun = FaultyWarehouse(0, _NO_FAULTS)
    if setup is not None:
        setup(begun)
    calls = 0
    for after in (False, True):
        for call in count(1):
            files = copy_of(begun.files, _PATH)
            faults = Faults(crash_at=call, power_loss=power_loss)
            with FaultyWarehouse(call, faults, files, crash_after=after) as warehouse:
                with warehouse.until_crash():
                    operation(warehouse)
                ended = not warehouse.crashes
                warehouse.disarm()
                check(warehouse)
            if ended:
                calls = call - 1
                break
    return calls
