"""The values that the driver, the decoding tasks and the writing tasks of a batch exchange.

A chunk is one row of Spark. It holds rows of one target for one writing task, as an Arrow stream.
Chunks are sorted by the task that decoded them, and by their number in it. The last row of each
decoding task is its report: it has no target, and reaches the driver through the first writing
task.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore import LakecoreError
    from lakecore.distributed.cdc import Arguments, SourceSchema, SourceTable
    from lakecore.distributed.descriptor import TableDescriptor
    from spark_bridge.task import TaskOutcome

__all__ = [
    "CHUNK_SCHEMA",
    "MESSAGE_COLUMNS",
    "NO_TARGET",
    "ORDER",
    "CdcTask",
    "DecodingReport",
    "WrittenTargets",
]

MESSAGE_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
"""The columns of a Kafka source of Spark, without the headers; only `value` is needed."""
CHUNK_SCHEMA = (
    "owner int, target int, topic string, partition int, offset bigint, task int, number int, "
    "source string, content binary"
)
ORDER = ("target", "topic", "partition", "offset", "task", "number")
NO_TARGET = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcTask:
    """The input of every task of a batch.

    - `given`: the columns of `MESSAGE_COLUMNS` that the frame has;
    - `targets`: the tables that are open, by name; a chunk names one by its position;
    - `done`: the targets that have this batch already;
    - `writers`: the number of writing tasks.
    """

    arguments: Arguments
    registry_url: str | None
    given: frozenset[str]
    keeps_letters: bool
    targets: Mapping[str, TableDescriptor]
    done: frozenset[str]
    job: str
    writers: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingReport:
    """The report of a decoding task to the driver.

    - `began`: topic, partition and offset of the first message, and the number of the task;
    - `ranges`: the first and the last offset of each topic and partition;
    - `wanted`: source tables and schemas whose target must be created or changed first;
    - `ordered`: the targets with a primary key that got rows.
    """

    began: tuple[str, int, int, int]
    messages: int
    ranges: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    wanted: tuple[tuple[SourceTable, SourceSchema], ...] = ()
    ordered: frozenset[str] = frozenset()
    letters: tuple[str, ...] = ()
    failure: LakecoreError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTargets:
    """The report of a writing task: its outcome for each target, and reports that it passes on."""

    outcomes: Mapping[str, TaskOutcome]
    reports: tuple[DecodingReport, ...]
