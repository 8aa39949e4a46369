"""Executors that have lakecore's dependencies get lakecore itself with the job."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.spark.conftest import ROOT, spark_environment

if TYPE_CHECKING:
    from pathlib import Path


def test_zip_of_the_packages_is_enough(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.packaging", str(tmp_path)],
        cwd=ROOT,
        env=spark_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])

    assert "lakecore.zip" in found["path"]
    assert found["rows"] == [[1, "a", 1], [2, "b", 2], [3, "c", 3]]
