"""Which files of tests come first for a module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.nearness import Nearness

ROOT = Path(__file__).parents[2]
FILES = (
    "property_tests/test_predicate.py",
    "tests/plan/test_predicate.py",
    "tests/plan/test_pruning.py",
    "tests/table/commits/test_commit.py",
    "tests/test_readme.py",
)


@pytest.mark.parametrize(
    ("module", "first"),
    [
        ("plan/pruning", "tests/plan/test_pruning.py"),
        ("plan/predicate/language", "tests/plan/test_predicate.py"),
        ("table/commits/commit_checks", "tests/table/commits/test_commit.py"),
    ],
)
def test_the_nearest_file_of_tests_comes_first(module: str, first: str) -> None:
    ranks = Nearness(ROOT, FILES).ranks(f"lakecore/{module}.py", "nothing")
    ordered = sorted(FILES, key=lambda file: ranks[file])

    assert (ordered[0], ordered[-1]) == (first, "tests/test_readme.py")


def test_a_file_that_names_the_function_is_near() -> None:
    nearness = Nearness(ROOT, ("tests/plan/test_pruning.py", "tests/plan/test_conflicts.py"))

    assert (
        nearness.ranks("lakecore/plan/x.py", "check_hash_indexes")["tests/plan/test_conflicts.py"]
        < nearness.ranks("lakecore/plan/x.py", "check_nothing")["tests/plan/test_conflicts.py"]
    )


def test_a_file_that_imports_the_module_is_nearer_than_one_that_says_the_word() -> None:
    own, other = "tests/table/verbs/test_row_parts.py", "tests/io/files/test_data_files.py"
    ranks = Nearness(ROOT, (own, other)).ranks(
        "lakecore/table/verbs/merge_plan.py", "RowParts.part"
    )

    assert ranks[own] < ranks[other]
