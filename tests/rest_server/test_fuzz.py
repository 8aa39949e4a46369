"""What the server answers to requests that no client sends by mistake.

Each answer is an error of the client (4xx) or "not implemented" (501), comes soon, and names no
place of the server.
"""

from __future__ import annotations

import asyncio
import copy
import json
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.rest_server import app as app_module
from lakecore.rest_server import serving
from lakecore.rest_server.app import RestApp
from property_tests.profile import sized
from tests.rest_servers import TOKEN, rest_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.catalog.catalog import Catalog

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
SHOP = "/v1/databases/shop"
TABLE = f"{SHOP}/tables/orders"
SNAPSHOT = {
    "version": 3,
    "id": 2,
    "schemaId": 0,
    "baseManifestList": "manifest-list-a-0",
    "baseManifestListSize": 10,
    "deltaManifestList": "manifest-list-a-1",
    "deltaManifestListSize": 10,
    "commitUser": "u",
    "commitIdentifier": 1,
    "commitKind": "APPEND",
    "timeMillis": 1,
    "totalRecordCount": 1,
    "deltaRecordCount": 1,
    "uuid": "another",
}
FIELDS = [{"id": 0, "name": "a", "type": "INT NOT NULL", "description": "d", "defaultValue": "1"}]
SCHEMA = {
    "fields": FIELDS,
    "partitionKeys": [],
    "primaryKeys": ["a"],
    "options": {"bucket": "1"},
    "comment": "c",
}
NESTED = {"type": "ROW", "fields": FIELDS}
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/databases", {"name": "new", "options": {}}),
    (f"{SHOP}/tables", {"identifier": {"database": "shop", "object": "t"}, "schema": SCHEMA}),
    (
        "/v1/tables/rename",
        {
            "source": {"database": "shop", "object": "orders"},
            "destination": {"database": "shop", "object": "orders"},
        },
    ),
    (
        TABLE,
        {
            "changes": [
                {"action": "setOption", "key": "bucket-key", "value": "id"},
                {"action": "addColumn", "fieldNames": ["x"], "dataType": "INT", "comment": "c"},
                {"action": "addColumn", "fieldNames": ["y"], "dataType": NESTED, "move": None},
                {"action": "updateColumnType", "fieldNames": ["v"], "newDataType": "BIGINT"},
                {"action": "renameColumn", "fieldNames": ["v"], "newName": "w"},
                {"action": "updateColumnNullability", "fieldNames": ["v"], "newNullability": True},
            ]
        },
    ),
    (f"{TABLE}/commit", {"tableId": None, "snapshot": SNAPSHOT, "statistics": []}),
    (f"{TABLE}/rollback", {"instant": {"type": "snapshot", "snapshotId": 1}}),
    (f"{TABLE}/rollback", {"instant": {"type": "tag", "tagName": "none"}}),
    (f"{TABLE}/tags", {"tagName": "t", "snapshotId": 1, "timeRetained": "1 d"}),
    (f"{TABLE}/branches", {"branch": "b", "fromTag": "none"}),
    (f"{TABLE}/branches/b/rename", {"toBranch": "c"}),
    (f"{TABLE}/consumers/reset", {"consumerId": "c", "nextSnapshotId": 1}),
    (f"{TABLE}/partitions/mark", {"specs": [{"dt": "a"}]}),
    (f"{TABLE}/auth", {"select": ["id"]}),
    ("/v1/views/rename", {"source": {"database": "shop", "object": "v"}, "destination": {}}),
    (
        f"{SHOP}/views",
        {
            "identifier": {"database": "shop", "object": "v"},
            "schema": {"fields": FIELDS, "query": "SELECT 1", "dialects": {}, "options": {}},
        },
    ),
]
JUNK: list[Any] = [
    *(None, True, 0, -1, 1 << 63, 1 << 70, 1e300, "", "\x00", "../../x", "/etc/passwd"),
    *("a" * 70_000, [], [None], [[[[[]]]]], {}, {"": None}, {"a": {"b": {"c": 1}}}),
    *("é\u2028", "`x`", "$branch_"),
]
NAMES = (
    *("%2e%2e", "..%2F..%2Fx", "%00", "a%0Ab", "%ff", "%", "%zz", "%E0%A4%A", "a%5Cb"),
    *("x" * 300, "%60orders%60", "orders%24branch_..", "orders$files", "%F0%9F%98%80", "a+b", ""),
)


@pytest.fixture
def behind(tmp_path: Path) -> Catalog:
    catalog = open_catalog({"warehouse": str(tmp_path / "w")}, create=True)
    catalog.create_database("shop")
    catalog.create_table(
        "shop.orders",
        {"id": "BIGINT NOT NULL", "dt": "STRING NOT NULL", "v": "INT"},
        primary_keys=["id", "dt"],
        partition_keys=["dt"],
        options={"bucket": "1"},
    ).write([{"id": 1, "dt": "a", "v": 1}])
    return catalog


def _answers(
    behind: Catalog, requests: list[tuple[str, str, bytes]]
) -> list[tuple[tuple[str, str, bytes], httpx.Response]]:
    async def ask() -> list[httpx.Response]:
        app: Any = RestApp(behind, TOKEN)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://server", headers=HEADERS
        ) as client:
            return [
                await client.request(method, path, content=body) for method, path, body in requests
            ]

    return list(zip(requests, asyncio.run(ask()), strict=True))


