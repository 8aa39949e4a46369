from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from lakecore.cdc.computed_columns import append_computed, computed_fields, parse_computed_columns
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import Field, arrow_type, parse_type

NOON = dt.datetime(2023, 3, 5, 12, 7, 9, 123456)
NOW_MS = 1_700_000_000_123


def computed(definition: str, kind: str, values: list[object]) -> tuple[str, list[object]]:
    """The type and the values of one computed column of a table with the column `c`."""
    fields = (Field(id=0, name="c", type=parse_type(kind)),)
    columns = parse_computed_columns([f"x={definition}"])
    rows = pa.table({"c": pa.array(values, arrow_type(fields[0].type))})
    added = append_computed(rows, columns, fields, now_ms=NOW_MS)
    (field,) = computed_fields(columns, fields)

    assert added.schema.names == ["c", "x"]
    assert added.schema.field("x").type == arrow_type(field.type)
    return str(field.type), added["x"].to_pylist()


@pytest.mark.parametrize(
    ("definition", "kind", "value", "expected"),
    [
        ("year(c)", "TIMESTAMP(6)", NOON, 2023),
        ("month(c)", "TIMESTAMP(3)", NOON, 3),
        ("day(c)", "DATE", NOON.date(), 5),
        ("hour(c)", "STRING", "2023-03-05 12:07:09.1234567", 12),
        ("minute(c)", "STRING", "2023-03-05 12:07:09", 7),
        ("second(c)", "TIMESTAMP(6)", NOON, 9),
        ("hour(c)", "DATE", NOON.date(), 0),
        ("year(c)", "INT", 1_678_018_029, 2023),
        ("year(c, 3)", "BIGINT", 1_678_018_029_123, 2023),
        ("second(c,6)", "BIGINT", -1, 59),
        ("hour( c , 9 )", "BIGINT", 1_678_018_029_123_456_789, 12),
        ("year(c)", "STRING", "2023-03-05", 2023),
    ],
)
def test_parts_of_times(definition: str, kind: str, value: object, expected: int) -> None:
    assert computed(definition, kind, [value, None]) == ("INT", [expected, None])


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("yyyy-MM-dd HH:mm:ss", "2023-03-05 12:07:09"),
        ("yy/M/d", "23/3/5"),
        ("yyyyMMdd", "20230305"),
        ("EEE EEEE MMM MMMM", "Sun Sunday Mar March"),
        ("h:mm a", "12:07 PM"),
        ("K k H", "0 12 12"),
        ("SSS SSSSSS S", "123 123456 1"),
        ("D Q n", "64 1 123456000"),
        ("'at' HH 'o''clock'", "at 12 o'clock"),
        ("''yyyy", "'2023"),
        ("uuuu.MM", "2023.03"),
    ],
)
def test_date_format(pattern: str, expected: str) -> None:
    kind, values = computed(f"date_format(c, {pattern})", "TIMESTAMP(6)", [NOON, None])

    assert (kind, values) == ("STRING", [expected, None])


def test_date_format_of_a_number() -> None:
    assert computed("date_format(c, yyyy, 3)", "BIGINT", [0])[1] == ["1970"]


@pytest.mark.parametrize(
    ("definition", "kind", "values", "expected_type", "expected"),
    [
        ("substring(c, 2)", "STRING", ["abcd", None], "STRING", ["cd", None]),
        ("substring(c,1,3)", "STRING", ["a😀cd"], "STRING", ["😀c"]),
        ("substring(c,0,2)", "INT", [1234], "STRING", ["12"]),
        ("truncate(c, 2)", "STRING", ["abc", None], "STRING", ["ab", None]),
        ("truncate(c, 10)", "INT", [15, -1, 20, None], "INT", [10, -10, 20, None]),
        ("truncate(c, 10)", "TINYINT NOT NULL", [127], "TINYINT", [120]),
        ("truncate(c, 1000)", "BIGINT", [2**62], "BIGINT", [2**62 - 2**62 % 1000]),
        (
            "truncate(c, 50)",
            "DECIMAL(8, 2)",
            [Decimal("10.65"), Decimal("-0.01"), Decimal("-0.50"), None],
            "DECIMAL(8, 2)",
            [Decimal("10.50"), Decimal("-0.50"), Decimal("-0.50"), None],
        ),
        ("cast(5)", "INT", [1, None], "STRING", ["5", "5"]),
        ("cast(5, BIGINT)", "INT", [1], "BIGINT", [5]),
        ("cast(2020-01-01, DATE)", "INT", [1], "DATE", [dt.date(2020, 1, 1)]),
        ("upper(c)", "STRING", ["aé", None], "STRING", ["AÉ", None]),
        ("LOWER(c)", "VARCHAR(9)", ["AÉ"], "STRING", ["aé"]),
        ("trim(c)", "STRING", [" \t\x01a b\n"], "STRING", ["a b"]),
        ("now()", "INT", [1], "TIMESTAMP(3)", [dt.datetime(2023, 11, 14, 22, 13, 20, 123000)]),
    ],
)
def test_functions(
    definition: str, kind: str, values: list[object], expected_type: str, expected: list[object]
) -> None:
    assert computed(definition, kind, values) == (expected_type, expected)


