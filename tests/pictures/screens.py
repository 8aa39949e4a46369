"""Screenshots, taken in Chromium: `lakecore ui` over a warehouse made for them, and the site."""

from __future__ import annotations

import functools
import shutil
import threading
from base64 import b64decode, b64encode
from contextlib import contextmanager
from datetime import date, timedelta
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from typing import TYPE_CHECKING

import lakecore as lc
from tests.pictures.figures import ROOT
from tests.ui_pages import fill_shop, ui_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENS = {
    "ui-tables": ("/", 400, "light"),
    "ui-table": ("/t/shop.orders", 1200, "light"),
    "ui-snapshot": ("/t/shop.orders/snapshots/6", 740, "dark"),
    "ui-sql": ("/sql?q=SELECT day, count(*) AS orders FROM shop.orders GROUP BY day", 560, "dark"),
}
"""The address of each screenshot, its height, and its colours."""
WIDTH = 1280
FAINT = """
() => {
  const parts = (text) => {
    const found = text.match(/[\\d.]+/g).map(Number), most = text.startsWith("color(") ? 255 : 1;
    return [...found.slice(0, 3).map((part) => most * part), found[3] ?? 1];
  };
  const over = (top, below) => {
    const a = top[3] ?? 1;
    return [0, 1, 2].map((at) => a * top[at] + (1 - a) * below[at]);
  };
  const light = (color) => color.map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const back = (each) => {
    const own = parts(getComputedStyle(each).backgroundColor);
    return (own[3] ?? 1) === 1 ? own.slice(0, 3)
      : over(own, each.parentElement ? back(each.parentElement) : [255, 255, 255]);
  };
  const faint = new Set();
  for (const each of document.querySelectorAll("body *")) {
    const says = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const seen = each.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    if (!says || !seen) continue;
    if (each.closest("svg, script, style, noscript, [hidden], [aria-hidden=true]")) continue;
    const below = back(each), text = over(parts(getComputedStyle(each).color), below);
    const [high, low] = [light(text), light(below)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05), size = parseFloat(getComputedStyle(each).fontSize);
    const name = `${each.tagName}.${each.className}: ${each.textContent.trim()}`;
    if (ratio < (size >= 24 ? 3 : 4.5)) faint.add(`${ratio.toFixed(1)} ${name}`);
  }
  return [...faint];
}
"""
"""The elements whose text stands out less from its background than WCAG 2.2 asks for (AA)."""
PAGES = ["index", "quick-start", "merging", "cdc", "options", "api"]
WIDTHS = [420, 1280, 2560]
KEPT = {"index": "site-index", "ui-table": "ui-shop-orders"}
"""The pages that are kept in `docs/img`, for those who change how they look: names of the files."""
WEBP = """
async (png) => {
  const image = new Image(), canvas = document.createElement("canvas");
  image.src = "data:image/png;base64," + png;
  await image.decode();
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas.toDataURL("image/webp", 0.8).split(",")[1];
}
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser of this machine."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "install Chromium: apt-get install chromium"
    with (
        sync_playwright() as play,
        play.chromium.launch(executable_path=program, headless=True, args=FLAGS) as browser,
    ):
        yield browser


@contextmanager
def ui_pages(place: Path) -> Iterator[dict[str, str]]:
    """The addresses of the pages of `lakecore ui`, over a warehouse that is made in `place`."""
    session = lc.connect(place / "warehouse", create=True)
    fill_shop(session)
    customers = session.create_table(
        "shop.customers",
        {"id": "BIGINT NOT NULL", "name": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1"},
    )
    customers.write([{"id": number, "name": f"customer {number}"} for number in range(900)])
    orders = session.get_table("shop.orders")
    orders.compact(full=True)
    for number in range(5):
        orders.write([{"day": "2026-11-21", "id": 1, "client": f"Eve {number}", "note": None}])
    session.create_database("web")
    events = session.create_table("web.events", {"day": "DATE", "page": "STRING"})
    for number in range(7):
        day = date(2026, 11, 20) + timedelta(number)
        events.write([{"day": day, "page": f"/{each}"} for each in range(50)])
    with ui_server(session.warehouse) as client:
        yield {name: str(client.base_url.join(place)) for name, (place, _, _) in SCREENS.items()}


def screens(place: Path, images: Path) -> None:
    """Take each screenshot of `docs/ui.md` again."""
    with ui_pages(place) as pages, chromium() as browser:
        page = browser.new_page()
        for name, (_, height, scheme) in SCREENS.items():
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            page.set_viewport_size({"width": WIDTH, "height": height})
            page.goto(pages[name])
            if name == "ui-sql":
                page.get_by_role("button", name="Run").click()
                page.locator("table").wait_for()
            page.screenshot(path=images / f"{name}.png")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def served_site(place: Path) -> Iterator[str]:
    """The address of the documentation site, which is built in `place`."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(place)))
    handler = functools.partial(_Quiet, directory=str(place))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def site_screens(place: Path, images: Path, kept: Path) -> None:
    """What a reader of the site and of `lakecore ui` sees first, at each width, light and dark."""
    images.mkdir(parents=True, exist_ok=True)
    with served_site(place / "site") as site, ui_pages(place) as pages, chromium() as browser:
        pages |= {name: f"{site}/{name}.html" for name in PAGES}
        converter = browser.new_page()  # `lakecore ui` allows its pages no images
        for scheme in ("light", "dark"):
            page = browser.new_context(color_scheme=scheme).new_page()
            for width, (name, address) in product(WIDTHS, pages.items()):
                page.set_viewport_size({"width": width, "height": 1400})
                page.goto(address)
                data = page.screenshot(path=images / f"{name}-{width}-{scheme}.png")
                if name in KEPT:
                    webp = converter.evaluate(WEBP, b64encode(data).decode())
                    (kept / f"{KEPT[name]}-{width}-{scheme}.webp").write_bytes(b64decode(webp))
