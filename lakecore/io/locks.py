"""Waits for a lock that a database or a metastore grants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import CommitConflict

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.io.ambient import Ambient

_FIRST_WAIT_MS = 50


def await_lock(
    acquired: Callable[[], bool],
    ambient: Ambient,
    *,
    wait_ms_max: int,
    timeout_ms: int,
    **lock: object,
) -> None:
    """Wait, longer each time, until `acquired` is true. `lock` names the lock for errors.

    Raises CommitConflict if others hold the lock for too long.
    """
    began, wait_ms = ambient.now_ms(), _FIRST_WAIT_MS
    while not acquired():
        waited_ms = ambient.now_ms() - began
        if waited_ms > timeout_ms:
            raise CommitConflict(
                "other processes hold the lock of the table; try again later",
                **lock,
                waited_seconds=waited_ms // 1000,
            )
        wait_ms = min(wait_ms * 2, wait_ms_max)
        ambient.sleep(wait_ms / 1000 * (0.5 + ambient.random() / 2))
