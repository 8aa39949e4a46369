"""The behaviour suite of catalogs over real servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.io.ambient import SYSTEM
from tests.catalog.test_behaviour import *  # noqa: F403  the tests, and the fixture `catalog`

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lakecore.catalog.catalog import Catalog
    from tests.catalog.test_behaviour import MakeCatalog


pytestmark = pytest.mark.sampled(2)


@pytest.fixture(params=["postgresql", "postgresql-locked", "mysql", "mysql-locked"])
def make_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> MakeCatalog:
    """Catalogs on one fresh warehouse, and on one catalog key of a shared database."""
    name, _, locked = request.param.partition("-")
    options = {
        **request.getfixturevalue(name).options,
        "catalog-key": SYSTEM.new_uuid(),
        "warehouse": str(tmp_path / "w"),
        "lock.enabled": str(bool(locked)).lower(),
    }

    def make(given: Mapping[str, str] = {}) -> Catalog:
        return open_catalog({**options, **given}, create=True)

    return make


@pytest.fixture(name="other_database")
def name_of_a_database() -> str:
    return "a b"
