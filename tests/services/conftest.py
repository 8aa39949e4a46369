from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.io.http import get_json
from tests.interop.protocol import Peer
from tests.interop.setup_peers import lakes_python, set_up_lakes
from tests.services import servers, setup, storage_servers
from tests.services.hive import client
from tests.services.jdbc import JdbcServer, mysql_server, postgresql_server
from tests.services.mirrors import connect, postgres
from tests.stores import s3_service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.storage_servers import Lake


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


@pytest.fixture
def quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source in this process learns sooner that its server is idle."""
    monkeypatch.setattr("lakecore.cdc.mysql.binlog.HEARTBEAT_SECONDS", 0.05)


@pytest.fixture(scope="session")
def mariadb_log() -> Iterator[servers.Server]:
    """MariaDB with a log that can be mirrored; a test that kills it starts it again."""
    with servers.mariadb(*servers.BINARY_LOG, "--max-allowed-packet=64M") as server:
        servers.eventually(lambda: connect(server), server.name)
        yield server


@pytest.fixture(scope="session")
def postgres_log() -> Iterator[servers.Server]:
    """PostgreSQL whose log can be mirrored."""
    flags = (
        "-c",
        "wal_level=logical",
        "-c",
        "max_replication_slots=30",
        "-c",
        "max_wal_senders=30",
    )
    with servers.postgresql(*flags) as server:
        servers.eventually(lambda: postgres(server), server.name)
        yield server


@pytest.fixture(scope="session")
def hive() -> Iterator[servers.Server]:
    setup.set_up(setup.HIVE)
    with servers.hive_metastore() as server:
        servers.eventually(lambda: client(server).databases(), server.name)
        yield server


@pytest.fixture(scope="session")
def iceberg_rest() -> Iterator[servers.Server]:
    setup.set_up(setup.ICEBERG_REST)
    with servers.iceberg_rest() as server:
        address = f"http://127.0.0.1:{server.port}/v1/config"
        servers.eventually(lambda: get_json(address), server.name)
        yield server


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """PyIceberg in an environment of its own."""
    set_up_lakes()
    command = [str(lakes_python()), "-m", "tests.interop.iceberg_peer"]
    peer = Peer("iceberg", command, tmp_path_factory.mktemp("iceberg") / "log")
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def gcs() -> Iterator[Lake]:
    with storage_servers.fake_gcs() as lake:
        yield lake


@pytest.fixture(scope="session")
def azure() -> Iterator[Lake]:
    with storage_servers.azurite() as lake:
        yield lake


@pytest.fixture(scope="session")
def hdfs() -> Iterator[Lake]:
    with storage_servers.mini_hdfs() as lake:
        yield lake


@pytest.fixture(scope="session")
def s3() -> Iterator[Lake]:
    with s3_service() as service:
        with service.client() as client:
            client.create_bucket(Bucket="lake")
        yield storage_servers.Lake("s3", "s3://lake", 0, service.options)
