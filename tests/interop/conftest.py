"""The peers, and how many of the cases of the older ones are played.

Under the profile `quick` each case of Java 1.4.2 is played, and a third of the cases of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from property_tests.profile import sized
from tests.interop.engines import running_peers
from tests.interop.limits import JAVA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.engines import PeerEngine

MANY = {
    "test_lakecore_reads_what_every_peer_writes",
    "test_filters_find_rows_by_the_statistics_that_lakecore_wrote",
    "test_both_write_in_turns_and_read_equal_rows",
}
"""Tests with hundreds of cases for each peer."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    share = sized(1, quick=3)
    out = [
        item
        for item in items
        if isinstance(item, pytest.Function)
        and item.originalname in MANY
        and f"[{JAVA}-" not in item.name
        and crc32(item.name.encode()) % share
    ]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in set(out)]


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], PeerEngine]]:
    """The peer of a name; started when first asked for, once a session."""
    with running_peers(tmp_path_factory.mktemp("peers")) as peer:
        yield peer
