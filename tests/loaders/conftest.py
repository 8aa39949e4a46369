"""The tests of loaders: each needs tools that `make loaders` installs."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# No tool sends anything about its use.
os.environ |= {
    "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
    "DO_NOT_TRACK": "1",
    "RUNTIME__DLTHUB_TELEMETRY": "false",
}

# Without the tools there is nothing to collect; the environment of Airflow has the recipes alone.
collect_ignore_glob = ["test_[!t]*.py" if find_spec("airflow") else "test_*.py"]
if find_spec("dbt"):
    collect_ignore_glob = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.loaders)
            # The tools warn of each other's versions, which is not lakecore's to change.
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
