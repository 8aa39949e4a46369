"""A cache of the newest snapshots of a table, to look up who committed under which identifier.

A job that numbers its commits looks up its last one before each commit, and a committer that lost a
race looks up the snapshots before it. Reading all snapshots each time would make every commit
slower than the one before, and the loser of a race would lose again. The cache reads only newer
snapshots, and older ones only for a user that was not looked up before.

INVARIANT: the newest cached snapshot still exists unchanged. After a rollback, other snapshots have
the same ids; then the cache is rebuilt. A cached snapshot may have expired, and its files may be
gone.
"""

from __future__ import annotations

import threading
from itertools import takewhile
from typing import TYPE_CHECKING

from lakecore.io.parallel import READERS, read_all
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakecore.model.snapshot import Snapshot

    Read = Callable[[int], Snapshot | None]

_AT_ONCE_MAX = 256
_KEPT_MAX = 1_000


class Commits:
    """The newest snapshots, and the newest numbered snapshot of each user. Thread-safe.

    The argument `latest` is always the newest snapshot of the table, just read.
    """

    def __init__(self, read: Read) -> None:
        """`read` returns the snapshot of an id, or None if it does not exist."""
        self._read = read
        self._lock = threading.Lock()
        self._users: dict[str, Snapshot] = {}
        self._newest: Snapshot | None = None
        self._oldest_id = 0
        self._kept: dict[int, Snapshot] = {}  # the newest ones, without gaps

    def last_numbered(self, user: str, latest: Snapshot | None) -> Snapshot | None:
        """The newest snapshot that a user committed with a number (not as a batch job), or None."""
        if latest is None:
            return None
        with self._lock:
            self._catch_up(latest)
            found = self._users.get(user)
            if found is None:
                for snapshot in self._down(self._oldest_id - 1, 0):
                    self._oldest_id = snapshot.id
                    if _is_numbered(snapshot):
                        self._users.setdefault(snapshot.commit_user, snapshot)
                    if user in self._users:
                        break
                else:
                    self._oldest_id = 0
                found = self._users.get(user)
            return found

    def follow(self, before: Snapshot) -> Snapshot | None:
        """The newest snapshot, searched upwards from `before`.

        None if `before` no longer exists.
        """
        known: list[Snapshot] = []  # `before` and what follows it
        found: list[Snapshot | None] = [before]
        while found[-1] is not None:
            first = before.id + len(known)
            found = read_all(self._read, range(first, first + min(len(known) or 2, READERS)))
            known += takewhile(lambda each: each is not None, found)  # type: ignore[arg-type]
            if not known or known[0] != before:
                return None
        with self._lock:
            if self._newest is None or self._newest.id < before.id:
                self._catch_up(before)
            if self._newest == before:
                self._remember(known[:0:-1])
        return known[-1]

    def after(self, snapshot_id: int, latest: Snapshot) -> list[Snapshot]:
        """The snapshots after `snapshot_id`, newest first, down to one that has expired."""
        with self._lock:
            self._catch_up(latest)
            found = []
            number = latest.id
            while number > snapshot_id and number in self._kept:
                found.append(self._kept[number])
                number -= 1
            rest = list(self._down(number, snapshot_id, at_once=READERS))
            self._keep(rest)
            return found + rest

    def at(self, snapshot_id: int, latest: Snapshot) -> Snapshot | None:
        """The snapshot of that id; None if it does not exist or has expired."""
        with self._lock:
            self._catch_up(latest)
            return self._kept.get(snapshot_id) or self._read(snapshot_id)

    def _catch_up(self, latest: Snapshot) -> None:
        """Read the snapshots that are newer than the cached ones; after a rollback, start again."""
        before = self._newest
        if before == latest:
            return
        newer = [latest]
        if before is not None and before.id < latest.id:
            # Read the previous newest one again too: it must still exist unchanged.
            newer += self._down(latest.id - 1, before.id - 1, at_once=READERS)
        if newer[-1] != before:
            self._users.clear()
            self._kept.clear()
            self._oldest_id = newer[-1].id
        self._remember(newer)

    def _remember(self, newer: list[Snapshot]) -> None:
        """Add the snapshots that follow the cached ones, newest first."""
        for snapshot in reversed(newer):
            if _is_numbered(snapshot):
                self._users[snapshot.commit_user] = snapshot
            self._newest = snapshot
        self._keep(newer)

    def _keep(self, snapshots: list[Snapshot]) -> None:
        """Add snapshots that are adjacent to the cached ones."""
        assert self._newest is not None
        self._kept |= {snapshot.id: snapshot for snapshot in snapshots}
        for number in [n for n in self._kept if n <= self._newest.id - _KEPT_MAX]:
            del self._kept[number]

    def _down(self, first: int, end: int, at_once: int = 1) -> Iterator[Snapshot]:
        """The snapshots from id `first` down to `end` (exclusive), or to the oldest one."""
        while first > end:
            ids = range(first, max(first - at_once, end), -1)
            for snapshot in read_all(self._read, ids):
                if snapshot is None:
                    return
                yield snapshot
            first, at_once = first - at_once, min(2 * at_once, _AT_ONCE_MAX)


def _is_numbered(snapshot: Snapshot) -> bool:
    return snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER
