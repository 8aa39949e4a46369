"""Messages of change data capture as Spark's Kafka source gives them, and their batches in Python.

`Queue` keeps the messages of some partitions. `Stream` calls a sink as Spark does, without a JVM: a
batch is planned once, its decoding tasks run in any order on pickled copies, the chunks are brought
together and sorted, and the writing tasks run. A restart repeats the last batch that is not done.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle

from spark_bridge.cdc_batches import CdcSettings, CdcSink, CdcTargets
from spark_bridge.cdc_decode import (
    MESSAGE_COLUMNS,
    ORDER,
    CdcTask,
    WrittenTargets,
    decode_function,
    write_function,
)
from spark_bridge.spread import decoded
from spark_bridge.task import MEMORY_PER_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from spark_bridge.cdc_batches import CdcBatch

SCHEMA = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
    }
)
POINTS = ("planned", "decoded", "written", "first commit", "committed")


class Crash(BaseException):
    """The driver dies."""


def change(
    table: str, old: dict[str, object] | None, new: dict[str, object] | None, db: str = "src"
) -> bytes:
    """A message of Debezium without a schema, so that all columns are text."""
    op = "c" if old is None else "d" if new is None else "u"
    source = {"db": db, "table": table}
    event = {"op": op, "before": old, "after": new, "source": source, "pkNames": ["id"]}
    return json.dumps(event).encode()


@dataclass
class Queue:
    """Messages by partition; a message of a key is always in the same one."""

    partitions: int = 1
    held: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    def put(self, message: bytes, key: object = 0) -> None:
        self.held[hash(key) % self.partitions].append(message)

    def ends(self) -> dict[int, int]:
        return {number: len(self.held[number]) for number in range(self.partitions)}

    def tasks(self, start: dict[int, int], end: dict[int, int]) -> list[pa.Table]:
        """The messages of a batch, a table for each partition."""
        found = []
        for number in range(self.partitions):
            begin, stop = start.get(number, 0), end.get(number, 0)
            values = self.held[number][begin:stop]
            count = len(values)
            columns = {
                "key": [None] * count,
                "value": values,
                "topic": ["t"] * count,
                "partition": [number] * count,
                "offset": list(range(begin, stop)),
                "timestamp": [0] * count,
                "timestampType": [0] * count,
            }
            if count:
                found.append(pa.table(columns, schema=SCHEMA))
        return found


@dataclass
class Log:
    """What Spark keeps of a query on disk."""

    query: str
    ends: list[dict[int, int]] = field(default_factory=list)
    done: int = 0


@dataclass
class Frame:
    """The batch that a sink gets."""

    query: str
    tasks: list[pa.Table]
    sparkSession: Any = None  # noqa: N815

    def __post_init__(self) -> None:
        self.sparkSession = self


def settings_of(warehouse: Path, **more: Any) -> CdcSettings:
    """The settings of a database action with Debezium's messages; `more` replaces some."""
    from lakecore.distributed import Arguments

    known: dict[str, Any] = {
        "options": {"warehouse": str(warehouse)},
        "arguments": Arguments(
            database="shop",
            table=more.pop("table", None),
            conf={"value.format": more.pop("format", "debezium-json")},
            table_conf=more.pop("table_conf", {"bucket": "2"}),
            flags={name: tuple(texts) for name, texts in more.pop("flags", {}).items()},
        ),
        "registry_url": None,
        "given": frozenset(MESSAGE_COLUMNS),
        "keeps_letters": False,
        "state": None,
        "commit_user": None,
        "compact_every": None,
        "tasks": 2,
        "memory_per_task": MEMORY_PER_TASK,
    }
    return CdcSettings(**{**known, **more})


@dataclass
class Stream:
    """A query from a queue into tables."""

    queue: Queue
    log: Log
    settings: CdcSettings
    random: Random = field(default_factory=lambda: Random(0))
    crash: str = ""
    found: list[CdcBatch] = field(default_factory=list)

    def run(self, monkeypatch: Any) -> list[CdcBatch]:
        """Run until there is nothing more."""
        from spark_bridge import cdc_batches

        sink = CdcSink(self.settings, self.found.append)
        published = CdcTargets.publish

        def publish(*given: Any) -> Any:
            self.die_at("written")
            if self.crash == "first commit":
                first = sorted(given[1])[:1]
                published(given[0], {name: given[1][name] for name in first}, *given[2:])
                self.die_at("first commit")
            return published(*given)

        with monkeypatch.context() as patch:
            patch.setattr(cdc_batches, "run_job", self._job)
            patch.setattr(cdc_batches, "query_of", lambda frame: (frame.query, None))
            patch.setattr(CdcTargets, "publish", publish)
            while self._batch(sink):
                pass
        return self.found

    def _batch(self, sink: CdcSink) -> bool:
        """Run the next batch; False if there is none."""
        log = self.log
        if len(log.ends) == log.done:
            ends = self.queue.ends()
            if not any(ends.values()) or (log.ends and log.ends[-1] == ends):
                return False
            log.ends.append(ends)
        self.die_at("planned")
        start = log.ends[-2] if len(log.ends) > 1 else {}
        frame: Any = Frame(log.query, self.queue.tasks(start, log.ends[-1]))
        sink(frame, log.done)
        self.die_at("committed")
        log.done += 1
        return True

    def _job(self, frame: Frame, task: CdcTask) -> list[WrittenTargets]:
        decode = cloudpickle.loads(cloudpickle.dumps(decode_function(task)))
        tasks = list(frame.tasks)
        self.random.shuffle(tasks)
        chunks: list[dict[str, Any]] = []
        for messages in tasks:
            size = self.random.choice([1, 3, 1000])
            for batch in decode(iter(messages.to_batches(max_chunksize=size))):
                chunks += batch.to_pylist()
        self.die_at("decoded")
        self.random.shuffle(chunks)
        return written(task, chunks)

    def die_at(self, point: str) -> None:
        if self.crash == point:
            self.crash = ""
            raise Crash(point)


def written(task: CdcTask, chunks: Sequence[dict[str, Any]]) -> list[WrittenTargets]:
    """What the writing tasks return for these chunks."""
    write: Callable[..., Any] = cloudpickle.loads(cloudpickle.dumps(write_function(task)))
    outcomes: list[Any] = []
    for owner in range(task.writers):
        own = [chunk for chunk in chunks if chunk["owner"] == owner]
        own.sort(key=lambda chunk: tuple(chunk[name] for name in ORDER))
        columns = {name: [chunk[name] for chunk in own] for name in ("target", "source", "content")}
        kinds = pa.schema({"target": pa.int32(), "source": pa.string(), "content": pa.binary()})
        batches = pa.table(columns, schema=kinds).to_batches()
        (outcome,) = write(iter(batches))
        outcomes.append(decoded(outcome.column("outcome")[0].as_py()))
    return outcomes
