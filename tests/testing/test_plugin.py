"""The pytest plugin: its fixtures, marker and option, and that it is idle in other suites."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SUITE = """
import pytest
from hypothesis import settings

def test_warehouse_is_empty(paimon_warehouse, tmp_path):
    assert paimon_warehouse.list_databases() == ()
    assert paimon_warehouse.warehouse == str(tmp_path / "warehouse")

@pytest.mark.lakecore_faults(seed=7, lost_replies=0.25, crash_at=3)
def test_marker_states_the_faults(faulty_warehouse):
    assert (faulty_warehouse.seed, faulty_warehouse.faults.crash_at) == (7, 3)
    faulty_warehouse.files.put(faulty_warehouse.path + "/x", b"")
    faulty_warehouse.store.list(faulty_warehouse.path)
    assert faulty_warehouse.faults.lost_replies == 0

def test_name_decides_the_seed(faulty_warehouse):
    faulty_warehouse.connect().create_database("d")
    assert faulty_warehouse.trace[0].fault == ""

@pytest.mark.lakecore_faults(7)
def test_marker_without_names(faulty_warehouse):
    pass

def test_profile():
    assert settings.default.max_examples == 20
    assert settings.default.derandomize
"""
OTHER = """
import sys

def test_nothing_of_lakecore_is_imported():
    loaded = [name for name in sys.modules if name.split(".")[0] in ("lakecore", "hypothesis")]
    assert loaded == []
"""


def run(folder: Path, code: str, *arguments: str) -> str:
    """What pytest prints for a suite, with the plugin as an installed lakecore registers it."""
    (folder / "test_it.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_lakecore", *arguments]
    # Hypothesis has a plugin of its own, which imports it only if it is used.
    command += ["-p", "no:cacheprovider", "--strict-markers", "test_it.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_suite_that_uses_nothing_of_it_imports_nothing_of_lakecore(tmp_path: Path) -> None:
    assert "1 passed" in run(tmp_path, OTHER)


def test_fixtures_marker_and_profile(tmp_path: Path) -> None:
    said = run(tmp_path, SUITE, "--lakecore-profile=quick")

    assert "3 passed, 1 failed, 1 error" in said or "1 failed, 3 passed, 1 error" in said
    assert "lakecore_faults takes named arguments only, such as seed=7" in said
    # The failing test shows its seed and its calls.
    assert "- faulty warehouse -" in said
    assert "faulty warehouse: seed=7 Faults(crash_at=3, lost_replies=0.25" in said
    assert said.count("faulty warehouse: seed=") == 1


@pytest.mark.parametrize(("profile", "examples"), [("quick", "20 True"), ("full", "500 False")])
def test_profile_decides_how_many_examples_are_drawn(
    tmp_path: Path, profile: str, examples: str
) -> None:
    code = """
from hypothesis import settings

def test_it():
    print("drawn", settings.default.max_examples, settings.default.derandomize)
"""

    assert f"drawn {examples}" in run(tmp_path, code, "-s", f"--lakecore-profile={profile}")
