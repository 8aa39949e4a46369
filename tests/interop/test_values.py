from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop import cases, values
from tests.interop.arrow_values import from_arrow, to_arrow
from tests.interop.columns import columns, columns_from_json, columns_to_json, parse_type

if TYPE_CHECKING:
    from tests.interop.columns import Json


@pytest.mark.parametrize("text", list(cases.VALUES))
def test_type_text_and_schema_json_say_the_same(text: str) -> None:
    column = columns(v=text)

    assert parse_type(text).text == text
    assert columns_from_json(columns_to_json(column)) == column  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("integer not null", "INT NOT NULL"),
        ("VARCHAR(2147483647)", "STRING"),
        ("TIMESTAMP_LTZ", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("NUMERIC(5)", "DECIMAL(5, 0)"),
        ("row<`x` int, y array<bytes not null>>", "ROW<x INT, y ARRAY<BYTES NOT NULL>>"),
    ],
)
def test_loose_type_text_has_one_meaning(written: str, read: str) -> None:
    assert parse_type(written).text == read


@pytest.mark.parametrize("text", list(cases.VALUES))
def test_values_survive_arrow_unchanged(text: str) -> None:
    column = columns(v=text)
    rows = values.canonical_rows([[value] for value in [*cases.VALUES[text], None]], column)

    assert from_arrow(to_arrow(rows, column), column) == rows


@pytest.mark.parametrize(
    ("text", "written", "canonical"),
    [
        ("FLOAT", 1.1, "1.100000023841858"),
        ("DOUBLE", "-0.0", "-0.0"),
        ("DOUBLE", "-Infinity", "-Infinity"),
        ("DECIMAL(10, 2)", "-0.5", "-0.50"),
        ("DECIMAL(10, 2)", "-0", "0.00"),
        ("DECIMAL(3, 0)", "7", "7"),
        ("TIME(0)", "12:34:56", "12:34:56.000"),
        ("TIMESTAMP(0)", "1969-12-31T23:59:59", "1969-12-31T23:59:59"),
        ("TIMESTAMP(3)", "1969-12-31T23:59:59.9", "1969-12-31T23:59:59.900"),
        ("TIMESTAMP(3)", "2024-01-01T00:00:00.0001", "2024-01-01T00:00:00.0001"),
        ("TIMESTAMP_LTZ(9)", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00.000000000Z"),
        ("MAP<INT, FLOAT>", [[2, 1], [1, None]], [[1, None], [2, "1.0"]]),
    ],
)
def test_a_value_has_one_form(text: str, written: Json, canonical: Json) -> None:
    assert values.canonical(written, parse_type(text)) == canonical


def test_difference_names_the_column_that_is_wrong() -> None:
    fields = columns(k="INT", v="STRING")

    assert values.difference([[1, "a"], [2, "b"]], [[2, "c"], [1, "a"]], fields) == [
        "v STRING: is 'b', should be 'c'"
    ]
    assert values.difference([[1, "a"], [1, "a"]], [[1, "a"]], fields) == [
        "unexpected row [1, 'a']"
    ]


def test_negative_zero_and_nan_are_told_apart() -> None:
    fields = columns(v="DOUBLE")

    assert values.difference([["0.0"]], [["-0.0"]], fields)
    assert not values.difference([["NaN"]], [["NaN"]], fields)
