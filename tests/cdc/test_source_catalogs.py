"""The options of source catalogs, and what the names of their tables mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.cdc.source_catalogs import SourceCatalog, opened_source
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from pathlib import Path

SERVER = {"hostname": "h", "username": "u", "password": "secret-text"}
KAFKA = {"properties.bootstrap.servers": "b:1", "properties.group.id": "g"}


def opened(kind: str, **more: str) -> SourceCatalog:
    base = SERVER if kind in {"mysql", "postgres"} else KAFKA
    return opened_source(kind, {**base, **{k.replace("_", "-"): v for k, v in more.items()}})


def named(catalog: SourceCatalog, *names: str, table: bool = True, **more: str) -> dict[str, str]:
    conf = catalog.conf(names, {k.replace("_", "-"): v for k, v in more.items()}, takes_table=table)
    return {key: text for key, text in conf.items() if key not in {*SERVER, *KAFKA}}


def test_names_become_options_of_the_action() -> None:
    mysql, postgres = opened("mysql", default_database="d0"), opened("postgres")
    kafka = opened("kafka")

    assert named(mysql, "d_.*", "t") == {"database-name": "d_.*", "table-name": "t"}
    assert named(mysql, "t", server_id="7") == {
        "database-name": "d0",
        "table-name": "t",
        "server-id": "7",
    }
    assert named(mysql, "d", table=False) == {"database-name": "d"}
    in_schema = {"database-name": "d", "schema-name": "s", "table-name": "t"}
    assert named(postgres, "d", "s", "t") == in_schema
    assert named(postgres, "d", "s.t") == in_schema
    assert named(postgres, "d", "order_.*") == {
        **in_schema,
        "schema-name": "public",
        "table-name": "order_.*",
    }
    assert named(postgres, "d", "t", schema_name="s") == in_schema
    assert named(postgres, "d", "t") == {**in_schema, "schema-name": "public"}
    assert named(kafka, "t") == named(kafka, "kafka", "t") == {"topic": "t"}
    assert named(kafka, "t", table=False) == {"topic": "t"}
    pattern = {"topic-pattern": "t.*"}
    assert named(kafka, "kafka", table=False, topic_pattern="t.*") == pattern


@pytest.mark.parametrize(
    ("kind", "names", "table", "message"),
    [
        ("mysql", ("a",), "table", "database.table"),
        ("mysql", ("a", "b", "c"), "table", "database.table"),
        ("mysql", ("a", "b"), "database", "one database"),
        ("postgres", ("a",), "table", "database.schema.table"),
        ("kafka", ("a", "b"), "table", "topic"),
        ("kafka", ("kafka",), "database", "topic-pattern"),
    ],
)
def test_other_names_are_refused(
    kind: str, names: tuple[str, ...], table: str, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        named(opened(kind), *names, table=table == "table")


def test_options_are_checked_when_the_catalog_is_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"hostnam.*nearest=hostname"):
        opened_source("mysql", {"hostnam": "h"})
    with pytest.raises(InvalidRequest, match=r"missing=\[hostname, username, password\]"):
        opened_source("mysql", {})
    (tmp_path / "p").write_text("from-a-file\n")
    found = opened_source(
        "mysql", {"hostname": "h", "username": "u", "password-file": str(tmp_path / "p")}
    )

    assert found.options["password"] == "from-a-file"
    assert "from-a-file" not in repr(found)
    assert found.action(takes_table=False) == "mysql_sync_database"
    postgres = opened("postgres")
    assert postgres.action(takes_table=False) == "postgres_sync_database"
    in_schema = postgres.conf(("d", "s"), {}, takes_table=False)
    assert (in_schema["database-name"], in_schema["schema-name"]) == ("d", "s")
    assert postgres.conf(("d",), {}, takes_table=False)["schema-name"] == "public"
    with pytest.raises(InvalidRequest, match="name one database"):
        postgres.conf(("a", "b", "c"), {}, takes_table=False)
