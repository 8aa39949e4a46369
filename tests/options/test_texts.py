"""Options that are stated as numbers and flags."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest
from lakecore.options import option_texts

if TYPE_CHECKING:
    from pathlib import Path


class Engine(StrEnum):
    FIRST = "first-row"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("4", "4"),
        (4, "4"),
        (-1, "-1"),
        (True, "true"),
        (False, "false"),
        (0.5, "0.5"),
        (Engine.FIRST, "first-row"),
    ],
)
def test_each_value_has_one_text(value: object, text: str) -> None:
    found = option_texts({"k": value})

    assert found == {"k": text}
    assert type(found["k"]) is str


@pytest.mark.parametrize("value", [None, b"4", [1], {"a": 1}, float("nan"), float("inf"), 1j])
def test_what_has_no_text_is_refused_without_showing_it(value: object) -> None:
    with pytest.raises(InvalidRequest, match=r"a text, a number, True or False\. option=k given="):
        option_texts({"k": value}, table="t")


@pytest.mark.parametrize("options", [[("a", "b")], "a=b", 7])
def test_options_are_a_mapping(options: object) -> None:
    with pytest.raises(InvalidRequest, match="a mapping"):
        option_texts(options)
    with pytest.raises(InvalidRequest, match="key is a text"):
        option_texts({1: "a"})


def test_options_are_stated_as_numbers_wherever_they_are_stated(tmp_path: Path) -> None:
    catalog = lc.connect({"warehouse": tmp_path / "w", "table-default.bucket": 3}, create=True)
    catalog.create_database("d")
    schema = {"id": "INT NOT NULL"}
    default = catalog.create_table("d.a", schema, primary_keys=["id"])
    made = catalog.create_table(
        "d.b", schema, primary_keys=["id"], options={"bucket": 4, "write-only": True}
    )
    catalog.alter_table("d.b", [lc.SchemaChange.set_option("num-sorted-run.stop-trigger", 9)])

    assert default.options.texts == {"bucket": "3"}
    assert made.schema.options == {"bucket": "4", "write-only": "true"}
    assert catalog.get_table("d.b").options.texts["num-sorted-run.stop-trigger"] == "9"
    assert made.copy({"write-only": False}).options.write_only is False
    opened = lc.open_table(made.path, options={"scan.snapshot-id": 1, "write-only": False})
    assert opened.options.texts["scan.snapshot-id"] == "1"
    made_here = lc.open_table(tmp_path / "t", create=True, schema=schema, options={"bucket": -1})
    assert made_here.options.bucket == -1
    with pytest.raises(InvalidRequest, match="not allowed"):
        made.copy({"bucket": True})
