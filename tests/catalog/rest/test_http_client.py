"""Retries, waits and pages of the client, against a server that says what it is told to."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.rest.http_client import Refusal, ReplyLost, RestClient, encoded
from lakecore.catalog.rest.rest_options import BearerToken
from lakecore.errors import InvalidRequest, StorageError
from lakecore.io.ambient import SYSTEM
from lakecore.io.stores.services import Timeouts
from tests.rest_servers import TOKEN, BreakingApp, Fault

if TYPE_CHECKING:
    from lakecore.catalog.catalog import Catalog


@pytest.fixture
def waits() -> list[float]:
    """The seconds that the client waited."""
    return []


@pytest.fixture
def http(client: dict[str, str], waits: list[float]) -> RestClient:
    ambient = replace(SYSTEM, sleep=waits.append, random=lambda: 0.5)
    return RestClient(client["uri"], BearerToken(TOKEN), {"X-Team": "shop"}, ambient)


def test_names_are_encoded_as_java_does() -> None:
    assert encoded("a b/c$d~e*ä-_.") == "a+b%2Fc%24d%7Ee*%C3%A4-_."


@pytest.mark.parametrize("name", [".", ".."])
def test_name_that_would_change_the_path_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot name"):
        encoded(name)


@pytest.mark.parametrize("status", [429, 503])
def test_busy_server_is_asked_again_up_to_five_times(
    http: RestClient, app: BreakingApp, waits: list[float], status: int
) -> None:
    app.faults.append(Fault("GET", "databases", status=status, times=5))

    assert http.get("/v1/databases")["databases"] == ["shop"]
    assert waits == pytest.approx([1.05, 2.1, 4.2, 8.4, 16.8])
    app.faults.append(Fault("GET", "databases", status=status, times=6))
    with pytest.raises(Refusal):
        http.get("/v1/databases")


def test_server_says_how_long_to_wait(
    http: RestClient, app: BreakingApp, waits: list[float]
) -> None:
    app.faults.append(Fault("GET", "databases", status=503, headers={"retry-after": "30"}))
    http.get("/v1/databases")

    assert waits == pytest.approx([31.5])


def test_broken_connection_is_tried_again_only_without_an_effect(
    http: RestClient, app: BreakingApp
) -> None:
    app.faults.append(Fault("GET", "databases", times=2))
    app.faults.append(Fault("POST", "databases"))

    assert http.get("/v1/databases")["databases"] == ["shop"]
    with pytest.raises(ReplyLost):
        http.post("/v1/databases", {"name": "x"})
    assert app.seen.count("POST /v1/databases") == 1


def test_pages_are_followed_to_the_end(http: RestClient, behind: Catalog) -> None:
    for number in range(5):
        behind.create_database(f"d{number}")

    found = list(http.pages("/v1/databases", "databases", {"maxResults": "2"}))

    assert found == ["d0", "d1", "d2", "d3", "d4", "shop"]


def test_page_that_comes_again_is_an_error(http: RestClient, app: BreakingApp) -> None:
    body = b'{"databases": ["a"], "nextPageToken": "a"}'
    app.faults.append(Fault("GET", "databases", status=200, body=body, times=9))

    with pytest.raises(StorageError, match="same page"):
        list(http.pages("/v1/databases", "databases"))


@pytest.mark.parametrize("body", [b"no json", b"[1]", b"[" * 100_000])
def test_reply_that_is_no_object_is_an_error(
    http: RestClient, app: BreakingApp, body: bytes
) -> None:
    app.faults.append(Fault("GET", "databases", status=200, body=body))

    with pytest.raises(StorageError, match="the reply of the server is not"):
        http.get("/v1/databases")


def test_error_without_a_body_keeps_its_status(http: RestClient, app: BreakingApp) -> None:
    app.faults.append(Fault("GET", "databases", status=403, headers={"x-request-id": "r-7"}))

    with pytest.raises(Refusal) as caught:
        http.get("/v1/databases")
    error = caught.value.as_error()
    assert isinstance(error, StorageError)
    assert "code=403" in str(error)
    assert "request_id=r-7" in str(error)


def test_a_server_that_falls_silent_is_asked_twice(waits: list[float]) -> None:
    ambient = replace(SYSTEM, sleep=waits.append)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        timeouts = Timeouts(catalog_answer=0.1)
        client = RestClient(uri, BearerToken(TOKEN), {}, ambient, timeouts)
        with pytest.raises(ReplyLost):
            client.get("/v1/config")
        client.close()

    assert len(waits) == 1
