"""Views of a JDBC catalog, made by one engine and read, renamed and dropped by the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.catalog.identifier import Identifier
from lakecore.catalog.registry import open_catalog
from lakecore.catalog.views import SetViewOption
from lakecore.errors import InvalidRequest, NotFound
from lakecore.io.ambient import SYSTEM
from tests.catalog.test_views import *  # noqa: F403  the tests, and the fixture `views`
from tests.catalog.test_views import fill, view
from tests.services.java import java
from tests.services.jdbc import JdbcServer, sqlite_file
from tests.services.setup import PAIMON_VIEWS

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.catalog.catalog import Catalog
    from lakecore.catalog.views import Views


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> JdbcServer:
    if request.param == "sqlite":
        return sqlite_file(tmp_path)
    found: JdbcServer = request.getfixturevalue(request.param)
    return found


def test_views_go_both_ways(place: JdbcServer, tmp_path: Path) -> None:
    options = {
        **place.options,
        "catalog-key": SYSTEM.new_uuid()[:8],
        "warehouse": str(tmp_path / "w"),
    }
    session = lc.connect(options, create=True)
    session.create_database("d")
    session.create_table("d.t", {"id": "INT"}).write([{"id": 1}, {"id": 2}])
    session.sql("CREATE VIEW d.ours COMMENT 'by us' AS SELECT id FROM d.t WHERE id > 1")
    said = java(
        PAIMON_VIEWS,
        place.for_java(options),
        "show d.ours",
        "create d.theirs SELECT max(id) AS id FROM d.t",
        "views d",
        "rename d.ours d.moved",
    )

    assert said[0].startswith("SELECT id FROM d.t WHERE id > 1 | ROW<`id` INT")
    assert said[0].endswith("| by us")
    assert said[1:] == ["ok", "[ours, theirs]", "ok"]
    assert session.sql("SELECT id FROM d.theirs").fetchall() == [(2,)]
    assert session.sql("SHOW VIEWS IN d").fetchall() == [("moved",), ("theirs",)]
    assert session.sql("SELECT id FROM d.moved").fetchall() == [(2,)]
    session.sql("DROP VIEW d.theirs")
    session.sql("ALTER VIEW d.moved RENAME TO ours")
    assert java(PAIMON_VIEWS, place.for_java(options), "views d", "drop d.ours") == ["[ours]", "ok"]
    with pytest.raises(NotFound):
        session.sql("SELECT * FROM d.ours")


@pytest.fixture(name="catalog", params=["postgresql", "mysql"])
def catalog_of_a_server(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    place: JdbcServer = request.getfixturevalue(request.param)
    key, warehouse = SYSTEM.new_uuid()[:8], str(tmp_path / "w")
    catalog = open_catalog(
        {**place.options, "catalog-key": key, "warehouse": warehouse}, create=True
    )
    fill(catalog)
    return catalog


@pytest.fixture(name="dialects")
def dialects_of_a_view() -> dict[str, str]:
    return {"flink": "F"}


def test_change_of_case_alone_is_a_change(views: Views) -> None:
    name = Identifier(database="shop", table="late")
    views.create(name, view(options={"a": "x"}))
    before = views.find(name)
    assert views.alter(name, [SetViewOption("a", "X")])
    assert before != views.find(name)
    assert views.alter(name, [SetViewOption("a", "X")])
    assert views.find(Identifier(database="shop", table="Late")) is None


def test_view_that_the_database_cannot_hold_is_refused(
    request: pytest.FixtureRequest, views: Views
) -> None:
    long = view("SELECT '" + "x" * 70_000 + "' AS id")
    name = Identifier(database="shop", table="late")
    if "mysql" in request.node.name:
        with pytest.raises(InvalidRequest, match="so long"):
            views.create(name, long)
        return
    assert views.create(name, long)
    assert views.find(name) == long
