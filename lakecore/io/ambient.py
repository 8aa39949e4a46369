"""Clock, new file names, sleep and random numbers, as one injected value.

No other module in lakecore reads the clock, draws random numbers or sleeps. With `seeded`, the same
calls write the same bytes under the same names.
"""

from __future__ import annotations

import asyncio
import calendar
import getpass
import os
import random
import threading
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.errors import CommitConflict

if TYPE_CHECKING:
    from collections.abc import Callable

START_MS_DEFAULT = 1_700_000_000_000
JOB_ID_LENGTH = 19
"""Length of the prefix of a UUID that identifies a job (60 bits); the rest identifies a file."""


@dataclass(frozen=True, slots=True)
class Ambient:
    """The clock, file names, sleep and random numbers that code uses; tests replace them.

    Times are milliseconds since 1970.
    """

    now_ms: Callable[[], int]
    # Local time, stored as if it were UTC, as in Paimon's `_CREATION_TIME`.
    local_wall_clock_ms: Callable[[], int]
    new_uuid: Callable[[], str]
    sleep: Callable[[float], None]  # seconds
    random: Callable[[], float]  # in [0, 1)

    async def sleep_async(self, seconds: float) -> None:
        """Like `sleep`, while other tasks of the event loop run."""
        if self.sleep is not time.sleep:
            self.sleep(seconds)
            seconds = 0
        await asyncio.sleep(seconds)


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
    """The same environment, but new UUIDs begin with the prefix of the job's UUID.

    The prefix identifies the files of all writers of a distributed job.
    """
    begin = job[:JOB_ID_LENGTH]

    def new_uuid() -> str:
        return begin + ambient.new_uuid()[JOB_ID_LENGTH:]

    return replace(ambient, new_uuid=new_uuid)


def forked(ambient: Ambient) -> Ambient:
    """The same environment for one of several threads, with its own sequence of UUIDs.

    The UUIDs depend on the order of the `forked` calls, not on the scheduling of the threads.
    """
    chance = random.Random(uuid.UUID(ambient.new_uuid()).int)  # noqa: S311 - as random as its seed

    def new_uuid() -> str:
        return str(uuid.UUID(int=chance.getrandbits(128), version=4))

    return replace(ambient, new_uuid=new_uuid)


class Clock:
    """A clock that moves only when it is told to, and when a program sleeps by it.

    Times are milliseconds since 1970. Threads may share it.

        clock = Clock()
        table = lakecore.open_table(path, ambient=seeded_ambient(7, clock))
        clock.advance(3_600_000)  # for the table, an hour has passed
    """

    def __init__(self, start_ms: int = START_MS_DEFAULT) -> None:
        self._now_ms: float = start_ms
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        """The time."""
        with self._lock:
            return round(self._now_ms)

    def advance(self, milliseconds: float) -> None:
        """Move the clock forward; a negative number does not move it."""
        with self._lock:
            self._now_ms += max(milliseconds, 0.0)

    def sleep(self, seconds: float) -> None:
        """Move the clock forward, without waiting."""
        self.advance(seconds * 1000)


def seeded(seed: int, clock: Clock | None = None) -> Ambient:
    """An environment that depends only on the seed; a sleep advances its clock without waiting.

    Two tables that get the same calls in environments of one seed have the same bytes under the
    same names. The local time is UTC. Threads may share the environment, but then the order of
    their calls is not deterministic.

        lakecore.open_table(path, ambient=seeded_ambient(7))
    """
    chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
    lock = threading.Lock()
    clock = Clock() if clock is None else clock

    def new_uuid() -> str:
        with lock:
            return str(uuid.UUID(int=chance.getrandbits(128), version=4))

    def draw() -> float:
        with lock:
            return chance.random()

    return Ambient(
        now_ms=clock.now_ms,
        local_wall_clock_ms=clock.now_ms,
        new_uuid=new_uuid,
        sleep=clock.sleep,
        random=draw,
    )


def user_name() -> str:
    """The name of the user. As for clients of Hadoop, `HADOOP_USER_NAME` has precedence."""
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


# --- locks ---------------------------------------------------------------------------------------

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
