from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.catalog import Catalog
from lakecore.catalog.jdbc.metastore import open_jdbc
from lakecore.io.ambient import SYSTEM, Ambient

if TYPE_CHECKING:
    from pathlib import Path

MakeJdbc = Callable[..., Catalog]


@pytest.fixture
def make_catalog(tmp_path: Path) -> MakeJdbc:
    """Catalogs on one SQLite file and one warehouse, with the catalog options given."""

    def make(given: Mapping[str, str] = {}, ambient: Ambient = SYSTEM) -> Catalog:
        options = {
            "metastore": "jdbc",
            "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
            "warehouse": str(tmp_path / "w"),
            **given,
        }
        return open_jdbc(options, create=True, ambient=ambient)

    return make


@pytest.fixture
def catalog(make_catalog: MakeJdbc) -> Catalog:
    """A catalog with the database `shop` and the table `shop.orders`."""
    catalog = make_catalog()
    catalog.create_database("shop")
    catalog.create_table(
        "shop.orders", {"id": "BIGINT NOT NULL", "v": "STRING"}, primary_keys=["id"]
    )
    return catalog
