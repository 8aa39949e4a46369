"""SQL text about two tables: each qualified column is one name."""

from __future__ import annotations

import pytest

from lakecore.errors import InvalidRequest
from lakecore.plan.predicate.qualified import join_qualifiers

SIDES = ("source", "target")


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("source.id = target.id", '"source.id" = "target.id"'),
        ("SOURCE.id = Target.ID", '"source.id" = "target.ID"'),
        ('"source"."a b" IS NULL', '"source.a b" IS NULL'),
        ("source.r.x > 1 AND n < 2", '"source.r"."x" > 1 AND n < 2'),
        ("r.x = 'source.id'", "r.x = 'source.id'"),
        ("NOT (source.a IN (1, 2))", 'NOT ("source.a" IN (1, 2))'),
    ],
)
def test_qualifier_and_column_are_one_name(text: str, joined: str) -> None:
    assert join_qualifiers(text, SIDES) == joined


def test_bad_text_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="bad SQL condition"):
        join_qualifiers("source.id = = 1", SIDES)
