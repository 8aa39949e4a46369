"""Views in a Hive Metastore: the behaviour suite, both ways with Java, and foreign views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.catalog.hive.views import HiveTables, location_of
from lakecore.catalog.identifier import Identifier
from lakecore.catalog.registry import open_catalog
from lakecore.catalog.views import SetViewOption
from lakecore.errors import AlreadyExists, InvalidRequest, NotFound, Unsupported
from lakecore.io.hive.client import types
from lakecore.model.schema import TableSchema
from tests.catalog.test_views import *  # noqa: F403  the tests, and the fixture `views`
from tests.catalog.test_views import fill, view
from tests.services.hive import client, empty, hive_options
from tests.services.java import java
from tests.services.setup import HIVE_VIEWS

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.catalog.catalog import Catalog
    from tests.services.servers import Server


@pytest.fixture
def options(hive: Server, tmp_path: Path) -> dict[str, str]:
    empty(hive)
    return {**hive_options(hive, tmp_path), "lock.enabled": "true"}


@pytest.fixture(name="catalog")
def catalog_of_hive(options: dict[str, str]) -> Catalog:
    catalog = open_catalog(options, create=True)
    fill(catalog)
    return catalog


@pytest.fixture(name="dialects")
def no_dialects() -> dict[str, str]:
    """Hive stores one text of a view."""
    return {}


def rows(session: lc.Session, text: str) -> list[tuple[object, ...]]:
    return session.sql(text).fetchall()


def test_views_go_both_ways(options: dict[str, str]) -> None:
    session = lc.connect(options, create=True)
    session.create_database("d")
    session.create_table("d.t", {"id": "INT"}).write([{"id": 1}, {"id": 2}])
    session.sql(
        "CREATE VIEW d.ours COMMENT 'by us' TBLPROPERTIES ('a' = 'b')"
        " AS SELECT id FROM d.t WHERE id > 1"
    )
    said = java(
        HIVE_VIEWS,
        options,
        *("show d.ours", "create d.theirs SELECT max(id) AS id FROM d.t", "views d"),
        *("rename d.ours d.moved", "details d"),
    )

    assert said[0].startswith("SELECT id FROM d.t WHERE id > 1 | ROW<`id` INT")
    assert said[0].endswith("| by us")
    assert said[1:] == [
        *("ok", "[ours, theirs]", "ok"),
        "[moved: SELECT id FROM d.t WHERE id > 1, theirs: SELECT max(id) AS id FROM d.t]",
    ]
    assert rows(session, "SELECT id FROM d.theirs") == [(2,)]
    assert rows(session, "SHOW VIEWS IN d") == [("moved",), ("theirs",)]
    session.sql("ALTER VIEW d.theirs SET TBLPROPERTIES ('comment' = 'changed')")
    session.sql("CREATE OR REPLACE VIEW d.moved AS SELECT id FROM d.t WHERE id = 1")
    session.sql("ALTER VIEW d.moved RENAME TO ours")
    said = java(HIVE_VIEWS, options, "show d.theirs", "show d.ours", "drop d.ours", "views d")
    assert said[0].endswith("| changed")
    assert said[1].startswith("SELECT id FROM d.t WHERE id = 1 |")
    assert said[2:] == ["ok", "[theirs]"]
    with pytest.raises(NotFound):
        session.sql("SELECT * FROM d.ours")
    session.sql("DROP VIEW d.theirs")
    assert rows(session, "SHOW VIEWS IN d") == []


def test_view_looks_as_java_makes_it(options: dict[str, str], hive: Server) -> None:
    session = lc.connect(options, create=True)
    session.create_database("d")
    java(HIVE_VIEWS, options, "create d.theirs SELECT 1 AS id")
    session.sql("CREATE VIEW d.ours COMMENT 'by Java' AS SELECT 1 AS id")
    ours, theirs = (client(hive).table("d", name) for name in ("ours", "theirs"))
    assert ours is not None
    assert theirs is not None

    def shown(table: Any) -> dict[str, object]:
        kept = {k: v for k, v in table.parameters.items() if k != "transient_lastDdlTime"}
        serde = table.sd.serdeInfo
        return {
            "parameters": kept,
            "type": table.tableType,
            "texts": (table.viewOriginalText, table.viewExpandedText),
            "columns": [(each.name, each.type) for each in table.sd.cols],
            "formats": (table.sd.inputFormat, table.sd.outputFormat),
            "serde": (serde.serializationLib, serde.parameters),
            "keys": table.partitionKeys,
        }

    assert shown(ours) == shown(theirs)


FOREIGN = {
    "hive": {
        "inputFormat": "org.apache.hadoop.mapred.TextInputFormat",
        "viewOriginalText": "select 1",
        "viewExpandedText": "select 1",
    },
    "flink": {"viewOriginalText": "SELECT 1", "viewExpandedText": "SELECT 1 AS `a`"},
    "spark": {"parameters": {"spark.sql.create.version": "3.5.0"}},
    "trino": {
        "inputFormat": None,
        "parameters": {"presto_view": "true"},
        "viewOriginalText": "/* Presto View: eyJ9 */",
        "viewExpandedText": "/* Presto View */",
    },
}


@pytest.mark.parametrize("engine", FOREIGN)
def test_view_of_another_engine_is_listed_and_left_alone(
    catalog: Catalog, options: dict[str, str], hive: Server, engine: str
) -> None:
    stated: dict[str, Any] = {
        "inputFormat": "org.apache.hadoop.mapred.SequenceFileInputFormat",
        "viewOriginalText": "SELECT 1 AS a",
        "viewExpandedText": "SELECT 1 AS a",
        "parameters": {},
        **FOREIGN[engine],  # type: ignore[dict-item]
    }
    kinds = types()
    descriptor = kinds.StorageDescriptor(
        cols=[kinds.FieldSchema(name="a", type="int", comment="")],
        inputFormat=stated.pop("inputFormat"),
        serdeInfo=kinds.SerDeInfo(serializationLib="x", parameters={}),
        parameters={},
    )
    table = kinds.Table(
        tableName="foreign_one",
        dbName="other",
        sd=descriptor,
        partitionKeys=[],
        owner="x",
        tableType="VIRTUAL_VIEW",
        **stated,
    )
    client(hive).create_table(table)
    session, views = lc.connect(options), catalog.views
    assert views is not None
    name = Identifier(database="other", table="foreign_one")

    assert rows(session, "SHOW VIEWS IN other") == [("foreign_one",)]
    assert catalog.list_tables("other") == ()
    for text in ("SELECT * FROM other.foreign_one", "DESCRIBE other.foreign_one"):
        with pytest.raises(Unsupported, match="belongs to another engine"):
            session.sql(text)
    with pytest.raises(Unsupported, match="another engine"):
        views.drop(name)
    with pytest.raises(Unsupported, match="another engine"):
        views.rename(name, Identifier(database="other", table="b"))
    with pytest.raises(Unsupported, match="another engine"):
        views.replace(name, view())
    with pytest.raises(Unsupported, match="another engine"):
        views.alter(name, [SetViewOption("a", "b")])
    assert not views.create(name, view())
    with pytest.raises(AlreadyExists):
        catalog.create_table("other.foreign_one", {"id": "INT"})
    views.create(Identifier(database="other", table="ours"), view())
    with pytest.raises(InvalidRequest, match=r"not Paimon's.*others=\[foreign_one\]"):
        catalog.drop_database("other", cascade=True)
    assert views.names("other") == ("foreign_one", "ours")
    client(hive).drop_table("other", "foreign_one")
    catalog.drop_database("other", cascade=True)
    assert not catalog.database_exists("other")


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("key", ["paimon_location", "lakecore.renamed-from"])
def test_option_of_a_table_never_says_where_its_files_are(key: str, *, copies: bool) -> None:
    made = HiveTables(
        copies_properties=copies, location_in_properties=False, external=False, owner="me"
    )
    options = {key: "/victim", f"hive.{key}": "/victim", "lakecore.ignore-options": f"{key},hive.*"}
    schema = TableSchema(id=0, fields=(), highest_field_id=0, options=options)
    table = made.new_table(Identifier(database="d", table="t"), "/w/d.db/t", schema, now_ms=0)
    made.set_schema(table, schema, None)

    assert location_of(table.parameters, table.sd.location) == "/w/d.db/t"
    assert key not in table.parameters
