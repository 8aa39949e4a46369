"""Waits for a source that cannot be reached: at the start, and while its changes are followed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from lakecore.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from lakecore.cdc.events import Position, Source, Step
    from lakecore.io.ambient import Ambient

T = TypeVar("T")

log = logging.getLogger("lakecore.cdc")

_WAIT_SECONDS_MIN, _WAIT_SECONDS_MAX = 0.5, 30.0
_LOOK_SECONDS = 0.5


class Patience:
    """One policy for a source that cannot be reached: wait, and try again, up to `seconds`.

    The waits double, up to 30 s, each with up to a tenth more at random. `stops`: ends a wait when
    it returns True.
    """

    def __init__(self, seconds: float, ambient: Ambient, stops: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._ambient = ambient
        self._stops = stops
        self.retries = 0
        self._lost_ms: int | None = None
        self._wait = _WAIT_SECONDS_MIN

    def ask(self, call: Callable[[], T]) -> T | None:
        """The result of a call to the source; None if `stops()` became true during a wait.

        Raises StorageError after the time.
        """
        while True:
            try:
                found = call()
            except StorageError as error:
                if not self._waits(error):
                    return None
            else:
                self._lost_ms, self._wait = None, _WAIT_SECONDS_MIN
                return found

    def steps(
        self, source: Source, position: Callable[[], Position | None]
    ) -> Generator[Step, None, None]:
        """The steps of a source after its current position.

        Raises StorageError after the time without a step. The iterator ends if `stops()` becomes
        true during a wait.
        """
        while True:
            try:
                for step in source.steps(position()):
                    self._lost_ms, self._wait = None, _WAIT_SECONDS_MIN
                    yield step
                return
            except StorageError as error:
                if not self._waits(error):
                    return

    def _waits(self, error: StorageError) -> bool:
        """Wait for the next attempt; False if `stops()` became true.

        Raises the error when the time is over.
        """
        now_ms = self._ambient.now_ms()
        self._lost_ms = now_ms if self._lost_ms is None else self._lost_ms
        if now_ms - self._lost_ms >= self._seconds * 1000:
            raise error
        self.retries += 1
        wait = self._wait * (1 + self._ambient.random() / 10)
        log.warning("the source is not reachable. wait_seconds=%.1f cause=%s", wait, error)
        while wait > 0:
            if self._stops():
                return False
            self._ambient.sleep(min(_LOOK_SECONDS, wait))
            wait -= _LOOK_SECONDS
        self._wait = min(self._wait * 2, _WAIT_SECONDS_MAX)
        return True
