"""Who committed what under which number, as far as anybody asked.

A job that numbers its commits asks for its last one before each. Looking back through all snapshots
each time would make a commit slower with every one before it, so what was seen is remembered, and
only newer snapshots are read, and older ones only for a user not met so far.

INVARIANT: what is remembered ends with a snapshot that is still there as it was. A rollback puts
others under the same numbers; then all is looked at anew.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakecore.model.snapshot import Snapshot

    Read = Callable[[int], Snapshot | None]

_READERS = 8
_AT_ONCE_MAX = 256


class Commits:
    """The newest numbered snapshot of each user, among those looked at. Safe between threads."""

    def __init__(self, read: Read) -> None:
        """`read` gives a snapshot by its id, None if there is none."""
        self._read = read
        self._lock = threading.Lock()
        self._users: dict[str, Snapshot] = {}
        self._newest: Snapshot | None = None
        self._oldest_id = 0

    def last_numbered(self, user: str, latest: Snapshot | None) -> Snapshot | None:
        """The newest snapshot up to `latest` that a user committed under a number, or None."""
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

    def _catch_up(self, latest: Snapshot) -> None:
        """Look at what came since the last time."""
        before = self._newest
        if before == latest:
            return
        newer = [latest]
        goes_on = before is not None and before.id < latest.id and self._read(before.id) == before
        if before is not None and goes_on:
            newer += self._down(latest.id - 1, before.id)
            goes_on = len(newer) == latest.id - before.id
        if not goes_on:
            newer = [latest]
            self._users.clear()
            self._oldest_id = latest.id
        for snapshot in reversed(newer):
            if _is_numbered(snapshot):
                self._users[snapshot.commit_user] = snapshot
        self._newest = latest

    def _down(self, first: int, end: int) -> Iterator[Snapshot]:
        """The snapshots from one id down to another, which is left out, or to the oldest."""
        count = 1
        while first > end:
            ids = range(first, max(first - count, end), -1)
            for snapshot in self._read_all(ids):
                if snapshot is None:
                    return
                yield snapshot
            first, count = first - count, min(2 * count, _AT_ONCE_MAX)

    def _read_all(self, ids: range) -> list[Snapshot | None]:
        if len(ids) < _READERS:
            return [self._read(number) for number in ids]
        with ThreadPoolExecutor(_READERS) as pool:
            return list(pool.map(self._read, ids))


def _is_numbered(snapshot: Snapshot) -> bool:
    return snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER
