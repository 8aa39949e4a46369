"""The peers, and how many of their cases are played.

Under the profile `quick` each case of lakecore with Java 1.4.2 is played, a third of those with
other peers, and a third of what peers do without lakecore.
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
AMONG_PEERS = {
    "test_peer_reads_golden_table",
    "test_every_peer_reads_what_java_writes",
    "test_java_reads_what_every_peer_writes",
}
"""Tests of what is known of the peers: no change of lakecore makes them fail."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    share = sized(1, quick=3)
    out = [
        item
        for item in items
        if isinstance(item, pytest.Function)
        and (
            (item.originalname in MANY and f"[{JAVA}-" not in item.name)
            or item.originalname in AMONG_PEERS
        )
        and crc32(item.name.encode()) % share
    ]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in set(out)]


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], PeerEngine]]:
    """The peer of a name; started when first asked for, once a session."""
    with running_peers(tmp_path_factory.mktemp("peers")) as peer:
        yield peer
