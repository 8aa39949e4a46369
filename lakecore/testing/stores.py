"""Stores that fail: one dies at a given call, one fails at calls that a seed chooses.

Each wraps another store. `WatchedStore` passes every call through one hook, and is the base class.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from lakecore.errors import CommitUnknown, InvalidRequest, NotFound, StorageError
from lakecore.io.ambient import seeded
from lakecore.io.stores.store import FileStatus, MemoryStore, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa


CHANGES = frozenset(
    {
        *("put", "put_if_absent", "delete", "delete_directory", "remove_empty_directory"),
        *("rename_directory", "copy_directory", "make_directory", "open_output", "close_output"),
    }
)
"""The calls of a store that change something."""


class StoreFailure(OSError):
    """The failure that a `FailingStore` injects."""


class Crashed(BaseException):
    """The process of the caller is dead: the storage carries out no more calls of the process.

    The class is no `Exception`, so that a program under test does not handle a crash as an error.

        with pytest.raises(Crashed):
            load(warehouse.connect())
    """


class WatchedStore:
    """Forwards calls to a store, each within the block of `call`."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @contextmanager
    def call(self, name: str, path: str) -> Iterator[None]:  # noqa: ARG002 - for subclasses
        """The block around a call of the store. An output is two calls: opening and closing.

        An error raised before the block means no effect; an error raised after the block, an
        effect.
        """
        yield

    def read(self, path: str) -> bytes:
        with self.call("read", path):
            return self.inner.read(path)

    def exists(self, path: str) -> bool:
        with self.call("exists", path):
            return self.inner.exists(path)

    def size(self, path: str) -> int:
        with self.call("size", path):
            return self.inner.size(path)

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        with self.call("list", directory):
            return self.inner.list(directory)

    def put(self, path: str, data: bytes) -> None:
        with self.call("put", path):
            self.inner.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self.call("put_if_absent", path):
            return self.inner.put_if_absent(path, data)

    def delete(self, path: str) -> None:
        with self.call("delete", path):
            self.inner.delete(path)

    delete_many = None  # each file is a call of its own

    @property
    def at_once(self) -> int:
        return self.inner.at_once

    def delete_directory(self, path: str) -> None:
        with self.call("delete_directory", path):
            self.inner.delete_directory(path)

    def remove_empty_directory(self, path: str) -> None:
        with self.call("remove_empty_directory", path):
            self.inner.remove_empty_directory(path)

    @property
    def renames_at_once(self) -> bool:
        return self.inner.renames_at_once

    def rename_directory(self, source: str, target: str) -> None:
        with self.call("rename_directory", source):
            self.inner.rename_directory(source, target)

    def copy_directory(self, source: str, target: str) -> None:
        with self.call("copy_directory", source):
            self.inner.copy_directory(source, target)

    def make_directory(self, path: str) -> None:
        with self.call("make_directory", path):
            self.inner.make_directory(path)

    def open_input(self, path: str) -> pa.NativeFile:
        with self.call("open_input", path):
            return self.inner.open_input(path)

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        with self.call("open_output", path):
            pass
        with ExitStack() as closing, self.inner.open_output(path) as sink:
            yield sink
            closing.enter_context(self.call("close_output", path))

    def local_path(self, path: str) -> str | None:
        return self.inner.local_path(path)


