"""The pytest plugin of `lakecore.testing`: fixtures, a marker and an option.

pytest loads it in every environment that has lakecore, so it imports lakecore only when a test asks
for one of the fixtures, or the option names a profile. docs/testing.md explains it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from lakecore import Session
    from lakecore.testing import FaultyWarehouse

MARKER = "lakecore_faults"
_WAREHOUSE = pytest.StashKey["FaultyWarehouse"]()
_PROFILES = {"quick": 20, "full": 500}
"""The examples of a law under each profile."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--lakecore-profile`."""
    parser.getgroup("lakecore").addoption(
        "--lakecore-profile",
        choices=[*_PROFILES],
        help="how many examples Hypothesis tries: quick draws 20, the same each time; full draws "
        "500, other ones in each run",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and load the Hypothesis profile that the option names."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(seed=..., crash_at=..., lost_replies=..., ...): the seed and the faults of the "
        "fixture faulty_warehouse, as those of lakecore.testing.Faults",
    )
    profile = config.getoption("--lakecore-profile")
    if profile is None:
        return
    try:
        settings = import_module("hypothesis").settings
    except ModuleNotFoundError as error:
        raise pytest.UsageError(
            "--lakecore-profile needs Hypothesis: pip install 'lakecore[testing]'"
        ) from error
    quick = profile == "quick"
    settings.register_profile(
        f"lakecore-{profile}",
        max_examples=_PROFILES[profile],
        derandomize=quick,
        deadline=None,
        print_blob=True,
    )
    settings.load_profile(f"lakecore-{profile}")


@pytest.fixture
def paimon_warehouse(tmp_path: Path) -> Session:
    """A session on a new, empty warehouse on disk.

    Its directory is `tmp_path / "warehouse"`.

        def test_load(paimon_warehouse):
            paimon_warehouse.create_database("shop")
    """
    session: Session = import_module("lakecore").connect(tmp_path / "warehouse", create=True)
    return session


@pytest.fixture
def faulty_warehouse(request: pytest.FixtureRequest) -> FaultyWarehouse:
    """A `lakecore.testing.FaultyWarehouse`, with the faults of the marker `lakecore_faults`.

    Without a seed in the marker, the name of the test decides it. A test that fails prints the
    seed, the faults and the last calls.

        @pytest.mark.lakecore_faults(seed=7, lost_replies=0.1)
        def test_load(faulty_warehouse):
            load(faulty_warehouse.connect())
    """
    marker = request.node.get_closest_marker(MARKER)
    stated: dict[str, object] = {} if marker is None else dict(marker.kwargs)
    if marker is not None and marker.args:
        raise pytest.UsageError(f"{MARKER} takes named arguments only, such as seed=7")
    seed = stated.pop("seed", crc32(request.node.nodeid.encode()))
    testing = import_module("lakecore.testing")
    warehouse: FaultyWarehouse = testing.faulty_warehouse(seed, testing.Faults(**stated))
    request.node.stash[_WAREHOUSE] = warehouse
    return warehouse


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the seed of the faulty warehouse to the report of a test that fails."""
    report = yield
    warehouse = item.stash.get(_WAREHOUSE, None)
    if warehouse is not None and report.failed:
        report.sections.append(("faulty warehouse", warehouse.told()))
    return report
