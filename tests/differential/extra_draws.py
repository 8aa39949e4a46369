"""Steps that are put between those that are drawn already: by dice of their own.

What else a seed draws stays as it is.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.differential.steps import Branch, Expire, Write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.differential.history import History
    from tests.differential.steps import Change, Step

# The share of histories with a branch, and of those in which snapshots expire.
BRANCHED, EXPIRED = 0.12, 0.15


def with_extra_steps(history: History) -> History:
    """The history with a branch, or with snapshots that expire, for some."""
    chance = random.Random(f"{history.seed} extra")
    steps = list(history.steps)
    if chance.random() < BRANCHED and history.layout != "postponed":
        # The shape of a branch is that of the snapshot that it begins with.
        places = [at for at, step in enumerate(steps, start=1) if isinstance(step, Write)]
        at = chance.choice(places)
        steps.insert(at, _branch(chance, history, steps[at - 1]))
    if chance.random() < EXPIRED:
        able = [at for at in range(1, len(steps) + 1) if _may_expire(history, steps, at)]
        if able:
            steps.insert(chance.choice(able), Expire(chance.choice((1, 1, 2, 3))))
    return history.with_steps(steps)


def _branch(chance: random.Random, history: History, write: Step) -> Branch:
    """Some rows of the write, again, mixed anew."""
    assert isinstance(write, Write)
    changes = chance.sample(write.changes, len(write.changes))
    return Branch(
        "b1",
        tuple(_added(history, change) for change in changes),
        forward=chance.random() < 0.5,
    )


def _added(history: History, change: Change) -> Change:
    """A change that any engine can merge."""
    kind, row = change
    return (kind if history.engine == "deduplicate" else "+I", row)


def _may_expire(history: History, steps: Sequence[Step], at: int) -> bool:
    """Whether nothing waits in the postponed bucket at this place."""
    return history.layout != "postponed" or not isinstance(steps[at - 1], Write)
