"""Requests about views: pages, patterns, names, malformed bodies, and a catalog without views."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest

from lakecore.catalog.identifier import Identifier
from lakecore.catalog.registry import open_catalog
from lakecore.catalog.views import AddDialect, DropDialect, SetViewOption, View
from lakecore.errors import AlreadyExists, CommitConflict, LakecoreError, NotFound
from lakecore.model.types import Field, parse_type
from tests.rest_servers import TOKEN, BreakingApp, Fault, rest_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.catalog.catalog import Catalog

SHOP = "/v1/paimon/databases/shop"
SCHEMA: dict[str, Any] = {
    "fields": [{"id": 0, "name": "id", "type": "INT"}],
    "query": "SELECT 1 AS id",
    "dialects": {"flink": "SELECT 1"},
    "comment": "c",
    "options": {"a": "b"},
}
VIEW = View(query="SELECT 1 AS id", fields=(Field(id=0, name="id", type=parse_type("INT")),))


def jdbc(folder: Path) -> Catalog:
    catalog = open_catalog(
        {
            "metastore": "jdbc",
            "uri": f"jdbc:sqlite:{folder}/catalog.db",
            "warehouse": str(folder / "w"),
        },
        create=True,
    )
    for database in ("shop", "shop-2"):
        catalog.create_database(database)
    return catalog


@pytest.fixture
def behind(tmp_path: Path) -> Catalog:
    return jdbc(tmp_path)


@pytest.fixture
def app(behind: Catalog) -> BreakingApp:
    return BreakingApp(behind)


@pytest.fixture
def client(behind: Catalog, app: BreakingApp) -> Iterator[dict[str, str]]:
    with rest_server(behind, app) as options:
        yield options


@pytest.fixture
def http(client: dict[str, str]) -> Iterator[httpx.Client]:
    with requests_to(client) as found:
        yield found


def requests_to(client: dict[str, str]) -> httpx.Client:
    return httpx.Client(base_url=client["uri"], headers={"Authorization": f"Bearer {TOKEN}"})


def make(http: httpx.Client, name: str, database: str = "shop", **parts: Any) -> httpx.Response:
    body = {
        "identifier": {"database": database, "object": name},
        "schema": {**SCHEMA, **parts},
    }
    return http.post(f"/v1/paimon/databases/{database}/views", json=body)


def told(reply: httpx.Response) -> tuple[int, str | None, str | None]:
    body = reply.json() if reply.content else {}
    return reply.status_code, body.get("resourceType"), body.get("resourceName")


def test_view_is_described_in_the_form_of_the_protocol(http: httpx.Client) -> None:
    assert make(http, "late").status_code == 200
    described = http.get(f"{SHOP}/views/late").json()

    assert described["name"] == "late"
    assert described["schema"] == SCHEMA
    assert described["createdAt"] == 0
    assert {"id", "owner", "createdBy", "updatedAt", "updatedBy"} < described.keys()
    assert http.get(f"{SHOP}/view-details").json()["viewDetails"] == [described]


def test_lists_come_in_pages_by_pattern(http: httpx.Client) -> None:
    for number in range(5):
        make(http, f"v{number}")
    make(http, "100%")
    make(http, "other", "shop-2")

    def pages(path: str, key: str, **params: object) -> list[list[Any]]:
        found: list[list[Any]] = []
        while True:
            reply = http.get(path, params={"maxResults": 2, **params}).json()  # type: ignore[dict-item]
            found.append(reply[key])
            if not reply["nextPageToken"]:
                return found
            params["pageToken"] = reply["nextPageToken"]

    assert pages(f"{SHOP}/views", "views", viewNamePattern="v%") == [
        ["v0", "v1"],
        ["v2", "v3"],
        ["v4"],
    ]
    assert pages(f"{SHOP}/views", "views", viewNamePattern="100\\%") == [["100%"]]
    details = pages(f"{SHOP}/view-details", "viewDetails", viewNamePattern="v%")
    assert [[each["name"] for each in page] for page in details] == [
        ["v0", "v1"],
        ["v2", "v3"],
        ["v4"],
    ]
    everywhere = pages("/v1/paimon/views", "views")
    assert [each["object"] for page in everywhere for each in page] == [
        *("other", "100%", "v0", "v1", "v2", "v3", "v4")
    ]
    of_two = pages("/v1/paimon/views", "views", databaseNamePattern="shop-%")
    assert of_two == [[{"database": "shop-2", "object": "other"}]]


def test_page_goes_on_after_a_view_that_was_dropped(http: httpx.Client) -> None:
    for name in ("a", "b", "c"):
        make(http, name)
    token = http.get(f"{SHOP}/views", params={"maxResults": 2}).json()["nextPageToken"]
    http.delete(f"{SHOP}/views/b")

    assert http.get(f"{SHOP}/views", params={"pageToken": token}).json()["views"] == ["c"]
    assert http.get(f"{SHOP}/views", params={"pageToken": "/"}).json()["views"] == ["a", "c"]
    assert http.get(f"{SHOP}/views", params={"pageToken": "\x00%"}).json()["views"] == ["a", "c"]


@pytest.mark.parametrize(
    "name", ["ü é", "100% of 'a'", "a+b", "a&b=c", "😀", "x" * 240, "a#b?c", 'a"b', "a.b", "true"]
)
def test_unusual_name_is_one_name(client: dict[str, str], behind: Catalog, name: str) -> None:
    views, stored = open_catalog(client, create=False).views, behind.views
    assert views is not None
    assert stored is not None
    identifier = _named(name)
    assert views.create(identifier, VIEW)
    assert views.find(identifier) is not None
    assert views.alter(identifier, [SetViewOption("a", "b")])
    views.rename(identifier, _named(f"{name}2"))
    assert stored.names("shop") == views.names("shop") == (f"{name}2",)
    assert views.drop(_named(f"{name}2"))


def _named(name: str) -> Identifier:
    return Identifier(database="shop", table=name)


@pytest.mark.parametrize("name", ["a/b", "..x", "../x", ".hidden", "a\\b", "a\x00"])
def test_name_that_is_none_is_a_bad_request(http: httpx.Client, name: str) -> None:
    path = f"{SHOP}/views/{quote(name, safe='')}"

    for method in ("GET", "DELETE", "POST"):
        assert http.request(method, path, json={"changes": []}).status_code == 400
    assert make(http, name).status_code == 400
    make(http, "late")
    names = [{"database": "shop", "object": each} for each in ("late", name)]
    for source, target in (names, names[::-1]):
        body = {"source": source, "destination": target}
        assert http.post("/v1/paimon/views/rename", json=body).status_code == 400
    assert http.get(f"{SHOP}/views").json()["views"] == ["late"]


def test_each_refusal_names_its_resource(http: httpx.Client) -> None:
    make(http, "late")
    names = [{"database": "shop", "object": name} for name in ("late", "early")]

    def alter(name: str, **change: object) -> tuple[int, str | None, str | None]:
        return told(http.post(f"{SHOP}/views/{name}", json={"changes": [change]}))

    def rename(source: object, target: object) -> tuple[int, str | None, str | None]:
        body = {"source": source, "destination": target}
        return told(http.post("/v1/paimon/views/rename", json=body))

    for method in ("GET", "DELETE"):
        assert told(http.request(method, f"{SHOP}/views/no")) == (404, "VIEW", "no")
    assert told(http.get(f"{SHOP}/views/late$files")) == (404, "VIEW", "late$files")
    assert told(make(http, "late")) == (409, "VIEW", "late")
    assert told(make(http, "late", "nowhere")) == (404, "DATABASE", "nowhere")
    assert alter("no", action="removeOption", key="a") == (404, "VIEW", "no")
    assert alter("late", action="dropDialect", dialect="x") == (404, "DIALECT", "x")
    assert alter("late", action="addDialect", dialect="flink", query="q") == (
        409,
        "DIALECT",
        "flink",
    )
    assert alter("late", action="explode")[0] == 400
    assert rename(names[1], names[0]) == (404, "VIEW", "early")
    assert rename(names[0], names[0]) == (409, "VIEW", "late")
    assert rename(names[0], {"database": "nowhere", "object": "x"})[0] == 400


@pytest.mark.parametrize(
    "schema",
    [
        {"fields": 1},
        {"fields": [{"id": 0}]},
        {"fields": [{"id": 0, "name": "id", "type": "NOTHING"}]},
        {"query": None},
        {"query": 1},
        {"dialects": {"a": 1}},
        {"comment": []},
    ],
)
def test_malformed_view_is_a_bad_request(http: httpx.Client, schema: dict[str, Any]) -> None:
    assert make(http, "late", **schema).status_code == 400
    bodies: list[dict[str, object]] = [{"changes": 1}, {}, {"changes": [1]}]
    for body in bodies:
        assert http.post(f"{SHOP}/views/late", json=body).status_code == 400
    bodies = [{}, {"identifier": {}}, {"identifier": {"object": "v"}, "schema": 1}]
    for body in bodies:
        assert http.post(f"{SHOP}/views", json=body).status_code == 400
    assert http.get(f"{SHOP}/views").json()["views"] == []


def test_view_without_optional_parts_is_stored(http: httpx.Client) -> None:
    made = make(http, "late", dialects=None, comment=None, options=None)

    assert made.status_code == 200
    assert http.get(f"{SHOP}/views/late").json()["schema"]["dialects"] == {}


def test_request_of_no_endpoint_is_not_implemented(http: httpx.Client) -> None:
    for method, path in (
        ("PUT", f"{SHOP}/views"),
        ("PUT", f"{SHOP}/views/late"),
        ("GET", f"{SHOP}/views/late/parts"),
        ("POST", f"{SHOP}/view-details"),
        ("POST", f"{SHOP}/functions"),
    ):
        assert http.request(method, path, json={}).status_code == 501


def test_catalog_without_views_and_functions_has_empty_lists(tmp_path: Path) -> None:
    behind = open_catalog({"warehouse": str(tmp_path / "w")}, create=True)
    behind.create_database("shop")
    with rest_server(behind) as client, requests_to(client) as http:
        for kind, details in (("views", "viewDetails"), ("functions", "functionDetails")):
            found = http.get(f"/v1/paimon/{kind}").json()
            assert found == {kind: [], "nextPageToken": None}
            assert http.get(f"{SHOP}/{kind}").json() == found
            place = f"{SHOP}/{kind.removesuffix('s')}-details"
            assert http.get(place).json() == {details: [], "nextPageToken": None}
            missing = (404, kind.removesuffix("s").upper(), "x")
            assert told(http.get(f"{SHOP}/{kind}/x")) == missing
        assert make(http, "late").status_code == 501
        assert told(http.delete(f"{SHOP}/views/x")) == (404, "VIEW", "x")


NAMES = ("v", "a b", "ü😀", "%2F", "a/b", "../x", "'; DROP TABLE paimon_views; --", "x" * 300)
VALUES: tuple[Any, ...] = (None, 1, "x", [], {}, "v", True, [1], {"a": 1}, "\x00", "\ud83d")


def test_whatever_a_client_sends_is_no_failure_of_the_server(
    http: httpx.Client, behind: Catalog
) -> None:
    draw = random.Random(7)

    def some(*keys: str) -> dict[str, Any]:
        return {key: draw.choice(VALUES) for key in keys if draw.random() < 0.7}

    def change() -> dict[str, Any]:
        action = draw.choice(["setOption", "addDialect", "dropDialect", "updateComment", 1])
        return {"action": action, **some("key", "value", "dialect", "query", "comment")}

    for _ in range(200):
        name = quote(draw.choice(NAMES), safe="")
        path = draw.choice([f"{SHOP}/views", f"{SHOP}/views/{name}", "/v1/paimon/views/rename"])
        object_name = {"database": "shop", "object": draw.choice(NAMES)}
        body = draw.choice(
            [
                {"changes": [change(), change()]},
                {"identifier": object_name, "schema": {**SCHEMA, **some(*SCHEMA)}},
                {"source": object_name, "destination": {"database": "shop", **some("object")}},
            ]
        )
        query = {key: json.dumps(value) for key, value in some("maxResults", "pageToken").items()}
        method = draw.choice(["GET", "POST", "POST", "DELETE"])
        reply = http.request(method, path, params=query, content=json.dumps(body))

        assert reply.status_code in {200, 400, 404, 409, 501}, (method, path, body, reply.text)
    assert behind.list_databases() == ("shop", "shop-2")
    for found in http.get(f"{SHOP}/views").json()["views"]:
        assert http.get(f"{SHOP}/views/{quote(found, safe='')}").status_code == 200


# --- faults ---------------------------------------------------------------------------------------


def test_change_whose_reply_is_lost_is_not_sent_again(
    client: dict[str, str], behind: Catalog, app: BreakingApp
) -> None:
    views = open_catalog(client, create=False).views
    assert views is not None
    views.create(_named("late"), VIEW)
    app.faults.append(Fault("POST", "/late", carried_out=True))
    with pytest.raises(LakecoreError):
        views.alter(_named("late"), [SetViewOption("a", "b")])

    assert behind.views is not None
    found = behind.views.find(_named("late"))
    assert found is not None
    assert found.options == {"a": "b"}
    assert app.seen.count("POST /v1/paimon/databases/shop/views/late") == 1


@pytest.mark.parametrize("status", [500, 503])
def test_view_is_kept_if_its_replacement_is_refused(
    client: dict[str, str], behind: Catalog, app: BreakingApp, status: int
) -> None:
    views = open_catalog(client, create=False).views
    assert views is not None
    views.create(_named("late"), VIEW)
    app.faults.append(Fault("POST", "/views", status=status))
    with pytest.raises(LakecoreError):
        views.replace(_named("late"), View(query="SELECT 2 AS id", fields=VIEW.fields))

    assert behind.views is not None
    assert behind.views.find(_named("late")) == VIEW


def test_replacement_that_others_keep_undoing_ends(
    client: dict[str, str], behind: Catalog, app: BreakingApp
) -> None:
    views, stored = open_catalog(client, create=False).views, behind.views
    assert views is not None
    assert stored is not None

    def undo(request: str) -> None:
        if request == "POST /v1/paimon/databases/shop/views":
            stored.create(_named("late"), VIEW)

    app.before = undo
    with pytest.raises(CommitConflict, match="keep creating"):
        views.replace(_named("late"), VIEW)


def test_dialect_that_is_missing_or_there_is_told_apart(client: dict[str, str]) -> None:
    views = open_catalog(client, create=False).views
    assert views is not None
    views.create(_named("late"), VIEW)
    assert views.alter(_named("late"), [AddDialect("spark", "S")])
    with pytest.raises(AlreadyExists, match="dialect=spark"):
        views.alter(_named("late"), [AddDialect("spark", "S")])
    with pytest.raises(NotFound, match="dialect=flink"):
        views.alter(_named("late"), [DropDialect("flink")])
