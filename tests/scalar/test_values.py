"""SQL that cuts times to the digits of a column."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from lakecore.model.types import parse_type
from lakecore.scalar.values import cut_to_precision, pairs, parse_where


@pytest.mark.parametrize(
    ("given", "value", "kind", "cut"),
    [
        ("TIMESTAMP_NS", "2024-01-02 03:04:05.123456789", "TIMESTAMP(9)", ".123456789"),
        ("TIMESTAMP_NS", "2024-01-02 03:04:05.123456789", "TIMESTAMP(7)", ".1234567"),
        ("TIMESTAMP_NS", "2024-01-02 03:04:05.987654321", "TIMESTAMP(0)", ""),
        ("TIMESTAMP", "2024-01-02 03:04:05.987654", "TIMESTAMP(3)", ".987"),
        ("TIMESTAMP", "1960-01-02 03:04:05.987654", "TIMESTAMP(3)", ".987"),
        ("TIMESTAMP", "2024-01-02 03:04:05.987654", "TIMESTAMP(6)", ".987654"),
        ("TIMESTAMP_MS", "2024-01-02 03:04:05.987", "TIMESTAMP(1)", ".9"),
        ("TIME", "03:04:05.987654", "TIME(3)", ".987"),
    ],
)
def test_digits_that_a_column_lacks_are_cut_not_rounded(
    given: str, value: str, kind: str, cut: str
) -> None:
    text = cut_to_precision(f"CAST('{value}' AS {given})", given, parse_type(kind))

    [(found,)] = duckdb.connect().execute(f"SELECT CAST({text} AS VARCHAR)").fetchall()
    assert found.rstrip("0") == (value.partition(".")[0] + cut).rstrip("0")


def test_other_values_stay_as_they_are() -> None:
    assert cut_to_precision("v", "TIMESTAMP", parse_type("STRING")) == "v"
    assert cut_to_precision("v", "DATE", parse_type("TIMESTAMP(3)")) == "v"
    assert cut_to_precision("v", "TIMESTAMP_MS", parse_type("TIMESTAMP(3)")) == "v"
    assert cut_to_precision("v", "TIMESTAMP", parse_type("TIMESTAMP(6)")) == "v"


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("a > 1", [(1, 0), (1, 1), (2, 0), (2, 1)]),
        ("b > 5", [(0, 1), (1, 1), (2, 1)]),
        ("a + 3 = b", [(1, 0), (2, 1)]),
        ("1 = 2", []),
    ],
)
def test_pairs_of_rows_by_a_condition_on_either_table(
    condition: str, found: list[tuple[int, int]]
) -> None:
    left, right = pa.table({"a": [1, 2, 3]}), pa.table({"b": [5, 6]})
    schema = pa.schema([*left.schema, *right.schema])
    sql, _ = parse_where(condition, schema)

    own, other = pairs(sql, left, right)
    assert sorted(zip(own.tolist(), other.tolist(), strict=True)) == found
