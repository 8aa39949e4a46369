"""Histories that once told the engines apart, made small; each is named for what it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.history import History
from tests.differential.play import play
from tests.differential.steps import Compact, Write
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
    _history(
        "maps of a group are folded for each key, whether rows come early or are taken back",
        columns(k="STRING", s="INT", m="MAP<STRING, INT>"),
        [
            [
                ("+I", ["a", 10, [["x", 7]]]),
                ("+U", ["0", 10, None]),
                ("+U", ["a", 9, None]),
                ("-D", ["0", 2, None]),
                ("+U", ["0", 9, None]),
            ]
        ],
        merge_engine="partial-update",
        fields__s__sequence_group="m",
        fields__m__aggregate_function="merge_map",
    ),
    _history(
        "maps with times that come early are folded one by one",
        columns(k="INT", s="INT", m="MAP<STRING, ROW<v INT, at STRING>>"),
        [
            [
                ("+I", [1, 9, [["a", [8, "2024"]], ["b", None]]]),
                ("+I", [1, 5, [["a", [1, "2024"]]]]),
                ("+I", [1, 2, [["a", [8, "2024"]], ["b", None]]]),
            ]
        ],
        merge_engine="partial-update",
        fields__s__sequence_group="m",
        fields__m__aggregate_function="merge_map_with_keytime",
    ),
    _history(
        "nulls that a removal leaves in NOT NULL parts are written",
        columns(k="INT", v="ROW<a ROW<b STRING NOT NULL>, c ARRAY<INT NOT NULL> NOT NULL>"),
        [[("+I", [1, None]), ("-D", [1, None]), ("+I", [1, None]), ("+I", [2, [None, [1]]])]],
        merge_engine="partial-update",
        partial_update__remove_record_on_delete="true",
    ),
    _history(
        "a sequence column is read alone",
        columns(k="INT", s="INT", t="INT", v="INT"),
        [[("+I", [1, 3, 5, 1])], [("+I", [1, 2, 9, 2])], [("+I", [1, 3, 4, 3])]],
        merge_engine="partial-update",
        **{"fields__s,t__sequence_group": "v"},
    ),
    History(
        # By this seed both commits before the last step are postponed.
        seed=1,
        table=case(
            "several commits that are postponed are told as one",
            columns(k="INT", v="INT"),
            [],
            primary_keys=["k"],
            options={"bucket": "-2", "changelog-producer": "lookup"},
        ),
        steps=(
            Write((("+I", [1, 1]), ("+I", [2, 1]), ("+I", [3, 1]))),
            Compact(full=True),
            Write((("+I", [1, 2]), ("-D", [2, 1]), ("+I", [4, 1]))),
            Write((("+I", [1, 3]), ("-D", [3, 1]), ("-D", [4, 1]), ("+I", [5, 1]))),
            Compact(full=True),
        ),
        layout="postponed",
    ),
]


@pytest.mark.parametrize("history", FOUND, ids=lambda history: history.table.name)
def test_both_engines_see_equal_rows(history: History, players: Players) -> None:
    assert play(history, players).problems == ()
