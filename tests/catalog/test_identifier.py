from __future__ import annotations

import pytest

from lakecore.catalog.identifier import NAME_BYTES_MAX, Identifier, check_name, parse_identifier
from lakecore.errors import InvalidRequest


def named(database: str, table: str, branch: str = "main", system: str | None = None) -> Identifier:
    return Identifier(database=database, table=table, branch=branch, system=system)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shop.orders", named("shop", "orders")),
        ("shop.orders$files", named("shop", "orders", system="files")),
        ("shop.orders$FILES", named("shop", "orders", system="files")),
        ("shop.orders$branch_b1", named("shop", "orders", branch="b1")),
        ("shop.orders$branch_b1$files", named("shop", "orders", branch="b1", system="files")),
        ("shop.orders.old", named("shop", "orders.old")),
        ("`shop`.`orders`", named("shop", "orders")),
        ("shop.`orders$snapshots`", named("shop", "orders", system="snapshots")),
        ("`a.b`.t", named("a.b", "t")),
        ("`a``b`.t", named("a`b", "t")),
        ("shop.Bestellungen für März", named("shop", "Bestellungen für März")),
    ],
)
def test_text_names(text: str, expected: Identifier) -> None:
    assert parse_identifier(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("orders", "no database"),
        ("", "no database"),
        (".orders", "blank"),
        ("shop.", "blank"),
        ("shop.$files", "blank"),
        ("shop.orders$", "blank"),
        ("shop.orders$branch_", "blank"),
        ("shop.orders$files$snapshots", "too many"),
        ("shop.orders$branch_b$files$x", "too many"),
        ("`shop.orders", "backquote"),
        ("shop.`orders", "backquote"),
        ("shop.or`der`s", "backquote"),
        ("shop.a/b", "'/'"),
        ("shop.a\\b", "must not hold"),
        ("../etc.passwd", "blank"),
        ("`..`.t", "dot"),
        ("shop...", "dot"),
        ("shop.orders$branch_../x", "'/'"),
        ("shop.a\nb", "must not hold"),
    ],
)
def test_text_that_names_nothing_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        parse_identifier(text)


def test_global_system_tables_are_tables_of_a_database() -> None:
    assert parse_identifier("sys.all_table_options") == Identifier(
        database="sys", table="all_table_options"
    )


@pytest.mark.parametrize(
    "text",
    ["shop.orders", "shop.orders$files", "shop.t$branch_b1", "shop.t$branch_b1$tags", "`a.b`.t"],
)
def test_text_of_an_identifier_names_it_again(text: str) -> None:
    assert str(parse_identifier(text)) == text


def test_main_branch_is_the_table_itself() -> None:
    assert str(parse_identifier("shop.t$branch_main$files")) == "shop.t$files"


def test_data_table_is_what_a_system_table_is_about() -> None:
    name = parse_identifier("shop.t$branch_b1$files")

    assert name.data_table == named("shop", "t", branch="b1")


@pytest.mark.parametrize(
    ("what", "name", "why"),
    [
        ("database", "", "blank"),
        ("table", "  ", "blank"),
        ("table", "a/b", "'/'"),
        ("table", "a\x00", "must not hold"),
        ("table", "a$files", r"'\$'"),
        ("table", "a`b", "'`'"),
        ("table", ".hidden", "dot"),
        ("table", " t", "blank"),
        ("database", "a.b", "'.'"),
        ("database", "sys", "global system tables"),
        ("table", "ü" * NAME_BYTES_MAX, "too long"),
    ],
)
def test_bad_name_is_refused(what: str, name: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        check_name(what, name)


@pytest.mark.parametrize("name", ["orders", "Orders_2", "a b", "über", "a.b", "x" * NAME_BYTES_MAX])
def test_good_name_of_a_table_passes(name: str) -> None:
    check_name("table", name)
