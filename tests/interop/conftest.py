"""The peers. Tests of hundreds of cases are `sampled`, with Java 1.4.2 more densely."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.engines import running_peers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.engines import PeerEngine


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], PeerEngine]]:
    """The peer of a name; started when first asked for, once a session."""
    with running_peers(tmp_path_factory.mktemp("peers")) as peer:
        yield peer
