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

    This identifies the files of all writers of a distributed job by their names.
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


def seeded(seed: int, start_ms: int = START_MS_DEFAULT) -> Ambient:
    """An environment that depends only on the seed; a sleep advances its clock without waiting.

    The local time is UTC. Threads may share the environment, but then the order of their calls is
    not deterministic.
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


def user_name() -> str:
    """The name of the user. As for clients of Hadoop, `HADOOP_USER_NAME` has precedence."""
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
