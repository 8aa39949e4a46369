from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.differential.play import Players
from tests.interop import limits
from tests.interop.engines import running_peers
from tests.interop.lakecore_engine import LakecoreEngine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def players(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Players]:
    """Both engines, started once a session."""
    with running_peers(tmp_path_factory.mktemp("peers")) as peer:
        folder = tmp_path_factory.mktemp("tables") / "played"
        newest = partial(peer, limits.JAVA_NEW)
        yield Players(LakecoreEngine(), peer(limits.JAVA), newest, folder)
