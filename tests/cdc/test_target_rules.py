from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.cdc.events import SourceTable
from lakecore.cdc.mysql.column import Definition, source_schema
from lakecore.cdc.sink import Sink
from lakecore.cdc.sink_parts import SinkSettings
from lakecore.cdc.state import StateFiles
from lakecore.cdc.target_rules import TargetRules, target_names
from lakecore.cdc.types.mapping import TypeMapping
from lakecore.errors import InvalidRequest
from lakecore.io.ambient import SYSTEM
from lakecore.io.stores.store import MemoryStore
from tests.cdc.sources import ListSource, batch, schema

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.catalog.catalog import Catalog

TABLE = SourceTable("s", "t")


def rules(**settings: object) -> TargetRules:
    return TargetRules(route=lambda _: "d.t", ambient=SYSTEM, **settings)  # type: ignore[arg-type]


def create(catalog: Catalog, kind: str, *, mapping: TypeMapping, first: bool) -> None:
    """Start a pipeline with the table `t`, whose key `k` has a type of MySQL."""
    definitions = [Definition(name="k", type=kind, nullable=False), Definition(name="v", type=kind)]
    own = rules(mapping=mapping, primary_keys=mapping.key)
    shape = own.shape(TABLE, source_schema(TABLE, definitions, ("k",), None, mapping))
    own.create(catalog, TABLE, "d.t", shape, first=first)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = open_catalog({"warehouse": str(tmp_path)}, create=True)
    made.create_database("d")
    return made


@pytest.mark.parametrize("kind", ["tinyint(1)", "time(6)", "timestamp", "set('a','b')"])
def test_the_log_names_a_key_with_a_type_of_its_own(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    with caplog.at_level(logging.WARNING, "lakecore.cdc"):
        create(catalog, kind, mapping=TypeMapping(), first=True)

    assert "table=d.t column=k is in the key" in caplog.text
    create(catalog, kind, mapping=TypeMapping(), first=False)


@pytest.mark.parametrize(
    ("have", "kind"),
    [("BOOLEAN", "tinyint(1)"), ("TIME(3)", "time(6)"), ("TIMESTAMP(0)", "timestamp")],
)
def test_a_key_that_makes_one_row_of_several_is_refused_at_every_start(
    catalog: Catalog, have: str, kind: str
) -> None:
    catalog.create_table("d.t", {"k": have, "v": have}, primary_keys=["k"], options={"bucket": "1"})

    with pytest.raises(InvalidRequest, match="column=k"):
        create(catalog, kind, mapping=TypeMapping(), first=False)


def test_a_stated_key_keeps_its_values_apart_and_the_key_of_the_source_need_not() -> None:
    mapping = TypeMapping.parse("", key=("V",))
    definitions = [Definition(name="k", type="tinyint(1)"), Definition(name="v", type="tinyint(1)")]
    found = source_schema(TABLE, definitions, ("k",), None, mapping)

    assert [str(each.type) for each in found.fields] == ["BOOLEAN NOT NULL", "TINYINT"]
    assert found.exact == {"v"}


def test_digits_that_a_column_loses_are_named(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "lakecore.cdc"):
        create(catalog, "time(6)", mapping=TypeMapping(), first=True)

    assert "v loses digits: TIME(3)" in caplog.text
    assert [str(each.type) for each in catalog.get_table("d.t").context.schema.fields] == [
        "STRING NOT NULL",
        "TIME(3)",
    ]


def test_a_column_whose_case_changed_keeps_its_name_in_the_table(catalog: Catalog) -> None:
    one = schema({"Id": "INT NOT NULL", "Name": "STRING"}, key=("Id",))
    other = schema({"ID": "INT NOT NULL", "name": "STRING", "NAME2": "STRING"}, key=("ID",))
    steps = [
        [batch(TABLE, one, ("+I", 1, "a"), ("+I", 2, "b"))],
        [batch(TABLE, other, ("-D", 1, "a", None), ("+I", 1, "A", "x"), ("-D", 2, "b", None))],
    ]
    files = StateFiles(MemoryStore(), "p", SYSTEM)
    sink = Sink(catalog, rules(table_conf={"bucket": "1"}), files, SinkSettings(), SYSTEM)
    sink.run(ListSource(steps), until_caught_up=True)

    assert catalog.get_table("d.t").to_arrow().to_pylist() == [{"Id": 1, "Name": "A", "NAME2": "x"}]


@pytest.mark.parametrize(
    ("table", "given", "expected"),
    [
        (["a", "b"], ["A", "b"], ["a", "b"]),
        (["a", "A"], ["a", "A"], ["a", "A"]),
        (["a"], ["a", "A"], ["a", "A"]),
        (["a"], ["A", "c"], ["a", "c"]),
        (["aa"], ["aA", "Aa"], ["aA", "Aa"]),
        (["aa", "aA"], ["Aa"], ["Aa"]),
    ],
)
def test_names_that_differ_in_case_are_one_column_if_there_is_one_of_them(
    table: list[str], given: list[str], expected: list[str]
) -> None:
    assert list(target_names(table, given).values()) == expected
