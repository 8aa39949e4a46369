"""A warehouse whose pages are worth looking at, and the page over it, in the test's own process."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

import lakecore as lc
from lakecore.catalog.registry import open_catalog
from lakecore.ui.app import UiApp
from tests.rest_servers import rest_server

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "a-token-that-is-long-enough"
EVIL = "<script>alert(1)"
EVIL_TABLE = "logs.<img src=x onerror=alert(2)>"
SECRET = "HIDDEN-SECRET"


def filled_warehouse(place: Path) -> str:
    """Tables that are healthy, that need work, that are empty, broken, or have hostile names."""
    session = lc.connect(place, create=True)
    fill_shop(session)
    session.create_database("logs")
    events = session.create_table("logs.events", {"id": "INT", "at": "DATE", "text": "STRING"})
    for number in range(6):
        events.write([{"id": number, "at": date(2026, 11, 29), "text": EVIL}])
    session.create_table("logs.empty", {"id": "INT"})
    session.create_table(EVIL_TABLE, {EVIL: "STRING"}).write([{EVIL: f"</td>{EVIL}"}])
    session.create_table("logs.x.json", {"id": "INT"}, comment="not a JSON page")
    broken = session.create_table("logs.broken", {"id": "INT"})
    broken.write([{"id": 1}])
    for each in (Path(broken.path) / "manifest").iterdir():
        each.write_bytes(b"damaged")
    return str(place)


def fill_shop(session: lc.Session) -> None:
    """A table with partitions, buckets, a tag, a branch, a consumer, and a changed schema."""
    session.create_database("shop")
    orders = session.create_table(
        "shop.orders",
        {"day": "STRING NOT NULL", "id": "BIGINT NOT NULL", "customer": "STRING"},
        primary_keys=["day", "id"],
        partition_keys=["day"],
        options={"bucket": "2", "write-only": "true", "changelog-producer": "input"},
        comment="orders of the shop",
    )
    for number in range(8):
        day = f"2026-11-{20 + number % 2}"
        rows = range(number, 40 + 5 * number)
        orders.write([{"day": day, "id": each, "customer": "Ada"} for each in rows])
    orders.create_tag("week-47", 3)
    orders.create_branch("fix", "week-47")
    orders.reset_consumer("dashboards", 4)
    session.alter_table("shop.orders", [lc.SchemaChange.add_column("note", "STRING")])
    session.alter_table("shop.orders", [lc.SchemaChange.rename_column("customer", "client")])


@contextmanager
def ui_server(
    warehouse: str, *, token: str | None = None, host: str = "127.0.0.1"
) -> Iterator[httpx.Client]:
    """A client of the page over a warehouse."""
    catalog = open_catalog({"warehouse": warehouse}, create=False)
    app = UiApp(catalog, token=token, host=host)
    with (
        rest_server(catalog, app) as options,
        httpx.Client(base_url=options["uri"], timeout=60) as client,
    ):
        yield client
