"""Changes that are read from topics of Kafka."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from lakecore.cdc.actions import (
    DATABASE_FLAGS,
    TABLE_FLAGS,
    Action,
    Arguments,
    Opened,
    checked_pattern,
    database_opened,
    startup_mode,
    table_opened,
)
from lakecore.cdc.events import Position, SourceSchema, SourceTable, Step
from lakecore.cdc.formats.decoder import Messages
from lakecore.cdc.formats.registry import VALUE_FORMATS, decoder_for
from lakecore.errors import InvalidRequest, StorageError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

    from lakecore.cdc.types.mapping import TypeMapping
    from lakecore.io.ambient import Ambient
    from lakecore.model.types import Json


# --- settings ------------------------------------------------------------------------------------
# `--kafka_conf`: the options of a Kafka source, as Paimon's actions take them.
#
# `properties.NAME` is a property of the consumer. Names are those of librdkafka, which mostly equal
# Kafka's. Exceptions: `sasl.username` and `sasl.password` replace `sasl.jaas.config`, and PEM files
# replace key stores.
#
# See https://paimon.apache.org/docs/master/cdc-ingestion/kafka-cdc/ and
# https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md

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
        startup = startup_mode(StartupMode, conf.get("scan.startup.mode", StartupMode.GROUP))
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
    checked_pattern("topic-pattern", pattern or "")
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


# --- client --------------------------------------------------------------------------------------
# The Kafka consumer: partitions with offsets, their ends, and batches of messages.
#
# Errors of the client are raised as lakecore's: InvalidRequest for a wrong option, StorageError for
# a broker that cannot be reached (the caller may try again). Offsets that the topic no longer has
# raise InvalidRequest: the user must decide whether to continue without the missing messages.
#
# The client silently retries a lost connection. The event "all brokers are down" is no reliable
# sign: some outages have no such event, or a late one. Therefore, if no message arrives, this
# module requests the metadata of a topic, and raises an error if there is no reply.

Partition: TypeAlias = tuple[str, int]
T = TypeVar("T")

log = logging.getLogger("lakecore.cdc")

_TIMEOUT_SECONDS = 30.0
_PROBE_TIMEOUT_SECONDS = 10.0
_SILENCE_SECONDS_MAX = 5.0
_MESSAGES_MAX = 10_000
_BYTES_WANTED = 32 << 20
_TIMESTAMP_TYPES = {0: "NoTimestampType", 1: "CreateTime", 2: "LogAppendTime"}
_DEFAULTS = {
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
}


class KafkaError(Protocol):
    """An error of the Kafka client, or an event that the client reports as an error."""

    def code(self) -> int: ...
    def str(self) -> str: ...


class Message(Protocol):
    """A message of the client."""

    def error(self) -> KafkaError | None: ...
    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...


@dataclass(slots=True)
class Fetched:
    """Messages, the next offset of each partition, and the partitions whose end was reached.

    `time_ms` is the time of the newest message; 0 without messages.
    """

    messages: Messages
    offsets: dict[Partition, int] = field(default_factory=dict)
    ends: set[Partition] = field(default_factory=set)
    time_ms: int = 0


class KafkaClient:
    """A consumer that reads the partitions that the caller assigns."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._library = _confluent_kafka()
        self._properties = properties
        self._brokers = properties["bootstrap.servers"]
        self._topic: str | None = None
        self._silent_seconds = 0.0
        settings: dict[str, object] = {
            "group.id": "lakecore",
            **properties,
            **_DEFAULTS,
            "error_cb": self._on_error,
            "logger": log,
        }
        try:
            self._consumer = self._library.Consumer(settings)
        except (self._library.KafkaException, TypeError, ValueError) as error:
            raise InvalidRequest(
                "the Kafka client refuses its properties", brokers=self._brokers, cause=error
            ) from error
        self._wanted = 1_000

    def cluster(self) -> str:
        """The id of the cluster; empty if its brokers have none."""
        found = self._asked(lambda: self._consumer.list_topics(timeout=_TIMEOUT_SECONDS))
        return str(found.cluster_id or "")

    def partitions(self) -> dict[str, list[int]]:
        """The partitions of every topic of the cluster."""
        found = self._asked(lambda: self._consumer.list_topics(timeout=_TIMEOUT_SECONDS))
        return {
            name: sorted(topic.partitions)
            for name, topic in found.topics.items()
            if topic.error is None
        }

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id of each topic; a topic that is created again has another id.

        Brokers before Kafka 2.8 have no ids.
        """
        library = import_module("confluent_kafka.admin")
        admin = library.AdminClient({**self._properties, "log_level": "3"})
        asked = self._library.TopicCollection(sorted({*topics}))
        described = admin.describe_topics(asked, request_timeout=_TIMEOUT_SECONDS)
        found = self._asked(lambda: {name: each.result() for name, each in described.items()})
        ids = {name: each.topic_id for name, each in found.items()}
        return {
            name: str(each)
            for name, each in ids.items()
            if each.get_most_significant_bits() or each.get_least_significant_bits()
        }

    def bounds(self, partitions: Sequence[Partition]) -> dict[Partition, tuple[int, int]]:
        """For each partition, its first remaining offset, and the offset after its last message."""
        return {each: self._asked(partial(self._bounds, each)) for each in partitions}

    def _bounds(self, partition: Partition) -> tuple[int, int]:
        asked = self._library.TopicPartition(*partition)
        low, high = self._consumer.get_watermark_offsets(asked, timeout=_TIMEOUT_SECONDS)
        return low, high

    def committed(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The offsets that the consumer group committed, for the partitions that have one."""
        asked = [self._library.TopicPartition(*each) for each in partitions]
        found = self._asked(lambda: self._consumer.committed(asked, timeout=_TIMEOUT_SECONDS))
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def at_time(self, partitions: Sequence[Partition], time_ms: int) -> dict[Partition, int]:
        """The first offset at or after a time, for each partition that has one."""
        asked = [self._library.TopicPartition(*each, time_ms) for each in partitions]
        found = self._asked(
            lambda: self._consumer.offsets_for_times(asked, timeout=_TIMEOUT_SECONDS)
        )
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def assign(self, offsets: Mapping[Partition, int]) -> None:
        """Begin to read these partitions at these offsets."""
        parts = [self._library.TopicPartition(*each, at) for each, at in offsets.items()]
        self._topic = next((topic for topic, _ in offsets), None)
        self._asked(lambda: self._consumer.assign(parts))

    def add(self, offsets: Mapping[Partition, int]) -> None:
        """Also read these partitions, at these offsets."""
        parts = [self._library.TopicPartition(*each, at) for each, at in offsets.items()]
        self._asked(lambda: self._consumer.incremental_assign(parts))

    def fetch(self, wait_seconds: float) -> Fetched:
        """The next messages; waits at most that time.

        Raises StorageError or InvalidRequest.
        """
        got: list[Message] = self._asked(lambda: self._consumer.consume(self._wanted, wait_seconds))
        fetched = Fetched(Messages(values=()))
        kept: list[Message] = []
        for each in got:
            error = each.error()
            if error is None:
                kept.append(each)
            elif error.code() == self._library.KafkaError._PARTITION_EOF:  # noqa: SLF001 its name
                fetched.ends.add((each.topic(), each.partition()))
                fetched.offsets[each.topic(), each.partition()] = each.offset()
            else:
                self._raise(each, error)
        self._silent_seconds = 0.0 if got else self._silent_seconds + wait_seconds
        if self._silent_seconds >= _SILENCE_SECONDS_MAX:
            self._silent_seconds = 0.0
            self._probe()
        fetched.messages = _messages(kept)
        for each in kept:
            place = each.topic(), each.partition()
            fetched.offsets[place] = max(fetched.offsets.get(place, 0), each.offset() + 1)
            fetched.time_ms = max(fetched.time_ms, each.timestamp()[1])
        self._adapt(fetched.messages)
        return fetched

    def close(self) -> None:
        self._consumer.close()

    def _adapt(self, messages: Messages) -> None:
        """Request fewer messages if messages are large, so that a step fits in memory."""
        if messages.values:
            size = sum(len(value) for value in messages.values if value is not None)
            average = max(size // len(messages.values), 1)
            self._wanted = max(1, min(_MESSAGES_MAX, _BYTES_WANTED // average))

    def _probe(self) -> None:
        """Raise StorageError if no broker answers."""
        try:
            self._consumer.list_topics(self._topic, timeout=_PROBE_TIMEOUT_SECONDS)
        except self._library.KafkaException as error:
            raise StorageError(
                "no Kafka broker can be reached", brokers=self._brokers, cause=error.args[0].str()
            ) from error

    def _on_error(self, error: KafkaError) -> None:
        """Log an error after which the client retries by itself. The client calls this."""
        log.debug("Kafka client. error=%s", error.str())

    def _raise(self, message: Message, error: KafkaError) -> None:
        code, names = error.code(), self._library.KafkaError
        place = {"topic": message.topic(), "partition": message.partition()}
        if code in {names._AUTO_OFFSET_RESET, names.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001
            raise InvalidRequest(
                "the topic no longer has the messages at this position: they expired, or the topic "
                "was created again. Start a new pipeline, and choose its scan.startup.mode",
                **place,
                cause=error.str(),
            )
        if code in {names.UNKNOWN_TOPIC_OR_PART, names.TOPIC_AUTHORIZATION_FAILED}:
            raise InvalidRequest("the topic cannot be read", **place, cause=error.str())
        raise StorageError("Kafka reports an error", **place, cause=error.str())

    def _asked(self, call: Callable[[], T]) -> T:
        """Call the client, and raise its errors as lakecore's."""
        try:
            return call()
        except self._library.KafkaException as error:
            raise StorageError(
                "Kafka does not answer", brokers=self._brokers, cause=error.args[0].str()
            ) from error
        except RuntimeError as error:
            raise StorageError("the Kafka client is closed", brokers=self._brokers) from error


def _messages(kept: Sequence[Message]) -> Messages:
    if not kept:
        return Messages(values=())
    stamps = [each.timestamp() for each in kept]
    metadata = pa.table(
        {
            "topic": pa.array([each.topic() for each in kept]).dictionary_encode(),
            "partition": pa.array([each.partition() for each in kept], pa.int32()),
            "offset": pa.array([each.offset() for each in kept], pa.int64()),
            "timestamp": pa.array(
                [None if kind == 0 else at for kind, at in stamps], pa.timestamp("ms", tz="UTC")
            ),
            "timestamp_type": pa.array([_TIMESTAMP_TYPES[kind] for kind, _ in stamps]),
        }
    )
    return Messages(
        values=[each.value() for each in kept],
        keys=[each.key() for each in kept],
        metadata=metadata,
    )


def _confluent_kafka() -> ModuleType:
    try:
        return import_module("confluent_kafka")
    except ImportError as error:
        raise InvalidRequest(
            "a Kafka source needs confluent-kafka: pip install 'lakecore[cdc-kafka]'"
        ) from error


# --- source --------------------------------------------------------------------------------------
# Topics of Kafka as a source. Its position is the next offset of each partition.
#
# 1. A pipeline with a position continues at its offsets. A pipeline without one starts where
#    `scan.startup.mode` says. A partition that appears later is read from its first message.
# 2. A step holds the messages that arrived, in the order of each partition. All messages of a key
#    are in one partition, so they keep their order.
# 3. The source has caught up when it has reached, in each partition, the end offset that the
#    partition had when the source started.
#
# Offsets are stored in the state of the pipeline; the source never commits offsets to Kafka.
# Messages of aborted transactions are not read, unless `properties.isolation.level` says so.

_WAIT_SECONDS = 0.5
_OFFSETS = "offsets"


class KafkaSource:
    """Reads messages of one format from one or more topics."""

    def __init__(self, settings: KafkaSettings, mapping: TypeMapping, ambient: Ambient) -> None:
        self._settings = settings
        self._ambient = ambient
        self._decoder = decoder_for(settings.value_format, mapping, settings.registry_url)
        self._opened: KafkaClient | None = None

    def tables(self) -> Mapping[SourceTable, SourceSchema]:
        """Empty: the tables are known only from messages.

        Raises InvalidRequest without a topic.
        """
        self._partitions()
        return {}

    def describe(self) -> Mapping[str, str]:
        """The cluster, the topics and the format; not the brokers, whose addresses may change."""
        settings = self._settings
        return {
            "source": "kafka",
            "cluster": self._client.cluster(),
            "topics": settings.topic_pattern or ";".join(settings.topics),
            "format": settings.value_format,
        }

    def steps(self, after: Position | None) -> Iterator[Step]:
        client = self._client
        partitions = self._partitions()
        ids = self._ids(partitions, {} if after is None else after.get("ids"))
        bounds = client.bounds(partitions)
        offsets = _parsed(after)
        if offsets is None:
            offsets = self._first(partitions, bounds)
        for each in partitions:
            offsets.setdefault(each, bounds[each][0])
        offsets = {each: at for each, at in offsets.items() if each in bounds}
        behind = {each for each, at in offsets.items() if at < bounds[each][1]}
        client.assign(offsets)
        looked_ms = self._ambient.now_ms()
        time_ms = _time_of(after)
        while True:
            fetched = client.fetch(_WAIT_SECONDS)
            time_ms = max(time_ms, fetched.time_ms)
            bad: list[InvalidRequest] = []
            batches = self._decoder.decode(fetched.messages, bad.append)
            for each, at in fetched.offsets.items():
                offsets[each] = max(at, offsets.get(each, 0))
            behind -= fetched.ends
            behind = {each for each in behind if offsets[each] < bounds[each][1]}
            yield Step(
                position=_position(offsets, time_ms, ids),
                batches=tuple(batches),
                bad=tuple(bad),
                caught_up=not behind,
            )
            if self._ambient.now_ms() - looked_ms >= self._settings.discovery_seconds * 1000 > 0:
                looked_ms = self._ambient.now_ms()
                partitions = self._partitions()
                ids = self._ids(partitions, ids)
                new = [each for each in partitions if each not in offsets]
                found = {each: low for each, (low, _) in client.bounds(new).items()}
                if found:
                    client.add(found)
                    offsets.update(found)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _client(self) -> KafkaClient:
        if self._opened is None:
            self._opened = KafkaClient(self._settings.consumer)
        return self._opened

    def _partitions(self) -> list[Partition]:
        """The partitions of the topics. Raises InvalidRequest if a topic does not exist."""
        there = self._client.partitions()
        pattern = self._settings.topic_pattern
        if pattern is not None:
            topics = [name for name in sorted(there) if re.fullmatch(pattern, name)]
            if not topics:
                raise InvalidRequest("no topic matches topic-pattern", pattern=pattern)
        else:
            topics = list(self._settings.topics)
        missing = [name for name in topics if not there.get(name)]
        if missing:
            raise InvalidRequest(
                "a topic does not exist",
                topics=missing,
                brokers=self._settings.consumer["bootstrap.servers"],
            )
        return [(name, number) for name in topics for number in there[name]]

    def _ids(self, partitions: Sequence[Partition], before: Json) -> dict[str, Json]:
        """The ids of the topics. Raises InvalidRequest if a topic was created again."""
        known = before if isinstance(before, dict) else {}
        found = self._client.ids(topic for topic, _ in partitions)
        again = [name for name, each in found.items() if known.get(name, each) != each]
        if again:
            raise InvalidRequest(
                "a topic was deleted and created again, so the offsets of the pipeline are not "
                "those of its messages: drop the targets, and start a pipeline with another --name",
                topics=again,
            )
        return {**found}

    def _first(
        self, partitions: Sequence[Partition], bounds: Mapping[Partition, tuple[int, int]]
    ) -> dict[Partition, int]:
        """The offsets at which a new pipeline starts."""
        settings = self._settings
        low = {each: bounds[each][0] for each in partitions}
        high = {each: bounds[each][1] for each in partitions}
        match settings.startup:
            case StartupMode.EARLIEST:
                return low
            case StartupMode.LATEST:
                return high
            case StartupMode.TIMESTAMP:
                assert settings.timestamp_ms is not None
                return high | self._client.at_time(partitions, settings.timestamp_ms)
            case StartupMode.SPECIFIC:
                absent = [each for each in partitions if each[1] not in settings.offsets]
                if absent:
                    raise InvalidRequest(
                        "scan.startup.specific-offsets lacks a partition", partitions=absent
                    )
                return {each: settings.offsets[each[1]] for each in partitions}
            case StartupMode.GROUP:
                found = self._client.committed(partitions)
                absent = [each for each in partitions if each not in found]
                if absent and settings.reset == "none":
                    raise InvalidRequest(
                        "the group has no offset for a partition; set "
                        "properties.auto.offset.reset to earliest or latest, or another "
                        "scan.startup.mode",
                        group=settings.consumer["group.id"],
                        partitions=absent,
                    )
                return (low if settings.reset == "earliest" else high) | found


def _position(offsets: Mapping[Partition, int], time_ms: int, ids: Mapping[str, Json]) -> Position:
    """The offsets as a position, with the ids of the topics.

    The position also has the time of the newest message (if any), for the lag.
    """
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), at in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(number)] = at
    return {
        _OFFSETS: topics,
        **({"time_ms": time_ms} if time_ms else {}),
        **({"ids": dict(ids)} if ids else {}),
    }


def _time_of(position: Position | None) -> int:
    found = None if position is None else position.get("time_ms")
    return found if isinstance(found, int) else 0


def _parsed(position: Position | None) -> dict[Partition, int] | None:
    if position is None:
        return None
    match position:
        case {"offsets": dict(topics)}:
            try:
                return {
                    (topic, int(number)): int(at)
                    for topic, numbers in topics.items()
                    for number, at in numbers.items()
                }
            except (ValueError, TypeError, AttributeError):
                pass
    raise InvalidRequest("not a position in Kafka topics", position=position)


# --- actions -------------------------------------------------------------------------------------
# The actions `kafka_sync_table` and `kafka_sync_database`.
#
# See https://paimon.apache.org/docs/master/cdc-ingestion/kafka-cdc/

MESSAGE_METADATA = ("topic", "partition", "offset", "timestamp", "timestamp_type")
"""The metadata columns of messages in topics."""


def _sync_table(arguments: Arguments, ambient: Ambient) -> Opened:
    return table_opened(arguments, ambient, _source(arguments, ambient), MESSAGE_METADATA)


def _sync_database(arguments: Arguments, ambient: Ambient) -> Opened:
    return database_opened(arguments, ambient, _source(arguments, ambient), MESSAGE_METADATA)


def _source(arguments: Arguments, ambient: Ambient) -> KafkaSource:
    return KafkaSource(KafkaSettings.parse(arguments.conf), arguments.mapping, ambient)


KAFKA_ACTIONS = {
    "kafka_sync_table": Action(
        conf="kafka_conf", takes_table=True, opens=_sync_table, flags=TABLE_FLAGS
    ),
    "kafka_sync_database": Action(
        conf="kafka_conf", takes_table=False, opens=_sync_database, flags=DATABASE_FLAGS
    ),
}
