"""The Kafka consumer: partitions with offsets, their ends, and batches of messages.

Errors of the client are raised as lakecore's: InvalidRequest for a wrong option, StorageError for a
broker that cannot be reached (the caller may try again). Offsets that the topic no longer has raise
InvalidRequest: the user must decide whether to continue without the missing messages.

The client silently retries a lost connection. Its event "all brokers are down" is no reliable sign:
it does not come in every outage, and may come after one. Therefore, if no message arrives, this
module requests the metadata of a topic, and raises an error if there is no reply.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from lakecore.cdc.formats.messages import Messages
from lakecore.errors import InvalidRequest, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

__all__ = ["Fetched", "KafkaClient", "Partition"]

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
    """An error of the Kafka client, or an event that it reports as an error."""

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
        """Read these partitions in addition."""
        parts = [self._library.TopicPartition(*each, at) for each, at in offsets.items()]
        self._asked(lambda: self._consumer.incremental_assign(parts))

    def fetch(self, wait_seconds: float) -> Fetched:
        """The next messages; waits at most that time for them.

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
        """Close the connections to the brokers."""
        self._consumer.close()

    def _adapt(self, messages: Messages) -> None:
        """Request fewer messages if they are large, so that a step fits in memory."""
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
        """Call the client. Its errors are raised as lakecore's."""
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
