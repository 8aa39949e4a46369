from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.filesystem import FilesystemCatalog
from lakecore.catalog.options import parse_catalog_options
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.open import open_store
from tests.stores import s3_service

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.stores import S3Service

MakeCatalog = Callable[..., FilesystemCatalog]


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Service]:
    with s3_service() as service:
        with service.client() as client:
            client.create_bucket(Bucket="bucket")
        yield service


@pytest.fixture(params=["memory", "local", "s3"])
def make_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> MakeCatalog:
    """Catalogs on one fresh warehouse, each opened anew with the catalog options given."""
    name = f"warehouse-{SYSTEM.new_uuid()}"
    options: dict[str, str] = {}
    match request.param:
        case "memory":
            warehouse = f"memory://{name}/w"
        case "local":
            warehouse = str(tmp_path / "w")
        case _:
            service = request.getfixturevalue("s3")
            warehouse, options = f"s3://bucket/{name}", service.options

    def make(given: Mapping[str, str] = {}, ambient: Ambient = SYSTEM) -> FilesystemCatalog:
        parsed = parse_catalog_options({"warehouse": warehouse, **options, **given})
        store = open_store(parsed.warehouse, parsed.texts)
        return FilesystemCatalog(parsed.warehouse, store, parsed, ambient)

    return make


@pytest.fixture
def catalog(make_catalog: MakeCatalog) -> FilesystemCatalog:
    """A catalog with one database, `shop`."""
    catalog = make_catalog()
    catalog.create_database("shop")
    return catalog
