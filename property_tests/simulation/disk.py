"""The storage that all actors share, and what of it is lost or late.

What the simulated storage may do, each by the seed:

- an actor's process ends before, after or in the middle of a call: then none of its later calls
  happens. In the middle, an output is an empty or half file, and a directory is removed in part;
- a request is lost (no effect, an error), or its reply (the effect, an error); `put_if_absent` says
  `CommitUnknown` then, and its effect may also come later, if the name is free by then;
- an actor is slow: it stands still while others go on;
- the disk is full for a while: what writes fails, and leaves nothing or, for an output, an error;
- power is lost: all processes end. A call that has not returned may have had no effect, and files
  that were removed a short while ago may be there again, as no store syncs a removal.

Visibility is one of two models. `strong`: what a call did, every later call sees. S3, Google Cloud
Storage, Azure and local disks are so today. `lagging` (`listing_lag_ms`): a listing may for a while
lack files that are there and show files that are gone, as old object stores and some gateways do;
reads of one file by its name are strong.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore.format import metadata
from lakecore.io.ambient import Ambient, seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.testing.stores import Listings

if TYPE_CHECKING:
    from lakecore.io.stores.store import FileStatus
    from property_tests.simulation.scenario import Scenario
    from property_tests.simulation.scheduler import Scheduler

SNAPSHOT = "/snapshot/snapshot-"
_PLACE = "memory://warehouse/shop.db/t" + SNAPSHOT
_REMOVALS_KEPT_MS = 40


def is_snapshot(path: str) -> bool:
    """Whether the file is a snapshot of the table, not one of a branch."""
    return path.startswith(_PLACE)


@dataclass
class Disk:
    """What is stored, and what happened to it."""

    scenario: Scenario
    scheduler: Scheduler
    files: MemoryStore = field(init=False)
    archive: MemoryStore = field(init=False)  # the newest version of every file that was written
    trace: list[tuple[int, str, str, str, str]] = field(default_factory=list)
    writers: dict[str, str] = field(default_factory=dict)  # path: the attempt that wrote it
    troubled: set[str] = field(default_factory=set)  # the attempts that met a fault
    snapshots: int = 0  # the number of the newest one
    full_until_ms: int = 0
    processes: int = 0  # how many were started
    power_losses: int = 0
    newest: tuple[int, str] = (0, "")  # id and uuid of what readers see as the newest snapshot
    goals: set[str] = field(default_factory=set)  # uuids to which rollbacks and the like may lead
    seen_between: str = ""  # what readers saw and nobody asked for
    changing: set[str] = field(default_factory=set)  # attempts at work that may commit
    rolling_back: bool = False  # whoever may commit waits meanwhile
    late: list[tuple[int, str, bytes, str]] = field(default_factory=list)
    landed_late: bool = False  # a commit stood after its author had given it up
    _authors: dict[tuple[str, bytes], str] = field(default_factory=dict)
    _unsynced: dict[str, bytes | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = random.Random(f"disk {self.scenario.seed}")
        clock = Ambient(
            now_ms=lambda: self.scheduler.now_ms,
            local_wall_clock_ms=lambda: self.scheduler.now_ms,
            new_uuid=seeded(0).new_uuid,
            sleep=lambda _: None,
            random=self._chance.random,
        )
        self.files = MemoryStore(clock)
        self.archive = MemoryStore(clock)
        self._listings = Listings(self.scenario.listing_lag_ms, clock.now_ms)

    def note(self, who: str, call: str, path: str, outcome: str) -> None:
        """Add a line to the trace."""
        short = path.partition("/t/")[2] or path
        self.trace.append((self.scheduler.now_ms, who, call, short, outcome))

    def wrote(self, path: str, by: str) -> None:
        """Take in that a file was written."""
        self._listings.wrote(path)
        number = int(path.removeprefix(_PLACE)) if is_snapshot(path) else None
        if number is not None and number < self.snapshots and not self.rolling_back:
            return  # its number has expired: nobody sees it, and its committer removes it
        if not path.endswith(("EARLIEST", "LATEST")):
            data = self.files.read(path)
            self.archive.put(path, data)
            if number is not None:
                # After a rollback its number is given out again, or a branch brings it back.
                self.writers[path] = self._authors.setdefault((path, data), by)
        self.writers.setdefault(path, by)
        self.look()

    def removing(self, path: str) -> None:
        """Take in that a file goes."""
        self._listings.removing(self.files, path)

    def look(self) -> None:
        """Take in which snapshot readers see as the newest: the next one, or one asked for."""
        before, self.newest = self.newest, self._newest()
        self.snapshots, uuid = self.newest
        if self.newest != before and self.snapshots != before[0] + 1 and uuid not in self.goals:
            self.seen_between = self.seen_between or f"snapshot {self.snapshots} after {before[0]}"
        for number in range(self.snapshots + 1, before[0] + 1):
            self.archive.delete(f"{_PLACE}{number}")

    def _newest(self) -> tuple[int, str]:
        """As every reader finds it: by the hint, if the next snapshot is missing, or by listing."""
        files, directory = self.files, _PLACE.rpartition("/")[0]
        hint = f"{directory}/LATEST"
        number = int(files.read(hint)) if files.exists(hint) else -1
        if files.exists(f"{_PLACE}{number + 1}") or not files.exists(f"{_PLACE}{number}"):
            paths = (each.path for each in files.list(directory))
            ids = [int(each.removeprefix(_PLACE)) for each in paths if each.startswith(_PLACE)]
            number = max(ids, default=0)
        if not number:
            return 0, ""
        path = f"{_PLACE}{number}"
        return number, metadata.decode_snapshot(files.read(path), path).uuid or ""

    def arrive(self) -> None:
        """Carry out the calls that come late, when it is time."""
        for each in [each for each in self.late if each[0] <= self.scheduler.now_ms]:
            self.late.remove(each)
            _, path, data, by = each
            made = self.files.put_if_absent(path, data)
            if made:
                self.wrote(path, by)
                self.landed_late = True
            self.note(by, "put_if_absent", path, f"late, {made}")

    def listed(self, directory: str) -> tuple[FileStatus, ...]:
        """The children, as a listing shows them."""
        return self._listings.listed(self.files.list(directory), directory)

    def begin_sync(self, path: str, before: bytes | None) -> None:
        """Take in that a file is there, and not yet on the disk."""
        self._unsynced[path] = before

    def synced(self, path: str) -> None:
        """Take in that a directory is on the disk, with all that is in it."""
        directory = path.rpartition("/")[0]
        for each in [each for each in self._unsynced if each.rpartition("/")[0] == directory]:
            del self._unsynced[each]

    def lose_power(self) -> None:
        """End all processes, and lose what was not synced."""
        self.power_losses += 1
        for path, before in self._unsynced.items():
            if self._chance.random() < 0.5:
                if before is None:
                    self.files.delete(path)
                    self.archive.delete(path)
                    self.writers.pop(path)
                else:
                    self.files.put(path, before)
                self.look()
        self._unsynced.clear()
        listings = self._listings
        for path, (at_ms, data) in list(listings.removed.items()):
            recent = self.scheduler.now_ms - at_ms < _REMOVALS_KEPT_MS
            if recent and self._chance.random() < 0.5 and not self.files.exists(path):
                self.files.put(path, data)
                listings.wrote(path)
        self.note("power", "lost", "", "")

    def seen(self, path: str) -> None:
        """A snapshot that another process has read stays, or the reader would have seen a ghost."""
        self._unsynced.pop(path, None)
