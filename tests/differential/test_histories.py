"""Histories drawn from seeds, which both engines must play alike.

The variables HISTORIES, SEED and ENGINE say how many, from which seed on, of which engine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.differential.differences import comparable
from tests.differential.draws import draw
from tests.differential.play import play
from tests.differential.shrink import shrink

if TYPE_CHECKING:
    from tests.differential.history import History
    from tests.differential.play import Players

pytestmark = pytest.mark.interop

SEED = int(os.environ.get("SEED") or 1)
HISTORIES = int(os.environ.get("HISTORIES") or 20)
ENGINE = os.environ.get("ENGINE") or None
SHRINKING_TRIES = int(os.environ.get("SHRINKING_TRIES") or 150)


@pytest.mark.parametrize("seed", range(SEED, SEED + HISTORIES))
def test_both_engines_see_equal_rows_in_every_snapshot_of_both_tables(
    seed: int, players: Players
) -> None:
    history = draw(seed, ENGINE)

    problems = _problems(history, players)

    if problems:
        # Another problem than the first is another history.
        label = _kind(problems)
        small = shrink(
            history,
            lambda each: comparable(each) and _kind(_problems(each, players)) == label,
            SHRINKING_TRIES,
        )
        told = "\n".join(_problems(small, players))
        again = f"make differential SEED={seed}" + (f" ENGINE={ENGINE}" if ENGINE else "")
        pytest.fail(f"{told}\n\n{small}\n\nplay it again: {again}", pytrace=False)


def _problems(history: History, players: Players) -> tuple[str, ...]:
    try:
        return play(history, players).problems
    except Exception as error:  # noqa: BLE001 -- any error that is no refusal is a problem
        return (f"{type(error).__name__}: {error}",)


def _kind(problems: tuple[str, ...]) -> str:
    """What a problem is about, without its numbers."""
    if not problems:
        return ""
    return "".join(letter for letter in problems[0][:60] if not letter.isdigit())