class FailingStore(WatchedStore):
    """Forwards calls to a store, up to the `fail_at`-th call that changes something.

    That call (counted from 1) raises `failure` without effect, or with `after=True` after its
    effect. From then on the process counts as dead: every call fails and has no effect. With
    `fail_at=None`, calls are only counted. An output is two calls, opening and closing; a death
    between the two leaves an empty file, the worst case that a storage may show.

    A directory is deleted or copied file by file, each file a call, in an order that `seed` draws;
    a directory is renamed in one call only if the inner store does so. If the inner store renames
    at once, a deletion becomes durable only when something else is written into the same directory:
    with `power_loss`, a death restores some of the other deleted files, as `seed` draws.
    """

    failure: type[BaseException] = StoreFailure

    def __init__(
        self,
        inner: Store,
        fail_at: int | None = None,
        *,
        after: bool = False,
        seed: int = 0,
        power_loss: bool = True,
    ) -> None:
        super().__init__(inner)
        self.fail_at = fail_at
        self.after = after
        self.power_loss = power_loss
        self._chance = seeded(seed).random
        self._unsynced: dict[str, bytes] = {}  # files deleted, which a power failure may bring back
        self.calls: list[tuple[str, str]] = []  # (method, path) of each call that changes something
        self.is_dead = False
        self._lock = threading.Lock()

    @contextmanager
    def call(self, name: str, path: str) -> Iterator[None]:
        if name not in CHANGES:
            self._require_life(name, path)
            yield
            return
        dies = self._dies(name, path)
        if dies and not self.after:
            raise self._failed(name, path)
        if name == "delete" and self.inner.renames_at_once:
            with suppress(NotFound):
                self._unsynced[path] = self.inner.read(path)
        yield
        if name in ("put", "put_if_absent"):
            self._sync_directory_of(path)
        if dies:
            raise self._failed(name, path)

    def kill(self) -> None:
        """Kill the process now."""
        with self._lock:
            self.is_dead = True
            self._lose_what_was_not_synced()

    def delete_directory(self, path: str) -> None:
        files = files_below(self.inner, path)
        for file in sorted(files, key=lambda _: self._chance()):
            self.delete(file)
        super().delete_directory(path)

    def rename_directory(self, source: str, target: str) -> None:
        if not self.inner.renames_at_once:
            self.copy_directory(source, target)
            self.delete_directory(source)
            return
        super().rename_directory(source, target)
        moved = [path for path in self._unsynced if path.startswith(source + "/")]
        for path in moved:
            self._unsynced[target + path[len(source) :]] = self._unsynced.pop(path)

    def copy_directory(self, source: str, target: str) -> None:
        files = files_below(self.inner, source)
        for file in sorted(files, key=lambda _: self._chance()):
            self.put(target + file[len(source) :], self.inner.read(file))

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        if self._dies("open_output", path):
            if self.after:
                self.inner.put(path, b"")
            raise self._failed("open_output", path)
        dies = False
        try:
            with self.inner.open_output(path) as sink:
                yield sink
                dies = self._dies("close_output", path)
                if dies and not self.after:
                    raise self._failed("close_output", path)  # noqa: TRY301 - inner must see it
            self._sync_directory_of(path)
        except BaseException:
            # The inner store has removed the file; a process that is dead could not have.
            if self.is_dead or (self._dies("remove_output", path) and not self.after):
                self.inner.put(path, b"")
            raise
        if dies:
            raise self._failed("close_output", path)

    def _dies(self, call: str, path: str) -> bool:
        """Count a call that changes something. Returns whether the call is the one to fail."""
        with self._lock:
            self._require_life(call, path)
            self.calls.append((call, path))
            self.is_dead = len(self.calls) == self.fail_at
            if self.is_dead:
                self._lose_what_was_not_synced()
            return self.is_dead

    def _sync_directory_of(self, path: str) -> None:
        directory = path.rpartition("/")[0]
        for deleted in list(self._unsynced):  # a copy: other threads delete, too
            if deleted.rpartition("/")[0] == directory:
                self._unsynced.pop(deleted, None)

    def _lose_what_was_not_synced(self) -> None:
        for path, data in self._unsynced.items():
            if self.power_loss and self._chance() < 0.5:
                self.inner.put(path, data)

    def _require_life(self, call: str, path: str) -> None:
        if self.is_dead:
            message = f"{call} of {path} after the process died"
            raise self.failure(message)

    def _failed(self, call: str, path: str) -> BaseException:
        return self.failure(f"injected at call {self.fail_at}: {call} of {path}")


