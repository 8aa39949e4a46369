"""The behaviour suite of catalogs over a Hive Metastore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakecore.catalog.hive.metastore import open_hive
from tests.catalog.test_behaviour import *  # noqa: F403  the tests, and the fixture `catalog`
from tests.services.hive import empty, hive_options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lakecore.catalog.catalog import Catalog
    from tests.catalog.test_behaviour import MakeCatalog
    from tests.services.servers import Server


pytestmark = pytest.mark.sampled(2)


class WithoutDefault:
    """A metastore that does not show the database `default`, which nobody can drop."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __reduce__(self) -> tuple[type[WithoutDefault], tuple[Any]]:
        return (WithoutDefault, (self.inner,))

    def databases(self) -> tuple[str, ...]:
        return tuple(name for name in self.inner.databases() if name != "default")


@pytest.fixture(params=["open", "locked"])
def make_catalog(request: pytest.FixtureRequest, hive: Server, tmp_path: Path) -> MakeCatalog:
    """Catalogs on one fresh warehouse, and on a metastore without other databases."""
    empty(hive)
    options = {**hive_options(hive, tmp_path), "lock.enabled": str(request.param == "locked")}

    def make(given: Mapping[str, str] = {}) -> Catalog:
        catalog = open_hive({**options, **given}, create=True)
        catalog.names.metastore = WithoutDefault(catalog.names.metastore)  # type: ignore[attr-defined]
        return catalog

    return make


@pytest.fixture(name="other_database")
def name_of_a_database() -> str:
    """Hive knows no blanks in names."""
    return "a_b"
