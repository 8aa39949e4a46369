"""Which row kinds a table refuses to write, because it could not merge them."""

from __future__ import annotations

from typing import Any

import pytest

from lakecore.merge.spec import MergeSpec, SequenceGroup, merge_spec, refused_kinds
from tests.tables import new_table

PARTIAL, FOLDED = {"merge-engine": "partial-update"}, {"merge-engine": "aggregation"}
GROUP = {"fields.g.sequence-group": "v"}


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({}, ""),
        ({"merge-engine": "first-row"}, "-U -D"),
        ({"merge-engine": "first-row", "ignore-delete": "true"}, ""),
        (PARTIAL, "-U -D"),
        ({**PARTIAL, "ignore-delete": "true"}, ""),
        ({**PARTIAL, "partial-update.remove-record-on-delete": "true"}, ""),
        ({**PARTIAL, **GROUP}, ""),
        ({**PARTIAL, **GROUP, "fields.v.aggregate-function": "sum"}, ""),
        ({**PARTIAL, **GROUP, "fields.v.aggregate-function": "max"}, "-U -D"),
        ({**FOLDED, "fields.v.aggregate-function": "sum"}, ""),
        ({**FOLDED, "fields.v.aggregate-function": "max"}, "-U -D"),
        (
            {
                **FOLDED,
                "fields.v.aggregate-function": "max",
                "aggregation.remove-record-on-delete": "true",
            },
            "-U",
        ),
        (
            {
                **FOLDED,
                "fields.v.aggregate-function": "max",
                "fields.v.ignore-retract": "true",
            },
            "",
        ),
    ],
)
def test_kinds_that_an_engine_cannot_merge_are_refused(
    options: dict[str, Any], refused: str
) -> None:
    table = new_table({"id": "INT NOT NULL", "v": "INT", "g": "INT"}, **options)

    found = refused_kinds(table.options.merge_engine, merge_spec(table.schema, table.options))

    kinds = sorted(found.kinds) if found else []
    assert " ".join(kind.text for kind in kinds) == refused


@pytest.mark.parametrize(
    ("columns", "read"),
    [
        ("v", "v k s"),
        ("k v", "k v s"),
        ("a v", "a v k s g"),
        ("g", "g k s"),
        ("z", "z k s"),
    ],
)
def test_a_merge_of_columns_reads_those_that_decide(columns: str, read: str) -> None:
    groups = (SequenceGroup(sequence=("g",), columns=("a", "b")),)
    spec = MergeSpec(key=("k",), sequence=("s",), groups=groups)

    assert spec.columns_for(columns.split()) == tuple(read.split())
    removing = MergeSpec(
        key=("k",), groups=(SequenceGroup(sequence=("g",), columns=("a",), removes=True),)
    )
    assert "g" in removing.columns_for(columns.split())
