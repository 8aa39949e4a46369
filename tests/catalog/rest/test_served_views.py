"""A view that is replaced at a server, with a fault at each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.identifier import Identifier
from lakecore.catalog.registry import open_catalog
from lakecore.catalog.views import View
from lakecore.errors import LakecoreError
from lakecore.model.types import Field, parse_type
from tests.rest_servers import BreakingApp, Fault, rest_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.catalog.views import Views

ODD = "späti +%2Fx?#"
FIELDS = (Field(id=0, name="n", type=parse_type("INT")),)
OLD, NEW = (View(query=text, fields=FIELDS) for text in ("SELECT 1 AS n", "SELECT 2 AS n"))


@pytest.fixture
def app(tmp_path: Path) -> BreakingApp:
    behind = open_catalog(
        {
            "metastore": "jdbc",
            "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
            "warehouse": str(tmp_path / "w"),
        },
        create=True,
    )
    behind.create_database("shop")
    return BreakingApp(behind)


@pytest.fixture
def views(app: BreakingApp, tmp_path: Path) -> Iterator[Views]:
    unused = open_catalog({"warehouse": str(tmp_path / "unused")}, create=True)
    with rest_server(unused, app) as options:
        found = open_catalog(options, create=False).views
        assert found is not None
        yield found


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        (Fault("GET", "", status=500), OLD),
        (Fault("DELETE", "", status=500), OLD),
        (Fault("DELETE", "", status=None), OLD),
        (Fault("DELETE", "", status=None, carried_out=True), OLD),
        (Fault("POST", "/views", status=400), OLD),
        (Fault("POST", "/views", status=None), OLD),
        (Fault("POST", "/views", status=None, carried_out=True), NEW),
        (Fault("POST", "/views", status=500, times=2), None),
    ],
)
def test_failed_replacement_leaves_the_old_or_the_new_view_or_says_so(
    views: Views, app: BreakingApp, fault: Fault, left: View | None
) -> None:
    name = Identifier(database="shop", table=ODD)
    assert views.create(name, OLD)
    app.faults.append(Fault(**{**vars(fault), "times": fault.times}))
    with pytest.raises(LakecoreError) as raised:
        views.replace(name, NEW)
    app.faults.clear()

    found = views.find(name)
    assert (None if found is None else found.query) == (None if left is None else left.query)
    if fault.times == 2:
        assert "SELECT 1 AS n" in str(raised.value)
    # A second attempt repairs everything.
    assert views.replace(name, NEW)
    found = views.find(name)
    assert found is not None
    assert found.query == NEW.query
    assert views.names("shop") == (ODD,)
