"""Who may ask the page, what each address answers, and that no name or value becomes HTML."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.errors import InvalidRequest
from lakecore.metrics import METRICS
from lakecore.ui import app
from lakecore.ui.app import serve_ui
from tests.ui_pages import EVIL, EVIL_TABLE, TOKEN, filled_warehouse, ui_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

SLOW = "SELECT count(*) FROM range(100000000) a, range(100000) b"
PAGES = {
    "/": "6 tables",
    "/?q=ORD": "1 tables with “ORD”",
    "/t/shop.orders": "orders of the shop",
    "/t/shop.orders?before=4": "stored rows",
    "/t/shop.orders%24branch_fix": "shop.orders$branch_fix",
    "/t/shop.orders/snapshots/3": "Files added and removed",
    "/t/shop.orders/files": "2 partitions with files",
    "/t/shop.orders/files?partition=day%3D2026-11-20": "Buckets",
    "/t/shop.orders/files?partition=day%3D2026-11-20&bucket=0": "Files of bucket 0",
    "/t/shop.orders/schema": "renamed customer to client",
    "/t/shop.orders/rows": "144 rows.",
    "/t/shop.orders/rows?where=id+%3C+2": "rows.",
    "/t/shop.orders/changes": "Changes of snapshots",
    "/t/logs.empty": "There is no snapshot yet",
    "/t/logs.empty/files": "There is no file yet",
    "/t/logs.empty/rows": "0 rows.",
    "/t/logs.empty/changes": "Waiting for the next snapshot",
    "/t/logs.x%2Ejson": "not a JSON page",
    "/sql?q=SELECT+1": "SELECT 1",
}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    return filled_warehouse(tmp_path_factory.mktemp("ui") / "w")


@pytest.fixture(scope="module")
def http(warehouse: str) -> Iterator[httpx.Client]:
    with ui_server(warehouse) as client:
        yield client


@pytest.mark.parametrize("address", PAGES)
def test_each_page_answers_and_its_json_has_the_same_address(
    http: httpx.Client, address: str
) -> None:
    page = http.get(address)
    (json,) = re.findall(r'<a href="([^"]+)">This page as JSON', page.text)
    data = http.get(json.replace("&amp;", "&"))

    assert (page.status_code, PAGES[address] in page.text) == (200, True)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert (data.status_code, data.headers["content-type"]) == (200, "application/json")
    assert isinstance(data.json(), dict)


@pytest.mark.parametrize(
    ("address", "status", "says"),
    [
        ("/nothing", 404, "no such page"),
        ("/t/shop.orders/nothing", 404, "no such page"),
        ("/t/shop.nothing", 404, "no such table"),
        ("/t/shop.orders/snapshots/99", 404, "does not exist"),
        ("/t/shop.orders/snapshots/x", 400, "whole number"),
        ("/t/shop.orders/files?partition=day%3D1", 404, "no such partition"),
        ("/t/shop.orders/rows?where=nope+%3D+1", 400, "nope"),
        ("/t/shop.orders/rows?snapshot=99", 404, "does not exist"),
        ("/t/shop.orders%24files", 404, "a system table"),
        ("/t/sys.tables", 404, "a system table"),
        ("/t/a%2Fb.x", 400, "must not hold"),
        ("/t/logs.broken", 500, "a metadata file"),
        ("/static/..%2F..%2Fapp.py", 404, "no such file"),
        ("/t/%ff", 400, "the path is not valid"),
        ("/?page=-1", 400, "whole number"),
    ],
)
def test_a_wrong_address_gets_an_error_in_both_forms(
    http: httpx.Client, address: str, status: int, says: str
) -> None:
    path, mark, query = address.partition("?")
    page, data = http.get(address), http.get(f"{path.rstrip('/') or '/index'}.json{mark}{query}")

    assert (page.status_code, data.status_code) == (status, status)
    assert says in page.text
    assert says in data.json()["error"]


def test_an_error_that_is_not_of_lakecore_is_logged_and_its_page_says_so(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "prometheus", lambda *_: 1 / 0)
    page, data = http.get("/metrics"), http.get("/metrics.json")

    assert (page.status_code, data.status_code) == (500, 500)
    assert '<p class="bad" role="alert">the server could not do this; its log says why' in page.text
    assert data.json() == {"error": "the server could not do this; its log says why"}
    line = "path=('metrics',) reason=ZeroDivisionError('division by zero')"
    assert caplog.text.count(line) == 2


def test_a_broken_table_has_its_error_in_its_row_and_the_others_have_numbers(
    http: httpx.Client,
) -> None:
    rows = {each["table"]: each for each in http.get("/index.json").json()["tables"]}

    assert "a metadata file" in rows["logs.broken"]["error"]
    assert rows["shop.orders"]["snapshot"] == 8
    assert "small files" in rows["logs.events"]["advice"][0]["says"]
    assert "lakecore compact logs.events -w " in rows["logs.events"]["advice"][0]["command"]


@pytest.mark.parametrize(
    "address",
    [
        "/",
        f"/t/{EVIL_TABLE}",
        f"/t/{EVIL_TABLE}/rows",
        f"/t/{EVIL_TABLE}/schema",
        f"/t/{EVIL_TABLE}/changes",
        f"/?q={EVIL}",
        f"/sql?q=</textarea>{EVIL}",
        f'/t/logs.events/rows?where="{EVIL}"',
        f"/t/{EVIL}.x",
    ],
)
def test_hostile_names_and_values_are_shown_as_text(http: httpx.Client, address: str) -> None:
    text = http.get(address.replace("<", "%3C").replace(">", "%3E").replace('"', "%22")).text

    assert "&lt;" in text
    assert "<img" not in text
    assert re.findall(r"<script[^>]*>", text) == ['<script src="/static/ui.js" defer>']
    assert "style=" not in text


def test_every_answer_forbids_scripts_frames_and_other_hosts(http: httpx.Client) -> None:
    for address in ("/", "/nothing", "/static/ui.css", "/metrics", "/index.json"):
        headers = http.get(address).headers

        assert headers["content-security-policy"].startswith("default-src 'self'; ")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


# --- who may ask ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:80", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8766", 200),
        ("[::1]", 200),
        ("evil.example", 421),
        ("evil.example:8766", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)
def test_a_foreign_name_of_this_machine_gets_nothing(
    http: httpx.Client, warehouse: str, host: str, status: int
) -> None:
    reply = http.get("/", headers={"Host": host})

    assert reply.status_code == status
    assert (warehouse in reply.text) == (status == 200)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://{own}"}, 200),
        ({"Origin": "http://{own}", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_a_form_of_another_site_is_refused(
    http: httpx.Client, headers: dict[str, str], status: int
) -> None:
    own = http.base_url.netloc.decode()
    sent = {key: text.format(own=own) for key, text in headers.items()}

    assert http.post("/sql", data={"q": "SELECT 1"}, headers=sent).status_code == status
    assert http.get("/sql.json?q=SELECT+1", headers=sent).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
    ],
)
def test_another_site_makes_a_server_without_a_token_read_no_rows(
    http: httpx.Client, warehouse: str, headers: dict[str, str], status: int
) -> None:
    pages = ("/t/shop.orders/rows?where=id+%3C+2", "/t/shop.orders/changes.json")
    asked = {**headers, "Authorization": f"Bearer {TOKEN}"}

    assert [http.get(each, headers=headers).status_code for each in pages] == [status] * 2
    with ui_server(warehouse, token=TOKEN) as guarded:
        assert [guarded.get(each, headers=asked).status_code for each in pages] == [200] * 2


def test_other_methods_are_refused(http: httpx.Client) -> None:
    assert [http.request(each, "/").status_code for each in ("PUT", "DELETE")] == [405, 405]
    assert http.head("/").content == b""


def test_with_a_token_a_browser_gets_a_cookie_and_programs_send_a_header(warehouse: str) -> None:
    with ui_server(warehouse, token=TOKEN, host="0.0.0.0") as http:
        refused = [http.get(each) for each in ("/", "/index.json", "/metrics", "/t/shop.orders")]
        assert [each.status_code for each in refused] == [401] * 4
        assert [each for each in (warehouse, "shop.orders") if each in refused[0].text] == []
        assert http.post("/sql", data={"q": "SELECT 1"}).status_code == 401
        assert http.get("/sql.json?q=SELECT+1").status_code == 401
        for header in ("Bearer wrong", TOKEN, f"bearer {TOKEN}"):
            assert http.get("/", headers={"Authorization": header}).status_code == 401
        assert http.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).is_success
        assert http.post("/login", data={"token": "wrong"}).status_code == 401
        assert http.get("/static/ui.css").is_success

        done = http.post("/login", data={"token": TOKEN, "next": "/t/shop.orders?before=3"})
        assert (done.status_code, done.headers["location"]) == (303, "/t/shop.orders?before=3")
        assert TOKEN not in done.headers["set-cookie"]
        assert "HttpOnly" in done.headers["set-cookie"]
        assert http.get("/", headers={"Host": "lake.example"}).is_success


@pytest.mark.parametrize(
    "to",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil",
        "/\u0100/evil.example",
        "/login",
        "",
        "/ x",
    ],
)
def test_the_login_leads_to_a_page_of_this_server(warehouse: str, to: str) -> None:
    with ui_server(warehouse, token=TOKEN) as http:
        done = http.post("/login", data={"token": TOKEN, "next": to})

        assert done.headers["location"] == "/"


@pytest.mark.parametrize(("host", "token"), [("0.0.0.0", None), ("0.0.0.0", "short")])
def test_a_server_for_others_needs_a_long_token(
    warehouse: str, host: str, token: str | None
) -> None:
    catalog = open_catalog({"warehouse": warehouse}, create=False)
    with pytest.raises(InvalidRequest, match="token"):
        serve_ui(catalog, host=host, port=0, token=token, on_start=print)


# --- queries --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        ("SELECT count(*) AS n FROM shop.orders", 200, '"rows":[[144]]'),
        ("SELECT * FROM range(500) r", 200, '"more":true'),
        ("SELECT * FROM orders", 400, "database.table"),
        ("DELETE FROM shop.orders", 400, "one SELECT"),
        ("SELECT 1; SELECT 2", 400, "one SELECT"),
        ("COPY (SELECT 1) TO 'x.csv'", 400, "one SELECT"),
        ("SELECT * FROM read_text('/etc/passwd')", 400, "may only read tables"),
        ("SELECT * FROM '/etc/passwd'", 400, "database.table"),
        ('SELECT * FROM shop."orders$OPTIONS"', 400, "secrets"),
        ("SELECT nope FROM shop.orders", 400, "nope"),
        (" ", 400, "there is no query"),
        ("SELECT list(range) FROM range(1000000000)", 400, "emory"),
    ],
)
def test_the_query_box_reads_tables_and_nothing_else(
    http: httpx.Client, text: str, status: int, says: str
) -> None:
    for reply in (
        http.post("/sql.json", data={"q": text}),
        http.get("/sql.json", params={"q": text}),
    ):
        assert (reply.status_code, says in reply.text) == (status, True), reply.text


def test_a_query_is_cancelled_by_its_id(http: httpx.Client) -> None:
    replies = []
    query = {"q": SLOW, "id": "slow"}
    thread = threading.Thread(target=lambda: replies.append(http.post("/sql.json", data=query)))
    thread.start()
    cancelled = False
    while not cancelled:
        cancelled = http.post("/sql/cancel.json", data={"id": "slow"}).json()["cancelled"]
    thread.join(30)

    assert "cancelled" in replies[0].json()["error"]
    assert not http.post("/sql/cancel.json", data={"id": "slow"}).json()["cancelled"]


def test_a_query_and_a_read_that_take_too_long_are_stopped(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "SECONDS_MAX", 0.5)
    started = time.monotonic()
    reply = http.post("/sql.json", data={"q": SLOW})

    assert (reply.status_code, "took longer than" in reply.json()["error"]) == (504, True)
    assert time.monotonic() - started < 20


def test_metrics_are_those_of_the_module(http: httpx.Client) -> None:
    reply = http.get("/metrics")

    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert set(re.findall(r"^# TYPE (\S+) gauge$", reply.text, re.MULTILINE)) <= METRICS.keys()
    assert 'lakecore_table_readable{database="logs",table="broken"} 0' in reply.text
