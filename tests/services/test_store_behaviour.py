"""The suite of stores over the emulators of Google Cloud Storage, Azure and HDFS."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from lakecore.io.stores.open import open_store
from tests.io.stores.test_store import *  # noqa: F403  the tests
from tests.io.stores.test_store import Place

if TYPE_CHECKING:
    from tests.services.storage_servers import Lake

pytestmark = pytest.mark.sampled(2)
PLACES = itertools.count()


@pytest.fixture(params=["gcs", "azure", "hdfs"])
def place(request: pytest.FixtureRequest) -> Place:
    lake: Lake = request.getfixturevalue(request.param)
    folder = lake.folder(f"stores/{next(PLACES)}")
    return Place(open_store(folder, lake.options), folder)
