from __future__ import annotations

import pytest

from lakecore.cdc.kafka import KafkaSettings, StartupMode
from lakecore.errors import InvalidRequest, Unsupported

NEEDED = {
    "properties.bootstrap.servers": "localhost:9092",
    "properties.group.id": "g",
    "topic": "a;b",
    "value.format": "debezium-json",
}


def test_the_options_of_paimon_are_known() -> None:
    settings = KafkaSettings.parse(
        {
            **NEEDED,
            "properties.auto.offset.reset": "earliest",
            "properties.security.protocol": "ssl",
            "scan.topic-partition-discovery.interval": "10 s",
        }
    )

    assert (settings.topics, settings.startup) == (("a", "b"), StartupMode.GROUP)
    assert (settings.reset, settings.discovery_seconds) == ("earliest", 10)
    assert dict(settings.consumer) == {
        "bootstrap.servers": "localhost:9092",
        "group.id": "g",
        "security.protocol": "ssl",
    }


def test_offsets_of_partitions() -> None:
    settings = KafkaSettings.parse(
        {
            **NEEDED,
            "scan.startup.mode": "specific-offsets",
            "scan.startup.specific-offsets": "partition:0,offset:42;partition:1,offset:300",
        }
    )

    assert settings.offsets == {0: 42, 1: 300}


def test_a_password_is_not_shown() -> None:
    settings = KafkaSettings.parse({**NEEDED, "properties.sasl.password": "hush"})

    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"properties.bootstrap.servers": None}, "properties.bootstrap.servers"),
        ({"topic": None}, "either topic or topic-pattern"),
        ({"topic-pattern": "x"}, "either topic or topic-pattern"),
        ({"topic": None, "topic-pattern": "("}, "regular expression"),
        ({"value.format": None}, "value.format"),
        ({"value.format": "csv"}, "value.format"),
        ({"scan.startup.mode": "now"}, "scan.startup.mode"),
        ({"scan.startup.mode": "timestamp"}, "belong together"),
        ({"scan.startup.timestamp-millis": "1"}, "belong together"),
        ({"scan.startup.mode": "specific-offsets"}, "belong together"),
        (
            {
                "scan.startup.mode": "specific-offsets",
                "scan.startup.specific-offsets": "0:1",
            },
            "partition:0,offset:42",
        ),
        (
            {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "today"},
            "milliseconds",
        ),
        ({"properties.group.id": None}, "properties.group.id"),
        ({"properties.auto.offset.reset": "sometimes"}, "auto.offset.reset"),
        ({"scan.topic-partition-discovery.interval": "soon"}, "not a duration"),
        ({"sink.parallelism": "1"}, "unknown options"),
    ],
)
def test_a_wrong_option_is_named(changes: dict[str, str | None], message: str) -> None:
    conf = {key: value for key, value in {**NEEDED, **changes}.items() if value is not None}

    with pytest.raises(InvalidRequest, match=message):
        KafkaSettings.parse(conf)


@pytest.mark.parametrize("name", ["enable.auto.commit", "key.deserializer", "sasl.jaas.config"])
def test_a_property_that_cannot_act_is_unsupported(name: str) -> None:
    with pytest.raises(Unsupported, match=name):
        KafkaSettings.parse({**NEEDED, f"properties.{name}": "x"})
