"""The newest snapshots of a table, as far as anybody asked: who committed what, under which number.

A job that numbers its commits asks for its last one before each, and whoever lost a race asks what
came before it. Reading the snapshots anew for each question would make a commit slower with every
one before it, and who loses a race would lose the next one too. So what was seen is remembered, and
only newer snapshots are read, and older ones only for a user not met so far.

INVARIANT: what is remembered ends with a snapshot that is still there as it was. A rollback puts
others under the same numbers; then all is looked at anew. A snapshot that is remembered may have
expired, and its files be gone.
"""

from __future__ import annotations

import threading
from itertools import takewhile
from typing import TYPE_CHECKING

from lakecore.io.at_once import READERS, read_all
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakecore.model.snapshot import Snapshot

    Read = Callable[[int], Snapshot | None]

_AT_ONCE_MAX = 256
_KEPT_MAX = 1_000


class Commits:
    """The newest snapshots, and the newest numbered one of each user. Safe between threads.

    `latest` is always the newest snapshot of the table, just read; nothing after it is looked at.
    """

    def __init__(self, read: Read) -> None:
        """`read` gives a snapshot by its id, None if there is none."""
        self._read = read
        self._lock = threading.Lock()
        self._users: dict[str, Snapshot] = {}
        self._newest: Snapshot | None = None
        self._oldest_id = 0
        self._kept: dict[int, Snapshot] = {}  # the newest ones, without gaps

    def last_numbered(self, user: str, latest: Snapshot | None) -> Snapshot | None:
        """The newest snapshot that a user committed under a number, or None."""
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
        """The newest snapshot, found from what was it before; None if that is gone."""
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
        """The snapshots after one, newest first, down to the first that has expired."""
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
        """Look at what came since the last time."""
        before = self._newest
        if before == latest:
            return
        newer = [latest]
        if before is not None and before.id < latest.id:
            # The one before is read again too: only if it is still there does the new follow it.
            newer += self._down(latest.id - 1, before.id - 1, at_once=READERS)
        if newer[-1] != before:
            self._users.clear()
            self._kept.clear()
            self._oldest_id = newer[-1].id
        self._remember(newer)

    def _remember(self, newer: list[Snapshot]) -> None:
        """Take in what follows the snapshots that are known, newest first."""
        for snapshot in reversed(newer):
            if _is_numbered(snapshot):
                self._users[snapshot.commit_user] = snapshot
            self._newest = snapshot
        self._keep(newer)

    def _keep(self, snapshots: list[Snapshot]) -> None:
        """Remember snapshots that follow those that are kept, on either side."""
        assert self._newest is not None
        self._kept |= {snapshot.id: snapshot for snapshot in snapshots}
        for number in [n for n in self._kept if n <= self._newest.id - _KEPT_MAX]:
            del self._kept[number]

    def _down(self, first: int, end: int, at_once: int = 1) -> Iterator[Snapshot]:
        """The snapshots from one id down to another, which is left out, or to the oldest."""
        while first > end:
            ids = range(first, max(first - at_once, end), -1)
            for snapshot in read_all(self._read, ids):
                if snapshot is None:
                    return
                yield snapshot
            first, at_once = first - at_once, min(2 * at_once, _AT_ONCE_MAX)


def _is_numbered(snapshot: Snapshot) -> bool:
    return snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER
