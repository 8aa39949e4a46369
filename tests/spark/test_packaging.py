"""Executors that have lakecore's dependencies get lakecore itself with the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.conftest import answer_of

if TYPE_CHECKING:
    from pathlib import Path


def test_zip_of_the_packages_is_enough(tmp_path: Path) -> None:
    found = answer_of("packaging", tmp_path)

    assert "lakecore.zip" in found["path"]
    assert found["rows"] == [[1, "a", 1], [2, "b", 2], [3, "c", 3]]
