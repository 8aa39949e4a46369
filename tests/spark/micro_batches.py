"""Spark's micro-batches without Spark: it calls a source and a sink as Spark does, in Python alone.

A query keeps a checkpoint: its id, the offsets that were planned, and the batches that are done. As
in Spark, a batch is planned, its offsets are stored, its tasks run on pickled copies in any order,
`commit` gets the pickled messages in another writer, and the batch is done. A restart repeats the
last batch that is not done. `Crash` is raised at a named point of a batch.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from lakecore.distributed import ROW_KIND
from spark_bridge import stream_source
from spark_bridge.source import LakecoreSource
from spark_bridge.stream_commit import QUERY_ID
from spark_bridge.types import spark_schema
from tests.spark.streams import HAS_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import lakecore as lc

if not HAS_LIMITS:
    # Spark 4.1 passes no limit. The calls of later versions are played there as well.
    for name in ("ReadAllAvailable", "ReadMaxFiles"):
        setattr(stream_source, name, type(name, (), {"__init__": lambda *_: None}))

Rows = list[dict[str, Any]]
POINTS = ("planned", "one task", "written", "committed", "done")


class Crash(BaseException):
    """The driver dies."""


@dataclass
class Checkpoint:
    """What Spark keeps of a query on disk."""

    query: str
    offsets: list[tuple[str, str]] = field(default_factory=list)
    done: int = 0


class TaskStandIn:
    """In place of Spark's `TaskContext`: tells the tasks the id of the query."""

    query: ClassVar[str | None] = None

    @classmethod
    def get(cls) -> TaskStandIn:
        return cls()

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        return self.query if key == QUERY_ID else None


def source_of(table: lc.Table, options: dict[str, str]) -> Any:
    """The reader, made as Spark makes it: the schema is inferred, and the source is pickled."""
    source = LakecoreSource({"path": table.path, **options})
    schema = source.schema()
    return pickle.loads(pickle.dumps(source)).streamReader(schema)


@dataclass
class Query:
    """A query from the changes of a table to a function or a sink.

    `available`: as with `Trigger.AvailableNow`. `crash` names the point where the next batch dies.
    """

    table: lc.Table
    checkpoint: Checkpoint
    options: dict[str, str] = field(default_factory=lambda: {"read.changelog": "true"})
    available: bool = True
    random: Random = field(default_factory=lambda: Random(0))
    crash: str = ""

    def run(self, each: Callable[[int, list[pa.Table]], None]) -> list[Rows]:
        """Run until there is nothing more. `each` gets the batch and the rows of each task."""
        reader = source_of(self.table, self.options)
        limit = reader.getDefaultReadLimit()
        if self.available:
            reader.prepareForTriggerAvailableNow()
        found: list[Rows] = []
        log = self.checkpoint
        if len(log.offsets) == log.done:
            self._plan(reader, limit)
        while len(log.offsets) > log.done:
            start, end = log.offsets[-1]
            self.die_at("planned")
            tasks = [
                self._read(reader, part) for part in reader.partitions(_json(start), _json(end))
            ]
            self.random.shuffle(tasks)
            each(len(log.offsets) - 1, tasks)
            found.append([row for task in tasks for row in task.to_pylist()])
            log.done += 1
            self.die_at("done")
            self._plan(reader, limit)
            if len(log.offsets) > log.done:
                # Spark tells the source when it has planned the next batch.
                reader.commit(_json(end))
        return found

    def rows(self) -> list[Rows]:
        """The rows of each batch."""
        return self.run(lambda *_: None)

    def _plan(self, reader: Any, limit: Any) -> None:
        log = self.checkpoint
        start = log.offsets[-1][1] if log.offsets else json.dumps(reader.initialOffset())
        end = json.dumps(reader.latestOffset(_json(start), limit))
        if end != start:
            log.offsets.append((start, end))

    def _read(self, reader: Any, partition: Any) -> pa.Table:
        copy, value = pickle.loads(pickle.dumps((reader, partition)))
        batches = list(copy.read(value))
        schema = batches[0].schema if batches else pa.schema([])
        return pa.Table.from_batches(batches, schema)

    def die_at(self, point: str) -> None:
        if self.crash == point:
            self.crash = ""
            raise Crash(point)


def into(
    target: lc.Table, query: Query, shape: Callable[[pa.Table], pa.Table], **options: str
) -> Callable[[int, list[pa.Table]], None]:
    """The function of `Query.run` that writes each batch by the streaming sink.

    `shape` turns the rows of a batch into those to write. As `prepare` does, one task of the sink
    gets all rows of a bucket: here there is one task of two, so another one writes nothing.
    """
    source = LakecoreSource({"path": target.path, **options})

    def write(batch: int, tasks: list[pa.Table]) -> None:
        TaskStandIn.query = query.checkpoint.query
        shaped = [shape(task) for task in tasks if task.num_columns]
        rows = pa.concat_tables(shaped) if shaped else None
        names = rows.schema.names if rows is not None else target.schema.names
        own = [each for each in spark_schema(target.schema.fields).fields if each.name in names]
        if ROW_KIND in names:
            own.append(StructField(ROW_KIND, StringType()))
        spark = StructType(own)
        writer = pickle.dumps(source.streamWriter(spark, False))
        parts: list[Iterator[pa.RecordBatch]] = [
            iter([] if rows is None else rows.to_batches()),
            iter([]),
        ]
        messages = [pickle.loads(pickle.dumps(pickle.loads(writer).write(parts[0])))]
        query.die_at("one task")
        messages.append(pickle.loads(writer).write(parts[1]))
        query.die_at("written")
        committer = pickle.loads(pickle.dumps(source.streamWriter(spark, False)))
        committer.commit(messages, batch)
        if query.crash == "committed":
            committer.abort(messages, batch)  # as Spark does after an error in `commit`
        query.die_at("committed")

    return write


def _json(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found
