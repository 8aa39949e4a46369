"""Views of a REST catalog on Java's own servers, made and read by SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.catalog.identifier import parse_identifier
from lakecore.catalog.registry import open_catalog
from lakecore.catalog.rest.rest_catalog import ServedNames
from lakecore.catalog.views import View
from lakecore.errors import AlreadyExists, NotFound, Unsupported
from tests.rest_servers import rest_server
from tests.services.java import java
from tests.services.rest import java_rest_server
from tests.services.setup import PAIMON_VIEWS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("version", ["1.4.2", "2.0.0"])
def test_views_are_stored_by_javas_server(version: str, tmp_path: Path) -> None:
    with java_rest_server(version, tmp_path) as options:
        session = lc.connect(options)
        session.create_database("shop")
        session.create_table("shop.cups", {"id": "INT"}).write([{"id": 1}, {"id": 2}])
        session.sql("CREATE VIEW shop.late COMMENT 'c' AS SELECT id FROM shop.cups WHERE id > 1")

        assert lc.connect(options).sql("SELECT * FROM shop.late").fetchall() == [(2,)]
        assert session.sql("SHOW VIEWS IN shop").fetchall() == [("late",)]
        with pytest.raises(AlreadyExists):
            session.sql("CREATE VIEW shop.late AS SELECT 1 AS n")
        session.sql(
            "CREATE OR REPLACE VIEW shop.late COMMENT 'c' AS SELECT max(id) AS id FROM shop.cups"
        )
        session.sql("ALTER VIEW shop.late SET TBLPROPERTIES ('a' = 'b')")
        session.sql("CALL sys.alter_view_dialect('shop.late', 'add', 'flink', 'F')")
        with pytest.raises(AlreadyExists, match="dialect=flink"):
            session.sql("CALL sys.alter_view_dialect('shop.late', 'add', 'flink', 'F')")
        with pytest.raises(NotFound, match="dialect=spark"):
            session.sql("CALL sys.alter_view_dialect('shop.late', 'drop', 'spark')")
        assert session.sql("SELECT * FROM shop.late").fetchall() == [(2,)]
        session.sql("ALTER VIEW shop.late RENAME TO early")
        views = open_catalog(options, create=False).views
        assert views is not None
        found = views.find(parse_identifier("shop.early"))
        assert isinstance(found, View)
        assert (found.comment, [each.name for each in found.fields]) == ("c", ["id"])
        assert (found.options["a"], found.dialects["flink"]) == ("b", "F")
        session.sql("DROP VIEW shop.early")
        with pytest.raises(NotFound):
            session.sql("DROP VIEW shop.early")
        with pytest.raises(NotFound):
            session.sql("SELECT * FROM shop.early")


AREA = {
    "name": "area",
    "inputParams": [
        {"id": 0, "name": "length", "type": "INT"},
        {"id": 1, "name": "width", "type": "INT"},
    ],
    "returnParams": [{"id": 0, "name": "area", "type": "BIGINT"}],
    "deterministic": True,
    "definitions": {
        "spark": {"type": "lambda", "definition": "(a, b) -> a * b", "language": "JAVA"},
        "flink": {"type": "sql", "definition": "length * width"},
    },
    "comment": "of a rectangle",
    "options": {"k": "v"},
}


@pytest.mark.parametrize("version", ["1.4.2", "2.0.0"])
def test_functions_of_javas_server_are_listed_and_described(version: str, tmp_path: Path) -> None:
    with java_rest_server(version, tmp_path) as options:
        session, catalog = lc.connect(options), open_catalog(options, create=False)
        session.create_database("shop")
        assert session.sql("SHOW FUNCTIONS IN shop").fetchall() == []
        names = catalog.names
        assert isinstance(names, ServedNames)
        names.client.post(f"{names.root}/databases/shop/functions", AREA)
        # A server of lakecore over that catalog passes them on.
        with rest_server(catalog) as second:
            for each in (session, lc.connect(second)):
                assert each.sql("SHOW USER FUNCTIONS IN shop").fetchall() == [("area",)]
                assert each.sql("SHOW FUNCTIONS IN shop LIKE 'b%'").fetchall() == []
                facts = dict(each.sql("DESCRIBE FUNCTION EXTENDED shop.area").fetchall())
                assert facts["input"] == "length INT, width INT"
                assert facts["returns"] == "area BIGINT"
                assert (facts["deterministic"], facts["comment"]) == ("true", "of a rectangle")
                assert "length * width" in facts["definition flink"]
                assert facts["option k"] == "v"
                with pytest.raises(NotFound, match=r"functions=\[area\]"):
                    each.sql("DESCRIBE FUNCTION shop.volume")
            said = java(PAIMON_VIEWS, second, "functions shop", "function shop.volume")
            assert said == ["[area]", "none"]


def test_java_uses_the_views_of_a_server_of_lakecore(tmp_path: Path) -> None:
    behind = open_catalog(
        {
            "metastore": "jdbc",
            "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
            "warehouse": str(tmp_path / "w"),
        },
        create=True,
    )
    behind.create_database("d")
    behind.create_database("e")
    with rest_server(behind) as options:
        session = lc.connect(options)
        session.create_table("d.t", {"id": "INT"}).write([{"id": 1}, {"id": 2}])
        session.sql("CREATE VIEW d.ours COMMENT 'by us' AS SELECT id FROM d.t WHERE id > 1")
        said = java(
            PAIMON_VIEWS,
            options,
            *("show d.ours", "create d.theirs SELECT max(id) AS id FROM d.t", "views d"),
            *("alter d.theirs add-dialect lakecore SELECT min(id) AS id FROM d.t",),
            "alter d.theirs add-dialect lakecore SELECT 1 AS id",
            "alter d.theirs update-dialect flink X",
            *("alter d.theirs set-option a b", "alter d.theirs comment new"),
            *("dialects d.theirs", "details d", "everywhere t%", "rename d.ours e.moved"),
            *("views e", "functions d", "function d.area"),
        )

        assert said[0].startswith("SELECT id FROM d.t WHERE id > 1 | ROW<`id` INT")
        assert said[0].endswith("| by us")
        assert said[1:] == [
            *("ok", "[ours, theirs]", "ok"),
            *("DialectAlreadyExistException", "DialectNotExistException", "ok", "ok"),
            "{lakecore=SELECT min(id) AS id FROM d.t}",
            "[ours: SELECT id FROM d.t WHERE id > 1, theirs: SELECT max(id) AS id FROM d.t]",
            *("[d.theirs]", "ok", "[moved]", "[]", "none"),
        ]
        assert session.sql("SELECT id FROM d.theirs").fetchall() == [(1,)]
        assert session.sql("SELECT id FROM e.moved").fetchall() == [(2,)]
        facts = dict(r[:2] for r in session.sql("DESCRIBE EXTENDED d.theirs").fetchall())
        assert (facts["# comment"], facts["# option a"]) == ("new", "b")
        session.sql("ALTER VIEW e.moved RENAME TO d.ours")
        assert java(PAIMON_VIEWS, options, "drop d.ours", "views d") == ["ok", "[theirs]"]


def test_server_without_views_says_so(tmp_path: Path) -> None:
    behind = open_catalog({"warehouse": str(tmp_path / "w")}, create=True)
    behind.create_database("shop")
    with rest_server(behind) as options:
        session = lc.connect(options)

        assert session.sql("SHOW VIEWS IN shop").fetchall() == []
        with pytest.raises(Unsupported, match="no views"):
            session.sql("CREATE VIEW shop.late AS SELECT 1 AS n")
        with pytest.raises(NotFound):
            session.sql("SELECT * FROM shop.late")
