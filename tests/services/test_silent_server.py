"""A server that accepts a connection and says nothing is given up after the connect timeout."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.cdc.mysql.connection import MySqlSettings, connect
from lakecore.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.services

LONG_SECONDS = 20


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_catalog_gives_up(tmp_path: Path, port: int) -> None:
    begin = time.monotonic()

    with pytest.raises(StorageError, match=r"timed out.*lakecore\.connect-timeout"):
        lc.connect(
            {
                "metastore": "jdbc",
                "uri": f"jdbc:mysql://127.0.0.1:{port}/db",
                "jdbc.user": "u",
                "jdbc.password": "p",
                "warehouse": str(tmp_path),
                "lakecore.connect-timeout": "1 s",
            }
        ).list_databases()
    assert time.monotonic() - begin < LONG_SECONDS


@pytest.mark.parametrize("stream", [False, True])
def test_mirror_gives_up(port: int, *, stream: bool) -> None:
    settings = MySqlSettings.parse(
        {
            "hostname": "127.0.0.1",
            "port": str(port),
            "username": "u",
            "password": "p",
            "database-name": "d",
            "connect.timeout": "1",
        }
    )
    begin = time.monotonic()

    with pytest.raises(StorageError, match="does not answer in time"):
        connect(settings, stream=stream)
    assert time.monotonic() - begin < LONG_SECONDS
