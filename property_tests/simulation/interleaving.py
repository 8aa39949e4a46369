"""Two processes on one table, and where they let each other go on: decided, not drawn.

The first runs until its call i, the second until its call j, then the first ends, then the second.
A process may die at a call that changes something; the other ends then.

Only those calls count at which the order matters: two calls conflict if one changes what the other
reads, lists or changes. Between other calls, a switch makes no difference.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore.io.ambient import Clock, seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.memory import Budget
from lakecore.table.handle import Table, load_table
from lakecore.testing.stores import CHANGES, Crashed, FailingStore, files_below
from property_tests.simulation.scheduler import Task, Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from lakecore.io.stores.store import Store

PATH = "memory://warehouse/shop.db/orders"
DAY_SECONDS = 86_400.0


@dataclass
class Footprint:
    """Calls of a process, as another one may meet them."""

    calls: list[tuple[int, str, str]] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)  # also what is changed
    listed: set[str] = field(default_factory=set)

    def take_in(self, met: int, call: str, path: str) -> None:
        """Note a call, made after so many that meet the other."""
        self.calls.append((met, call, path))
        if call in CHANGES:
            self.changed.add(path)
        if call in ("list", "exists", "remove_empty_directory"):
            self.listed.add(path)
        if call != "list":
            self.seen.add(path)

    def since(self, met: int) -> Footprint:
        """The calls that are left when it has met so many."""
        left = Footprint()
        for each in self.calls:
            if each[0] >= met:
                left.take_in(*each)
        return left

    def meets(self, call: str, path: str) -> bool:
        """Whether a call of another process conflicts with one of these."""
        if call in CHANGES:
            return path in self.seen or any(_is_below(path, each) for each in self.listed)
        if call in ("list", "exists"):
            return any(each == path or _is_below(each, path) for each in self.changed)
        return path in self.changed


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(directory + "/")


class Session(FailingStore):
    """The store as one of the two has it; `at` is the call before which the other goes on."""

    failure: type[BaseException] = Crashed

    def __init__(
        self, inner: Store, footprint: Footprint, at: int | None, dies_at: int | None
    ) -> None:
        super().__init__(inner, power_loss=False)
        self.switch: Callable[[], None] | None = None
        self.own = Footprint()
        self.met = 0
        self._other, self._at = footprint, at
        self._dies_at, self._changes = dies_at, 0

    @property
    def came(self) -> bool:
        """Whether there was such a call."""
        return self._at is not None and self.met >= self._at

    @contextmanager
    def call(self, name: str, path: str) -> Iterator[None]:
        self._before(name, path.rstrip("/"))
        with super().call(name, path):
            yield

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        self._before("open_output", path)
        with super().open_output(path) as sink:
            yield sink
            self._before("close_output", path)

    def _before(self, name: str, path: str) -> None:
        if self.is_dead:
            return
        meets = self._other.meets(name, path)
        self.met += meets
        self.own.take_in(self.met, name, path)
        if not meets:
            return
        if self.met == self._at and self.switch is not None:
            self.switch()
        self._changes += name in CHANGES
        if name in CHANGES and self._changes == self._dies_at:
            self.kill()


@dataclass(kw_only=True)
class Player:
    """One of the two: what it does, and when; then what came of it."""

    verb: Callable[[Table], object]
    seed: int
    footprint: Footprint = field(default_factory=Footprint)  # of the other
    at: int | None = None
    dies_at: int | None = None
    session: Session = field(init=False)
    result: object = None
    error: Exception | None = None

    def run(self, store: Store) -> None:
        """Do it; an error, or death, is a result."""
        self.session = Session(store, self.footprint, self.at, self.dies_at)
        self._act()

    def _act(self) -> None:
        try:
            self.result = self.verb(open_at(self.session, self.seed))
        except Crashed:
            pass
        except Exception as error:  # noqa: BLE001 - the caller judges it
            self.error = error

    def start(self, store: Store, turns: Turns, name: str) -> Callable[[], None]:
        """What its thread runs."""

        def body() -> None:
            task: Task = turns.task(name)
            self.session.switch = lambda: turns.pause(task, 0)
            self._act()

        self.session = Session(store, self.footprint, self.at, self.dies_at)
        return body


def play(store: Store, first: Player, second: Player) -> None:
    """Let both run, on one store."""
    turns = Turns()
    turns.run(
        {
            "first": first.start(store, turns, "first"),
            "second": second.start(store, turns, "second"),
        }
    )


def open_at(store: Store, seed: int) -> Table:
    """The table as a new process sees it, two days after its past."""
    ambient = seeded(seed, Clock())
    ambient.sleep(2 * DAY_SECONDS)
    return load_table(store, PATH, ambient=ambient, budget=Budget(1 << 30))


def copy_of(store: Store, *, renames_at_once: bool) -> MemoryStore:
    """The same files, two days later."""
    ambient = seeded(0)
    copied = MemoryStore(ambient, renames_at_once=renames_at_once)
    for path in files_below(store, PATH):
        copied.put(path, store.read(path))
    ambient.sleep(2 * DAY_SECONDS)
    return copied
