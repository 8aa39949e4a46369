from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, StorageError
from lakecore.io.ambient import seeded
from lakecore.io.stores import services
from lakecore.io.stores.services import SECONDS_MAX, check_reachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.io.ambient import Ambient

Address = tuple[str, int]


@pytest.fixture
def ambient() -> Ambient:
    return seeded(1)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections, because nobody listens on it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server that accepts connections, and says nothing."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_server_that_answers_anything_is_reached_by_one_connection(
    ambient: Ambient, listener: socket.socket, scheme: str
) -> None:
    def refuse() -> None:
        with listener.accept()[0] as connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    thread = threading.Thread(target=refuse)
    thread.start()
    began = ambient.now_ms()
    check_reachable(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/path?a=b", ambient)
    thread.join()

    assert ambient.now_ms() - began < 1000


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_server_that_accepts_and_never_answers_is_not_reached(
    listener: socket.socket, scheme: str
) -> None:
    with pytest.raises(TimeoutError):
        services._ask(scheme, listener.getsockname(), 0.1)  # noqa: SLF001 - one short attempt


def test_refused_connection_is_tried_again_and_reported(ambient: Ambient, closed_port: int) -> None:
    with pytest.raises(StorageError, match=rf"127\.0\.0\.1:{closed_port}.*refused"):
        check_reachable(f"https://127.0.0.1:{closed_port}", ambient)


def test_server_that_comes_up_in_time_is_reached(ambient: Ambient) -> None:
    attempts: list[float] = []

    def opened(scheme: str, address: Address, seconds: float) -> None:
        attempts.append(seconds)
        if len(attempts) < 3:
            raise ConnectionRefusedError(111, "Connection refused")
        assert (scheme, address) == ("https", ("storage.example", 443))

    check_reachable("https://storage.example/x", ambient, opened)

    assert len(attempts) == 3


def test_server_that_is_silent_is_given_up_in_time() -> None:
    ambient, tried = seeded(1), []
    began = ambient.now_ms()

    def silent(scheme: str, address: Address, seconds: float) -> None:  # noqa: ARG001
        tried.append(seconds)
        ambient.sleep(seconds)
        raise TimeoutError("timed out")

    with pytest.raises(StorageError, match=r"hdfs://node:8020.*timed out"):
        check_reachable("hdfs://node", ambient, silent)

    assert len(tried) > 1
    assert (ambient.now_ms() - began) / 1000 <= SECONDS_MAX


@pytest.mark.parametrize("address", ["", "https://", "other://host", "bucket"])
def test_address_without_a_port_is_not_asked(address: str, ambient: Ambient) -> None:
    def never(scheme: str, address: Address, seconds: float) -> None:
        raise AssertionError((scheme, address, seconds))

    check_reachable(address, ambient, never)


def test_server_behind_a_proxy_is_not_asked(
    ambient: Ambient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "direct.example")
    asked: list[Address] = []

    def noted(scheme: str, address: Address, seconds: float) -> None:  # noqa: ARG001
        asked.append(address)

    check_reachable("https://storage.example", ambient, noted)
    check_reachable("https://direct.example", ambient, noted)

    assert asked == [("direct.example", 443)]


def test_address_shows_no_credentials(ambient: Ambient, closed_port: int) -> None:
    with pytest.raises(StorageError) as raised:
        check_reachable(f"http://user:hidden@127.0.0.1:{closed_port}/hidden", ambient)

    assert "hidden" not in str(raised.value)


def test_catalog_on_a_storage_that_is_down_is_refused_in_seconds(closed_port: int) -> None:
    options = {
        "warehouse": "s3://bucket/w",
        "s3.endpoint": f"http://127.0.0.1:{closed_port}",
        "s3.access-key": "a",
        "s3.secret-key": "b",
    }
    began = time.monotonic()
    with pytest.raises(StorageError, match="cannot be reached") as raised:
        lc.connect(options)

    assert float(str(raised.value.facts["waited_seconds"])) < SECONDS_MAX
    assert time.monotonic() - began < 60


def test_a_port_that_is_no_number_is_named() -> None:
    with pytest.raises(InvalidRequest, match="port of an address"):
        check_reachable("http://host:abc/x")
