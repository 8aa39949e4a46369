from __future__ import annotations

import pytest

from lakecore.cdc.postgres.connection import postgres_key_type, postgres_type
from lakecore.cdc.types.mapping import TypeMapping


@pytest.mark.parametrize(
    ("name", "precision", "scale", "expected"),
    [
        ("bool", None, None, "BOOLEAN"),
        ("bit", 1, None, "BOOLEAN"),
        ("bit", 9, None, "BINARY(2)"),
        ("varbit", 16, None, "BINARY(2)"),
        ("bytea", None, None, "BYTES"),
        ("int2", None, None, "SMALLINT"),
        ("int4", None, None, "INT"),
        ("bigserial", None, None, "BIGINT"),
        ("float4", None, None, "FLOAT"),
        ("float8", None, None, "DOUBLE"),
        ("numeric", None, None, "STRING"),
        ("_numeric", None, None, "ARRAY<STRING>"),
        ("numeric", 10, 2, "DECIMAL(10, 2)"),
        ("numeric", 50, 2, "STRING"),
        ("numeric", 5, -2, "STRING"),
        ("numeric", 2, 5, "STRING"),
        ("bpchar", 3, None, "CHAR(3)"),
        ("bpchar", None, None, "STRING"),
        ("varchar", 30, None, "VARCHAR(30)"),
        ("varchar", None, None, "STRING"),
        ("text", None, None, "STRING"),
        ("jsonb", None, None, "STRING"),
        ("uuid", None, None, "STRING"),
        ("date", None, None, "DATE"),
        ("time", None, 2, "TIME(2)"),
        ("time", None, 6, "TIME(3)"),
        ("timestamp", None, 6, "TIMESTAMP(6)"),
        ("timestamptz", None, 6, "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("_int4", None, None, "ARRAY<INT>"),
        ("_numeric", 10, 2, "ARRAY<DECIMAL(10, 2)>"),
        ("_text", None, None, "ARRAY<STRING>"),
        ("_timestamptz", None, 3, "ARRAY<TIMESTAMP(3) WITH LOCAL TIME ZONE>"),
        ("_uuid", None, None, "ARRAY<STRING>"),
    ],
)
def test_a_type_has_its_paimon_type(
    name: str, precision: int | None, scale: int | None, expected: str
) -> None:
    assert str(postgres_type(name, precision, scale)) == expected


@pytest.mark.parametrize(
    ("name", "precision", "scale", "expected"),
    [
        ("time", None, 6, "STRING"),
        ("time", None, 3, "TIME(3)"),
        ("varbit", 16, None, "STRING"),
        ("bit", 9, None, "BINARY(2)"),
        ("numeric", 10, 2, "DECIMAL(10, 2)"),
    ],
)
def test_a_key_keeps_all_values_apart(
    name: str, precision: int | None, scale: int | None, expected: str
) -> None:
    assert str(postgres_key_type(name, precision, scale)) == expected


def test_numeric_without_digits_is_a_decimal_if_asked() -> None:
    mapping = TypeMapping.parse("bare-numeric-to-decimal")

    assert str(postgres_type("numeric", mapping=mapping)) == "DECIMAL(38, 18)"


def test_to_string_maps_every_type() -> None:
    assert str(postgres_type("_int4", mapping=TypeMapping.parse("to-string"))) == "STRING"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("interval", "STRING"),
        ("inet", "STRING"),
        ("int4range", "STRING"),
        ("hstore", "STRING"),
        ("_point", "ARRAY<STRING>"),
        ("_box", "STRING"),
    ],
)
def test_any_other_type_is_text(name: str, expected: str) -> None:
    assert str(postgres_type(name)) == expected
