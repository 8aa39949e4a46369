"""What counts as a point in time, and which it is."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from lakecore.errors import InvalidRequest
from lakecore.model.times import is_time_text, to_milliseconds, to_wall_clock, wall_time

if TYPE_CHECKING:
    from collections.abc import Iterator

START_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (5, 5),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01 00:00:00.0019+00:00", 1),
        ("1969-12-31T23:59:59.999Z", -1),
        (datetime(1970, 1, 1, 8, tzinfo=timezone(timedelta(hours=8))), 0),
    ],
)
def test_times_are_numbers_texts_and_datetimes(given: datetime | int | str, wanted: int) -> None:
    assert to_milliseconds(given) == wanted


def test_time_without_a_zone_is_that_of_the_machine() -> None:
    naive = datetime(2026, 3, 4, 5, 6, 7)

    assert to_milliseconds(naive) == round(naive.timestamp() * 1000)
    assert to_milliseconds("2026-03-04T05:06:07") == to_milliseconds(naive)


def test_milliseconds_are_exact() -> None:
    start = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    given = [start + timedelta(milliseconds=n) for n in range(1000)]

    assert [to_milliseconds(each) for each in given] == [START_MS + n for n in range(1000)]


@pytest.mark.parametrize("given", ["yesterday", "", True])
def test_what_is_no_time_is_refused(given: str) -> None:
    with pytest.raises(InvalidRequest, match="timestamp"):
        to_milliseconds(given)


@pytest.mark.parametrize("given", ["0001-01-01T00:00:00+12:00", "9999-12-31T23:00:00-12:00"])
def test_time_that_utc_has_no_year_for_is_refused(given: str) -> None:
    for each in (given, datetime.fromisoformat(given)):
        with pytest.raises(InvalidRequest, match="between the years 1 and 9999"):
            to_milliseconds(each)


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


NEW_YEAR = 1_767_222_000_000  # the first moment of 2026 in Berlin


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    "given",
    [
        NEW_YEAR,
        np.int64(NEW_YEAR),
        str(NEW_YEAR),
        date(2026, 1, 1),
        datetime(2026, 1, 1),
        datetime(2025, 12, 31, 23, tzinfo=UTC),
        pd.Timestamp("2026-01-01"),
        pd.Timestamp("2026-01-01").as_unit("s"),
        pd.Timestamp("2025-12-31 23:00", tz="UTC"),
        pd.Timestamp("2025-12-31 18:00:00.000000001", tz="America/New_York"),
        np.datetime64("2026-01-01"),
        np.datetime64("2026-01-01T00:00:00.000000001"),
        np.datetime64("2026"),
        "2026-01-01",
        "2026-01-01 00:00",
        "2026-01-01T00:00:00.000",
        "2026-01-01T00:00:00.000999999",
        "2025-12-31T23:00:00Z",
        "2026-01-01T00:00:00+01:00",
        "20260101T000000",
    ],
    ids=repr,
)
def test_each_form_of_a_time_is_the_same_moment(given: object) -> None:
    assert to_milliseconds(given) == NEW_YEAR


@pytest.mark.usefixtures("in_berlin")
def test_of_an_hour_that_comes_twice_fold_says_which() -> None:
    naive = pd.Timestamp(datetime(2026, 10, 25, 2, 30))
    first, second = (to_milliseconds(naive.replace(fold=fold)) for fold in (0, 1))

    assert second - first == 3_600_000


@pytest.mark.parametrize(
    "given",
    [
        None,
        1.5,
        b"2026-01-01",
        pd.NaT,
        np.datetime64("NaT", "ns"),
        np.datetime64("20000-01-01"),
        timedelta(1),
        np.timedelta64(5, "s"),
        pd.Timedelta(1),
        "20260101",
        "2026-13-01",
        "now",
        "",
        [],
    ],
    ids=repr,
)
def test_everything_else_is_refused(given: object) -> None:
    with pytest.raises(InvalidRequest, match="timestamp"):
        to_milliseconds(given)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, None),
        (5, None),
        ("5", None),
        ("2026-01-01T00:00Z", None),
        (datetime(2026, 1, 1, tzinfo=UTC), None),
        (pd.Timestamp("2026-01-01", tz="UTC"), None),
        ("2026-01-01", datetime(2026, 1, 1)),
        (date(2026, 1, 1), datetime(2026, 1, 1)),
        (pd.Timestamp("2026-01-01 02:00"), datetime(2026, 1, 1, 2)),
    ],
    ids=repr,
)
def test_wall_time_is_what_states_no_zone(given: object, wanted: datetime | None) -> None:
    assert wall_time(given) == wanted


@pytest.mark.parametrize(
    ("text", "is_time"),
    [("2026-01-01", True), ("2026-01-01 10:00", True), ("20260101", False), ("v1", False)],
)
def test_texts_that_are_times(text: str, *, is_time: bool) -> None:
    assert is_time_text(text) is is_time


@pytest.mark.parametrize("time_ms", [0, START_MS + 7, -1, 1_767_225_599_999])
def test_clock_of_the_machine_is_stored_as_if_it_were_utc(
    time_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        shown = to_wall_clock(time_ms)
    finally:
        monkeypatch.undo()
        time.tzset()

    assert shown == time_ms + 8 * 3_600_000


def test_clock_of_a_time_beyond_all_calendars_is_that_time() -> None:
    assert to_wall_clock(2**62) == 2**62
