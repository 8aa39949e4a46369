"""What every test shares: the Hypothesis profiles, and the marker of the property tests.

`brief`, the default, and `quick` (`make test`), under which long tests are shorter, draw the same
examples each time, so that a failure is the fault of the change at hand. `explore` (`make props`)
draws many more, other ones in each run; a failure prints the blob that replays it.
"""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from lakecore.memory import process_budget
from property_tests.profile import sampled

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["pytest_lakecore"]  # as an installed lakecore registers it

PROPERTY_TESTS = Path(__file__).parent / "property_tests"

# A law over real files has no fixed cost per example, so there is no deadline for one. How fast, or
# how often in vain, examples are drawn depends on the machine and on chance, and proves nothing.
DRAWING = [HealthCheck.too_slow, HealthCheck.filter_too_much]
COMMON = settings(deadline=None, print_blob=True, suppress_health_check=DRAWING)
settings.register_profile("brief", COMMON, max_examples=12, derandomize=True)
settings.register_profile("quick", COMMON, max_examples=8, derandomize=True)
settings.register_profile("explore", COMMON, max_examples=300)
settings.load_profile("brief")


# A shell starts background jobs with SIGINT ignored, and programs inherit that: tests of Ctrl-C
# would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The longest by far: if it began last, all workers but one would wait for it.
FIRST = "test_processes_commit_many_times_side_by_side[s3-8]"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(PROPERTY_TESTS):
            item.add_marker(pytest.mark.props)
    kept = sampled(items)
    config.hook.pytest_deselected(items=[*{*items} - {*kept}])
    items[:] = kept
    items.sort(key=lambda item: item.name != FIRST)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays until the end, so the collector of garbage never looks at it."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.enable()
    return found


@pytest.fixture(autouse=True)
def _memory_budget_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test changes the memory budget of the tests after it."""
    process = process_budget()
    for name in ("size_bytes", "_is_set"):
        monkeypatch.setattr(process, name, getattr(process, name))


@pytest.fixture(scope="session", autouse=True)
def disk() -> Iterator[None]:
    """No test waits for the disk, except under `explore`: an fsync matters only if power fails.

    When there must be one is tested by its calls, in `tests/io/stores/test_local.py`.
    """
    with pytest.MonkeyPatch.context() as patch:
        if settings.get_current_profile_name() != "explore":
            patch.setattr(os, "fsync", lambda _: None)
            patch.setattr(os, "sync", lambda: None)
        yield