def _check(behind: Catalog, requests: list[tuple[str, str, bytes]]) -> None:
    place = str(Path(behind.get_table("shop.orders").path).parent.parent)
    for (method, path, body), reply in _answers(behind, requests):
        told = f"{method} {path[:200]} {body[:200]!r}: {reply.status_code} {reply.text[:300]}"
        assert reply.status_code < 500 or reply.status_code == 501, told
        assert reply.status_code < 400 or place not in reply.text, told


def _places(body: Any) -> Iterator[tuple[Any, ...]]:
    """The places of all values in a body."""
    items = body.items() if isinstance(body, dict) else enumerate(body)
    for key, value in items:
        yield (key,)
        if isinstance(value, dict | list):
            yield from ((key, *rest) for rest in _places(value))


def _with(body: dict[str, Any], place: tuple[Any, ...], value: object) -> bytes:
    changed = copy.deepcopy(body)
    at: Any = changed
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return json.dumps(changed).encode()


@pytest.mark.parametrize(("path", "body"), BODIES, ids=[path for path, _ in BODIES])
def test_values_of_other_kinds_are_the_clients_fault(
    behind: Catalog, path: str, body: dict[str, Any]
) -> None:
    step = sized(1, quick=5)
    bodies = [
        _with(body, place, value)
        for at, place in enumerate([*_places(body), ("unknown",)])
        for value in JUNK[at % step :: step]
    ]
    bodies += [b"[" * 5_000, b'{"a":' * 5_000, b'{"name": "\xff"}', b"\x00", b'{"a": 1e999}']

    _check(behind, [("POST", path, each) for each in bodies])
    assert behind.get_table("shop.orders").count() in (0, 1)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "TRACE"])
def test_names_of_no_thing_are_the_clients_fault(behind: Catalog, method: str) -> None:
    places = (
        *("/v1/databases/{}", f"{SHOP}/tables/{{}}", f"{TABLE}/tags/{{}}", f"{SHOP}/views/{{}}"),
        *(f"{TABLE}/branches/{{}}", f"{TABLE}/snapshots/{{}}", f"{SHOP}/functions/{{}}"),
        *("/v1/tables/id/{}", f"{TABLE}/branches/{{}}/forward", "/{}", "/v1/{}"),
        *(f"{SHOP}/tables?pageToken={{}}", f"{SHOP}/tables?maxResults={{}}"),
        *("/v1/tables?tableNamePattern={}", f"{TABLE}/partitions?maxResults={{}}"),
    )

    _check(behind, [(method, each.format(name), b"") for each in places for name in NAMES])
    assert behind.table_exists("shop.orders")


# --- HTTP -----------------------------------------------------------------------------------------


@pytest.fixture
def address(behind: Catalog) -> Iterator[tuple[str, int]]:
    with rest_server(behind) as options:
        host, _, port = options["uri"].removeprefix("http://").partition(":")
        yield host, int(port)


def _sent(address: tuple[str, int], *parts: bytes, seconds: float = 10) -> bytes:
    """What the server answers to these bytes, until it closes the connection."""
    with socket.create_connection(address, timeout=seconds) as client:
        for part in parts:
            client.sendall(part)
        found = b""
        while more := client.recv(1 << 16):
            found += more
        return found


def _head(*lines: str, method: str = "POST", path: str = "/v1/databases") -> bytes:
    stated = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {TOKEN}", *lines]
    return "\r\n".join([*stated, "", ""]).encode()


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 2", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 2"],
        ["Content-Length: 2", "Content-Length: 2"],
        ["Content-Length: 2", "content-length: 3"],
        ["Content-Length: 2, 2"],
        ["Content-Length: -1"],
        ["Content-Length: +2"],
        ["Content-Length: 0x2"],
        ["Content-Length: " + "9" * 40],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: identity"],
        ["Host: y"],
        ["Authorization: Bearer x"],
        ["Content-Length : 2"],
        [" folded: 1"],
        ["no colon"],
    ],
)
def test_head_that_leaves_a_choice_is_refused(address: tuple[str, int], lines: list[str]) -> None:
    answer = _sent(address, _head(*lines), b"{}")

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert _sent(address, _head("Connection: close", method="GET")).startswith(b"HTTP/1.1 200 ")


def test_rest_of_a_refused_body_is_no_request(address: tuple[str, int]) -> None:
    smuggled = _head(method="DELETE", path="/v1/databases/shop")
    head = _head(f"Content-Length: {len(smuggled)}").replace(TOKEN.encode(), b"wrong")
    answer = _sent(address, head, smuggled)

    assert answer.startswith(b"HTTP/1.1 401 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"shop" in _sent(address, _head("Connection: close", method="GET"))


def test_client_that_sends_nothing_is_sent_away(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(app_module, "BODY_SECONDS", 0.1)
    began = time.monotonic()

    assert _sent(address) == b""
    assert _sent(address, b"GET /v1/config HT") == b""
    assert _sent(address, _head("Content-Length: 9"), b"{}").startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - began < 5


def test_bodies_of_all_requests_have_a_limit(
    behind: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "BODIES_BYTES_MAX", 100)
    name = json.dumps({"name": "x" * 100}).encode()
    ((_, reply),) = _answers(behind, [("POST", "/v1/databases", name)])

    assert reply.status_code == 503
    ((_, reply),) = _answers(behind, [("POST", "/v1/databases", b'{"name": "new"}')])
    assert reply.status_code == 200
