"""Under `quick` a test that is `sampled` keeps its share of cases, always the same ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from property_tests.profile import sampled


class Case:
    """What `sampled` looks at of an item."""

    def __init__(self, test: str, number: int, one_in: int | None) -> None:
        self.test, self.name = test, f"{test}[{number}]"
        self.nodeid = f"file.py::{self.name}"
        self.mark = pytest.mark.sampled(one_in).mark if one_in else None

    def get_closest_marker(self, _: str) -> pytest.Mark | None:
        return self.mark


@pytest.mark.parametrize(
    ("profile", "left"),
    [("quick", {"all": 9, "many": 3, "few": 1}), ("brief", {"all": 9, "many": 9, "few": 2})],
)
def test_one_case_in_so_many_is_left(
    monkeypatch: pytest.MonkeyPatch, profile: str, left: dict[str, int]
) -> None:
    named = SimpleNamespace(get_current_profile_name=lambda: profile)
    monkeypatch.setattr("property_tests.profile.settings", named)
    shares = {"all": (9, None), "many": (9, 3), "few": (2, 6)}
    items: list[Any] = [
        Case(test, number, one_in)
        for test, (cases, one_in) in shares.items()
        for number in range(cases)
    ]
    kept: list[Any] = [*sampled(items)]

    assert {test: sum(each.test == test for each in kept) for test in shares} == left
    assert kept == [each for each in items if each in kept]
    assert {*sampled(items[::-1])} == {*kept}
