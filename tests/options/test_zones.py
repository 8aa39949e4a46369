"""Time zones in the texts that Java's `ZoneId.of` takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakecore.options.kinds import parse_zone


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("UTC", 0.0),
        ("Z", 0),
        (" GMT ", 0),
        ("+08:00", 8),
        ("+8", 8),
        ("-0330", -3.5),
        ("UTC+8", 8),
        ("GMT-08:30", -8.5),
        ("Asia/Shanghai", 8),
        ("Asia/Kolkata", 5.5),
    ],
)
def test_zone_has_its_offset(text: str, hours: float) -> None:
    then = datetime(2024, 1, 1, tzinfo=UTC)

    assert then.astimezone(parse_zone(text)).utcoffset() == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "Mars", "+25", "+08:75", "../etc/passwd", "UTC+", "8"])
def test_text_that_names_no_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as Europe/Berlin"):
        parse_zone(text)
