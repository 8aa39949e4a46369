from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.services import servers, setup
from tests.services.hive import client
from tests.services.jdbc import JdbcServer, mysql_server, postgresql_server

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(setup.HERE):
            item.add_marker(pytest.mark.services)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[JdbcServer]:
    with servers.postgresql() as server:
        yield postgresql_server(server)


@pytest.fixture(scope="session")
def mysql() -> Iterator[JdbcServer]:
    with servers.mariadb() as server:
        yield mysql_server(server)


@pytest.fixture(scope="session")
def hive() -> Iterator[servers.Server]:
    setup.set_up(setup.HIVE)
    with servers.hive_metastore() as server:
        servers.eventually(lambda: client(server).databases(), server.name)
        yield server
