from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.engines import COMMANDS, start
from tests.interop.setup_peers import set_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.engines import PeerEngine


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], PeerEngine]]:
    """The peer of a name; started when first asked for, once a session."""
    set_up()
    logs = tmp_path_factory.mktemp("peers")
    running: dict[str, PeerEngine] = {}

    def peer(name: str) -> PeerEngine:
        if name not in running:
            assert name in COMMANDS, name
            running[name] = start(name, logs)
        return running[name]

    yield peer
    for engine in running.values():
        engine.peer.close()
