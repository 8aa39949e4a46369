"""Clock, new file names, sleep and chance, as one injected value.

Nothing else in lakecore asks the time, draws a number or waits, so that one seed makes one table:
with `seeded` the same calls write the same bytes under the same names.
"""

from __future__ import annotations

import calendar
import random
import threading
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["JOB_ID_LENGTH", "SYSTEM", "Ambient", "forked", "of_job", "seeded"]

START_MS_DEFAULT = 1_700_000_000_000
JOB_ID_LENGTH = 19
"""Of a UUID, the part that says the job: 60 random bits; as many are left for the writers of it."""


@dataclass(frozen=True, slots=True)
class Ambient:
    """What the surroundings decide. Times are milliseconds since 1970."""

    now_ms: Callable[[], int]
    # What a clock on the wall shows here, read as if this were UTC: Paimon's `_CREATION_TIME`.
    local_wall_clock_ms: Callable[[], int]
    new_uuid: Callable[[], str]
    sleep: Callable[[float], None]  # seconds
    random: Callable[[], float]  # in [0, 1)


def _system_now_ms() -> int:
    return time.time_ns() // 1_000_000


def _system_local_wall_clock_ms() -> int:
    seconds, milliseconds = divmod(_system_now_ms(), 1000)
    return calendar.timegm(time.localtime(seconds)) * 1000 + milliseconds


def _system_new_uuid() -> str:
    return str(uuid.uuid4())


SYSTEM = Ambient(
    now_ms=_system_now_ms,
    local_wall_clock_ms=_system_local_wall_clock_ms,
    new_uuid=_system_new_uuid,
    sleep=time.sleep,
    random=random.random,
)


def of_job(job: str, ambient: Ambient = SYSTEM) -> Ambient:
    """The same surroundings, but new UUIDs begin as that of the job does.

    So the files of all writers of a distributed job can be told by their names.
    """
    begin = job[:JOB_ID_LENGTH]

    def new_uuid() -> str:
        return begin + ambient.new_uuid()[JOB_ID_LENGTH:]

    return replace(ambient, new_uuid=new_uuid)


def forked(ambient: Ambient) -> Ambient:
    """The same surroundings for one of several threads, with UUIDs of its own.

    These depend on the order in which threads were given theirs, not on who draws first.
    """
    chance = random.Random(uuid.UUID(ambient.new_uuid()).int)  # noqa: S311 - as random as its seed

    def new_uuid() -> str:
        return str(uuid.UUID(int=chance.getrandbits(128), version=4))

    return replace(ambient, new_uuid=new_uuid)


def seeded(seed: int, start_ms: int = START_MS_DEFAULT) -> Ambient:
    """Surroundings that depend on the seed alone; a sleep moves the clock and returns at once.

    The wall clock shows UTC. Threads may share it; which of them draws first is then up to them.
    """
    chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
    lock = threading.Lock()
    now_seconds = start_ms / 1000

    def now_ms() -> int:
        with lock:
            return round(now_seconds * 1000)

    def new_uuid() -> str:
        with lock:
            return str(uuid.UUID(int=chance.getrandbits(128), version=4))

    def sleep(seconds: float) -> None:
        nonlocal now_seconds
        with lock:
            now_seconds += max(seconds, 0.0)

    def draw() -> float:
        with lock:
            return chance.random()

    return Ambient(
        now_ms=now_ms, local_wall_clock_ms=now_ms, new_uuid=new_uuid, sleep=sleep, random=draw
    )
