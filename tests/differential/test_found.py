"""Histories that once told the engines apart, made small; each is named for what it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.history import History, Write
from tests.differential.play import play
from tests.interop.columns import columns
from tests.interop.model import case

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.differential.play import Players
    from tests.interop.columns import Column, Json

pytestmark = pytest.mark.interop

Rows = list[tuple[str, list["Json"]]]


def _history(
    name: str, fields: Sequence[Column], commits: Sequence[Rows], **options: str
) -> History:
    """A table keyed by `k`; options with `_` for `-` and `__` for `.`."""
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    table = case(
        name,
        fields,
        commits,
        primary_keys=["k"],
        options={"write-only": "true", "bucket": "1", **stated},
    )
    steps = tuple(Write(changes) for changes in table.commits)
    return History(
        seed=0, table=case(name, fields, [], primary_keys=["k"], options=table.options), steps=steps
    )


FOUND = [
    _history(
        "ORC pads a CHAR inside a ROW, a list or a map, too",
        columns(k="INT", v="ROW<x CHAR(5), y ARRAY<ROW<z CHAR(3)>>, w MAP<CHAR(2), INT>>"),
        [
            [
                ("+I", [1, ["ab", [["é"], [None], None], [["a", 1], ["bc", None]]]]),
                ("+I", [2, [None, [], []]]),
                ("+I", [3, ["abcde", None, None]]),
                ("+I", [4, None]),
            ]
        ],
        file__format="orc",
    ),
]


@pytest.mark.parametrize("history", FOUND, ids=lambda history: history.table.name)
def test_both_engines_see_equal_rows(history: History, players: Players) -> None:
    assert play(history, players).problems == ()
