"""Tables whose storage credentials come from a server, over a real S3 API."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.catalog.registry import open_catalog
from lakecore.errors import StorageError
from lakecore.io.ambient import SYSTEM
from lakecore.rest_server.app import RestApp
from tests.rest_servers import TOKEN, rest_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.catalog.catalog import Catalog
    from tests.stores import S3Service

HOUR_MS = 3_600_000
ROWS = 3


class TokenApp:
    """A lakecore server that also hands out S3 keys, and may revoke them."""

    def __init__(self, catalog: Catalog, s3: S3Service) -> None:
        self._app = RestApp(catalog, TOKEN)
        self._s3 = s3
        self.asked = 0
        self.lasts_ms = 3 * HOUR_MS
        self.key = "key-1"
        s3.keys = {"key", self.key}  # the first is the server's own

    def rotate(self) -> None:
        """From now on, the server hands out another key, and the previous one is invalid."""
        self.key = f"key-{self.asked + 1}"
        self._s3.keys = {"key", self.key}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not scope["path"].endswith("/token"):
            await self._app(scope, receive, send)
            return
        self.asked += 1
        token = {**self._s3.options, "s3.access-key": self.key}
        expires_ms = time.time_ns() // 1_000_000 + self.lasts_ms
        body = json.dumps({"token": token, "expiresAtMillis": expires_ms}).encode()
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def served(s3: S3Service) -> Iterator[tuple[lc.Session, TokenApp]]:
    warehouse = f"s3://bucket/tokens-{SYSTEM.new_uuid()}"
    behind = open_catalog({"warehouse": warehouse, **s3.options}, create=True)
    behind.create_database("shop")
    app = TokenApp(behind, s3)
    with rest_server(behind, app) as options:
        yield lc.connect({**options, "data-token.enabled": "true"}), app
    s3.be_well()


@contextmanager
def table_of(session: lc.Session) -> Iterator[lc.Table]:
    """A table of several files."""
    table = session.create_table("shop.t", {"id": "INT"})
    for number in range(ROWS):
        table.write([{"id": number}])
    yield session.get_table("shop.t")


def test_one_token_serves_writes_and_reads_while_it_lasts(
    served: tuple[lc.Session, TokenApp],
) -> None:
    session, app = served
    with table_of(session) as table:
        assert sorted(table.to_polars()["id"].to_list()) == list(range(ROWS))
        assert "secret" not in repr(table.context.store)
    asked = app.asked

    assert table.to_arrow().num_rows == ROWS
    assert app.asked == asked, "a token of three hours is kept"


def test_token_that_ends_within_the_hour_is_renewed_in_the_middle_of_a_scan(
    served: tuple[lc.Session, TokenApp],
) -> None:
    session, app = served
    app.lasts_ms = HOUR_MS // 2
    with table_of(session) as table:
        found = []
        for batch in table.to_batches():
            found += batch.column("id").to_pylist()
            app.rotate()

    assert sorted(found) == list(range(ROWS))


def test_revoked_token_is_a_storage_error_without_secrets(
    served: tuple[lc.Session, TokenApp],
) -> None:
    session, app = served
    with table_of(session) as table:
        app.rotate()
        with pytest.raises(StorageError) as caught:
            table.to_arrow()

    assert "key-1" not in str(caught.value)
