"""`--kafka_conf`: the options of a Kafka source, as Paimon's actions take them.

`properties.NAME` is a property of the consumer. Names are those of librdkafka, which are Kafka's
with a few exceptions: `sasl.username` and `sasl.password` replace `sasl.jaas.config`, and PEM files
replace key stores.

See https://paimon.apache.org/docs/master/cdc-ingestion/kafka-cdc/ and
https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from lakecore.cdc.formats.registry import VALUE_FORMATS
from lakecore.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KafkaSettings", "StartupMode"]

_PROPERTY = "properties."
_OWN = frozenset(
    {
        "topic",
        "topic-pattern",
        "value.format",
        "scan.startup.mode",
        "scan.startup.specific-offsets",
        "scan.startup.timestamp-millis",
        "scan.topic-partition-discovery.interval",
        "schema.registry.url",
    }
)
_RESERVED = {
    "enable.auto.commit": "offsets are kept with the commits of the tables",
    "enable.partition.eof": "the source needs it to know that it has caught up",
    "key.deserializer": "keys are read by the format",
    "value.deserializer": "values are read by the format",
    "sasl.jaas.config": "use properties.sasl.username and properties.sasl.password",
}
_OFFSET = re.compile(r"partition:(\d+),offset:(\d+)")
_DISCOVERY = re.compile(r"(\d+)\s*(ms|s|sec|m|min|h)?")
_SECONDS = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, None: 0.001}
_RESETS = frozenset({"earliest", "latest", "none"})


class StartupMode(StrEnum):
    """Where a pipeline without a stored position starts."""

    EARLIEST = "earliest-offset"
    LATEST = "latest-offset"
    GROUP = "group-offsets"
    SPECIFIC = "specific-offsets"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The checked options.

    `reset`: where the startup mode `group-offsets` starts in a partition without a committed
    offset.
    """

    value_format: str
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    startup: StartupMode = StartupMode.GROUP
    offsets: Mapping[int, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    discovery_seconds: float = 300.0
    registry_url: str | None = field(default=None, repr=False)
    reset: str = "none"
    consumer: Mapping[str, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def parse(conf: Mapping[str, str]) -> KafkaSettings:
        """The settings. Raises InvalidRequest or Unsupported, naming the option."""
        consumer = {
            key.removeprefix(_PROPERTY): value
            for key, value in conf.items()
            if key.startswith(_PROPERTY)
        }
        unknown = [key for key in conf if not key.startswith(_PROPERTY) and key not in _OWN]
        if unknown:
            raise InvalidRequest(
                "unknown options of the source", options=unknown, known=sorted(_OWN)
            )
        for name, reason in _RESERVED.items():
            if name in consumer:
                raise Unsupported(f"the property cannot be set: {reason}", property=name)
        if "bootstrap.servers" not in consumer:
            raise InvalidRequest(
                "kafka_conf needs an option", option="properties.bootstrap.servers"
            )
        topics, pattern = _topics(conf)
        startup = _startup(conf)
        reset = consumer.pop("auto.offset.reset", "none").lower()
        if reset not in _RESETS:
            raise InvalidRequest(
                "unknown value", option="properties.auto.offset.reset", known=sorted(_RESETS)
            )
        if startup is StartupMode.GROUP and "group.id" not in consumer:
            raise InvalidRequest(
                "group-offsets needs an option; another scan.startup.mode does not",
                option="properties.group.id",
            )
        return KafkaSettings(
            value_format=_format(conf),
            topics=topics,
            topic_pattern=pattern,
            startup=startup,
            offsets=_specific(conf, startup),
            timestamp_ms=_timestamp(conf, startup),
            discovery_seconds=_discovery(conf),
            registry_url=_registry(conf),
            reset=reset,
            consumer=consumer,
        )


def _topics(conf: Mapping[str, str]) -> tuple[tuple[str, ...], str | None]:
    topics = tuple(filter(None, (each.strip() for each in conf.get("topic", "").split(";"))))
    pattern = conf.get("topic-pattern")
    if bool(topics) == bool(pattern):
        raise InvalidRequest("kafka_conf needs either topic or topic-pattern")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise InvalidRequest(
            "not a regular expression", option="topic-pattern", value=pattern, cause=error
        ) from error
    return topics, pattern


def _format(conf: Mapping[str, str]) -> str:
    name = conf.get("value.format")
    if name is None or name not in VALUE_FORMATS:
        raise InvalidRequest("value.format is not one of these", given=name, known=VALUE_FORMATS)
    return name


def _registry(conf: Mapping[str, str]) -> str | None:
    option = "schema.registry.url"
    url = conf.get(option)
    if (url is not None) != (conf.get("value.format") == "debezium-avro"):
        raise InvalidRequest(f"{option} and value.format=debezium-avro belong together")
    return url


def _startup(conf: Mapping[str, str]) -> StartupMode:
    text = conf.get("scan.startup.mode", StartupMode.GROUP)
    if text not in set(StartupMode):
        raise InvalidRequest(
            "unknown value", option="scan.startup.mode", value=text, known=list(StartupMode)
        )
    return StartupMode(text)


def _specific(conf: Mapping[str, str], startup: StartupMode) -> dict[int, int]:
    option = "scan.startup.specific-offsets"
    text = conf.get(option)
    if (text is not None) != (startup is StartupMode.SPECIFIC):
        raise InvalidRequest(f"{option} and scan.startup.mode=specific-offsets belong together")
    if text is None:
        return {}
    found = [_OFFSET.fullmatch(each.strip()) for each in text.strip("; ").split(";")]
    if not all(found):
        raise InvalidRequest(
            "write partition:0,offset:42;partition:1,offset:300", option=option, value=text
        )
    return {int(each[1]): int(each[2]) for each in found if each is not None}


def _timestamp(conf: Mapping[str, str], startup: StartupMode) -> int | None:
    option = "scan.startup.timestamp-millis"
    text = conf.get(option)
    if (text is not None) != (startup is StartupMode.TIMESTAMP):
        raise InvalidRequest(f"{option} and scan.startup.mode=timestamp belong together")
    if text is not None and not text.isdecimal():
        raise InvalidRequest("not a number of milliseconds", option=option, value=text)
    return None if text is None else int(text)


def _discovery(conf: Mapping[str, str]) -> float:
    option = "scan.topic-partition-discovery.interval"
    text = conf.get(option, "5 min")
    found = _DISCOVERY.fullmatch(text.strip())
    if found is None:
        raise InvalidRequest("not a duration", option=option, value=text)
    return int(found[1]) * _SECONDS[found[2]]
