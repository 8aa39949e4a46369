"""Tables that contradict themselves: what Java refuses sooner or later, lakecore refuses, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.columns import columns
from tests.interop.model import case
from tests.interop.protocol import PeerRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.differential.play import Players
    from tests.interop.engines import Engine
    from tests.interop.model import Case

pytestmark = pytest.mark.interop

PARTIAL = {"merge-engine": "partial-update"}
AGGREGATION = {"merge-engine": "aggregation"}
FIRST_ROW = {"merge-engine": "first-row"}
GROUP = {**PARTIAL, "fields.s.sequence-group": "a"}

TABLES: Mapping[str, Mapping[str, str]] = {
    "no such sequence field": {"sequence.field": "nowhere"},
    "the sequence field twice": {"sequence.field": "s,s"},
    "a sequence field with a function": {
        **AGGREGATION,
        "sequence.field": "s",
        "fields.s.aggregate-function": "max",
    },
    "first-row with a sequence field": {**FIRST_ROW, "sequence.field": "s"},
    "first-row with an input changelog": {**FIRST_ROW, "changelog-producer": "input"},
    "no such column of kinds": {"rowkind.field": "nowhere"},
    "no such engine": {"merge-engine": "latest"},
    "no such function": {**AGGREGATION, "fields.a.aggregate-function": "median"},
    "no such default function": {**AGGREGATION, "fields.default-aggregate-function": "median"},
    "a function of no column": {**AGGREGATION, "fields.nowhere.aggregate-function": "sum"},
    "sum of texts": {**AGGREGATION, "fields.t.aggregate-function": "sum"},
    "listagg of numbers": {**AGGREGATION, "fields.a.aggregate-function": "listagg"},
    "listagg of short texts": {**AGGREGATION, "fields.c.aggregate-function": "listagg"},
    "bool_and of numbers": {**AGGREGATION, "fields.a.aggregate-function": "bool_and"},
    "collect of numbers": {**AGGREGATION, "fields.a.aggregate-function": "collect"},
    "merge_map of numbers": {**AGGREGATION, "fields.a.aggregate-function": "merge_map"},
    "nested_update of lists of numbers": {
        **AGGREGATION,
        "fields.l.aggregate-function": "nested_update",
    },
    "nested_partial_update without a key": {
        **AGGREGATION,
        "fields.r.aggregate-function": "nested_partial_update",
    },
    "nested_update with a key that rows have not": {
        **AGGREGATION,
        "fields.r.aggregate-function": "nested_update",
        "fields.r.nested-key": "nowhere",
    },
    "merge_map_with_keytime of numbers": {
        **AGGREGATION,
        "fields.m.aggregate-function": "merge_map_with_keytime",
    },
    "rbm32 of texts": {**AGGREGATION, "fields.t.aggregate-function": "rbm32"},
    "removing records and ignoring retractions": {
        **AGGREGATION,
        "aggregation.remove-record-on-delete": "true",
        "fields.a.aggregate-function": "sum",
        "fields.a.ignore-retract": "true",
    },
    "a column in two groups": {**GROUP, "fields.a2.sequence-group": "a"},
    "a group of no column": {**PARTIAL, "fields.s.sequence-group": "nowhere"},
    "a group ordered by no column": {**PARTIAL, "fields.nowhere.sequence-group": "a"},
    "a function outside groups": {**PARTIAL, "fields.a.aggregate-function": "sum"},
    "a default function, and columns outside groups": {
        **GROUP,
        "fields.default-aggregate-function": "sum",
    },
    "removing records and ignoring deletions": {
        **PARTIAL,
        "partial-update.remove-record-on-delete": "true",
        "ignore-delete": "true",
    },
    "removing records, and groups": {**GROUP, "partial-update.remove-record-on-delete": "true"},
    "removing by a column of no group": {
        **GROUP,
        "partial-update.remove-record-on-sequence-group": "a2",
    },
    "removing by a group and ignoring deletions": {
        **GROUP,
        "partial-update.remove-record-on-sequence-group": "s",
        "ignore-delete": "true",
    },
}


@pytest.mark.parametrize("label", TABLES)
def test_what_java_refuses_lakecore_refuses(label: str, players: Players) -> None:
    table = _table(label, TABLES[label])

    java = _refusal(players.java, players, table)
    lakecore = _refusal(players.lakecore, players, table)

    assert (lakecore is None) == (java is None), f"lakecore: {lakecore}\njava: {java}"


def _table(label: str, options: Mapping[str, str]) -> Case:
    rows: list[tuple[str, list[object]]] = [
        ("+I", [1, 1, 1, 2, "x", "y", [1], [["a", 1]], [[1, "n"]]]),
        ("+I", [1, 2, 3, 4, "z", "w", [2], [["a", 2]], [[1, "o"]]]),
    ]
    return case(
        label,
        columns(
            k="INT",
            s="INT",
            a="INT",
            a2="INT",
            t="STRING",
            c="VARCHAR(3)",
            l="ARRAY<INT>",
            m="MAP<STRING, INT>",
            r="ARRAY<ROW<id INT, n STRING>>",
        ),
        [rows],  # type: ignore[list-item]
        primary_keys=["k"],
        options={"bucket": "1", "write-only": "true", **options},
    )


def _refusal(engine: Engine, players: Players, table: Case) -> str | None:
    path = players.folder / table.name.replace(" ", "_") / engine.name / "d.db" / "t"
    path.parent.mkdir(parents=True)
    try:
        engine.create(path, table)
        engine.write(path, table.commits[0])
        engine.read(path)
    except PeerRefused as refusal:
        return refusal.reason
    return None
