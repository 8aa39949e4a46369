"""One thread at a time: threads pass a baton, and a seed says to whom.

Each actor is a thread. It runs until it asks to `pause`, which is before every call of its store
and in every sleep. Then the thread itself draws who goes on; all others wait. The clock moves only
here, so time, order and every drawn number follow from the seed.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

START_MS = 1_700_000_000_000
STEPS_MAX = 30_000
_PATIENCE_SECONDS = 120


class CrashedError(BaseException):
    """The process of an actor is no more; no handler of an error may catch it."""


class StuckError(Exception):
    """The actors do not come to an end."""


class Task:
    """One actor's thread: when it may go on, and whether it has ended."""

    def __init__(self, name: str, body: Callable[[], None]) -> None:
        self.name = name
        self.wake_ms = START_MS
        self.ended = False
        self.baton = threading.Semaphore(0)
        self.body = body


class Scheduler:
    """Runs tasks one at a time; `switch` is how likely another goes on at a pause."""

    def __init__(self, chance: random.Random, switch: float) -> None:
        self.now_ms = START_MS
        self.steps = 0
        self.failure: BaseException | None = None
        self._chance = chance
        self._switch = switch
        self._tasks: list[Task] = []
        self._main = threading.Semaphore(0)

    def run(self, bodies: dict[str, Callable[[], None]]) -> None:
        """Run all bodies to their ends; raises what one of them raised."""
        self._tasks = [Task(name, body) for name, body in bodies.items()]
        threads = [
            threading.Thread(target=self._live, args=(task,), name=task.name, daemon=True)
            for task in self._tasks
        ]
        for thread in threads:
            thread.start()
        self._pass_on(None)
        if not self._main.acquire(timeout=_PATIENCE_SECONDS):
            raise StuckError("a thread holds the baton and does not pass it on")
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure

    def task(self, name: str) -> Task:
        """The task of that name."""
        return next(task for task in self._tasks if task.name == name)

    def pause(self, task: Task, wait_ms: float) -> None:
        """Let others go on; comes back once the time has passed and the baton is here again."""
        self.steps += 1
        if self.steps > STEPS_MAX:
            self.failure = self.failure or StuckError(f"no end after {STEPS_MAX} steps")
        if self.failure is not None:
            raise CrashedError
        task.wake_ms = self.now_ms + max(0, round(wait_ms))
        if self._pass_on(task) is not task:
            task.baton.acquire()
        if self.failure is not None:
            raise CrashedError

    def _live(self, task: Task) -> None:
        task.baton.acquire()
        try:
            if self.failure is None:
                task.body()
        except BaseException as error:  # noqa: BLE001 - whatever it is, `run` raises it
            if not isinstance(error, CrashedError):
                self.failure = self.failure or error
        finally:
            task.ended = True
            self._pass_on(None)

    def _pass_on(self, current: Task | None) -> Task | None:
        """Wake who goes on next, unless that is the current task; the main thread at the end."""
        alive = [task for task in self._tasks if not task.ended]
        if not alive:
            self._main.release()
            return None
        self.now_ms = max(self.now_ms, min(task.wake_ms for task in alive))
        chosen = self._choose(current, [task for task in alive if task.wake_ms <= self.now_ms])
        if chosen is not current:
            chosen.baton.release()
        return chosen

    def _choose(self, current: Task | None, ready: list[Task]) -> Task:
        if current in ready and self._chance.random() >= self._switch:
            return current
        return ready[int(self._chance.random() * len(ready))]


class Turns(Scheduler):
    """Draws nothing: whoever pauses lets the other one of two tasks go on; the first begins."""

    def __init__(self) -> None:
        super().__init__(random.Random(0), 1.0)

    def _choose(self, current: Task | None, ready: list[Task]) -> Task:
        return next((task for task in ready if task is not current), ready[0])
