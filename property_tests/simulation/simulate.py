"""One scenario from its beginning to its check."""

from __future__ import annotations

import hashlib
import random
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from property_tests.simulation.actors import Attempt, create, life
from property_tests.simulation.checker import ViolationError, check
from property_tests.simulation.disk import Disk
from property_tests.simulation.scenario import AFTERWARDS
from property_tests.simulation.scheduler import Scheduler, StuckError

if TYPE_CHECKING:
    from property_tests.simulation.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Run:
    """What happened: the trace, and what is wrong with it, or nothing."""

    scenario: Scenario
    disk: Disk
    attempts: list[Attempt]
    violation: str

    @property
    def digest(self) -> str:
        """A hash of the trace."""
        return hashlib.sha256(repr(self.disk.trace).encode()).hexdigest()

    def __str__(self) -> str:
        lines = [
            f"{at:>6} {who:<18} {call:<14} {path} {out}"
            for at, who, call, path, out in self._calls()
        ]
        return "\n".join([str(self.scenario), *lines, f"violation: {self.violation or 'none'}"])

    def _calls(self) -> list[tuple[int, str, str, str, str]]:
        first = self.disk.trace[0][0] if self.disk.trace else 0
        return [
            (at - first, who, call, path, out.split("\n")[0])
            for at, who, call, path, out in self.disk.trace
        ]


def simulate(scenario: Scenario) -> Run:
    """Play a scenario, within `cheaply`, and check what came of it."""
    chance = random.Random(f"schedule {scenario.seed} {scenario.schedule}")
    scheduler = Scheduler(chance, scenario.switch)
    disk = Disk(scenario, scheduler)
    create(scenario, disk.files)
    create(scenario, disk.archive)
    attempts: list[Attempt] = []
    violation = ""
    try:
        scheduler.run({actor.name: life(actor, disk, attempts) for actor in scenario.actors})
        scheduler.now_ms += 10_000
        disk.arrive()
        if scenario.goes_on:
            scheduler.run({AFTERWARDS.name: life(AFTERWARDS, disk, attempts)})
        check(disk, attempts)
    except (ViolationError, StuckError) as error:
        violation = str(error)
    except Exception as error:  # noqa: BLE001 - no error is expected here, so each is a finding
        violation = "".join(traceback.format_exception(error))
    return Run(scenario=scenario, disk=disk, attempts=attempts, violation=violation)
