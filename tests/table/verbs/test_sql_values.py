"""SQL as values of UPDATE and MERGE, and as conditions of every verb."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, Unsupported
from tests.tables import held, new_table, put

WIDE = {"id": "INT NOT NULL", "s": "STRING", "n": "TINYINT", "p": "DECIMAL(10, 2)"}
KEYED = pytest.mark.parametrize("keys", [("id",), ()], ids=["keyed", "append"])


def table_of(keys: tuple[str, ...], rows: str = "1 a 1 1.10 | 2 b 2 2.20 | 3 _ _ _") -> lc.Table:
    table = new_table(WIDE, keys=keys)
    put(table, rows)
    return table


@KEYED
def test_values_of_sql_are_computed_from_the_row_as_it_was(keys: tuple[str, ...]) -> None:
    table = table_of(keys)
    result = table.update(
        {"p": lc.sql_expr("p * 1.15"), "s": lc.sql_expr("upper(s) || n"), "n": lc.sql_expr("n+1")},
        "id < 3",
    )

    assert result.rows_updated == 2
    assert held(table) == "1 A1 2 1.27 | 2 B2 3 2.53 | 3 _ _ _"


@KEYED
def test_sql_and_expressions_and_plain_values_go_together(keys: tuple[str, ...]) -> None:
    table = table_of(keys)
    table.update({"n": lc.sql_expr("id + 5"), "s": "x", "p": pl.col("p") + 1}, "lower(s) = 'b'")

    assert held(table) == "1 a 1 1.10 | 2 x 7 3.20 | 3 _ _ _"


@KEYED
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n": lc.sql_expr("n + 200")}, r"does not fit the column.* value 201 .*column=n"),
        ({"n": lc.sql_expr("s")}, r"Could not convert string 'a' to INT8.*column=n"),
        ({"n": lc.sql_expr("itm")}, "unknown column. column=itm"),
        ({"n": lc.sql_expr("n +")}, "bad SQL expression.*the text ends too early"),
        ({"x": lc.sql_expr("n")}, "unknown column. column=x"),
    ],
)
def test_bad_value_is_refused_and_nothing_is_changed(
    keys: tuple[str, ...], values: dict[str, Any], message: str
) -> None:
    table = table_of(keys)
    before = held(table)

    with pytest.raises(InvalidRequest, match=message):
        table.update(values)
    with pytest.raises(Unsupported, match="looks at several rows"):
        table.update({"n": lc.sql_expr("max(n)")})
    assert held(table) == before


def test_sql_expr_takes_a_text() -> None:
    with pytest.raises(InvalidRequest, match="an SQL expression is a text"):
        lc.sql_expr(3)  # type: ignore[arg-type]


@KEYED
def test_merge_takes_sql_everywhere(keys: tuple[str, ...]) -> None:
    table = table_of(keys)
    news = pl.DataFrame({"id": [1, 2, 9, 10], "s": ["q", "r", "t", "u"], "k": [5, 6, 7, 8]})
    result = (
        table.merge(news, on="source.id = target.id AND upper(source.s) IN ('Q', 'R')")
        .when_matched_delete("K % 2 = 0 AND target.p * 10 > 21")
        .when_matched_update({"s": lc.sql_expr("source.s || TARGET.s || k"), "p": Decimal(1)})
        .when_not_matched_insert({"id": lc.sql_expr("source.id + 100")}, "k % 2 = 1")
        .when_not_matched_by_source_update({"s": lc.sql_expr("coalesce(s, 'none')")})
        .execute()
    )

    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (1, 2, 1)
    assert held(table) == "1 qa5 1 1.00 | 109 _ _ _ | 3 none _ _"


@KEYED
def test_merge_names_the_side_that_is_meant(keys: tuple[str, ...]) -> None:
    table, news = table_of(keys), pl.DataFrame({"id": [1], "s": ["q"]})

    def update(text: str) -> None:
        merge = table.merge(news, on=["id"])
        merge.when_matched_update({"s": lc.sql_expr(text)}).execute()

    for text, message in (
        ("s", "both sides have this column"),
        ("source.x", "unknown column. column=x"),
        ("other.s", "other names of tables are unknown. column=other"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            update(text)
    with pytest.raises(InvalidRequest, match="there is no row of the target here"):
        table.merge(news, on=["id"]).when_not_matched_insert_all("target.n = 1").execute()


@KEYED
@pytest.mark.parametrize("text", ["lower(S) = 'a'", "n + 1 = 2", "p / 11 = 0.1", "s ILIKE 'A'"])
def test_delete_takes_any_condition(keys: tuple[str, ...], text: str) -> None:
    table = table_of(keys)

    assert table.delete(text).rows_deleted == 1
    assert held(table) == "2 b 2 2.20 | 3 _ _ _"


@KEYED
def test_between_symmetric_deletes_nothing(keys: tuple[str, ...]) -> None:
    table = table_of(keys)
    before = held(table)

    with pytest.raises(InvalidRequest, match="SYMMETRIC"):
        table.delete("id NOT BETWEEN SYMMETRIC 4 AND 2")
    assert held(table) == before
