"""The behaviour suite of catalogs over warehouses on Google Cloud Storage, Azure and HDFS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.io.ambient import SYSTEM
from tests.catalog.test_behaviour import *  # noqa: F403  the tests, and the fixture `catalog`

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.catalog.catalog import Catalog
    from tests.catalog.test_behaviour import MakeCatalog
    from tests.services.storage_servers import Lake


pytestmark = pytest.mark.sampled(3)


@pytest.fixture(params=["gcs", "azure", "hdfs"])
def make_catalog(request: pytest.FixtureRequest) -> MakeCatalog:
    """Catalogs on one fresh warehouse."""
    lake: Lake = request.getfixturevalue(request.param)
    options = {**lake.options, "warehouse": lake.folder(f"catalogs/{SYSTEM.new_uuid()}")}

    def make(given: Mapping[str, str] = {}) -> Catalog:
        return open_catalog({**options, **given}, create=True)

    return make


@pytest.fixture(name="other_database")
def name_of_a_database() -> str:
    return "a b"
