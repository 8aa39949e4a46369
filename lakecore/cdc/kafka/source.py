"""Topics of Kafka as a source. Its position is the next offset of each partition.

1. A pipeline with a position continues at its offsets. A pipeline without one starts where
   `scan.startup.mode` says. A partition that appears later is read from its first message.
2. A step holds the messages that arrived, in the order of each partition. All messages of a key are
   in one partition, so they keep their order.
3. The source has caught up when it has reached, in each partition, the end offset that the
   partition had when the source started.

The offsets are stored in the pipeline's state; the source never commits offsets to Kafka.
Messages of aborted transactions are not read, unless `properties.isolation.level` says so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakecore.cdc.events import Step
from lakecore.cdc.formats.registry import decoder_for
from lakecore.cdc.kafka.client import KafkaClient
from lakecore.cdc.kafka.settings import StartupMode
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.cdc.events import Position, SourceSchema, SourceTable
    from lakecore.cdc.kafka.client import Partition
    from lakecore.cdc.kafka.settings import KafkaSettings
    from lakecore.cdc.types.mapping import TypeMapping
    from lakecore.io.ambient import Ambient

__all__ = ["KafkaSource"]

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
        """The messages as changes, until the caller stops."""
        client = self._client
        partitions = self._partitions()
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
                position=_position(offsets, time_ms),
                batches=tuple(batches),
                bad=tuple(bad),
                caught_up=not behind,
            )
            if self._ambient.now_ms() - looked_ms >= self._settings.discovery_seconds * 1000 > 0:
                looked_ms = self._ambient.now_ms()
                new = [each for each in self._partitions() if each not in offsets]
                found = {each: low for each, (low, _) in client.bounds(new).items()}
                if found:
                    client.add(found)
                    offsets.update(found)

    def close(self) -> None:
        """Close the connections to the brokers."""
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
                "a topic is not there",
                topics=missing,
                brokers=self._settings.consumer["bootstrap.servers"],
            )
        return [(name, number) for name in topics for number in there[name]]

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


def _position(offsets: Mapping[Partition, int], time_ms: int) -> Position:
    """The offsets as a position, with the time of the newest message (if any) for the lag."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), at in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(number)] = at
    return {_OFFSETS: topics, **({"time_ms": time_ms} if time_ms else {})}


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
