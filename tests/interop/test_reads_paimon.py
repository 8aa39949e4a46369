"""The example that tries pypaimon by `lakecore.testing.suite`: it reads what the page says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.setup_peers import python, set_up

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]


def test_pypaimon_reads_and_fails_the_golden_tables_that_the_example_says() -> None:
    set_up()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "examples/pypaimon_compliance.py"],
        cwd=ROOT,
        env={**os.environ, "PYPAIMON_PYTHON": str(python())},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "43 passed" in done.stdout, done.stdout
