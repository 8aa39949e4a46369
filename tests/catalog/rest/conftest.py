from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.registry import open_catalog
from tests.rest_servers import BreakingApp, rest_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.catalog.catalog import Catalog


@pytest.fixture
def behind(tmp_path: Path) -> Catalog:
    """The catalog of the server, with one database."""
    catalog = open_catalog({"warehouse": str(tmp_path / "w")}, create=True)
    catalog.create_database("shop")
    return catalog


@pytest.fixture
def app(behind: Catalog) -> BreakingApp:
    return BreakingApp(behind)


@pytest.fixture
def client(behind: Catalog, app: BreakingApp) -> Iterator[dict[str, str]]:
    """The options of a client of the server."""
    with rest_server(behind, app) as options:
        yield options


@pytest.fixture
def catalog(client: dict[str, str]) -> Catalog:
    return open_catalog(client, create=False)
