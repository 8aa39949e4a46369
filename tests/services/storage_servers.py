"""The storage emulators of the tests: Google Cloud Storage, Azure Blob Storage and HDFS.

Each holds the bucket, container or file system `lake`, and is reached by options of a catalog.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from tests.services import servers, setup, tools
from tests.services.servers import Server, eventually, free_port, running

if TYPE_CHECKING:
    from collections.abc import Iterator

# The well-known account of Azurite, from its documentation.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True)
class Lake:
    """A place for tables, and the catalog options to reach it."""

    name: str
    root: str
    port: int
    options: dict[str, str] = field(default_factory=dict)

    def folder(self, name: str) -> str:
        return f"{self.root}/{name}"


@contextmanager
def fake_gcs() -> Iterator[Lake]:
    """fake-gcs-server with the bucket `lake`."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with servers.fresh_folder() as (place, _):
        server = Server(
            name="fake-gcs-server",
            port=port,
            folder=place,
            command=[
                str(tools.fake_gcs_server()),
                *("-scheme", "http", "-host", "127.0.0.1", "-port", str(port)),
                *("-public-host", f"127.0.0.1:{port}", "-external-url", address),
                *("-backend", "memory", "-log-level", "error"),
            ],
        )
        with running(server):
            buckets = f"{address}/storage/v1/b?project=lakecore"
            eventually(
                lambda: httpx.post(buckets, json={"name": "lake"}).raise_for_status(), server.name
            )
            yield Lake("gcs", "gs://lake", port, gcs_options(port))


def gcs_options(port: int) -> dict[str, str]:
    return {
        "fs.gs.storage.root.url": f"http://127.0.0.1:{port}/",
        "fs.gs.auth.type": "UNAUTHENTICATED",
        "fs.gs.project.id": "lakecore",
    }


@contextmanager
def azurite() -> Iterator[Lake]:
    """Azurite with the container `lake`."""
    from azure.storage.blob import BlobServiceClient

    port = free_port()
    with servers.fresh_folder() as (place, _):
        server = Server(
            name="azurite",
            port=port,
            folder=place,
            command=[
                *("node", str(tools.azurite()), "--blobHost", "127.0.0.1"),
                *("--blobPort", str(port), "--silent", "--skipApiVersionCheck"),
                *("--inMemoryPersistence", "--disableTelemetry"),
            ],
        )
        with running(server):
            client = BlobServiceClient.from_connection_string(
                f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};"
                f"BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT};"
            )
            with client:
                eventually(lambda: client.create_container("lake"), server.name)
            yield Lake(
                "azure", f"abfss://lake@{ACCOUNT}.dfs.core.windows.net", port, azure_options(port)
            )


def azure_options(port: int) -> dict[str, str]:
    return {
        "fs.azure.endpoint": f"http://127.0.0.1:{port}/{ACCOUNT}",
        f"fs.azure.account.key.{ACCOUNT}.dfs.core.windows.net": ACCOUNT_KEY,
    }


class Hdfs:
    """HDFS in one process. With two name nodes, `switch` makes the other one active."""

    def __init__(self, place: Path, *, name_nodes: int) -> None:
        setup.set_up(setup.MINI_HDFS)
        self.ports = [free_port() for _ in range(name_nodes)]
        self._ready = place / "ready"
        path = [str(setup.classes(setup.MINI_HDFS)), *map(str, setup.jars(setup.MINI_HDFS))]
        self._log = (place / "log").open("wb")
        self.process = subprocess.Popen(
            [
                *("java", "-Xmx768m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
                *("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",),
                *("--add-opens", "java.base/java.lang=ALL-UNNAMED", "-cp", ":".join(path)),
                *("MiniHdfs", str(place / "data"), str(self.ports[0])),
                *(str(self.ports[1] if name_nodes > 1 else 0), str(self._ready)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=place,
        )

    def await_start(self) -> None:
        def look() -> None:
            assert self.process.poll() is None, Path(self._log.name).read_text()[-3000:]
            self._ready.read_text()

        eventually(look, "HDFS")

    def switch(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().startswith(b"active")

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)
        self._log.close()


@contextmanager
def mini_hdfs() -> Iterator[Lake]:
    """HDFS with one name node and one data node."""
    with servers.fresh_folder() as (place, _):
        cluster = Hdfs(place, name_nodes=1)
        try:
            cluster.await_start()
            address = f"hdfs://127.0.0.1:{cluster.ports[0]}"
            yield Lake("hdfs", f"{address}/lake", cluster.ports[0])
        finally:
            cluster.stop()


@contextmanager
def secure_hdfs() -> Iterator[tuple[Lake, Path]]:
    """HDFS that asks for Kerberos, and the folder with krb5.conf and a ticket (ann.ccache)."""
    setup.set_up(setup.SECURE_HDFS)
    ports = [free_port() for _ in range(5)]
    path = [str(setup.classes(setup.SECURE_HDFS)), *map(str, setup.jars(setup.SECURE_HDFS))]
    with servers.fresh_folder() as (place, _), (place / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *("java", "-Xmx768m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
                *("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",),
                *("--add-opens", "java.base/java.lang=ALL-UNNAMED", "-cp", ":".join(path)),
                *("SecureHdfs", str(place), *map(str, ports)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=place,
        )

        def look() -> None:
            assert process.poll() is None, (place / "log").read_text()[-3000:]
            (place / "ready").read_text()

        try:
            eventually(look, "HDFS with Kerberos")
            options = {"hadoop.security.authentication": "kerberos"}
            # A ticket is for the name of the host, not for its address.
            yield Lake("hdfs", f"hdfs://localhost:{ports[0]}/lake", ports[0], options), place
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def mini_hdfs_pair() -> Iterator[tuple[Lake, Hdfs]]:
    """HDFS with a name node and a stand-by, known by the files of Hadoop's configuration."""
    with servers.fresh_folder() as (place, _):
        cluster = Hdfs(place, name_nodes=2)
        try:
            cluster.await_start()
            conf = place / "conf"
            conf.mkdir()
            (conf / "core-site.xml").write_text(_site({"fs.defaultFS": "hdfs://lake"}))
            (conf / "hdfs-site.xml").write_text(
                _site(
                    {
                        "dfs.nameservices": "lake",
                        "dfs.ha.namenodes.lake": "nn1,nn2",
                        "dfs.namenode.rpc-address.lake.nn1": f"127.0.0.1:{cluster.ports[0]}",
                        "dfs.namenode.rpc-address.lake.nn2": f"127.0.0.1:{cluster.ports[1]}",
                        "dfs.client.failover.proxy.provider.lake": (
                            "org.apache.hadoop.hdfs.server.namenode.ha."
                            "ConfiguredFailoverProxyProvider"
                        ),
                    }
                )
            )
            options = {"hadoop-conf-dir": str(conf)}
            yield Lake("hdfs", "hdfs:///lake", cluster.ports[0], options), cluster
        finally:
            cluster.stop()


def _site(settings: dict[str, str]) -> str:
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    return f"<configuration>{properties}</configuration>"


os.environ.setdefault("HADOOP_USER_NAME", "lakecore")
