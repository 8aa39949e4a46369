"""The locks of tables in `paimon_distributed_locks`, as Paimon's JdbcCatalogLock takes them.

1. Delete the row of the lock if it is older than its own `expire_time_seconds`: its holder died.
2. Insert the row. If it exists, another process holds the lock: wait and begin again.
3. Give up after `lock-acquire-timeout`.
4. Release: delete the row. A holder that took longer than `expire_time_seconds` may have lost the
   lock to another process. Then it deletes the row only if the column `lock_owner` shows that the
   row is still its own.

Newer versions of Paimon add the column `lock_owner`. It is used if the table has it.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.catalog.jdbc import statements as sql
from lakecore.errors import CommitConflict, InvalidRequest, LakecoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.catalog.jdbc.database import Database
    from lakecore.io.ambient import Ambient

__all__ = ["Locks"]

_log = logging.getLogger(__name__)

_FIRST_WAIT_MS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Locks:
    """The locks of one catalog; times are in milliseconds."""

    database: Database
    catalog_key: str
    characters_max: int
    wait_ms_max: int
    timeout_ms: int
    ambient: Ambient

    def make_table(self) -> None:
        """Create the table of locks unless it exists."""
        self.database.create(sql.LOCKS, sql.CREATE_LOCKS % self.characters_max)

    @contextmanager
    def hold(self, database: str, table: str) -> Iterator[None]:
        """Hold the lock of a table. Raises CommitConflict if it is not free before the time-out."""
        lock = f"{self.catalog_key}.{database}.{table}"
        if len(lock) > self.characters_max:
            raise InvalidRequest(
                "the name of the lock is too long: shorten the name of the table, or make the "
                "column lock_id longer and set lock-key-max-length",
                lock=lock,
                option="lock-key-max-length",
                characters=len(lock),
                most=self.characters_max,
            )
        owner = self.ambient.new_uuid()
        has_owner = sql.LOCK_OWNER in self.database.columns(sql.LOCKS)
        self._acquire(lock, owner if has_owner else None)
        since = self.ambient.now_ms()
        try:
            yield
        finally:
            self._release(lock, owner if has_owner else None, since)

    def _acquire(self, lock: str, owner: str | None) -> None:
        began, wait_ms = self.ambient.now_ms(), _FIRST_WAIT_MS
        seconds = self.timeout_ms // 1000
        acquire = (
            (sql.ACQUIRE, {"lock": lock, "seconds": seconds})
            if owner is None
            else (sql.ACQUIRE_AS, {"lock": lock, "seconds": seconds, "owner": owner})
        )
        while True:
            self.database.change((sql.delete_expired(self.database.dialect), {"lock": lock}))
            if self.database.insert(acquire) is not None:
                return
            waited_ms = self.ambient.now_ms() - began
            if waited_ms > self.timeout_ms:
                raise CommitConflict(
                    "other processes hold the lock of the table; try again later",
                    lock=lock,
                    waited_seconds=waited_ms // 1000,
                )
            wait_ms = min(wait_ms * 2, self.wait_ms_max)
            self.ambient.sleep(wait_ms / 1000 * (0.5 + self.ambient.random() / 2))

    def _release(self, lock: str, owner: str | None, since: int) -> None:
        held_ms = self.ambient.now_ms() - since
        if owner is None and held_ms // 1000 >= self.timeout_ms // 1000:
            _log.warning("lock held too long to release lock=%s held_ms=%d", lock, held_ms)
            return
        try:
            if owner is None:
                self.database.change((sql.RELEASE, {"lock": lock}))
            else:
                self.database.change((sql.RELEASE_AS, {"lock": lock, "owner": owner}))
        except LakecoreError as error:
            # Not an error, because the work under the lock is done. The lock will expire.
            _log.warning("lock not released lock=%s error=%s", lock, error)
