"""A Kafka broker, and Debezium on MariaDB, for the tests of change data capture."""

from __future__ import annotations

import base64
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

from tests.services.servers import PASSWORD, Server, eventually, free_port, running
from tests.services.setup import DEBEZIUM, KAFKA, classes, jars, set_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Event = tuple[str, bytes | None, bytes | None]
"""Topic, key and value."""


@contextmanager
def broker() -> Iterator[Server]:
    """One broker, which is its own controller."""
    set_up(KAFKA)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port, controller = free_port(), free_port()
        settings = folder / "server.properties"
        settings.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n"
            "controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"log.dirs={folder}/data\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
            "offsets.topic.num.partitions=1\ntransaction.state.log.num.partitions=1\n"
            "share.coordinator.state.topic.replication.factor=1\n"
            "group.initial.rebalance.delay.ms=0\n"
        )
        path = ":".join(map(str, jars(KAFKA)))
        java = ("java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp", path)
        cluster = base64.urlsafe_b64encode(b"lakecore-cluster").decode().rstrip("=")
        tool = (*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings))
        subprocess.run(tool, check=True, capture_output=True)
        server = Server(
            name="kafka",
            port=port,
            folder=folder,
            command=[*java, "kafka.Kafka", str(settings)],
        )
        with running(server):
            eventually(lambda: admin(server).list_topics(timeout=5), "kafka")
            yield server


def address(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


def admin(server: Server) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": address(server), "log_level": 0})


def create_topic(server: Server, name: str, partitions: int = 1) -> None:
    from confluent_kafka.admin import NewTopic

    client = admin(server)  # its futures end with it
    for done in client.create_topics([NewTopic(name, partitions, 1)]).values():
        done.result(30)


def produce(
    server: Server,
    topic: str,
    values: Sequence[bytes | None],
    *,
    partition: int = 0,
    keys: Sequence[bytes | None] | None = None,
    time_ms: int = 0,
) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address(server), "linger.ms": 5})
    for at, value in enumerate(values):
        key = keys[at] if keys else None
        producer.produce(topic, value=value, key=key, partition=partition, timestamp=time_ms)
        if at % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


class Debezium:
    """Debezium's engine on a MariaDB; its events come in order."""

    def __init__(self, database: Server, name: str, **settings: str) -> None:
        set_up(DEBEZIUM)
        stated = {
            "name": "e",
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
            "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
            "database.hostname": "127.0.0.1",
            "database.port": str(database.port),
            "database.user": "paimon",
            "database.password": PASSWORD,
            "database.server.id": "555",
            "database.ssl.mode": "disable",
            "topic.prefix": "m",
            "database.include.list": name,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        path = ":".join([str(classes(DEBEZIUM)), *map(str, jars(DEBEZIUM))])
        arguments = [f"{key}={value}" for key, value in stated.items()]
        self._process = subprocess.Popen(
            ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp", path, "Changes", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._events: Queue[Event] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def take(self, count: int, within: float = 120) -> list[Event]:
        """The next events."""
        try:
            return [self._events.get(timeout=within) for _ in range(count)]
        except Empty:
            raise AssertionError("Debezium sent fewer events") from None

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, rest = line.strip().partition(" ")
            if kind == "EVENT":
                topic, key, value = rest.split(" ")
                self._events.put((topic, _decoded(key), _decoded(value)))


def _decoded(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text)
