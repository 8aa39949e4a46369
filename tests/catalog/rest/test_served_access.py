"""Row filters and column masks, as a server states them for each read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from lakecore.errors import CorruptTable, LakecoreError, NotFound, StorageError, Unsupported
from lakecore.model.schema_change import SchemaChange
from tests.rest_servers import Fault

if TYPE_CHECKING:
    from lakecore.catalog.catalog import Catalog
    from lakecore.table.handle import Table
    from tests.rest_servers import BreakingApp

OWNER = {"index": 1, "name": "owner", "type": "STRING"}
FILTER = json.dumps(
    {
        "kind": "LEAF",
        "transform": {"name": "FIELD_REF", "fieldRef": OWNER},
        "function": "EQUAL",
        "literals": ["ann"],
    }
)


def made(catalog: Catalog) -> Table:
    table = catalog.create_table(
        "shop.t",
        {"id": "BIGINT NOT NULL", "owner": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1", "query-auth.enabled": "true"},
    )
    table.write(pl.DataFrame({"id": [1, 2], "owner": ["ann", "bob"]}))
    return table


def answer(app: BreakingApp, body: object, status: int = 200, times: int = 99) -> None:
    """What the server replies to the question who may read."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    app.faults[:] = [Fault("POST", "/auth", status=status, body=data, times=times)]


def test_rows_are_filtered_as_the_server_says(catalog: Catalog, app: BreakingApp) -> None:
    table = made(catalog)
    answer(app, {"filter": [FILTER], "columnMasking": None, "later": 1})

    assert table.to_polars(["id"])["id"].to_list() == [1]
    assert any(each.endswith("/tables/t/auth") for each in app.seen)
    answer(app, {})
    assert table.count() == 2
    # A server that is busy is asked again.
    answer(app, {"message": "busy", "code": 503}, status=503, times=1)
    app.faults[0].headers["retry-after"] = "0"
    app.faults.append(Fault("POST", "/auth", status=200, body=b"{}", times=9))
    assert table.count() == 2


def test_branch_is_asked_for_by_its_name(catalog: Catalog, app: BreakingApp) -> None:
    table = made(catalog)
    table.create_tag("first")
    table.create_branch("b", tag="first")
    answer(app, {"filter": [FILTER]})

    assert table.branch("b").count() == 1
    assert app.seen[-1].endswith("auth")
    assert "$branch_b" in [each for each in app.seen if each.endswith("/auth")][-1]


def test_branch_that_is_older_than_the_option_is_filtered(
    catalog: Catalog, app: BreakingApp
) -> None:
    table = catalog.create_table("shop.t", {"id": "BIGINT", "owner": "STRING"})
    table.write(pl.DataFrame({"id": [1, 2], "owner": ["ann", "bob"]}))
    table.create_tag("first")
    table.create_branch("b", tag="first")
    catalog.alter_table("shop.t", [SchemaChange.set_option("query-auth.enabled", "true")])
    answer(app, {"filter": [FILTER]})

    assert catalog.get_table("shop.t").branch("b").count() == 1
    assert catalog.get_table("shop.t$branch_b").count() == 1


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (403, {"code": 403, "message": "no"}, StorageError),
        (404, {"code": 404, "message": "gone", "resourceType": "TABLE"}, NotFound),
        (501, {"code": 501, "message": "not here"}, Unsupported),
        (500, {"code": 500, "message": "broken"}, StorageError),
        (200, {"filter": "all"}, CorruptTable),
        (200, {"filter": [1]}, CorruptTable),
        (200, {"columnMasking": ["id"]}, CorruptTable),
        (200, {"columnMasking": {"id": 1}}, CorruptTable),
        (200, {"filter": ["{}"]}, Unsupported),
        (200, {"columnMasking": {"id": "{}"}}, Unsupported),
        (200, {"columnMasking": {"gone": '{"name":"NULL"}'}}, Unsupported),
        (200, b"no json", LakecoreError),
        (None, b"", LakecoreError),
    ],
)
def test_doubtful_reply_shows_no_rows(
    catalog: Catalog, app: BreakingApp, status: int, body: object, error: type[Exception]
) -> None:
    table = made(catalog)
    answer(app, body, status)

    reads = (table.to_arrow, table.to_polars, table.count, table.to_duckdb)
    for read in (*reads, table.changes().collect):
        with pytest.raises(error):
            read()


def test_server_without_rules_is_not_enough(catalog: Catalog) -> None:
    # A server of lakecore does not know who may read what.
    with pytest.raises((Unsupported, StorageError, NotFound)):
        made(catalog).to_polars()
