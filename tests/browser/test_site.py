"""The documentation site, looked at in Chromium: no page is wider than its window."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pictures.screens import FAINT, PAGES, chromium, served_site
from tests.site_hooks import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
TOO_WIDE = """
() => {
  const wide = document.documentElement.scrollWidth > window.innerWidth ? ["the page"] : [];
  for (const each of document.querySelectorAll(".md-content *")) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(each).overflowX);
    if (scrolls && each.clientWidth && each.scrollWidth > each.clientWidth + 1)
      wide.push(each.tagName + ": " + each.textContent.trim().slice(0, 60));
  }
  return wide;
}
"""
FOUND = {  # what is found without help
    "backup copy": "recipes.html#back-up-and-restore",
    "bucket": "buckets.html",
    "hive": "hive-catalog.html",
    "iceberg": "iceberg.html",
    "install": "install.html",
    "monitor mirror": "cdc-service.html#what-to-watch",
    "time travel": "time-travel.html",
    "upgrade lakecore": "recipes.html#upgrade",
    "view": "views.html",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site, built and served: the search works over HTTP only."""
    with served_site(tmp_path_factory.mktemp("site")) as address:
        yield address


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as browser:
        yield browser.new_page()


def pages() -> list[str]:
    return [
        *sorted(path.stem for path in (ROOT / "docs").glob("*.md")),
        "changelog",
        "benchmarks",
        "architecture",
        "decisions/index",
    ]


@pytest.mark.parametrize("width", [420, 1280, 2560])
def test_no_page_scrolls_sideways_or_asks_another_server(page: Page, site: str, width: int) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.set_viewport_size({"width": width, "height": 900})
    wide = {}
    for name in pages():
        page.goto(f"{site}/{name}.html", wait_until="domcontentloaded")
        if found := page.evaluate(TOO_WIDE):
            wide[name] = found

    assert wide == {}
    assert [url for url in requests if not url.startswith((site, "data:", "blob:"))] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(page: Page, site: str, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    faint = {}
    for name in PAGES:
        page.goto(f"{site}/{name}.html")
        if found := page.evaluate(FAINT):
            faint[name] = found

    assert faint == {}


def test_the_copy_button_copies_commands_without_prompts_and_output(page: Page, site: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"{site}/command-line.html")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".md-code__button, .md-clipboard").nth(1).click()
    copied = page.evaluate("navigator.clipboard.readText()")

    assert [line.split()[:2] for line in copied.splitlines() if line] == [
        ["lakecore", "import"],
        ["lakecore", "read"],
        ["lakecore", "sql"],
        ["lakecore", "inspect"],
    ]


def test_the_first_result_of_a_search_is_the_page_that_a_newcomer_means(
    page: Page, site: str
) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    wanted = FOUND | {word: place for place, words in WORDS.items() for word in words}
    wrong = {}
    page.goto(f"{site}/index.html", wait_until="domcontentloaded")
    for word, place in wanted.items():
        for typed, results in (("", "detached"), (word, "attached")):
            page.fill(".md-search__input", typed)
            page.press(".md-search__input", "End")  # the site listens to keys
            page.wait_for_selector(".md-search-result__item", state=results)
        links = page.locator(".md-search-result__item > a, .md-search-result__item details a")
        found = [
            re.sub(r"\?[^#]*", "", link).removeprefix(f"{site}/")
            for link in links.evaluate_all("all => all.slice(0, 5).map(each => each.href)")
        ]
        if found[0] != place.partition("#")[0] or place not in found:
            wrong[word] = found
        if any("decisions" in link for link in found):
            wrong[word] = found

    assert wrong == {}
