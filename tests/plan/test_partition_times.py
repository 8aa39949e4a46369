from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lakecore.errors import Unsupported
from lakecore.plan.partitions import PartitionTimes, check_formatter


def shown(time_ms: int | None) -> str | None:
    """The time as text."""
    if time_ms is None:
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2024-01-15", "2024-01-15 00:00:00"),
        ("2024-1-5", "2024-01-05 00:00:00"),
        ("2024-01-15 10:11:12", "2024-01-15 10:11:12"),
        ("2024-01-15 10:11:12.5", "2024-01-15 10:11:12"),
        ("2024-01-32", "2024-02-01 00:00:00"),
        ("2024-13-01", "2025-01-01 00:00:00"),
        ("20240115", None),
        ("2024-01-15 10", None),
        ("2024-01-15T10:11:12", None),
        ("99999-01-01", None),
        ("eu", None),
        (None, None),
    ],
)
def test_first_value_is_a_date_or_a_time(text: str | None, time: str | None) -> None:
    assert shown(PartitionTimes().time_ms({"dt": text, "x": "2000-01-01"})) == time


@pytest.mark.parametrize(
    ("formatter", "text", "time"),
    [
        ("yyyyMMdd", "20240115", "2024-01-15 00:00:00"),
        ("yyyyMMdd", "2024-01-15", None),
        ("yyyy-MM-dd", "2024-02-30", "2024-02-29 00:00:00"),
        ("yyyy-MM-dd", "2024-13-01", None),
        ("yyyyMMddHH", "2024011507", "2024-01-15 07:00:00"),
        ("yyyyMMdd HH:mm", "20240115 07:30", "2024-01-15 07:30:00"),
        ("yyyy-MM-dd'T'HH", "2024-01-15T07", "2024-01-15 07:00:00"),
        ("d/M/yyyy", "5/1/2024", "2024-01-05 00:00:00"),
        ("d/M/yyyy", "15/12/2024", "2024-12-15 00:00:00"),
        ("dd/MM/yyyy", "5/01/2024", None),
        ("dd/MM/yyyy", "05/1/2024", None),
        ("y-MM-dd", "2024-01-05", "2024-01-05 00:00:00"),
        ("yyyy-MM-dd", "124-01-05", None),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2024-01-05 23:59:59.999", "2024-01-05 23:59:59"),
        ("yyyy-MM-dd HH:mm:ss", "2024-01-05 24:00:00", None),
        ("yyyy-MM-dd HH:mm:ss", "2024-01-05 00:60:00", None),
        ("yyyy-MM-dd HH:mm:ss", "2024-01-05 00:00:60", None),
        ("yyyy-MM-dd", "2024-00-05", None),
        ("yyyy-MM-dd", "2024-01-00", None),
        ("yyyy-MM-dd", "2024-01-32", None),
        ("yyyyMM", "202401", None),
        ("HH:mm", "10:30", None),
    ],
)
def test_formatter_is_one_of_java(formatter: str, text: str, time: str | None) -> None:
    assert shown(PartitionTimes(formatter=formatter).time_ms({"dt": text})) == time


def test_pattern_joins_values() -> None:
    times = PartitionTimes(pattern="$year-$month-$day $hour:00:00")
    values = {"hour": "7", "day": "15", "month": "1", "year": "2024"}

    assert shown(times.time_ms(values)) == "2024-01-15 07:00:00"


def test_of_two_keys_that_fit_the_longer_one_is_meant() -> None:
    times = PartitionTimes(pattern="$dt1")

    assert shown(times.time_ms({"dt": "x", "dt1": "2024-01-15"})) == "2024-01-15 00:00:00"


def test_null_in_the_pattern_is_no_time() -> None:
    times = PartitionTimes(pattern="$dt")

    assert times.time_ms({"dt": None, "x": "2024-01-15"}) is None
    assert times.time_ms({"dt": "2024-01-15", "x": None}) is not None


@pytest.mark.parametrize("formatter", ["yyyy-MMM-dd", "yyyy-MM-dd a", "yyyyyyMMddMM", "'open"])
def test_formatter_of_other_parts_is_refused(formatter: str) -> None:
    with pytest.raises(Unsupported, match=r"partition\.timestamp-formatter"):
        check_formatter(formatter)


@pytest.mark.parametrize(
    ("formatter", "text", "milliseconds"),
    [
        ("yyyy-MM-dd HH:mm:ss.SSS", "2024-01-15 07:30:01.004", 4),
        ("yyyy-MM-dd HH:mm:ss.SS", "2024-01-15 07:30:01.12", 120),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2024-01-15 07:30:01.4", None),
    ],
)
def test_fraction_has_the_digits_of_the_formatter(
    formatter: str, text: str, milliseconds: int | None
) -> None:
    found = PartitionTimes(formatter=formatter).time_ms({"dt": text})

    assert (None if found is None else found % 1000) == milliseconds
