from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import Atomic, arrow_type, parse_type
from lakecore.rows.casts import CASTS, cast, cast_may_fail, rule_of
from tests.values import column

GOLDEN = Path(__file__).parents[1] / "golden" / "casts" / "casts.jsonl"
JAVA: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def atomic(text: str) -> Atomic:
    data_type = parse_type(text)
    assert isinstance(data_type, Atomic)
    return data_type


def cast_of(values: list[Any], stored: str, read: str) -> pa.Array:
    return cast(column(values, atomic(stored)), atomic(stored), atomic(read), "c")


def assert_same(result: pa.Array, expected: pa.Array) -> None:
    """Of one type, and of equal values, NaN among them."""
    assert result.type == expected.type
    assert repr(result.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize("case", JAVA, ids=lambda case: f"{case['stored']} to {case['read']}")
def test_casts_as_java_does(case: dict[str, Any]) -> None:
    result = cast_of([*case["values"], None], case["stored"], case["read"])

    result.validate(full=True)
    assert_same(result, column([*case["cast"], None], atomic(case["read"])))


@pytest.mark.parametrize("case", JAVA, ids=lambda case: f"{case['stored']} to {case['read']}")
def test_cast_of_a_slice_is_the_slice_of_the_cast(case: dict[str, Any]) -> None:
    values = column([None, case["values"][0], *case["values"]], atomic(case["stored"])).slice(2)
    result = cast(values, atomic(case["stored"]), atomic(case["read"]))

    assert_same(result, column(case["cast"], atomic(case["read"])))


@pytest.mark.parametrize("case", JAVA, ids=lambda case: f"{case['stored']} to {case['read']}")
def test_column_of_nulls_and_empty_column_have_casts(case: dict[str, Any]) -> None:
    wanted = arrow_type(atomic(case["read"]))

    assert cast_of([None, None], case["stored"], case["read"]) == pa.nulls(2, wanted)
    assert cast_of([], case["stored"], case["read"]) == pa.nulls(0, wanted)


def test_every_rule_was_compared_with_java_or_is_below() -> None:
    def family(text: str) -> str:
        word = text.partition("(")[0]
        for name, words in {
            "integer": {"TINYINT", "SMALLINT", "INT", "BIGINT"},
            "float": {"FLOAT", "DOUBLE"},
            "string": {"CHAR", "VARCHAR", "STRING"},
            "binary": {"BINARY", "VARBINARY", "BYTES"},
        }.items():
            if word in words:
                return name
        return word.lower()

    compared = {(family(case["stored"]), family(case["read"])) for case in JAVA}

    assert set(CASTS) - compared == {("timestamp", "time")}


def test_time_of_a_timestamp_before_1970_counts_from_its_midnight() -> None:
    result = cast_of(
        ["1969-12-31T23:59:59.999999", "2024-01-31T12:34:05.1"], "TIMESTAMP(6)", "TIME(3)"
    )

    assert result == column(["23:59:59.999", "12:34:05.100"], atomic("TIME(3)"))


def test_date_of_a_timestamp_before_1970_is_its_day() -> None:
    result = cast_of(["1969-12-31T23:59:59.999999"], "TIMESTAMP(6)", "DATE")

    assert result == column(["1969-12-31"], atomic("DATE"))


def test_timestamp_text_may_have_a_t_and_lack_seconds() -> None:
    texts = ["2024-1-3T1:2", "2024-01-31T01:02:03.5"]

    assert cast_of(texts, "STRING", "TIMESTAMP(6)") == column(
        ["2024-01-03T01:02:00", "2024-01-31T01:02:03.5"], atomic("TIMESTAMP(6)")
    )


def test_time_is_cut_to_the_digits_of_its_type() -> None:
    times = ["12:34:05.129", "12:34:05.029"]

    assert cast_of(times, "TIME(1)", "STRING").to_pylist() == ["12:34:05.1", "12:34:05.0"]
    assert cast_of(times, "TIME(2)", "STRING").to_pylist() == ["12:34:05.12", "12:34:05.02"]


def test_blanks_around_times_and_dates_do_not_count() -> None:
    times = cast_of(["12:34:05  ", " 12:34", "1 :2 : 3 . 5", "7 ", "7:00\t"], "CHAR(12)", "TIME(3)")
    dates = cast_of([" 2024-01-31", "2024-01-31\t", " 2024-02", "2024 "], "CHAR(12)", "DATE")

    assert [str(time) for time in times.to_pylist()] == [
        "12:34:05",
        "12:34:00",
        "01:02:03.500000",
        "07:00:00",
        "07:00:00",
    ]
    assert [str(date) for date in dates.to_pylist()] == [
        "2024-01-31",
        "2024-01-31",
        "2024-02-01",
        "2024-01-01",
    ]


def test_float_is_printed_with_the_fewest_digits() -> None:
    assert cast_of([1.1, 3e10, -2e-5], "FLOAT", "STRING").to_pylist() == [
        "1.1",
        "3.0E10",
        "-2.0E-5",
    ]


@pytest.mark.parametrize("digits", [1, 9, 18, 19, 38])
def test_decimal_without_whole_digits_is_the_integer_0(digits: int) -> None:
    values = [Decimal("0.9"), Decimal("-0.9"), None]
    result = cast_of(values, f"DECIMAL({digits}, {digits})", "BIGINT")

    assert result.to_pylist() == [0, 0, None]


@pytest.mark.parametrize(
    ("values", "read"),
    [
        (["12x"], "INT"),
        ([""], "BIGINT"),
        (["-"], "INT"),
        (["300"], "TINYINT"),
        (["1e5"], "INT"),
        (["one"], "DOUBLE"),
        (["nan"], "DOUBLE"),
        ([" 1"], "DECIMAL(5, 2)"),
        (["maybe"], "BOOLEAN"),
        (["2024-02-30"], "DATE"),
        (["2024-13-01"], "DATE"),
        ([" 2024-01-31 12:34:05"], "DATE"),
        (["noon"], "TIME(3)"),
        (["2024-01-31 12:34"], "TIMESTAMP(6)"),
        (["2024-01-32 12:34:05"], "TIMESTAMP(6)"),
        (["2024-01-00 12:34:05"], "TIMESTAMP(6)"),
        (["2024-00-31 12:34:05"], "TIMESTAMP(6)"),
        (["a day"], "TIMESTAMP(6)"),
        (["2024-01-31 25:00:00"], "TIMESTAMP(6)"),
    ],
)
def test_text_that_cannot_be_read_is_refused_by_column_and_types(
    values: list[str], read: str
) -> None:
    with pytest.raises(InvalidRequest, match=r"column=c stored=STRING wanted=") as refused:
        cast_of(values, "STRING", read)
    # Arrow says itself what does not fit into so few bits.
    assert read == "TINYINT" or str(refused.value.facts["value"]) == repr(values[-1])


def test_float_without_decimal_value_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="inf"):
        cast_of(["Infinity"], "DOUBLE", "DECIMAL(5, 1)")


