"""Waits for a source that cannot be reached: at the start, and while its changes are followed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from lakecore.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from lakecore.cdc.events import Position, Source, Step
    from lakecore.io.ambient import Ambient
    from lakecore.model.types import Json

T = TypeVar("T")

log = logging.getLogger("lakecore.cdc")

_REASONS = {
    ("connection refused",): (
        "nothing listens at the address. Start the server, or correct hostname and port"
    ),
    ("name or service not known", "translate host name", "name resolution", "getaddrinfo"): (
        "the host name is not known. Correct hostname, or repair the name service"
    ),
    ("timed out", "timeout expired"): (
        "the server does not answer in time. Check hostname, port and firewall, or set "
        "connect.timeout"
    ),
    ("no route to host", "network is unreachable"): (
        "no network leads to the server. Check hostname and network"
    ),
    ("certificate",): (
        "the certificate of the server is not accepted. Name the file of the authority that "
        "signed it"
    ),
    (
        "too many clients",
        "too many connections",
        "connection slots are reserved",
        "max_user_connections",
    ): ("the server has no free connection. End other sessions, or raise max_connections"),
    ("starting up", "shutting down", "shutdown in progress", "recovery mode"): (
        "the server starts or shuts down. Wait until it runs"
    ),
    (
        *("lost connection", "gone away", "closed the connection", "terminating connection"),
        *("broken pipe", "reset by peer", "connection already closed", "no connection to the"),
    ): "the connection was lost. Look at the log of the server if this repeats",
}
"""Parts of a driver's message, in lower case: what they mean, and the next step."""


def unreachable(error: object) -> str:
    """Why a server cannot be reached, with the next step, given the error of a driver."""
    text = str(error).lower()
    found = (means for parts, means in _REASONS.items() if any(each in text for each in parts))
    return next(found, "the server reports a failure. The cause says which")


_WAIT_SECONDS_MIN, _WAIT_SECONDS_MAX = 0.5, 30.0
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A source that cannot be reached: since when, how often it was tried, and why.

    - `contact_ms`: the last contact, or the start of the run;
    - `attempt_ms`: the last attempt to reach it.
    """

    contact_ms: int
    attempt_ms: int
    retries: int
    reason: str

    def to_json(self) -> dict[str, Json]:
        return {
            "contact_ms": self.contact_ms,
            "attempt_ms": self.attempt_ms,
            "retries": self.retries,
            "reason": self.reason,
        }

    @staticmethod
    def from_json(value: Mapping[str, Json]) -> Outage:
        """The outage from a JSON value that `to_json` returned.

        Raises KeyError, TypeError or ValueError for any other value.
        """
        return Outage(
            contact_ms=int(str(value["contact_ms"])),
            attempt_ms=int(str(value["attempt_ms"])),
            retries=int(str(value["retries"])),
            reason=str(value["reason"]),
        )

    @property
    def since(self) -> str:
        """The time of the last contact, in UTC."""
        return datetime.fromtimestamp(self.contact_ms // 1000, UTC).isoformat()


def _tell_nobody(outage: Outage | None) -> None:
    del outage


class Patience:
    """One policy for a source that cannot be reached: wait, and try again, up to `seconds`.

    The waits double, up to 30 s, each with up to a tenth more at random. `stops`: ends a wait when
    it returns True. `tells`: called before each wait, and with None at the first contact after it,
    or of this run.
    """

    def __init__(
        self,
        seconds: float,
        ambient: Ambient,
        stops: Callable[[], bool],
        tells: Callable[[Outage | None], None] = _tell_nobody,
    ) -> None:
        self._seconds = seconds
        self._ambient = ambient
        self._stops = stops
        self._tells = tells
        self.retries = 0
        self._is_away = False
        self._lost_ms: int | None = ambient.now_ms()
        self._contact_ms = ambient.now_ms()
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
                self._reached()
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
                    self._reached()
                    yield step
                return
            except StorageError as error:
                if not self._waits(error):
                    return

    def _reached(self) -> None:
        self._contact_ms = self._ambient.now_ms()
        if self._lost_ms is not None:
            if self._is_away:
                seconds = (self._contact_ms - self._lost_ms) / 1000
                log.info("the source is reachable again. seconds=%.1f", seconds)
                self._is_away = False
            self._lost_ms, self._wait = None, _WAIT_SECONDS_MIN
            self._tells(None)

    def _waits(self, error: StorageError) -> bool:
        """Wait for the next attempt; False if `stops()` became true.

        Raises the error when the time is over.
        """
        now_ms = self._ambient.now_ms()
        self._lost_ms = now_ms if self._lost_ms is None else self._lost_ms
        outage = Outage(
            contact_ms=self._contact_ms,
            attempt_ms=now_ms,
            retries=self.retries,
            reason=str(error),
        )
        self._is_away = True
        self._tells(outage)
        if now_ms - self._lost_ms >= self._seconds * 1000:
            raise error
        self.retries += 1
        wait = self._wait * (1 + self._ambient.random() / 10)
        log.warning(
            "the source is not reachable. wait_seconds=%.1f since=%s cause=%s",
            wait,
            outage.since,
            error,
        )
        while wait > 0:
            if self._stops():
                return False
            self._ambient.sleep(min(_LOOK_SECONDS, wait))
            wait -= _LOOK_SECONDS
        self._wait = min(self._wait * 2, _WAIT_SECONDS_MAX)
        return True
