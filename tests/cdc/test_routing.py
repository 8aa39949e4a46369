from __future__ import annotations

import pytest

from lakecore.cdc.actions import Routing
from lakecore.cdc.events import SourceTable
from lakecore.errors import InvalidRequest


def target(name: str, **options: object) -> str | None:
    database, _, table = name.partition(".")
    return Routing(database="lake", **options).target(SourceTable(database, table))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "name", "expected"),
    [
        ({}, "shop.orders", "lake.orders"),
        ({"including_tables": "orders|items"}, "shop.items", "lake.items"),
        ({"including_tables": "orders|items"}, "shop.items2", None),
        ({"excluding_tables": "tmp_.*"}, "shop.tmp_1", None),
        ({"including_tables": "a.*", "excluding_tables": "ab"}, "shop.ab", None),
        ({"including_dbs": "shop.*"}, "shop2.t", "lake.t"),
        ({"including_dbs": "shop.*"}, "bank.t", None),
        ({"excluding_dbs": "bank"}, "bank.t", None),
        ({"table_prefix": "p_", "table_suffix": "_s"}, "shop.t", "lake.p_t_s"),
        ({"merge_shards": False}, "shop.t", "lake.shop_t"),
        ({"table_prefix": "p_", "table_prefix_db": {"SHOP": "q_"}}, "shop.t", "lake.q_t"),
        ({"table_suffix": "_s", "table_suffix_db": {"shop": "_z"}}, "shop.t", "lake.t_z"),
        ({"table_mapping": {"T": "Other"}, "table_prefix": "p_"}, "shop.t", "lake.Other"),
        ({"table_mapping": {"t": "Other"}, "case_sensitive": False}, "shop.T", "lake.other"),
        ({"case_sensitive": False, "table_prefix": "P_"}, "shop.Orders", "lake.P_orders"),
    ],
)
def test_a_table_goes_where_the_options_say(
    options: dict[str, object], name: str, expected: str | None
) -> None:
    assert target(name, **options) == expected


def test_a_message_without_a_table_cannot_be_routed() -> None:
    with pytest.raises(InvalidRequest, match="does not name its database and table"):
        Routing(database="lake").target(SourceTable("", "t"))


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="argument=including_tables"):
        Routing(database="lake", including_tables="(")


def test_a_name_with_a_line_break_is_matched_like_any_other() -> None:
    table = SourceTable("a\nb", "x\ny")

    assert Routing(database="d").target(table) == "d.x\ny"
    assert Routing(database="d", including_tables="x.*").includes(table)
    assert not Routing(database="d", excluding_tables="x.*").includes(table)