@pytest.mark.parametrize(
    ("definition", "kind", "value", "message"),
    [
        ("substring(c, 5)", "STRING", "abc", "too short"),
        ("substring(c, 0, 4)", "STRING", "abc", "too short"),
        ("substring(c, 2, 2)", "STRING", "abc", "begin < end"),
        ("substring(c, x)", "STRING", "abc", "whole numbers"),
        ("substring(c)", "STRING", "abc", "wrong number of arguments"),
        ("truncate(c, 4)", "STRING", "abc", "too short"),
        ("truncate(c, 0)", "INT", 1, "at least 1"),
        ("truncate(c, 2)", "DOUBLE", 1.0, "needs an integer"),
        ("truncate(c, 100)", "TINYINT", -120, "below the range"),
        ("year(c, 1)", "BIGINT", 1, "0, 3, 6 or 9"),
        ("year(c)", "DOUBLE", 1.0, "needs a timestamp"),
        ("year(c)", "STRING", "soon", "value=soon"),
        ("upper(c)", "CHAR(3)", "abc", "STRING or VARCHAR"),
        ("cast(x, INT)", "INT", 1, "value=x"),
        ("now(1)", "INT", 1, "no argument"),
        ("year(d)", "INT", 1, "reference=d"),
        ("date_format(c, 'x)", "TIMESTAMP(3)", NOON, "quote"),
    ],
)
def test_what_a_function_does_not_take_is_refused(
    definition: str, kind: str, value: object, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        computed(definition, kind, [value])


def test_a_letter_without_a_meaning_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="letters=z"):
        computed("date_format(c, z)", "TIMESTAMP(3)", [NOON])


def test_a_computed_column_may_refer_to_another_one() -> None:
    columns = parse_computed_columns(["b=substring(a,0,1)", "a=upper(c)"])
    fields = (Field(id=0, name="c", type=parse_type("STRING")),)

    added = append_computed(pa.table({"c": ["xyz"]}), columns, fields, now_ms=0)

    assert added.to_pylist() == [{"c": "xyz", "a": "XYZ", "b": "X"}]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a=year(b)", "b=year(a)"], "circle"),
        (["a=year(c)", "a=month(c)"], "twice"),
        (["a=week(c)"], "unknown function"),
        (["a"], "name=function"),
        (["a=year"], "name=function"),
        (["a=b=year(c)"], "name=function"),
        (["a=year(c) + 1"], "name=function"),
    ],
)
def test_definitions_that_make_no_sense_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_computed_columns(texts)


def test_a_missing_reference_gives_null_if_that_is_allowed() -> None:
    columns = parse_computed_columns(["y=year(gone)"])
    fields = (Field(id=0, name="c", type=parse_type("INT")),)
    rows = pa.table({"c": pa.array([1], pa.int32())})

    added = append_computed(rows, columns, fields, now_ms=0, lenient=True)

    assert added["y"].to_pylist() == [None]
    assert str(computed_fields(columns, fields, lenient=True)[0].type) == "STRING"


@pytest.mark.parametrize(
    ("definition", "value"),
    [
        ("year(c)", 253_402_300_800),
        ("year(c)", -62_135_596_801),
        ("year(c, 3)", 1 << 62),
        ("date_format(c, yyyy, 6)", -(1 << 62)),
        ("second(c)", (1 << 63) - 1),
    ],
)
def test_a_number_that_is_no_time_of_our_years_is_refused(definition: str, value: int) -> None:
    with pytest.raises(InvalidRequest, match=f"years 1 to 9999.*{value}"):
        computed(definition, "BIGINT", [1, None, value])


def test_the_first_and_the_last_year() -> None:
    ends = [-62_135_596_800, None, 253_402_300_799]

    assert computed("year(c)", "BIGINT", list(ends)) == ("INT", [1, None, 9999])
    assert computed("date_format(c, yyyy-MM-dd)", "BIGINT", list(ends)) == (
        "STRING",
        ["0001-01-01", None, "9999-12-31"],
    )
