"""Retries a source that is temporarily unreachable: waits, then continues at the last position."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lakecore.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakecore.cdc.events import Position, Source, Step
    from lakecore.io.ambient import Ambient

__all__ = ["patient_steps"]

log = logging.getLogger("lakecore.cdc")

_WAIT_SECONDS_MIN, _WAIT_SECONDS_MAX = 0.5, 30.0
_LOOK_SECONDS = 0.5


def patient_steps(
    source: Source,
    position: Callable[[], Position | None],
    patience_seconds: float,
    ambient: Ambient,
    stops: Callable[[], bool],
) -> Iterator[Step]:
    """The steps of a source after its current position.

    While the source cannot be reached, waits and tries again. Raises StorageError after
    `patience_seconds` without a step. The iterator ends if `stops()` becomes true while it waits.
    """
    lost_ms: int | None = None
    wait = _WAIT_SECONDS_MIN
    while True:
        try:
            for step in source.steps(position()):
                lost_ms, wait = None, _WAIT_SECONDS_MIN
                yield step
            return
        except StorageError as error:
            now_ms = ambient.now_ms()
            lost_ms = now_ms if lost_ms is None else lost_ms
            if now_ms - lost_ms >= patience_seconds * 1000:
                raise
            log.warning("the source is not reachable. wait_seconds=%s cause=%s", wait, error)
        waited = 0.0
        while waited < wait:
            if stops():
                return
            ambient.sleep(min(_LOOK_SECONDS, wait - waited))
            waited += _LOOK_SECONDS
        wait = min(wait * 2, _WAIT_SECONDS_MAX)
