"""How many modules a verb enters, at most; `walks.py` counts and lists them.

The walks are made by a process of their own: other tests fill caches and change limits.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MODULES_MAX = {"write": 80, "merged read": 50, "MERGE": 111, "full compaction": 89}
"""A little more than today's counts. Lower a limit when a change makes a walk shorter."""
CODE = """
import json
from tests.walks import walks
print(json.dumps({name: sorted(walk.functions) for name, walk in walks().items()}))
"""


@pytest.fixture(scope="module")
def walked() -> dict[str, list[tuple[str, int, str]]]:
    """The functions that each walk enters, with module and line."""
    found: dict[str, list[tuple[str, int, str]]] = json.loads(
        subprocess.check_output([sys.executable, "-c", CODE], text=True)
    )
    return found


@pytest.mark.parametrize("name", MODULES_MAX)
def test_verb_enters_few_modules(name: str, walked: dict[str, list[tuple[str, int, str]]]) -> None:
    modules = {module for module, _, _ in walked[name]}

    assert len(modules) <= MODULES_MAX[name], sorted(modules)


def test_walk_counts_work_in_other_threads(
    walked: dict[str, list[tuple[str, int, str]]],
) -> None:
    names = {name for _, _, name in walked["merged read"]}

    assert "_Cursor._next" in names, "runs are read ahead in threads"
    assert "merge_runs" in names
    assert "<module>" not in names