# --- faults by a seed -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The faults of a faulty warehouse; by default, there are none.

    `crash_at`: the number of the store call at which the process dies, counted from 1 over the
    calls that change something; the seed decides whether the call has its effect.
    `lost_requests`, `lost_replies`: the share of calls, from 0 to 1, that fail before their effect
    or after it. `full_disk`: the share of writes that find no space. Such calls raise
    `StorageError`, and `put_if_absent` raises `CommitUnknown` unless the disk is full.
    `listing_lag_ms`: for how long a listing may miss new files and show deleted ones.
    `power_loss`: a crash also brings back some files that were deleted shortly before.

    Raises InvalidRequest for a share outside 0 to 1, and for negative numbers.

        Faults(crash_at=12, lost_replies=0.1)
    """

    crash_at: int | None = None
    lost_replies: float = 0.0
    lost_requests: float = 0.0
    full_disk: float = 0.0
    listing_lag_ms: int = 0
    power_loss: bool = False

    def __post_init__(self) -> None:
        for name in ("lost_replies", "lost_requests", "full_disk"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidRequest(f"{name} is a share from 0 to 1", given=getattr(self, name))
        if self.lost_replies + self.lost_requests > 1:
            raise InvalidRequest("lost_replies and lost_requests are at most 1 together")
        if self.listing_lag_ms < 0 or (self.crash_at is not None and self.crash_at < 1):
            raise InvalidRequest(
                "crash_at counts from 1, and listing_lag_ms from 0",
                crash_at=self.crash_at,
                listing_lag_ms=self.listing_lag_ms,
            )


@dataclass(frozen=True, slots=True)
class StoreCall:
    """A call of the storage, as `FaultyWarehouse.trace` lists them.

    `name` and `path` say what was called, `fault` which fault the call met: "lost request", "lost
    reply", "full disk", "crash before it", "crash after it", or nothing.

        lost = [call for call in warehouse.trace if call.fault == "lost reply"]
    """

    name: str
    path: str
    fault: str = ""

    def __str__(self) -> str:
        short = self.path.removeprefix("memory://warehouse/")
        return f"{self.name} {short}" + (f": {self.fault}" if self.fault else "")


class Listings:
    """Stale listings: for a while, they miss new files and show deleted ones."""

    def __init__(self, lag_ms: int, now_ms: Callable[[], int]) -> None:
        self.created: dict[str, int] = {}
        self.removed: dict[str, tuple[int, bytes]] = {}
        self._lag_ms = lag_ms
        self._now_ms = now_ms

    def wrote(self, path: str) -> None:
        """Record that a file was written."""
        self.created.setdefault(path, self._now_ms())
        self.removed.pop(path, None)

    def removing(self, store: Store, path: str) -> None:
        """Record that a file is about to be removed."""
        if store.exists(path):
            self.removed[path] = (self._now_ms(), store.read(path))
        self.created.pop(path, None)

    def listed(self, there: Sequence[FileStatus], directory: str) -> tuple[FileStatus, ...]:
        """The children of a directory, as a stale listing shows them."""
        if not self._lag_ms:
            return tuple(there)
        since_ms = self._now_ms()

        def lags(path: str, at_ms: int) -> bool:
            return since_ms - at_ms < crc32(path.encode()) % self._lag_ms

        shown = {
            status.path: status
            for status in there
            if status.is_directory or not lags(status.path, self.created.get(status.path, 0))
        }
        prefix = directory.rstrip("/") + "/"
        for path, (at_ms, data) in self.removed.items():
            if path.startswith(prefix) and "/" not in path[len(prefix) :] and lags(path, at_ms):
                shown.setdefault(path, FileStatus(path, len(data), at_ms, is_directory=False))
        return tuple(shown[path] for path in sorted(shown))


class FaultyStore(FailingStore):
    """The storage as one process of a faulty warehouse sees it, until the process dies.

    Which call meets a fault depends on the seed, the call, its path and how often it was made: not
    on the order in which threads make their calls.
    """

    failure: type[BaseException] = Crashed

    def __init__(
        self,
        inner: Store,
        faults: Faults,
        seed: int,
        shared: Shared,
        *,
        crash_after: bool | None = None,
    ) -> None:
        super().__init__(
            inner,
            faults.crash_at,
            after=_share(seed, "crash") < 0.5 if crash_after is None else crash_after,
            seed=seed,
            power_loss=faults.power_loss,
        )
        self.faults = faults
        self._seed = seed
        self._shared = shared

    @contextmanager
    def call(self, name: str, path: str) -> Iterator[None]:
        with self._meeting(name, path), super().call(name, path):
            if name == "delete":
                self._shared.listings.removing(self.inner, path)
            yield
            if name in ("put", "put_if_absent"):
                self._shared.listings.wrote(path)

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        return self._shared.listings.listed(super().list(directory), directory)

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        with self._meeting("open_output", path), super().open_output(path) as sink:
            yield sink
        self._shared.listings.wrote(path)

    @contextmanager
    def _meeting(self, name: str, path: str) -> Iterator[None]:
        """A block for a call, with its fault: before the call, or after its effect."""
        fault = "" if self.is_dead else self._fault(name, path)
        if fault in ("lost request", "full disk"):
            raise self._error(name, path, fault)
        yield
        if fault:
            raise self._error(name, path, fault)

    def _fault(self, name: str, path: str) -> str:
        with self._lock:
            nth = self._shared.made[name, path] = self._shared.made.get((name, path), 0) + 1
            faults, fault = self.faults, ""
            drawn = _share(self._seed, f"{name} {path} {nth}")
            writes = name in ("put", "put_if_absent", "open_output")
            if writes and _share(self._seed, f"full {path} {nth}") < faults.full_disk:
                fault = "full disk"
            elif drawn < faults.lost_requests:
                fault = "lost request"
            elif drawn < faults.lost_requests + faults.lost_replies:
                fault = "lost reply"
            self._shared.trace.append(StoreCall(name, path, fault))
        return fault

    def _dies(self, call: str, path: str) -> bool:
        dies = super()._dies(call, path)
        if dies:
            self._shared.trace.append(
                StoreCall(call, path, f"crash {'after' if self.after else 'before'} it")
            )
        return dies

    def _error(self, name: str, path: str, fault: str) -> Exception:
        if name == "put_if_absent" and fault != "full disk":
            return CommitUnknown("no reply", path=path, fault=fault)
        return StorageError("the storage failed", call=name, path=path, fault=fault)


class Shared:
    """The state that the processes of a faulty warehouse share."""

    def __init__(self, listings: Listings) -> None:
        self.listings = listings
        self.trace: list[StoreCall] = []
        self.made: dict[tuple[str, str], int] = {}


def _share(seed: int, of: str) -> float:
    """A number from 0 to 1 that depends on its arguments only."""
    return float(seeded(crc32(f"{seed} {of}".encode())).random())


def files_below(store: Store, directory: str) -> list[str]:
    """The paths of all files below a directory, sorted."""
    found: list[str] = []
    for child in store.list(directory):
        found += files_below(store, child.path) if child.is_directory else [child.path]
    return found


def copy_of(store: Store, directory: str) -> MemoryStore:
    """A store in memory with the same files below a directory."""
    copied = MemoryStore()
    for path in files_below(store, directory):
        copied.put(path, store.read(path))
    return copied
