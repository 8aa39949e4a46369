"""A scenario that fails -> a smaller one that fails.

One part is taken out after the other: actors, deeds, faults, rows, options. Without it the calls
come in another order, so each is tried with a few schedules. What is found may fail in another way
than before; it is a fault all the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from property_tests.simulation.simulate import Run, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from property_tests.simulation.scenario import Scenario

_SCHEDULES = 6
RUNS_MAX = 1_500


def shrink(run: Run, runs_max: int = RUNS_MAX) -> Run:
    """The smallest failing run that was found, playing so many at most."""
    runs = 0
    found = True
    while found and runs < runs_max:
        found = False
        for smaller in _smaller(run.scenario):
            for schedule in range(_SCHEDULES):
                runs += 1
                tried = simulate(replace(smaller, schedule=schedule))
                if tried.violation:
                    run, found = tried, True
                    break
            if found or runs >= runs_max:
                break
    return run


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    actors, faults = scenario.actors, scenario.faults
    for at in range(len(actors)):
        name = actors[at].name
        yield replace(
            scenario,
            actors=(*actors[:at], *actors[at + 1 :]),
            faults=tuple(fault for fault in faults if fault.actor != name),
        )
    for at in range(len(faults)):
        yield replace(scenario, faults=(*faults[:at], *faults[at + 1 :]))
    for at, actor in enumerate(actors):
        for index, deed in enumerate(actor.deeds):
            rest = (*actor.deeds[:index], *actor.deeds[index + 1 :])
            if rest:
                fewer = replace(actor, deeds=rest)
                yield replace(scenario, actors=(*actors[:at], fewer, *actors[at + 1 :]))
            if len(deed.rows) > 1:
                smaller = replace(deed, rows=deed.rows[:1])
                deeds = (*actor.deeds[:index], smaller, *actor.deeds[index + 1 :])
                changed = replace(actor, deeds=deeds)
                yield replace(scenario, actors=(*actors[:at], changed, *actors[at + 1 :]))
    for key in scenario.options:
        rest_of = {name: text for name, text in scenario.options.items() if name != key}
        yield replace(scenario, options=rest_of)
    for plain in ({"listing_lag_ms": 0}, {"latency_ms": 0}, {"slow_sync": 0.0}):
        if any(getattr(scenario, name) != value for name, value in plain.items()):
            yield replace(scenario, **plain)
