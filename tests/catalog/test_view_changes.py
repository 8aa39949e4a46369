from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.views import (
    AddDialect,
    DropDialect,
    RemoveViewOption,
    SetViewOption,
    UpdateDialect,
    UpdateViewComment,
    view_change_from_json,
    view_change_to_json,
)
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from lakecore.catalog.views import ViewChange

FORMS: list[tuple[ViewChange, dict[str, object]]] = [
    (SetViewOption("k", "v"), {"action": "setOption", "key": "k", "value": "v"}),
    (RemoveViewOption("k"), {"action": "removeOption", "key": "k"}),
    (UpdateViewComment("c"), {"action": "updateComment", "comment": "c"}),
    (UpdateViewComment(None), {"action": "updateComment", "comment": None}),
    (AddDialect("d", "q"), {"action": "addDialect", "dialect": "d", "query": "q"}),
    (UpdateDialect("d", "q"), {"action": "updateDialect", "dialect": "d", "query": "q"}),
    (DropDialect("d"), {"action": "dropDialect", "dialect": "d"}),
]


@pytest.mark.parametrize(("change", "form"), FORMS)
def test_change_has_the_form_of_the_protocol(change: ViewChange, form: dict[str, object]) -> None:
    assert view_change_to_json(change) == form
    assert view_change_from_json(form) == change


@pytest.mark.parametrize(
    "form",
    [
        1,
        {},
        {"action": "explode"},
        {"action": ["setOption"]},
        {"action": "setOption", "key": "k"},
        {"action": "setOption", "key": "k", "value": None},
        {"action": "addDialect", "dialect": 1, "query": "q"},
        {"action": "updateComment", "comment": 1},
    ],
)
def test_malformed_change_is_refused(form: object) -> None:
    with pytest.raises(InvalidRequest):
        view_change_from_json(form)