def test_bytes_are_padded_in_a_part_of_a_column() -> None:
    stored, read = atomic("VARBINARY(3)"), atomic("BINARY(3)")
    values = column(["616263", "", "64", None, "656667"], stored)

    assert cast(values.slice(1, 3), stored, read, "c").to_pylist() == [b"\0\0\0", b"d\0\0", None]


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        ("BYTES", "INT"),
        ("INT", "DATE"),
        ("DATE", "VARCHAR(10)"),
        ("TIMESTAMP(3)", "CHAR(30)"),
        ("TIMESTAMP(3)", "SMALLINT"),
        ("TINYINT", "TIMESTAMP(3)"),
        ("DOUBLE", "BOOLEAN"),
        ("TIME(3)", "DATE"),
    ],
)
def test_pair_without_cast_is_refused_by_both_names(stored: str, read: str) -> None:
    with pytest.raises(Unsupported) as refused:
        cast_of([], stored, read)

    assert f"stored={stored} wanted={read}" in str(refused.value)


EXTREMES: dict[str, list[Any]] = {
    "TINYINT": [-(2**7), 0, 2**7 - 1],
    "BIGINT": [-(2**63), 0, 2**63 - 1],
    "DOUBLE": [-1.7e308, -0.0, 5e-324, 1e19, float("inf"), float("nan")],
    "DECIMAL(38, 0)": [Decimal("9" * 38), Decimal("-" + "9" * 38)],
    "DECIMAL(38, 38)": [Decimal("0." + "9" * 38), Decimal("-0." + "9" * 38)],
    "BOOLEAN": [True, False],
    "STRING": ["", "no value", "\U0001f600", "1e999"],
    "BYTES": [b"", b"\xff\x00"],
    "DATE": [-(10**8), 10**8],
    "TIME(3)": [0, 86_399_999],
    "TIMESTAMP(3)": [-(10**15), 10**15],
    "TIMESTAMP(9)": [-92 * 10**17, 92 * 10**17],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": [-(10**15), 10**15],
}
TARGETS = [*EXTREMES, "INT", "FLOAT", "DECIMAL(1, 1)", "CHAR(2)", "VARCHAR(1)", "BINARY(3)"]


@pytest.mark.parametrize("stored", EXTREMES)
def test_cast_that_is_said_not_to_fail_takes_every_value(stored: str) -> None:
    source, kind = atomic(stored), arrow_type(atomic(stored))
    # Dates and times as the numbers they are.
    plain = kind
    if pa.types.is_temporal(kind):
        plain = pa.int32() if kind.bit_width == 32 else pa.int64()
    values = pa.array(EXTREMES[stored], plain).cast(kind)

    for read in TARGETS:
        with suppress(Unsupported):
            rule_of(source, atomic(read))
            if not cast_may_fail(source, atomic(read)):
                cast(values, source, atomic(read)).validate(full=True)
