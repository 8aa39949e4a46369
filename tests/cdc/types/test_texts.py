from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from lakecore.cdc.types.texts import from_text, zero_dates_to_null
from lakecore.errors import InvalidRequest
from lakecore.model.types import arrow_type, parse_type

UTC = dt.UTC


@pytest.mark.parametrize(
    ("kind", "texts", "expected"),
    [
        ("INT", ["1", "-5", "+7", None], [1, -5, 7, None]),
        ("DECIMAL(6, 2)", ["1.1", "2.300", "-.5", "1E2"], ["1.10", "2.30", "-0.50", "100.00"]),
        ("DOUBLE", ["1.5", "NaN", "1e10", "-Infinity"], [1.5, "nan", 1e10, "-inf"]),
        ("FLOAT", ["0.5", "NaN"], [0.5, "nan"]),
        ("BOOLEAN", ["1", "false", "T", None], [True, False, True, None]),
        ("VARCHAR(2)", ["ab", "😀é"], ["ab", "😀é"]),
        ("BYTES", ["ab"], [b"ab"]),
        ("DATE", ["2020-02-29", "0001-01-01"], [dt.date(2020, 2, 29), dt.date(1, 1, 1)]),
        ("TIME(3)", ["10:00", "23:59:59.123000"], [dt.time(10), dt.time(23, 59, 59, 123000)]),
        ("TIMESTAMP(6)", ["2020-01-02 03:04:05.12"], [dt.datetime(2020, 1, 2, 3, 4, 5, 120000)]),
        (
            "TIMESTAMP(3) WITH LOCAL TIME ZONE",
            ["2020-01-02T03:04:05"],
            [dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)],
        ),
    ],
)
def test_texts_become_values(kind: str, texts: list[str | None], expected: list[object]) -> None:
    values = from_text(pa.array(texts, pa.string()), parse_type(kind), "c")

    assert values.type == arrow_type(parse_type(kind))
    shown = [str(v) if isinstance(v, Decimal) or v != v else v for v in values.to_pylist()]  # noqa: PLR0124
    assert [("-inf" if v == float("-inf") else v) for v in shown] == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("INT", "1.5"),
        ("INT", ""),
        ("TINYINT", "300"),
        ("BIGINT", "9223372036854775808"),
        ("DECIMAL(6, 2)", "1.234"),
        ("DECIMAL(6, 2)", "12345.6"),
        ("DOUBLE", "1e400"),
        ("FLOAT", "1.23456789"),
        ("FLOAT", "1e39"),
        ("BOOLEAN", "2"),
        ("VARCHAR(2)", "abc"),
        ("VARBINARY(2)", "é1"),
        ("DATE", "2020-02-30"),
        ("TIME(3)", "25:00:00"),
        ("TIME(3)", "10:00:00.1234"),
        ("TIME(3)", "-01:00:00"),
        ("TIMESTAMP(3)", "2020-01-01 00:00:00.1234"),
        ("TIMESTAMP(0)", "0000-00-00 00:00:00"),
    ],
)
def test_a_value_that_would_lose_something_is_refused(kind: str, text: str) -> None:
    good = {"DATE": "2020-01-01", "TIME(3)": "01:00:00"}.get(kind, "1")
    if "TIMESTAMP" in kind:
        good = "2020-01-01 00:00:00"

    with pytest.raises(InvalidRequest, match="does not fit") as caught:
        from_text(pa.array([good, None, text, good]), parse_type(kind), "price")

    assert caught.value.facts["column"] == "price"
    assert str(caught.value.facts["value"]) in {text, str(text.encode())}


def test_a_float_keeps_the_digits_that_it_prints() -> None:
    values = from_text(pa.array(["0.1", "16777217.0", "3.4e38"][:1]), parse_type("FLOAT"), "c")

    assert values.cast(pa.string()).to_pylist() == ["0.1"]


def test_dates_with_a_zero_are_null() -> None:
    texts = pa.array(["0000-00-00", "2020-00-01 10:00:00", "2020-01-00", "2020-10-10", None])

    assert zero_dates_to_null(texts).to_pylist() == [None, None, None, "2020-10-10", None]
