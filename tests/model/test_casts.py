from __future__ import annotations

import pytest

from lakecore.errors import InvalidRequest
from lakecore.model.casts import check_default, may_cast
from lakecore.model.types import parse_type


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("TINYINT", "SMALLINT"),
        ("SMALLINT", "BIGINT"),
        ("INT", "BIGINT NOT NULL"),
        ("BIGINT", "FLOAT"),
        ("BIGINT", "DECIMAL(20, 0)"),
        ("FLOAT", "DOUBLE"),
        ("DECIMAL(5, 2)", "DECIMAL(10, 2)"),
        ("DECIMAL(5, 2)", "DOUBLE"),
        ("CHAR(3)", "STRING"),
        ("VARCHAR(3)", "VARCHAR(9)"),
        ("BINARY(3)", "BYTES"),
        ("TIMESTAMP(3)", "TIMESTAMP(6)"),
        ("TIMESTAMP(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(3)"),
        ("TIMESTAMP(6)", "DATE"),
        ("TIMESTAMP(6)", "TIME(3)"),
        ("ARRAY<INT>", "ARRAY<INT> NOT NULL"),
    ],
)
def test_widening_is_implicit(source: str, target: str) -> None:
    assert may_cast(parse_type(source), parse_type(target), explicit=False)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("BIGINT", "INT"),
        ("DOUBLE", "FLOAT"),
        ("DOUBLE", "TINYINT"),
        ("INT", "STRING"),
        ("STRING", "INT"),
        ("STRING", "DATE"),
        ("DATE", "STRING"),
        ("DATE", "TIMESTAMP(3)"),
        ("STRING", "BOOLEAN"),
        ("BOOLEAN", "INT"),
        ("INT", "BOOLEAN"),
        ("STRING", "BYTES"),
        ("BYTES", "STRING"),
        ("TIMESTAMP(3)", "BIGINT"),
        ("BIGINT", "TIMESTAMP(3)"),
        ("INT NOT NULL", "TIMESTAMP(6) WITH LOCAL TIME ZONE NOT NULL"),
        ("DATE NOT NULL", "STRING"),
        ("ARRAY<INT>", "STRING"),
        ("ROW<a INT>", "STRING"),
    ],
)
def test_narrowing_is_explicit(source: str, target: str) -> None:
    assert may_cast(parse_type(source), parse_type(target), explicit=True)
    assert not may_cast(parse_type(source), parse_type(target), explicit=False)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("STRING", "ARRAY<INT>"),
        ("ARRAY<INT>", "ARRAY<BIGINT>"),
        ("ROW<a INT>", "ROW<a BIGINT>"),
        ("MULTISET<INT>", "STRING"),
        ("DATE", "INT"),
        ("SMALLINT", "TIMESTAMP(3)"),
        ("BOOLEAN", "DATE"),
        ("BYTES", "INT"),
        ("DATE", "VARCHAR(10)"),
        ("DATE NOT NULL", "STRING NOT NULL"),
        ("TIMESTAMP(3) NOT NULL", "STRING NOT NULL"),
        ("TIME(0)", "TIME(3)"),
        ("DOUBLE", "BOOLEAN"),
    ],
)
def test_other_changes_are_none(source: str, target: str) -> None:
    assert not may_cast(parse_type(source), parse_type(target), explicit=True)


@pytest.mark.parametrize(
    ("type_text", "text"),
    [
        ("STRING", ""),
        ("CHAR(2)", "ab"),
        ("BYTES", "x"),
        ("BOOLEAN", "'Yes'"),
        ("TINYINT", "-128"),
        ("BIGINT", "9223372036854775807"),
        ("DOUBLE", "1e3"),
        ("DECIMAL(4, 2)", "99.99"),
        ("DECIMAL(38, 3)", "-99999999999999999999999999999999999.999"),
        ("DATE", "'2024-02-29'"),
        ("TIME(3)", "12:30:00.5"),
        ("TIMESTAMP(3)", "2024-01-01 10:00:00.123456789"),
        ("TIMESTAMP(3)", "2024-01-01"),
    ],
)
def test_text_of_the_type_is_a_default(type_text: str, text: str) -> None:
    check_default(parse_type(type_text), text, column="c")


@pytest.mark.parametrize(
    ("type_text", "text"),
    [
        ("BOOLEAN", "maybe"),
        ("TINYINT", "128"),
        ("INT", "1.5"),
        ("INT", ""),
        ("DOUBLE", "one"),
        ("DECIMAL(4, 2)", "100"),
        ("DECIMAL(4, 2)", "NaN"),
        ("DATE", "yesterday"),
        ("TIME(0)", "25:00:00"),
        ("TIMESTAMP(3)", "2024-01-01.5"),
        ("TIMESTAMP(3)", "2024-01-01 10:00:00+01:00"),
    ],
)
def test_text_of_another_type_is_no_default(type_text: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match="column=c"):
        check_default(parse_type(type_text), text, column="c")


def test_no_default_is_fine_for_any_type() -> None:
    check_default(parse_type("ARRAY<INT>"), None, column="c")
