"""Who may do what at the server, and the log of what they did."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.errors import InvalidRequest
from lakecore.rest_server.app import RestApp, Token, parse_tokens

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.catalog.catalog import Catalog

TOKENS = (
    Token(name="admin", text="admin-token"),
    Token(name="reader", text="reader-token", writes=False),
    Token(name="shop", text="shop-token", databases=frozenset({"shop", "new"})),
    Token(name="none", text="none-token", databases=frozenset()),
)
SHOP, OTHER = "/v1/paimon/databases/shop", "/v1/databases/other"


@pytest.fixture
def behind(tmp_path: Path) -> Catalog:
    catalog = open_catalog({"warehouse": str(tmp_path / "w")}, create=True)
    for database in ("shop", "other"):
        catalog.create_database(database)
        catalog.create_table(f"{database}.t", {"id": "INT"})
    return catalog


def _asked(behind: Catalog, who: str, method: str, path: str, body: Any = None) -> httpx.Response:
    async def ask() -> httpx.Response:
        app: Any = RestApp(behind, TOKENS)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://server"
        ) as client:
            headers = {"Authorization": f"Bearer {who}-token"}
            return await client.request(method, path, json=body, headers=headers)

    return asyncio.run(ask())


def test_metrics_are_those_of_the_databases_of_the_token(behind: Catalog) -> None:
    seen = {
        who: {
            database
            for database in ("shop", "other")
            if f'lakecore_table_readable{{database="{database}",table="t"}} 1' in reply.text
        }
        for who in ("admin", "reader", "shop", "none")
        if (reply := _asked(behind, who, "GET", "/metrics")).status_code == 200
    }

    assert seen == {
        "admin": {"shop", "other"},
        "reader": {"shop", "other"},
        "shop": {"shop"},
        "none": set(),
    }
    assert "lakecore_cdc_readable 1" in _asked(behind, "admin", "GET", "/metrics").text
    assert "lakecore_cdc" not in _asked(behind, "shop", "GET", "/metrics").text
    assert _asked(behind, "nobody", "GET", "/metrics").status_code == 401
    assert _asked(behind, "admin", "POST", "/metrics").status_code == 404


MOVE = {
    "source": {"database": "shop", "object": "t"},
    "destination": {"database": "other", "object": "u"},
}
CASES = [
    ("reader", "GET", f"{SHOP}/tables/t", None, 200),
    ("reader", "POST", "/v1/databases", {"name": "new"}, 403),
    ("reader", "DELETE", f"{SHOP}/tables/t", None, 403),
    ("shop", "GET", f"{SHOP}/tables/t", None, 200),
    ("shop", "GET", f"{OTHER}/tables/t", None, 403),
    ("shop", "DELETE", OTHER, None, 403),
    ("shop", "POST", "/v1/databases", {"name": "other2"}, 403),
    ("shop", "POST", "/v1/databases", {"name": "new"}, 200),
    ("shop", "POST", "/v1/databases", {"name": ["shop"]}, 403),
    ("shop", "POST", "/v1/tables/rename", MOVE, 403),
    ("shop", "POST", "/v1/views/rename", MOVE, 403),
    ("shop", "GET", f"{SHOP}%2F..%2Fother/tables", None, 403),
    ("shop", "GET", f"{SHOP}/../other/tables/t", None, 403),
    ("none", "GET", "/v1/config", None, 200),
    ("none", "GET", f"{SHOP}/tables/t", None, 403),
    ("nobody", "GET", "/v1/config", None, 401),
    ("admin", "DELETE", f"{OTHER}/tables/t", None, 200),
]


@pytest.mark.parametrize(("who", "method", "path", "body", "code"), CASES)
def test_request_needs_a_token_of_its_scope(
    behind: Catalog, who: str, method: str, path: str, body: Any, code: int
) -> None:
    assert _asked(behind, who, method, path, body).status_code == code


def test_lists_show_what_a_token_may_use(behind: Catalog) -> None:
    def tables(who: str) -> list[str]:
        found = _asked(behind, who, "GET", "/v1/tables").json()["tables"]
        return [each["database"] for each in found]

    assert (tables("admin"), tables("shop"), tables("none")) == (["other", "shop"], ["shop"], [])
    listed = _asked(behind, "shop", "GET", "/v1/databases").json()["databases"]
    assert listed == ["shop"]
    number = _asked(behind, "admin", "GET", f"{OTHER}/tables/t").json()["id"]
    assert _asked(behind, "shop", "GET", f"/v1/tables/id/{number}").status_code == 404


def test_each_change_is_a_line_of_the_audit_log(
    behind: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lakecore.rest_server.audit")
    _asked(behind, "admin", "GET", "/v1/config")
    _asked(behind, "admin", "POST", "/v1/databases", {"name": "a\nb"})
    _asked(behind, "reader", "DELETE", SHOP)
    _asked(behind, "nobody", "DELETE", f"{SHOP}%0Ax")
    _asked(behind, "shop", "DELETE", f"{SHOP}/tables/t")

    assert caplog.messages == [
        'change who=admin verb=POST object=/v1/databases {"name": "a\\nb"} status=400',
        f"change who=reader verb=DELETE object={SHOP} status=403",
        f"change who=- verb=DELETE object={SHOP}%0Ax status=401",
        f"change who=shop verb=DELETE object={SHOP}/tables/t status=200",
    ]


def test_tokens_are_read_from_a_file() -> None:
    text = (
        '[etl]\ntoken = "a-long-token-of-etl"\n'
        '[report]\ntoken = "a-long-token-of-reports"\naccess = "read"\ndatabases = ["shop"]\n'
    )

    assert parse_tokens(text, "tokens.toml") == (
        Token(name="etl", text="a-long-token-of-etl"),
        Token(
            name="report",
            text="a-long-token-of-reports",
            databases=frozenset({"shop"}),
            writes=False,
        ),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "a = 1",
        "[a]",
        "[a]\ntoken = ''",
        "[a]\ntoken = 1",
        "[a]\ntoken = 's3cret'\nscope = 'read'",
        "[a]\ntoken = 's3cret'\naccess = 'all'",
        "[a]\ntoken = 's3cret'\ndatabases = 'shop'",
        "[a]\ntoken = 's3cret'\ndatabases = [1]",
        "[a]\ntoken = 's3cret'\n[b]\ntoken = 's3cret'",
        "[a]\ntoken = 's3cret",
    ],
)
def test_file_of_tokens_that_is_wrong_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_tokens(text, "tokens.toml")
    assert "s3cret" not in str(raised.value)
