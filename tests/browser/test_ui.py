"""`lakecore ui`, looked at in Chromium."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from tests.pictures.screens import FAINT, chromium
from tests.ui_pages import EVIL_TABLE, TOKEN, filled_warehouse, ui_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

ADDRESSES = (
    "/",
    "/t/shop.orders",
    "/t/shop.orders/snapshots/3",
    "/t/shop.orders/files?partition=day%3D2026-11-20&bucket=0",
    "/t/shop.orders/schema",
    "/t/shop.orders/rows",
    "/t/shop.orders/changes",
    f"/t/{EVIL_TABLE}/rows",
    "/sql?q=SELECT+1",
)
SLOW = "SELECT count(*) FROM range(100000000) a, range(100000) b"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    return filled_warehouse(tmp_path_factory.mktemp("ui") / "w")


@pytest.fixture(scope="module")
def address(warehouse: str) -> Iterator[str]:
    with ui_server(warehouse) as client:
        yield str(client.base_url).rstrip("/")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page that fails the test for an error, a dialog, or a request to another server."""
    context = browser.new_context()
    page = context.new_page()
    problems: list[str] = []
    # Chromium itself notes a reply of 400, which a wrong query gets.
    page.on("console", lambda m: problems.append(m.text) if "of 400" not in m.text else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.on(
        "request",
        lambda sent: problems.append(sent.url) if not sent.url.startswith(address) else None,
    )
    yield page
    context.close()
    assert problems == []


@pytest.mark.parametrize("width", [420, 1280, 2560])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_its_window_in_both_colours(
    page: Page, address: str, width: int, scheme: str
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    for each in ADDRESSES:
        page.goto(address + each)
        back, text = page.evaluate(
            "() => ['backgroundColor', 'color'].map(name => getComputedStyle(document.body)[name]"
            ".match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0))"
        )

        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), each
        assert (text - back if scheme == "dark" else back - text) > 400
        assert page.evaluate(FAINT) == [], each
        assert page.locator("img, iframe").count() == 0


def test_the_keyboard_finds_a_table_and_skips_to_the_content(page: Page, address: str) -> None:
    page.goto(address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("/")
    page.keyboard.type("orders")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=orders")
    page.locator("#tables").get_by_role("link", name="shop.orders").click()
    page.wait_for_url("**/t/shop.orders")
    page.locator("#timeline a").nth(2).click()
    page.wait_for_url("**/snapshots/3")

    assert "shop.orders: snapshot 3" in (page.text_content("h1") or "")


def test_a_query_runs_in_the_page_and_its_address_can_be_shared(page: Page, address: str) -> None:
    page.goto(f"{address}/sql")
    page.fill("#q", "SELECT count(*) AS n FROM shop.orders")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#result td")
    assert page.text_content("#result td") == "144"
    page.fill("#q", "DROP TABLE shop.orders")
    page.get_by_role("button", name="Run").click()
    page.wait_for_selector("#result .bad")
    assert "one SELECT" in (page.text_content("#result") or "")
    page.fill("#q", "SELECT 2 AS n")
    page.get_by_role("button", name="Run").click()
    page.wait_for_selector("#result td")
    assert page.text_content("#result td") == "2"
    page.goto(page.url)

    assert page.input_value("#q") == "SELECT 2 AS n"


def test_a_query_is_cancelled_by_its_button(page: Page, address: str) -> None:
    page.goto(f"{address}/sql")
    page.fill("#q", SLOW)
    page.get_by_role("button", name="Run").click()
    page.wait_for_selector("#result[aria-busy]")
    page.wait_for_timeout(500)  # until the query runs in DuckDB
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_selector("#result:not([aria-busy])", timeout=15_000)

    assert "the query was cancelled" in (page.text_content("#result") or "")


def test_the_change_feed_shows_a_commit_while_the_page_is_open(
    page: Page, address: str, warehouse: str
) -> None:
    page.goto(f"{address}/t/logs.empty/changes")
    assert page.locator("#feed tbody tr").count() == 0
    lc.connect(warehouse).get_table("logs.empty").write([{"id": 4711}])
    page.wait_for_selector("#feed tbody tr", timeout=15_000)
    lc.connect(warehouse).get_table("logs.empty").write([{"id": 4712}])
    page.wait_for_selector("#feed tbody tr:nth-child(2)", timeout=15_000)

    assert page.locator("#feed tbody tr").all_inner_texts() == ["2\t+I\t4712", "1\t+I\t4711"]


def test_without_scripts_every_page_and_query_works(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for path in ADDRESSES:
        answer = page.goto(f"{address}{path}")
        assert answer is not None, path
        assert answer.ok, path
        assert page.locator("h1").is_visible(), path
    page.goto(f"{address}/sql")
    page.fill("#q", "SELECT count(*) AS n FROM shop.orders")
    page.get_by_role("button", name="Run").click()
    page.wait_for_selector("#result td")
    shown = page.text_content("#result td"), page.input_value("#q")
    context.close()

    assert shown == ("144", "SELECT count(*) AS n FROM shop.orders")


def test_a_browser_gives_the_token_once(browser: Browser, warehouse: str) -> None:
    with ui_server(warehouse, token=TOKEN) as client:
        context = browser.new_context()
        page = context.new_page()
        page.goto(str(client.base_url.join("/t/shop.orders?before=4")))
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        page.wait_for_load_state()
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_url("**/t/shop.orders?before=4")
        page.get_by_role("link", name="files", exact=True).click()
        page.wait_for_url("**/t/shop.orders/files")
        shown = page.text_content("h1")
        context.close()

    assert shown == "shop.orders: files"
