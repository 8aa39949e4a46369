"""How many modules a verb enters, at most; `walks.py` counts and lists them."""

from __future__ import annotations

import pytest

from tests.walks import Walk, walks

MODULES_MAX = {"write": 82, "merged read": 52, "MERGE": 112, "full compaction": 91}
"""A little more than today's counts. Lower a limit when a change makes a walk shorter."""


@pytest.fixture(scope="module")
def walked() -> dict[str, Walk]:
    return walks()


@pytest.mark.parametrize("name", MODULES_MAX)
def test_verb_enters_few_modules(name: str, walked: dict[str, Walk]) -> None:
    assert len(walked[name].modules) <= MODULES_MAX[name]


def test_walk_counts_work_in_other_threads(walked: dict[str, Walk]) -> None:
    names = {name for _, _, name in walked["merged read"].functions}

    assert "_Cursor._next" in names, "runs are read ahead in threads"
    assert "merge_runs" in names
    assert "<module>" not in names
