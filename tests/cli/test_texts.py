from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Literal, TypeAlias

import polars as pl
import pytest

from lakecore.cli.printing import cells, csv_text, json_lines, printable
from lakecore.frames.polars_versions import HAS_MAPS

NAN, INFINITY = float("nan"), float("inf")
Case: TypeAlias = tuple[pl.DataType, object, object, str]
"""The type, a value, what it is in JSON, and what in a cell."""


def entries(key: pl.DataType, value: pl.DataType) -> pl.DataType:
    return pl.List(pl.Struct({"key": key, "value": value}))


def maps() -> list[Case]:
    return [
        (pl.Map(pl.String(), pl.Binary()), {"k": b"\x01"}, {"k": "01"}, '{"k": "01"}'),
        (
            pl.Map(pl.Int64(), pl.Date()),
            {1: date(2026, 1, 1)},
            [{"key": 1, "value": "2026-01-01"}],
            '{"1": "2026-01-01"}',
        ),
        (
            pl.List(pl.Map(pl.String(), pl.List(pl.Time()))),
            [{"k": [time(1)]}],
            [{"k": ["01:00:00"]}],
            '[{"k": ["01:00:00"]}]',
        ),
    ]


def maps_of_polars_1() -> list[Case]:
    return [
        (
            entries(pl.String(), pl.Binary()),
            [{"key": "k", "value": b"\x01"}],
            [{"key": "k", "value": "01"}],
            '[{"key": "k", "value": "01"}]',
        ),
        (
            entries(pl.Int64(), pl.Date()),
            [{"key": 1, "value": date(2026, 1, 1)}],
            [{"key": 1, "value": "2026-01-01"}],
            '[{"key": 1, "value": "2026-01-01"}]',
        ),
    ]


VALUES: list[Case] = [
    (pl.Int64(), 2**63 - 1, 2**63 - 1, "9223372036854775807"),
    (pl.Boolean(), True, True, "true"),
    (pl.Float64(), NAN, None, "nan"),
    (pl.Float32(), -INFINITY, None, "-inf"),
    (pl.Float64(), 0.1, 0.1, "0.1"),
    (
        pl.Decimal(38, 2),
        Decimal("12345678901234567890.10"),
        "12345678901234567890.10",
        "12345678901234567890.10",
    ),
    (pl.Decimal(10, 8), Decimal(0), "0.00000000", "0.00000000"),
    (pl.String(), 'quo"te\n\u2028\x00ü', 'quo"te\n\u2028\x00ü', 'quo"te\n\\u2028\\x00ü'),
    (pl.String(), "\x1b[31mred", "\x1b[31mred", "\\x1b[31mred"),
    (pl.Binary(), b"\x00\xff", "00ff", "00ff"),
    (pl.Date(), date(2026, 11, 26), "2026-11-26", "2026-11-26"),
    (pl.Time(), time(1, 2, 3), "01:02:03", "01:02:03"),
    (
        pl.Datetime("ms"),
        datetime(2026, 1, 2, 3, 4, 5, 6000),
        "2026-01-02T03:04:05.006",
        "2026-01-02 03:04:05.006",
    ),
    (
        pl.Datetime("us", "UTC"),
        datetime(2026, 1, 2, tzinfo=UTC),
        "2026-01-02T00:00:00+00:00",
        "2026-01-02 00:00:00+00:00",
    ),
    (pl.List(pl.Binary()), [b"\x01", None], ["01", None], '["01", null]'),
    (pl.List(pl.Decimal(5, 1)), [Decimal("1.0")], ["1.0"], '["1.0"]'),
    (
        pl.Struct({"a": pl.Binary(), "b": pl.Float64()}),
        {"a": b"\x01", "b": NAN},
        {"a": "01", "b": None},
        '{"a": "01", "b": null}',
    ),
    *maps_of_polars_1(),
    *(maps() if HAS_MAPS else []),
]
NAMES = [str(kind) + str(number) for number, (kind, *_) in enumerate(VALUES)]


def no_constant(text: str) -> object:
    raise AssertionError(text)


@pytest.mark.parametrize(("kind", "value", "stored", "shown"), VALUES, ids=NAMES)
def test_value_of_each_type_is_valid_json_and_one_line(
    kind: pl.DataType, value: object, stored: object, shown: str
) -> None:
    frame = pl.DataFrame({"v": pl.Series([value, None], dtype=kind)})
    lines = json_lines(frame).split("\n")

    assert [json.loads(line, parse_constant=no_constant) for line in lines[:-1]] == [
        {"v": stored},
        {"v": None},
    ]
    assert lines[-1] == ""
    assert [cell.text for cell in cells(frame.row(0))] == [shown]
    assert json_lines(frame.head(0)) == ""


@pytest.mark.parametrize(("kind", "value", "stored", "shown"), VALUES, ids=NAMES)
def test_value_of_each_type_is_a_field_of_csv(
    kind: pl.DataType, value: object, stored: object, shown: str
) -> None:
    del shown
    frame = pl.DataFrame({"v": pl.Series([value, None], dtype=kind), "w": [1, 2]})
    head, first, second = csv.reader(io.StringIO(csv_text(frame, header=True)))

    assert (head, second) == (["v", "w"], ["", "2"])
    if isinstance(stored, list | dict):
        assert json.loads(first[0], parse_constant=no_constant) == stored
    elif isinstance(stored, str):
        assert first[0] == stored


def test_null_is_told_from_texts_that_look_like_it() -> None:
    shown = cells([None, "", "NULL", "null"])

    assert [cell.text for cell in shown] == ["NULL", "''", "'NULL'", "null"]
    assert [cell.faint for cell in shown] == [True, False, False, False]
    frame = pl.DataFrame({"a": ["", None], "b": ["", ""]})
    assert csv_text(frame, header=False) == '"",""\n,""\n'


def test_dates_and_timestamps_beyond_python_are_text() -> None:
    days = pl.Series([0, 3_000_000, 2**31 - 1, -(2**31), None], dtype=pl.Int32).cast(pl.Date)
    frame = pl.DataFrame({"d": days, "l": days.reshape((5, 1)).cast(pl.List(pl.Date))})
    texts = ["1970-01-01", "+10183-09-21", "2147483647 days", "-2147483648 days", None]

    assert printable(frame).rows() == [(text, [text]) for text in texts]
    assert [json.loads(line) for line in json_lines(frame).splitlines()] == [
        {"d": text, "l": [text]} for text in texts
    ]
    assert printable(frame.select(pl.col("d").head(1))).rows() == [(date(1970, 1, 1),)]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_the_widest_timestamp_is_text_of_any_form(
    unit: Literal["ms", "us", "ns"], zone: str | None
) -> None:
    ends = pl.Series([2**63 - 1, 1 - 2**63], dtype=pl.Int64)
    frame = pl.DataFrame({"t": ends.cast(pl.Datetime(unit, zone))})
    told = [json.loads(line)["t"] for line in json_lines(frame).splitlines()]

    if unit == "ns":
        assert [text[:4] for text in told] == ["2262", "1677"]
        assert [row[0].year for row in printable(frame).rows()] == [2262, 1677]
    else:
        assert told == [f"{end} {unit}" for end in ends]
        assert [row[0] for row in printable(frame).rows()] == told
    assert csv_text(frame, header=False).splitlines() == told
