"""Spark Connect writes as the classic session does."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.conftest import ROOT, spark_environment

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home: Path = tmp_path_factory.mktemp("connect")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.connect", str(home)],
        cwd=ROOT,
        env=spark_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_rows_are_written_once(found: dict[str, Any]) -> None:
    assert found["write"] == [500, "sql", 2]
    assert (found["again"], found["rows"], found["grouped"]) == (True, True, 500)


def test_error_of_a_task_is_one_of_lakecore(found: dict[str, Any]) -> None:
    assert {"column", "value", "task"} <= set(found["refused"])


def test_data_source_writes(found: dict[str, Any]) -> None:
    assert found["sunk"] is True


def test_every_way_of_reading(found: dict[str, Any]) -> None:
    assert "error" not in found, found["error"]
    assert found["attached"] == ["remote.t"]
    assert [found[way] for way in ("merged", "loaded", "selected", "pruned")] == [100, 100, 100, 7]
    assert [found[way] for way in ("inserted", "raw", "files")] == [101, 101, 2]
