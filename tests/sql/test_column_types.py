"""Types of columns in SQL: names of Flink and Spark, and fields of a ROW named like a type."""

from __future__ import annotations

from lakecore.model.types import Row, parse_type
from lakecore.sql.parse import parse
from lakecore.sql.statements import CreateTable


def types_of(columns: str, *, spark_types: bool = False) -> list[str]:
    statement = parse(f"CREATE TABLE t ({columns})", spark_types=spark_types)
    assert isinstance(statement, CreateTable)
    return [str(parse_type(column.type)) for column in statement.columns]


def test_names_of_both_engines_have_the_meaning_of_the_dialect() -> None:
    columns = "a TIMESTAMP, b BINARY, c TIMESTAMP(3), d BINARY(2), e TIMESTAMP WITH LOCAL TIME ZONE"
    zoned = "TIMESTAMP(6) WITH LOCAL TIME ZONE"
    same = ["TIMESTAMP(3)", "BINARY(2)", zoned]

    assert types_of(columns) == ["TIMESTAMP(6)", "BINARY(1)", *same]
    assert types_of(columns, spark_types=True) == [zoned, "BYTES", *same]


def test_field_of_a_row_may_be_named_like_a_type_and_values_of_its_maps_are_types() -> None:
    assert types_of("r STRUCT<long: LONG, m: MAP<STRING, LONG>, binary BINARY>") == [
        "ROW<`long` BIGINT, `m` MAP<STRING, BIGINT>, `binary` BINARY(1)>"
    ]


def test_field_of_a_row_has_a_comment() -> None:
    row = parse_type("ROW<x INT NOT NULL COMMENT 'it''s', y STRING>")
    assert isinstance(row, Row)

    assert [field.description for field in row.fields] == ["it's", None]
