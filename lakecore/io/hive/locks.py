"""The exclusive lock of a table in a Hive Metastore."""

from __future__ import annotations

import logging
import platform
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore.errors import CommitConflict, LakecoreError
from lakecore.io.ambient import Ambient, await_lock, user_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.io.hive.client import HiveClient

_log = logging.getLogger(__name__)


def _host() -> str:
    return platform.node() or "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveLocks:
    """How long to wait for a lock (in milliseconds), and the user and host that request it."""

    ambient: Ambient
    wait_ms_max: int = 8_000
    timeout_ms: int = 480_000
    user: str = field(default_factory=user_name)
    host: str = field(default_factory=_host)
    breaks: bool = False
    """Whether to release a lock that another process has not given back during the whole wait."""

    @contextmanager
    def held(self, client: HiveClient, database: str, table: str) -> Iterator[None]:
        """Hold the lock of a table. Raises CommitConflict if others hold it for too long."""
        lock = self._acquire(client, database, table)
        try:
            yield
        finally:
            try:
                client.unlock(lock)
            except LakecoreError as error:
                # Not an error, because the work under the lock is done. The lock will expire.
                _log.warning(
                    "lock not released table=%s.%s lock=%d error=%s", database, table, lock, error
                )

    def _acquire(self, client: HiveClient, database: str, table: str) -> int:
        lock, held = client.lock(database, table, self.user, self.host)
        try:
            if held:
                return lock
            before = client.lock_requests(database, table) if self.breaks else set()
            try:
                self._await(client, lock, database, table)
            except CommitConflict:
                if not self.breaks:
                    raise
                for other, _ in before & client.lock_requests(database, table):
                    if other < lock:
                        _log.warning("lock of a dead process released table=%s.%s", database, table)
                        client.unlock(other)
                self._await(client, lock, database, table)
        except BaseException:
            with suppress(LakecoreError):
                client.unlock(lock)
            raise
        return lock

    def _await(self, client: HiveClient, lock: int, database: str, table: str) -> None:
        await_lock(
            lambda: client.check_lock(lock),
            self.ambient,
            wait_ms_max=self.wait_ms_max,
            timeout_ms=self.timeout_ms,
            table=f"{database}.{table}",
            lock=lock,
        )
