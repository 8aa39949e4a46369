"""The behaviour suite of catalogs over Java's own REST servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.model.schema_change import SchemaChange
from tests.catalog.test_behaviour import *  # noqa: F403  the tests, and the fixture `catalog`
from tests.catalog.test_behaviour import COLUMNS, at_once, create, one_row
from tests.services.rest import java_rest_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakecore.catalog.catalog import Catalog
    from tests.catalog.test_behaviour import MakeCatalog


pytestmark = pytest.mark.sampled(2)


@pytest.fixture(scope="module", params=["1.4.2", "2.0.0"])
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    with java_rest_server(request.param, tmp_path_factory.mktemp("rest")) as options:
        yield options


@pytest.fixture
def make_catalog(client: dict[str, str]) -> MakeCatalog:
    """Catalogs on one server, which is emptied first."""

    def make(given: Mapping[str, str] = {}) -> Catalog:
        own = {key: given[key] for key in given if key != "commit.single-writer"}
        return open_catalog({**client, **own}, create=True)

    catalog = make()
    for name in catalog.list_databases():
        catalog.drop_database(name, cascade=True)
    return make


@pytest.fixture(name="other_database")
def name_of_a_database() -> str:
    return "a b"


def test_renamed_table_keeps_its_rows(catalog: Catalog) -> None:  # type: ignore[no-redef]
    """Java's server forgets the snapshots and the directory of a renamed table."""
    create(catalog).write(one_row())
    catalog.create_database("old")
    catalog.rename_table("shop.orders", "old.orders_2024")

    assert catalog.list_tables("shop") == ()
    assert catalog.list_tables("old") == ("orders_2024",)


def test_of_many_who_create_a_table_one_wins(catalog: Catalog) -> None:  # type: ignore[no-redef]
    """Java's server is not atomic there; whoever wins, the table is one."""
    at_once(lambda _: catalog.create_table("shop.orders", COLUMNS, ignore_if_exists=True), 4)

    assert catalog.list_tables("shop") == ("orders",)


def test_schema_changes_of_many_at_once_are_all_kept(make_catalog: MakeCatalog) -> None:  # type: ignore[no-redef]
    """Java's server may lose one of two changes at the same time; in turns, all are kept."""
    catalog = make_catalog()
    catalog.create_database("shop")
    create(catalog)
    for number in range(4):
        changes = [SchemaChange.add_column(f"c{number}", "INT")]
        make_catalog().alter_table("shop.orders", changes)

    assert catalog.get_table("shop.orders").schema.names[3:] == ("c0", "c1", "c2", "c3")
