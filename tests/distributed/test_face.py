"""What the Spark bridge may import of lakecore is what it does import, and no more."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

FACE = "lakecore.distributed"
PARTS = (
    "arrays",
    "cdc",
    "changes",
    "committing",
    "descriptor",
    "key_ranges",
    "placing",
    "planning",
    "reading",
    "row_verbs",
    "sql",
    "tables",
    "values",
    "verb_tasks",
    "verbs",
    "writing",
)
ROOT = Path(__file__).parents[2]


def imported() -> set[tuple[str, str]]:
    """The module and name of each import of lakecore in the bridge."""
    found: set[tuple[str, str]] = set()
    for folder in ("spark_bridge", "pyspark_lakecore"):
        for path in sorted((ROOT / folder).glob("**/*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module is not None:
                    found |= {(node.module, alias.name) for alias in node.names}
    return {(module, name) for module, name in found if module.partition(".")[0] == "lakecore"}


def test_the_parts_are_these() -> None:
    modules = {path.stem for path in (ROOT / "lakecore/distributed").glob("*.py")}

    assert modules == {*PARTS, "__init__"}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_offers_what_the_bridge_uses_and_no_more(part: str) -> None:
    used = {name for module, name in imported() if module == f"{FACE}.{part}"}

    assert set(import_module(f"{FACE}.{part}").__all__) == used


@pytest.mark.parametrize(
    "part",
    sorted(
        {*PARTS} - {"changes", "committing", "key_ranges", "planning", "row_verbs", "sql", "verbs"}
    ),
)
def test_a_task_loads_no_part_of_the_driver(part: str) -> None:
    heavy = ["duckdb", "typer", "lakecore.session", "lakecore.table.handle"]
    code = f"import sys, {FACE}.{part};print([name for name in {heavy} if name in sys.modules])"

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
