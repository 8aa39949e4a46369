"""The page of `lakecore inspect`, looked at in Chromium."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.table.system.overview import overview_of
from lakecore.ui.drawing import overview_page
from tests.pictures.screens import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


@pytest.fixture
def page() -> Iterator[Page]:
    with chromium() as browser:
        yield browser.new_page(viewport={"width": 1000, "height": 800})


def test_the_page_shows_each_snapshot_and_file_and_asks_nobody(page: Page, tmp_path: Path) -> None:
    table = lc.open_table(
        tmp_path / "t",
        create=True,
        schema={"id": "INT", "day": "STRING"},
        primary_keys=["day", "id"],
        partition_keys=["day"],
        options={"bucket": "1", "write-only": "true"},
    )
    for number in range(5):
        table.write([{"id": number, "day": "<img src=x onerror=alert(1)>"}])
    table.create_tag("first", 1)
    overview = overview_of(table.context)
    (tmp_path / "page.html").write_text(overview_page(overview), encoding="utf-8")
    requests: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))

    page.goto((tmp_path / "page.html").as_uri())

    assert page.locator("#timeline circle").count() == len(overview.snapshots) == 5
    assert page.locator("#files rect").count() == overview.files == 5
    assert page.locator("img").count() == 0
    assert "tag first" in (page.text_content("#timeline") or "")
    assert "Now 0 snapshots would expire" in (page.text_content("#expiry") or "")
    box = page.locator("#files rect").first.bounding_box()
    assert box is not None
    assert box["width"] > 10
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert requests == [(tmp_path / "page.html").as_uri()]
    assert problems == []
