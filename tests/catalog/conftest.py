from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.catalog import Catalog
from lakecore.catalog.filesystem import DirectoryNames
from lakecore.catalog.options import parse_catalog_options
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.stores.open import open_store
from tests.catalog.places import warehouse_options
from tests.stores import s3_service

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.stores import S3Service

MakeCatalog = Callable[..., Catalog]


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Service]:
    with s3_service() as service:
        with service.client() as client:
            client.create_bucket(Bucket="bucket")
        yield service


@pytest.fixture(params=["memory", "local", "s3"])
def make_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> MakeCatalog:
    """Catalogs on one fresh warehouse, each opened again with the catalog options given."""
    options = warehouse_options(request, request.param, tmp_path)

    def make(given: Mapping[str, str] = {}, ambient: Ambient = SYSTEM) -> Catalog:
        parsed = parse_catalog_options({**options, **given})
        store = open_store(parsed.warehouse, parsed.texts)
        return Catalog(DirectoryNames(parsed.warehouse, store, parsed, ambient))

    return make


@pytest.fixture
def catalog(make_catalog: MakeCatalog) -> Catalog:
    """A catalog with one database, `shop`."""
    catalog = make_catalog()
    catalog.create_database("shop")
    return catalog
