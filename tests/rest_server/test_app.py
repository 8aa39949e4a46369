"""What a stranger sends: tokens, names, sizes and malformed requests."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.errors import InvalidRequest
from lakecore.rest_server import app as app_module
from lakecore.rest_server import replies, served_catalog
from lakecore.rest_server.serving import serve
from tests.rest_servers import TOKEN, rest_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.catalog.catalog import Catalog

TABLE = "/v1/databases/shop/tables/orders"


@pytest.fixture
def behind(tmp_path: Path) -> Catalog:
    catalog = open_catalog({"warehouse": str(tmp_path / "w")}, create=True)
    catalog.create_database("shop")
    catalog.create_table(
        "shop.orders",
        {"id": "BIGINT NOT NULL", "dt": "STRING NOT NULL"},
        primary_keys=["id", "dt"],
        partition_keys=["dt"],
        options={"bucket": "1"},
    ).write([{"id": 1, "dt": "a"}, {"id": 2, "dt": "b"}])
    (tmp_path / "outside.db" / "t" / "schema").mkdir(parents=True)
    return catalog


@pytest.fixture
def http(behind: Catalog) -> Iterator[httpx.Client]:
    with (
        rest_server(behind) as options,
        httpx.Client(
            base_url=options["uri"], headers={"Authorization": f"Bearer {TOKEN}"}
        ) as client,
    ):
        yield client


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", f"bearer {TOKEN}", f"Bearer {TOKEN}x", TOKEN]
)
def test_request_without_the_token_gets_nothing(http: httpx.Client, header: str | None) -> None:
    for path in ("/v1/config", TABLE, "/v1/nothing"):
        request = http.build_request("GET", path)
        del request.headers["Authorization"]
        if header is not None:
            request.headers["Authorization"] = header
        reply = http.send(request)

        assert reply.status_code == 401
        assert reply.json()["code"] == 401


@pytest.mark.parametrize(
    "path",
    [
        "/v1/databases/..%2Foutside",
        "/v1/databases/..%2Foutside/tables",
        "/v1/databases/shop/tables/..%2F..%2Foutside.db%2Ft",
        "/v1/databases/shop/tables/%2Fetc",
        "/v1/databases/shop/tables/orders%24branch_..%2F..%2Fx",
        "/v1/databases/shop/tables/.hidden",
        "/v1/databases/%00",
        "/v1/databases/shop/tables/a%5Cb",
    ],
)
def test_no_name_leads_out_of_the_warehouse(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 400
    assert http.delete(path).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/", 404),
        ("GET", "/v2/config", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/nothing", 501),
        ("PUT", TABLE, 501),
        ("GET", f"{TABLE}/token", 501),
        ("GET", "/v1/databases/sop", 404),
        ("GET", "/v1/databases/shop/tables/order", 404),
        ("GET", "/v1/databases/shop/tables/orders%24files", 404),
        ("GET", f"{TABLE}/snapshots/9", 404),
        ("GET", f"{TABLE}/tags/t", 404),
        ("DELETE", f"{TABLE}/branches/b", 404),
        ("GET", "/v1/databases?maxResults=x", 400),
        ("GET", "/v1/databases/shop/views/v", 404),
    ],
)
def test_request_that_cannot_be_carried_out_says_why(
    http: httpx.Client, method: str, path: str, code: int
) -> None:
    reply = http.request(method, path)

    assert reply.status_code == code
    assert reply.json()["message"]


@pytest.mark.parametrize("body", [b"{", b"[]", b"1", b"\xff", b'{"name": 1}', b"{}"])
def test_malformed_body_is_a_bad_request(http: httpx.Client, body: bytes) -> None:
    assert http.post("/v1/databases", content=body).status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"changes": [1]},
        {"changes": [{"action": "explode"}]},
        {"changes": [{"action": "addColumn"}]},
        {"changes": [{"action": "addColumn", "fieldNames": ["x"], "dataType": "NOTHING"}]},
    ],
)
def test_malformed_schema_change_changes_nothing(
    http: httpx.Client, behind: Catalog, body: dict[str, Any]
) -> None:
    assert http.post(TABLE, json=body).status_code == 400
    assert behind.get_table("shop.orders").schema.id == 0


def test_body_beyond_the_limit_is_refused(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "BODY_BYTES_MAX", 100)

    assert http.post("/v1/databases", json={"name": "x" * 200}).status_code == 413
    assert http.get("/v1/databases/" + "x" * 10_000).status_code == 414


def test_columns_that_are_missing_or_there_are_told_apart(http: httpx.Client) -> None:
    def change(**parts: object) -> tuple[int, str | None]:
        reply = http.post(TABLE, json={"changes": [parts]})
        return reply.status_code, (reply.json() if reply.content else {}).get("resourceType")

    new = {"dataType": "INT", "comment": None, "move": None}
    assert change(action="dropColumn", fieldNames=["x"]) == (404, "COLUMN")
    assert change(action="addColumn", fieldNames=["id"], **new) == (409, "COLUMN")
    assert change(action="renameColumn", fieldNames=["id"], newName="dt") == (409, "COLUMN")


def test_lists_come_in_pages_and_by_pattern(http: httpx.Client, behind: Catalog) -> None:
    for name in ("a", "b", "c"):
        behind.create_table(f"shop.{name}", {"id": "INT"})
    path = "/v1/databases/shop/tables"

    first = http.get(path, params={"maxResults": "3"}).json()
    assert first == {"tables": ["a", "b", "c"], "nextPageToken": "c"}
    second = http.get(path, params={"maxResults": "3", "pageToken": "c"}).json()
    assert second == {"tables": ["orders"], "nextPageToken": None}
    assert http.get(path, params={"tableNamePattern": "o%"}).json()["tables"] == ["orders"]
    assert [each["object"] for each in http.get("/v1/tables").json()["tables"]] == [
        *("a", "b", "c", "orders")
    ]
    details = http.get("/v1/databases/shop/table-details").json()["tableDetails"]
    assert [each["name"] for each in details] == ["a", "b", "c", "orders"]
    by_id = http.get(f"/v1/tables/id/{details[3]['id']}").json()
    assert by_id == details[3]


def test_tags_of_a_prefix_are_found_on_whichever_page_they_are(
    http: httpx.Client, behind: Catalog
) -> None:
    for name in ("a", "b", "x1", "x2"):
        behind.get_table("shop.orders").create_tag(name)
    query = {"tagNamePrefix": "x", "maxResults": "1"}

    first = http.get(f"{TABLE}/tags", params=query).json()
    assert first == {"tags": ["x1"], "nextPageToken": "x1"}
    second = http.get(f"{TABLE}/tags", params={**query, "pageToken": "x1"}).json()
    assert second == {"tags": ["x2"], "nextPageToken": None}


def test_filter_that_the_server_does_not_have_is_refused(http: httpx.Client) -> None:
    partitions = http.get(f"{TABLE}/partitions", params={"partitionNamePattern": "dt=a%"})
    tables = http.get("/v1/databases/shop/tables", params={"tableType": "view"})

    assert (partitions.status_code, tables.status_code) == (501, 501)


def test_partitions_are_listed_with_their_sizes(http: httpx.Client) -> None:
    found = http.get(f"{TABLE}/partitions").json()["partitions"]

    assert [(each["spec"], each["recordCount"], each["fileCount"]) for each in found] == [
        ({"dt": "a"}, 1, 1),
        ({"dt": "b"}, 1, 1),
    ]


def test_partitions_of_one_spec_are_counted_together(http: httpx.Client, behind: Catalog) -> None:
    behind.get_table("shop.orders").write([{"id": 1, "dt": " "}, {"id": 2, "dt": "\t"}])
    found = http.get(f"{TABLE}/partitions").json()["partitions"]

    counts = {each["spec"]["dt"]: (each["recordCount"], each["fileCount"]) for each in found}
    assert counts == {"a": (1, 1), "b": (1, 1), "__DEFAULT_PARTITION__": (2, 2)}


def test_snapshots_are_found_by_number_word_and_tag(http: httpx.Client, behind: Catalog) -> None:
    behind.get_table("shop.orders").create_tag("t")
    for version in ("1", "EARLIEST", "LATEST", "t"):
        assert http.get(f"{TABLE}/snapshots/{version}").json()["snapshot"]["id"] == 1
    assert [each["id"] for each in http.get(f"{TABLE}/snapshots").json()["snapshots"]] == [1]


def test_commit_that_does_not_follow_the_newest_snapshot_is_not_made(
    http: httpx.Client, behind: Catalog
) -> None:
    described = http.get(TABLE).json()
    snapshot = http.get(f"{TABLE}/snapshot").json()["snapshot"]["snapshot"]
    good = {**snapshot, "id": 2, "uuid": "another"}

    def commit(**parts: object) -> httpx.Response:
        body = {"tableId": described["id"], "baseSnapshotUuid": snapshot["uuid"], "statistics": []}
        return http.post(f"{TABLE}/commit", json={**body, **parts})

    assert commit(snapshot={**good, "id": 3}).json() == {"success": False}
    assert commit(snapshot=good, baseSnapshotUuid="other").json() == {"success": False}
    assert commit(snapshot=good, tableId="other").status_code == 404
    assert commit(snapshot={"id": 2}).status_code == 400
    assert commit(snapshot=good).json() == {"success": True}
    # The same commit again: the reply may have been lost.
    assert commit(snapshot=good).json() == {"success": True}
    assert behind.get_table("shop.orders").context.history.snapshot_ids() == (1, 2)


def test_error_that_nobody_foresaw_tells_a_stranger_nothing(
    http: httpx.Client, behind: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("path /secret/place")

    monkeypatch.setattr(type(behind), "list_databases", fail)
    reply = http.get("/v1/databases")

    assert reply.status_code == 500
    assert "secret" not in reply.text


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org", "192.168.0.1"])
def test_server_that_others_reach_needs_a_long_token(behind: Catalog, host: str) -> None:
    for token in (None, "short"):
        with pytest.raises(InvalidRequest, match="token"):
            serve(behind, host=host, port=0, token=token, on_start=lambda _: None)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/databases/shop/tables/%60orders%60",
        "/v1/databases/shop/tables/%60orders%24branch_main%60",
        "/v1/databases/shop/tables/" + "x" * 300,
        "/v1/databases/%60shop%60/tables/orders",
        "/v1/databases/" + "x" * 300,
        f"{TABLE}/snapshots/" + "9" * 5000,
    ],
)
def test_name_that_nothing_has_is_not_found(http: httpx.Client, behind: Catalog, path: str) -> None:
    assert http.get(path).status_code == 404
    assert http.delete(path).status_code in (404, 501)
    assert behind.table_exists("shop.orders")


def test_pattern_with_many_wildcards_is_answered_at_once(
    http: httpx.Client, behind: Catalog
) -> None:
    behind.create_table("shop." + "a" * 200, {"id": "INT"})

    def found(pattern: str) -> list[str]:
        reply = http.get("/v1/databases/shop/tables", params={"tableNamePattern": pattern})
        names: list[str] = reply.json()["tables"]
        return names

    assert found("%a" * 60 + "b") == []
    assert found("%a" * 60) == ["a" * 200]
    for pattern in ("o%d%s", "%orders%", "ord%ers", "orders", "%", "%%s", "o\\rders"):
        assert "orders" in found(pattern)
    for pattern in ("o%rder", "order_", "orders%orders", "s%o", "o\\%s", "ordersorders%"):
        assert found(pattern) == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "x", "options": {"a": NaN}}',
        b'{"name": 1e999}',
        b'{"name": "\\ud800"}',
        b'{"name": "\xed\xa0\x80"}',
        b"[" * 100_000,
        b'{"name": ' + b"1" * 6000 + b"}",
    ],
)
def test_json_that_no_reader_accepts_is_refused(http: httpx.Client, body: bytes) -> None:
    assert http.post("/v1/databases", content=body).status_code == 400


@pytest.mark.parametrize(
    "part",
    [
        {"fields": [{"id": 0, "name": "a", "type": 1}]},
        {"primaryKeys": "a"},
        {"partitionKeys": [1]},
        {"options": {"a": 1}},
        {"comment": ["x"]},
    ],
)
def test_malformed_schema_makes_no_table(
    http: httpx.Client, behind: Catalog, part: dict[str, Any]
) -> None:
    schema = {"fields": [{"id": 0, "name": "a", "type": "INT"}], "options": {}, **part}
    body = {"identifier": {"database": "shop", "object": "made"}, "schema": schema}

    assert http.post("/v1/databases/shop/tables", json=body).status_code == 400
    assert not behind.table_exists("shop.made")


@pytest.mark.parametrize(
    "change",
    [
        {"action": "dropColumn", "fieldNames": []},
        {"action": "dropColumn", "fieldNames": "dt"},
        {"action": "updateColumnComment", "fieldNames": ["dt"], "newComment": {}},
        {"action": "updateColumnDefaultValue", "fieldNames": ["dt"], "newDefaultValue": [1]},
        {"action": "updateComment", "comment": 1},
    ],
)
def test_schema_change_with_values_of_other_types_changes_nothing(
    http: httpx.Client, behind: Catalog, change: dict[str, Any]
) -> None:
    assert http.post(TABLE, json={"changes": [change]}).status_code == 400
    assert behind.get_table("shop.orders").schema.id == 0


@pytest.mark.parametrize("key", ["baseManifestList", "deltaManifestList", "indexManifest"])
def test_snapshot_names_no_file_outside_its_table(http: httpx.Client, key: str) -> None:
    snapshot = http.get(f"{TABLE}/snapshot").json()["snapshot"]["snapshot"]
    sent = {**snapshot, "id": 2, "uuid": "another", key: "../../../outside.db/t/manifest"}

    assert http.post(f"{TABLE}/commit", json={"snapshot": sent}).status_code == 400
    assert http.get(f"{TABLE}/snapshot").json()["snapshot"]["snapshot"]["id"] == 1


@pytest.mark.parametrize("moved", [False, True])
def test_commit_into_a_table_that_goes_meanwhile_makes_nothing(
    http: httpx.Client, behind: Catalog, *, moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = http.get(f"{TABLE}/snapshot").json()["snapshot"]["snapshot"]
    folder = Path(behind.get_table("shop.orders").path)
    check = replies.check_files

    def meanwhile(read: Any) -> None:
        check(read)
        if moved:
            behind.rename_table("shop.orders", "shop.moved")
        else:
            behind.drop_table("shop.orders")

    monkeypatch.setattr(served_catalog, "check_files", meanwhile)
    reply = http.post(f"{TABLE}/commit", json={"snapshot": {**snapshot, "id": 1, "uuid": "new"}})

    assert reply.status_code == 404
    assert not folder.exists()


def test_list_leaves_out_a_table_that_was_dropped_meanwhile(
    http: httpx.Client, behind: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(behind), "list_tables", lambda *_: ("gone", "orders"))
    listed = http.get("/v1/databases/shop/table-details").json()["tableDetails"]

    assert [each["name"] for each in listed] == ["orders"]


def test_partitions_of_one_spec_are_marked_together(http: httpx.Client, behind: Catalog) -> None:
    table = behind.get_table("shop.orders")
    table.write([{"id": 1, "dt": " "}, {"id": 2, "dt": "__DEFAULT_PARTITION__"}])

    def mark(*specs: object) -> int:
        return http.post(f"{TABLE}/partitions/mark", json={"specs": specs}).status_code

    assert mark({"dt": "__DEFAULT_PARTITION__"}, {"dt": "a"}) == 200
    done = sorted(path.parent.name for path in Path(table.path).glob("*/_SUCCESS"))
    assert done == ["dt=__DEFAULT_PARTITION__", "dt=a"]
    assert mark({"dt": "none"}) == 404
    assert [mark(), mark({}), mark({"id": "1"}), mark({"dt": None}), mark(1)] == [400] * 5
    # One of the two goes; the other keeps the spec.
    table.drop_partition({"dt": " "})
    counts = {
        each["spec"]["dt"]: (each["recordCount"], each["fileCount"])
        for each in http.get(f"{TABLE}/partitions").json()["partitions"]
    }
    assert counts["__DEFAULT_PARTITION__"] == (1, 1)
    assert table.to_polars(where="dt = '__DEFAULT_PARTITION__'")["id"].to_list() == [2]


def test_partitions_are_marked_by_the_texts_that_are_listed(
    http: httpx.Client, behind: Catalog
) -> None:
    days = {"day": "DATE", "v": "INT"}
    table = behind.create_table("shop.days", days, partition_keys=["day"])
    table.write([{"day": date(2024, 1, 2), "v": 1}, {"day": None, "v": 2}])
    place = "/v1/databases/shop/tables/days/partitions"
    specs = [each["spec"] for each in http.get(place).json()["partitions"]]

    assert specs == [{"day": "19724"}, {"day": "__DEFAULT_PARTITION__"}]
    assert http.post(f"{place}/mark", json={"specs": specs}).status_code == 200
    assert len(list(Path(table.path).glob("*/_SUCCESS"))) == 2
