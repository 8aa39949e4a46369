"""The rows of system tables as Paimon shows them."""

from __future__ import annotations

from datetime import datetime

import pytest

from lakecore.table.system.system_rows import duration_text
from tests.tables import new_table, put


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "PT0S"),
        (0.25, "PT0.25S"),
        (10, "PT10S"),
        (60, "PT1M"),
        (90.5, "PT1M30.5S"),
        (600, "PT10M"),
        (3600, "PT1H"),
        (3661, "PT1H1M1S"),
        (864_000, "PT240H"),
    ],
)
def test_duration_is_written_as_java_does(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_tag_shows_when_it_was_made_and_how_long_it_stays() -> None:
    table = new_table()
    put(table, "1 a")
    table.create_tag("for good")
    tag = table.create_tag("soon gone", time_retained="10 s")

    assert tag.create_time is not None
    year, month, day, hour, minute, second, nanos = tag.create_time
    made = datetime(year, month, day, hour, minute, second, nanos // 1_000_000 * 1000)
    assert table.inspect.tags()[["tag_name", "create_time", "time_retained"]].rows() == [
        ("for good", None, None),
        ("soon gone", made, "PT10S"),
    ]
