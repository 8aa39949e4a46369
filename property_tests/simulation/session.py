"""The storage as one process of an actor reaches it: each call waits for its turn, and may fail.

A process that began before the power was last lost is no more, and nor is one that crashed: none of
its calls has an effect.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from lakecore.errors import CommitUnknown, StorageError
from lakecore.io.stores.store import NEAR_AT_ONCE, FileStatus, MemoryStore
from property_tests.simulation.disk import SNAPSHOT, Disk
from property_tests.simulation.scheduler import CrashedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from property_tests.simulation.scenario import Fault
    from property_tests.simulation.scheduler import Task

Value = TypeVar("Value")

COUNTED = ("any", "change", "commit")
_WRITES = frozenset({"put", "put_if_absent", "open_output", "close_output"})
_DIRECTORIES = frozenset({"delete_directory", "rename_directory", "copy_directory"})
_CHANGES = _WRITES | _DIRECTORIES | {"delete", "make_directory"}
_FULL_MS = 60


class Session:
    """The store as one process of an actor has it, from its start to its end."""

    def __init__(self, disk: Disk, task: Task, faults: list[Fault]) -> None:
        self.disk = disk
        self.task = task
        self.attempt = task.name  # what the actor is doing
        self._faults = faults
        self._calls: Counter[str] = (
            Counter()
        )  # how many there were: of any, that change, that commit
        self._crashed = False
        self._began = disk.power_losses
        disk.processes += 1
        self._chance = random.Random(f"{task.name} {disk.processes} {disk.scenario.seed}")

    @property
    def dead(self) -> bool:
        """Whether the process has ended."""
        return self._crashed or self._began < self.disk.power_losses

    def wait(self, milliseconds: float) -> None:
        """Stand still for a while; CrashedError if the process ended meanwhile."""
        if self.dead:
            raise CrashedError
        self.disk.scheduler.pause(self.task, milliseconds)
        self.disk.arrive()
        if self.dead:
            raise CrashedError

    delete_many = None
    at_once = NEAR_AT_ONCE

    @property
    def renames_at_once(self) -> bool:
        """Whether a directory is renamed in one step."""
        return self.disk.files.renames_at_once

    # --- the calls -------------------------------------------------------------------------------

    def read(self, path: str) -> bytes:
        return self._look("read", path, lambda: self.disk.files.read(path))

    def exists(self, path: str) -> bool:
        return self._look("exists", path, lambda: self.disk.files.exists(path))

    def size(self, path: str) -> int:
        return self._look("size", path, lambda: self.disk.files.size(path))

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        return self._look("list", directory, lambda: self.disk.listed(directory))

    def open_input(self, path: str) -> pa.NativeFile:
        return self._look("open_input", path, lambda: self.disk.files.open_input(path))

    def local_path(self, path: str) -> str | None:  # noqa: ARG002 - nobody reads past the store
        return None

    def put(self, path: str, data: bytes) -> None:
        def act() -> None:
            self.disk.files.put(path, data)
            self.disk.wrote(path, self.attempt)

        before = self.disk.files.read(path) if self.disk.files.exists(path) else None
        self._change("put", path, act, undone=(before,))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        def act() -> bool:
            made = self.disk.files.put_if_absent(path, data)
            if made:
                self.disk.wrote(path, self.attempt)
            return made

        late = (self.disk.scheduler.now_ms, path, data, self.attempt)
        return self._change("put_if_absent", path, act, undone=(None,), late=late)

    def delete(self, path: str) -> None:
        def act() -> None:
            self.disk.removing(path)
            self.disk.files.delete(path)
            self.disk.look()

        self._change("delete", path, act)

    def delete_directory(self, path: str) -> None:
        def remove(share: float) -> None:
            for each in _below(self.disk.files, path):
                if self._chance.random() < share:
                    self.disk.removing(each)
                    self.disk.files.delete(each)
            if share >= 1:
                self.disk.files.delete_directory(path)

        self._change("delete_directory", path, lambda: remove(1.0), torn=lambda: remove(0.5))

    def remove_empty_directory(self, path: str) -> None:
        self._change(
            "remove_empty_directory", path, lambda: self.disk.files.remove_empty_directory(path)
        )

    def rename_directory(self, source: str, target: str) -> None:
        self._change(
            "rename_directory", source, lambda: self.disk.files.rename_directory(source, target)
        )

    def copy_directory(self, source: str, target: str) -> None:
        def copy(share: float) -> None:
            for each in _below(self.disk.files, source):
                if self._chance.random() < share:
                    self._torn(target + each[len(source) :], self.disk.files.read(each))

        self._change("copy_directory", source, lambda: copy(1.0), torn=lambda: copy(0.5))

    def make_directory(self, path: str) -> None:
        self._change("make_directory", path, lambda: self.disk.files.make_directory(path))

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        """As `Store.open_output`; a process that ends before the block does leaves a half file."""
        self._change("open_output", path, lambda: None, torn=lambda: self._torn(path, b""))
        with MemoryStore().open_output(path) as sink:
            try:
                yield sink
            except CrashedError:
                self._torn(path, b"")
                raise
            data: bytes = sink.getvalue().to_pybytes()

        def act() -> None:
            self.disk.files.put(path, data)
            self.disk.wrote(path, self.attempt)

        half = data[: len(data) // 2]
        self._change("close_output", path, act, torn=lambda: self._torn(path, half))

    # --- what may go wrong -----------------------------------------------------------------------

    def _torn(self, path: str, data: bytes) -> None:
        self.disk.files.put(path, data)
        self.disk.wrote(path, self.attempt)

    def _look(self, call: str, path: str, act: Callable[[], Value]) -> Value:
        fault = self._begin(call, path)
        if fault is not None and fault.kind in ("lost request", "lost reply", "late"):
            self._fail(call, path, fault.kind)
        value = act()
        if SNAPSHOT in path and call == "read":
            self.disk.seen(path)
        self.disk.note(self.attempt, call, path, "")
        if fault is not None:
            self._die(call, path, fault.kind)
        return value

    def _change(
        self,
        call: str,
        path: str,
        act: Callable[[], Value],
        *,
        torn: Callable[[], None] | None = None,
        undone: tuple[bytes | None] | None = None,
        late: tuple[int, str, bytes, str] | None = None,
    ) -> Value:
        fault = self._begin(call, path)
        disk, kind = self.disk, "" if fault is None else fault.kind
        if call in _WRITES and disk.scheduler.now_ms < disk.full_until_ms:
            self._fail(call, path, "disk full")
        if kind == "crash before":
            self._die(call, path, kind)
        if kind == "crash within":
            (torn or act)()
            self._die(call, path, kind)
        if kind == "lost request" or (kind == "late" and late is None):
            self._fail(call, path, kind)
        if kind == "late" and late is not None:
            at_ms, *rest = late
            disk.late.append((at_ms + int(self._chance.random() * 200), *rest))  # type: ignore[arg-type]
            self._fail(call, path, kind)
        value = act()
        disk.note(self.attempt, call, path, "" if value is None else str(value))
        if undone is not None and value is not False:
            if self._chance.random() < disk.scenario.slow_sync:
                disk.begin_sync(path, undone[0])
                self.wait(5)
            disk.synced(path)
        if kind == "lost reply":
            self._fail(call, path, kind)
        if fault is not None:
            self._die(call, path, kind)
        return value

    def _begin(self, call: str, path: str) -> Fault | None:
        """Wait for one's turn: the fault that this call meets, if any."""
        self.wait(self._chance.random() * self.disk.scenario.latency_ms)
        self._calls.update(kind for kind in COUNTED if _is_of(kind, call, path))
        for fault in self._faults:
            if _is_of(fault.on, call, path) and self._calls[fault.on] == fault.nth:
                self._faults.remove(fault)
                return self._met(fault, call, path)
        return None

    def _met(self, fault: Fault, call: str, path: str) -> Fault | None:
        """Carry out a fault that is not of the call itself."""
        disk = self.disk
        match fault.kind:
            case "slow":
                disk.note(self.attempt, call, path, f"slow, {fault.wait_ms} ms")
                self.wait(fault.wait_ms)
            case "disk full":
                disk.full_until_ms = disk.scheduler.now_ms + _FULL_MS
            case "power lost":
                self.disk.troubled.add(self.attempt)
                disk.lose_power()
                raise CrashedError
            case _:
                return fault
        return None

    def _fail(self, call: str, path: str, why: str) -> None:
        self.disk.troubled.add(self.attempt)
        self.disk.note(self.attempt, call, path, why)
        if call == "put_if_absent" and why != "disk full":
            raise CommitUnknown("no reply", path=path, why=why)
        raise StorageError(f"the storage failed: {why}", path=path)

    def _die(self, call: str, path: str, why: str) -> None:
        self.disk.troubled.add(self.attempt)
        self._crashed = True
        self.disk.note(self.attempt, call, path, why)
        raise CrashedError


def _is_of(kind: str, call: str, path: str) -> bool:
    """Whether a call counts as one of its kind: any, one that changes something, a commit."""
    if kind == "commit":
        return call == "put_if_absent" and SNAPSHOT in path
    return kind == "any" or call in _CHANGES


def _below(files: MemoryStore, directory: str) -> Iterator[str]:
    for status in files.list(directory):
        if status.is_directory:
            yield from _below(files, status.path)
        else:
            yield status.path
