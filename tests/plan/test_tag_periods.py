"""The names of automatic tags, and the periods that they name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.options import parse_options
from lakecore.plan.retention import NO_WATERMARK, TagPeriods, coming_tag, tag_periods

if TYPE_CHECKING:
    from collections.abc import Mapping

HOUR_MS = 3_600_000
AT = int(datetime(2024, 3, 5, 7, 40, tzinfo=UTC).timestamp()) * 1000


def periods(**options: str) -> TagPeriods:
    stated: Mapping[str, str] = {f"tag.{key.replace('_', '-')}": v for key, v in options.items()}
    found = tag_periods(parse_options({"tag.automatic-creation": "watermark", **stated}))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "2024-03-04"),
        ({"period_formatter": "without_dashes"}, "20240304"),
        ({"period_formatter": "without_dashes_and_spaces"}, "20240304"),
        ({"creation_period": "hourly"}, "2024-03-05 06"),
        ({"creation_period": "hourly", "period_formatter": "without_dashes"}, "20240305 06"),
        (
            {"creation_period": "hourly", "period_formatter": "without_dashes_and_spaces"},
            "2024030506",
        ),
        ({"creation_period": "two-hours"}, "2024-03-05 04"),
        ({"creation_period": "two-hours", "period_formatter": "without_dashes"}, "2024-03-05 04"),
        ({"creation_period_duration": "15 min"}, "202403050715"),
    ],
)
def test_tag_has_the_name_of_the_period_that_ended(options: dict[str, str], name: str) -> None:
    made = periods(**options)
    start = made.ended_ms(AT)

    assert made.name(start) == name
    assert made.start_ms(name) == start
    assert start + made.length_ms <= AT < start + 2 * made.length_ms


@pytest.mark.parametrize(
    "name",
    ["", "a", "2024-3-5", "2024-02-30", "20240305", "2024-03-05-06", "x2024-03-05", "0000-01-01"],
)
def test_other_names_are_no_automatic_tags(name: str) -> None:
    assert not periods().is_automatic(name)


def test_day_with_an_hour_counts_as_that_day() -> None:
    assert periods().start_ms("2024-03-05 07") == periods().start_ms("2024-03-05")
    assert not periods(creation_period="hourly").is_automatic("2024-03-05")


@pytest.mark.parametrize("mode", ["none", "batch"])
def test_tables_without_periods_have_none(mode: str) -> None:
    assert tag_periods(parse_options({"tag.automatic-creation": mode})) is None


@given(time_ms=st.integers(-62_000_000_000_000, 253_000_000_000_000))
def test_names_lead_back_to_their_periods(time_ms: int) -> None:
    for made in (
        periods(),
        periods(creation_period="hourly"),
        periods(creation_period="two-hours"),
    ):
        start = made.ended_ms(time_ms)

        assert made.start_ms(made.name(start)) == start


@pytest.mark.parametrize(
    ("options", "watermark", "name"),
    [
        ({}, AT, None),
        ({"preview": "none"}, AT, None),
        ({"preview": "batch"}, AT, None),
        ({"preview": "watermark"}, AT, "2024-03-05"),
        ({"preview": "watermark"}, None, None),
        ({"preview": "watermark"}, NO_WATERMARK, None),
        ({"preview": "watermark", "zone": "Asia/Tokyo"}, AT + 9 * HOUR_MS, "2024-03-06"),
        ({"preview": "watermark", "period": "hourly"}, AT, "2024-03-05 07"),
        ({"preview": "watermark", "period": "two-hours"}, AT, "2024-03-05 06"),
        ({"preview": "process-time"}, None, "2024-03-06"),
    ],
)
def test_coming_tag_is_that_of_the_current_period(
    options: Mapping[str, str], watermark: int | None, name: str | None
) -> None:
    keys = {
        "preview": "metastore.tag-to-partition.preview",
        "zone": "sink.watermark-time-zone",
        "period": "tag.creation-period",
    }
    stated = {keys[key]: text for key, text in options.items()}
    parsed = parse_options({"sink.process-time-zone": "UTC", **stated})

    assert coming_tag(parsed, AT + 24 * HOUR_MS, watermark) == name
