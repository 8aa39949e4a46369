"""Topics of a real Kafka as a source of changes."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.cdc.actions import Arguments
from lakecore.cdc.kafka import KafkaSettings, KafkaSource
from lakecore.cdc.pipeline import Pipeline, run_pipeline
from lakecore.cdc.retry import Patience
from lakecore.cdc.types.mapping import DEFAULT_MAPPING
from lakecore.errors import InvalidRequest, StorageError
from lakecore.io.ambient import SYSTEM
from tests.services.kafka import address, admin, broker, create_topic, produce
from tests.services.servers import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.cdc.events import Position
    from tests.services.servers import Server


@pytest.fixture(scope="module")
def kafka() -> Iterator[Server]:
    with broker() as server:
        yield server


def source(kafka: Server, topic: str, **conf: str) -> KafkaSource:
    options = {
        "properties.bootstrap.servers": address(kafka),
        "topic": topic,
        "value.format": "json",
        "scan.startup.mode": "earliest-offset",
        **{key.replace("__", ".").replace("_", "-"): value for key, value in conf.items()},
    }
    if "topic-pattern" in options:
        del options["topic"]
    return KafkaSource(KafkaSettings.parse(options), DEFAULT_MAPPING, SYSTEM)


def rows(numbers: range) -> list[bytes | None]:
    return [json.dumps({"n": number}).encode() for number in numbers]


def read(
    opened: KafkaSource, after: Position | None = None, count: int | None = None
) -> tuple[list[int], Position]:
    """The numbers until the source has caught up, or that many of them; and the position.

    The source is read as a pipeline reads it: a broker that has just come back may be slow.
    """
    found: list[int] = []
    seen = [after]
    try:
        for step in Patience(60, SYSTEM, bool).steps(opened, lambda: seen[-1]):
            seen.append(step.position)
            for batch in step.batches:
                found += map(int, batch.rows["n"].to_pylist())
            if step.caught_up if count is None else len(found) >= count:
                return found, step.position
    finally:
        opened.close()
    raise AssertionError


def test_a_topic_is_read_to_its_end_and_on_from_a_position(kafka: Server) -> None:
    create_topic(kafka, "plain")
    produce(kafka, "plain", [*rows(range(5)), None])

    first, position = read(source(kafka, "plain"))
    produce(kafka, "plain", rows(range(5, 8)))
    second, _ = read(source(kafka, "plain"), position)

    assert (first, second) == ([0, 1, 2, 3, 4], [5, 6, 7])
    assert position["offsets"] == {"plain": {"0": 6}}
    assert isinstance(position["time_ms"], int)


def test_every_partition_has_an_offset_of_its_own(kafka: Server) -> None:
    create_topic(kafka, "parts", 3)
    produce(kafka, "parts", rows(range(3)), partition=0)
    produce(kafka, "parts", rows(range(10, 12)), partition=2)

    found, position = read(source(kafka, "parts"))

    assert sorted(found) == [0, 1, 2, 10, 11]
    assert position["offsets"] == {"parts": {"0": 3, "1": 0, "2": 2}}


def test_the_source_is_the_same_under_another_address_of_its_brokers(kafka: Server) -> None:
    create_topic(kafka, "identity")
    first = source(kafka, "identity")
    second = source(
        kafka, "identity", properties__bootstrap__servers=f"localhost:{kafka.port},127.0.0.1:1"
    )
    try:
        assert first.describe() == second.describe()
        assert first.describe()["cluster"]
    finally:
        first.close()
        second.close()


def test_startup_modes(kafka: Server) -> None:
    create_topic(kafka, "modes")
    produce(kafka, "modes", rows(range(3)), time_ms=1_000_000)
    produce(kafka, "modes", rows(range(3, 6)), time_ms=2_000_000)

    def start(**conf: str) -> list[int]:
        return read(source(kafka, "modes", **conf))[0]

    assert start(scan__startup__mode="latest-offset") == []
    at_time = {"scan__startup__mode": "timestamp", "scan__startup__timestamp_millis": "1500000"}
    assert start(**at_time) == [3, 4, 5]
    specific = {
        "scan__startup__mode": "specific-offsets",
        "scan__startup__specific_offsets": "partition:0,offset:4",
    }
    assert start(**specific) == [4, 5]
    group = {"scan__startup__mode": "group-offsets", "properties__group__id": "g-modes"}
    with pytest.raises(InvalidRequest, match="group has no offset"):
        start(**group)
    assert start(**group, properties__auto__offset__reset="earliest") == [0, 1, 2, 3, 4, 5]
    commit(kafka, "g-modes", "modes", 2)
    assert start(**group) == [2, 3, 4, 5]


def commit(kafka: Server, group: str, topic: str, offset: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address(kafka), "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_several_topics_and_a_pattern(kafka: Server) -> None:
    for name, numbers in (("p-a", range(2)), ("p-b", range(2, 4)), ("other", range(9, 10))):
        create_topic(kafka, name)
        produce(kafka, name, rows(numbers))

    assert sorted(read(source(kafka, "p-a;other"))[0]) == [0, 1, 9]
    assert sorted(read(source(kafka, "", topic_pattern="p-.*"))[0]) == [0, 1, 2, 3]
    with pytest.raises(InvalidRequest, match="no topic matches"):
        source(kafka, "", topic_pattern="q-.*").tables()
    with pytest.raises(InvalidRequest, match="topics=\\[nowhere\\]"):
        source(kafka, "p-a;nowhere").tables()


def test_a_new_topic_of_a_pattern_is_found(kafka: Server) -> None:
    create_topic(kafka, "late-1")
    produce(kafka, "late-1", rows(range(1)))
    conf = {"topic_pattern": "late-.*", "scan__topic_partition_discovery__interval": "200 ms"}
    opened = source(kafka, "", **conf)
    found: list[int] = []
    for step in opened.steps(None):
        found += [int(n) for batch in step.batches for n in batch.rows["n"].to_pylist()]
        if found == [0] and step.caught_up:
            create_topic(kafka, "late-2")
            produce(kafka, "late-2", rows(range(5, 7)))
            found.append(-1)
        if len(found) == 4:
            break
    opened.close()

    assert found == [0, -1, 5, 6]


def test_messages_of_aborted_transactions_are_not_read(kafka: Server) -> None:
    from confluent_kafka import Producer

    create_topic(kafka, "transactions")
    settings = {"bootstrap.servers": address(kafka), "transactional.id": "x"}
    producer = Producer({**settings, "log_level": 0})
    producer.init_transactions(60)
    for numbers, keeps in ((range(3), True), (range(100, 103), False), (range(3, 5), True)):
        producer.begin_transaction()
        for value in rows(numbers):
            producer.produce("transactions", value=value)
        producer.flush()
        producer.commit_transaction(60) if keeps else producer.abort_transaction(60)

    assert read(source(kafka, "transactions"))[0] == [0, 1, 2, 3, 4]


def test_metadata_says_where_a_message_was(kafka: Server) -> None:
    create_topic(kafka, "metadata")
    produce(kafka, "metadata", rows(range(2)), time_ms=1_700_000_000_123)
    opened = source(kafka, "metadata")
    found: list[dict[str, Any]] = []
    for step in opened.steps(None):
        for batch in step.batches:
            assert batch.metadata is not None
            found += batch.metadata.to_pylist()
        if step.caught_up:
            break
    opened.close()

    assert [(row["topic"], row["partition"], row["offset"]) for row in found] == [
        ("metadata", 0, 0),
        ("metadata", 0, 1),
    ]
    assert found[0]["timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert found[0]["timestamp_type"] == "CreateTime"


def test_a_message_that_cannot_be_read_is_named(kafka: Server) -> None:
    create_topic(kafka, "broken")
    produce(kafka, "broken", [b'{"n": 1}', b"{", b'{"n": 2}'])

    opened = source(kafka, "broken")
    bad = next(step.bad for step in opened.steps(None) if step.batches)
    opened.close()

    assert "topic=broken partition=0 offset=1" in str(bad[0])


def test_a_position_that_expired_is_refused(kafka: Server) -> None:
    create_topic(kafka, "expired")
    produce(kafka, "expired", rows(range(2)))

    with pytest.raises(InvalidRequest, match="no longer has the messages"):
        read(source(kafka, "expired"), {"offsets": {"expired": {"0": 50}}}, count=1)


def test_a_topic_that_is_created_again_is_refused(kafka: Server) -> None:
    create_topic(kafka, "renewed")
    produce(kafka, "renewed", rows(range(3)))
    _, position = read(source(kafka, "renewed"))
    client = admin(kafka)
    client.delete_topics(["renewed"])["renewed"].result()

    def is_gone() -> None:
        assert "renewed" not in client.list_topics(timeout=5).topics

    eventually(is_gone, "a deleted topic")
    create_topic(kafka, "renewed")
    produce(kafka, "renewed", rows(range(10, 15)))

    with pytest.raises(InvalidRequest, match=r"created again.*renewed"):
        read(source(kafka, "renewed"), position)


def test_a_broker_that_is_away_is_a_storage_error() -> None:
    with broker() as server:
        create_topic(server, "t")
        produce(server, "t", rows(range(2)))
        opened = source(server, "t")
        steps = opened.steps(None)
        seen = next(steps)
        while not seen.caught_up:
            seen = next(steps)
        server.kill()
        with pytest.raises(StorageError, match="Kafka"):
            for _ in zip(range(120), steps, strict=False):
                pass
        server.start()
        produce(server, "t", rows(range(2, 4)))

        # What the client noticed while the broker was away is no error now.
        assert read(opened, seen.position)[0] == [2, 3]


def test_a_broker_that_is_stuck_is_a_storage_error() -> None:
    with broker() as server:
        create_topic(server, "stuck")
        produce(server, "stuck", rows(range(2)))
        opened = source(server, "stuck")
        steps = opened.steps(None)
        seen = next(steps)
        while not seen.caught_up:
            seen = next(steps)
        assert server.process is not None
        # Its connections stay open, so the client reports nothing.
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(StorageError, match="Kafka"):
                for _ in zip(range(120), steps, strict=False):
                    pass
        finally:
            server.kill()
        server.start()
        produce(server, "stuck", rows(range(2, 4)))

        assert read(opened, seen.position)[0] == [2, 3]


@pytest.mark.parametrize(
    "conf",
    [
        {"properties__no__such__property": "1"},
        {"properties__sasl__mechanism": "nonsense", "properties__security__protocol": "sasl_ssl"},
    ],
)
def test_a_property_that_the_client_refuses(kafka: Server, conf: dict[str, str]) -> None:
    with pytest.raises((InvalidRequest, StorageError)):
        source(kafka, "t", **conf).tables()


def test_documents_of_mongodb_become_tables_and_follow(kafka: Server, tmp_path: Path) -> None:
    """Messages as Debezium's connector makes them of MongoDB before and since version 6."""

    def change(
        collection: str, number: object, op: str, before: object = None, after: object = None
    ) -> tuple[bytes, bytes]:
        images = {"before": before, "after": after}
        payload = {
            **{name: None if each is None else json.dumps(each) for name, each in images.items()},
            "op": op,
            "source": {"db": "shop", "collection": collection},
        }
        key = {"id": json.dumps(number)}
        wrapped = ({"schema": {}, "payload": each} for each in (key, payload))
        sent_key, sent = (json.dumps(each).encode() for each in wrapped)
        return sent_key, sent

    def send(*changes: tuple[bytes, bytes]) -> None:
        for topic in ("users", "orders"):
            mine = [each for each in changes if f'"{topic}"'.encode() in each[1]]
            produce(
                kafka, f"mongo.{topic}", [each[1] for each in mine], keys=[each[0] for each in mine]
            )

    def mirror() -> dict[str, list[dict[str, Any]]]:
        arguments = Arguments(
            database="lake",
            conf={
                "properties.bootstrap.servers": address(kafka),
                "topic-pattern": "mongo\\..*",
                "value.format": "debezium-bson",
                "scan.startup.mode": "earliest-offset",
            },
            table_conf={"bucket": "1"},
            flags={"table_prefix": ["m_"]},
        )
        pipeline = Pipeline(action="kafka_sync_database", arguments=arguments)
        run_pipeline(catalog, pipeline, SYSTEM, until_caught_up=True)
        found = {name: catalog.get_table(f"lake.{name}") for name in catalog.list_tables("lake")}
        return {name: each.to_arrow().sort_by("_id").to_pylist() for name, each in found.items()}

    catalog = open_catalog({"warehouse": str(tmp_path)}, create=True)
    for topic in ("users", "orders"):
        create_topic(kafka, f"mongo.{topic}")
    number = {"$oid": "67ab25755c0d5ac87eb8c632"}
    send(
        change("users", number, "r", None, {"_id": number, "name": "Ünï 😀", "age": 7}),
        change("orders", 1, "c", None, {"_id": 1, "total": {"$numberDecimal": "1.50"}}),
        change("orders", 2, "c", None, {"_id": 2, "lines": [{"a": 1}, None]}),
    )
    first = mirror()
    send(
        change("users", number, "u", None, {"_id": number, "name": "new", "tags": ["x"]}),
        change("orders", 1, "d"),
        change("orders", 2, "u", {"_id": 2, "lines": []}, {"_id": 2, "total": 3}),
    )
    second = mirror()

    user = {"_id": number["$oid"], "name": "Ünï 😀", "age": "7"}
    assert first == {
        "m_users": [user],
        "m_orders": [
            {"_id": "1", "total": "1.50", "lines": None},
            {"_id": "2", "total": None, "lines": '[{"a":1},null]'},
        ],
    }
    assert second == {
        "m_users": [{**user, "name": "new", "age": None, "tags": '["x"]'}],
        "m_orders": [{"_id": "2", "total": "3", "lines": None}],
    }
