"""A decoding task: decodes messages to changes, and cuts them into chunks for the writing tasks.

1. The decoder of the format reads the messages of an Arrow batch.
2. The rules of the action give the target of each source table. If the target is not open, or needs
   another schema first, the task reports the source's schema: the driver changes the table and runs
   the job again.
3. Rows get the columns of their target, and are grouped by the task that owns their bucket.

Messages are ordered by their offsets. Offsets that do not rise within a task are an error, because
an older change would replace a newer one.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore import CommitMessage, InvalidRequest, LakecoreError
from lakecore.distributed import (
    MESSAGE_METADATA,
    SYSTEM,
    Arguments,
    ChangeBatch,
    DeadLetters,
    Decoder,
    Messages,
    SourceSchema,
    SourceTable,
    TableDescriptor,
    TableWrite,
    TargetRows,
    TargetRules,
    database_rules,
    decoder_for,
    does_not_fit,
    fitting,
    in_order,
    needed_changes,
    of_job,
    shaped,
    table_rules,
)
from spark_bridge.failures import DATA_ERRORS, portable, raised_in_task
from spark_bridge.placement import RoutingKeys, owner_numbers, routing_of
from spark_bridge.spread import answer
from spark_bridge.task import TaskOutcome, attempted
from spark_bridge.worker import Batches, acknowledge, partition_number, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


# --- cdc values ----------------------------------------------------------------------------------
# The values that the driver, the decoding tasks and the writing tasks of a batch exchange.
#
# A chunk is one row of Spark, with rows of one target for one writing task, as an Arrow stream.
# Chunks are sorted by their decoding task, and by their number in the task. The last row of each
# decoding task is its report, which has no target and reaches the driver through the first writing
# task.

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
    - `targets`: the open tables, by name; a chunk refers to a table by position;
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
    """The report of a writing task: its outcome for each target, and forwarded reports."""

    outcomes: Mapping[str, TaskOutcome]
    reports: tuple[DecodingReport, ...]


# --- cdc decode ----------------------------------------------------------------------------------

_CHUNK_COLUMNS = {
    "owner": pa.int32(),
    "target": pa.int32(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "task": pa.int32(),
    "number": pa.int32(),
    "source": pa.string(),
    "content": pa.binary(),
}
_METADATA_MEMORY = 64 << 20
_TIMESTAMP_TYPES = pa.array(["NoTimestampType", "CreateTime", "LogAppendTime"])


def rules_for(arguments: Arguments, given: frozenset[str]) -> TargetRules:
    """The rules of the action: for one table, or for the tables that the messages name.

    An existing table gets missing columns (`widens_existing`): a batch that is repeated after a
    crash may find the columns in another order than the attempt that created the table.
    """
    metadata = [name for name in MESSAGE_METADATA if _column_of(name) in given]
    make = database_rules if arguments.table is None else table_rules
    return replace(make(arguments, SYSTEM, metadata), widens_existing=True)


def _column_of(name: str) -> str:
    return "timestampType" if name == "timestamp_type" else name


def decode_function(task: CdcTask) -> Callable[[Batches], Batches]:
    """The function for `mapInArrow`: maps messages to chunks, followed by the report."""

    def decode(batches: Batches) -> Batches:
        acknowledge()
        with raised_in_task():
            yield from _Decoding(task).chunks(batches)
        set_aside("decode")

    return decode


class _Target:
    def __init__(self, task: CdcTask, name: str, position: int) -> None:
        context = task.targets[name].context(_METADATA_MEMORY)
        self.name = name
        self.position = position
        self.schema = context.schema
        self.rows = TargetRows(context)
        self.routing: RoutingKeys | None = routing_of(context)


class _Decoding:
    """The state of one attempt of a decoding task."""

    def __init__(self, task: CdcTask) -> None:
        self._task = task
        self._number = partition_number()
        self._rules = rules_for(task.arguments, task.given)
        self._decoder: Decoder = decoder_for(
            task.arguments.conf["value.format"], task.arguments.mapping, task.registry_url
        )
        self._letters = DeadLetters() if task.keeps_letters else None
        self._positions = {name: at for at, name in enumerate(sorted(task.targets))}
        self._targets: dict[str, _Target] = {}
        self._fits: dict[SourceTable, SourceSchema] = {}
        self._wanted: dict[tuple[SourceTable, SourceSchema], None] = {}
        self._ordered: set[str] = set()
        self._ranges: dict[tuple[str, int], tuple[int, int]] = {}
        self._began = ("", 0, 0, self._number)
        self._messages = 0
        self._chunks = 0

    def chunks(self, batches: Batches) -> Batches:
        """The chunks of the task's messages, and the report."""
        failure = None
        try:
            for batch in batches:
                if batch.num_rows:
                    yield from self._decoded(batch)
        except DATA_ERRORS as error:
            failure = portable(error)
        except LakecoreError as error:
            raise portable(error, task=self._number) from error
        if self._messages or failure is not None:
            yield self._report(failure)

    def _decoded(self, batch: pa.RecordBatch) -> Batches:
        self._look_at_offsets(batch)
        self._messages += batch.num_rows
        bad: list[InvalidRequest] = []
        found: dict[str, list[ChangeBatch]] = {}
        changes = self._decoder.decode(_messages(batch, self._task.given), bad.append)
        if bad and self._letters is None:
            raise bad[0]
        for error in bad:
            assert self._letters is not None
            self._letters.add_message(error)
        for each in changes:
            name = self._target_of(each)
            if name is not None:
                parts = shaped(self._rules, name, each, self._letters)
                found.setdefault(name, []).extend(parts)
        if self._wanted:
            return
        for target, own in found.items():
            for part in in_order(own, joins=self._letters is None):
                yield from self._cut(self._opened(target), part)

    def _target_of(self, batch: ChangeBatch) -> str | None:
        """The target of the rows; None if they are not written in this attempt."""
        name = self._rules.target(batch.table)
        if name is None or name in self._task.done:
            return None
        if name not in self._task.targets:
            self._wanted[batch.table, batch.schema] = None
            return None
        if self._fits.get(batch.table) != batch.schema:
            schema = self._opened(name).schema
            if needed_changes(self._rules, name, schema, batch.table, batch.schema):
                self._wanted[batch.table, batch.schema] = None
                return None
            self._fits[batch.table] = batch.schema
        return name

    def _opened(self, name: str) -> _Target:
        if name not in self._targets:
            self._targets[name] = _Target(self._task, name, self._positions[name])
        return self._targets[name]

    def _cut(self, target: _Target, batch: ChangeBatch) -> Batches:
        """The rows of a batch as chunks, one for each writing task that owns some of them."""
        fits = fitting(target.name, target.rows, batch, self._letters)
        rows = target.rows.written(fits)
        if not rows.num_rows:
            return
        if target.routing is None:
            yield self._chunk(target, self._number, batch, rows)
            return
        self._ordered.add(target.name)
        owners = self._owners(target.routing, rows)
        for owner in np.unique(owners):
            own = rows.filter(pa.array(owners == owner))
            yield self._chunk(target, int(owner), batch, own)

    def _owners(self, routing: RoutingKeys, rows: pa.Table) -> np.ndarray:
        names = [name for name in routing.schema.names if name in rows.column_names]
        keys = rows.select(names).combine_chunks()
        struct = pa.StructArray.from_arrays(
            [column.combine_chunks() for column in keys.columns], names=names
        )
        try:
            return owner_numbers(struct, routing, self._task.writers)
        except DATA_ERRORS:
            # The task that gets the rows says what is wrong with them.
            return np.zeros(rows.num_rows, dtype=np.int32)

    def _chunk(
        self, target: _Target, owner: int, batch: ChangeBatch, rows: pa.Table
    ) -> pa.RecordBatch:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        content = sink.getvalue().to_pybytes()
        return self._row(owner + target.position, target.position, str(batch.table), content)

    def _report(self, failure: LakecoreError | None) -> pa.RecordBatch:
        report = DecodingReport(
            began=self._began,
            messages=self._messages,
            ranges=self._ranges,
            wanted=tuple(self._wanted),
            ordered=frozenset(self._ordered),
            letters=tuple(self._letters.lines) if self._letters is not None else (),
            failure=failure,
        )
        return self._row(0, NO_TARGET, "", pickle.dumps(report))

    def _row(self, owner: int, target: int, source: str, content: bytes) -> pa.RecordBatch:
        self._chunks += 1
        values = (owner % self._task.writers, target, *self._began, self._chunks, source, content)
        return pa.RecordBatch.from_arrays(
            [
                pa.array([value], kind)
                for value, kind in zip(values, _CHUNK_COLUMNS.values(), strict=True)
            ],
            names=list(_CHUNK_COLUMNS),
        )

    def _look_at_offsets(self, batch: pa.RecordBatch) -> None:
        """Record the offsets of each partition. Raises InvalidRequest unless they increase."""
        if "offset" not in self._task.given:
            return
        for topic, partition, offsets in _by_partition(batch):
            first, last = int(offsets[0]), int(offsets[-1])
            before = self._ranges.get((topic, partition))
            rises = bool(np.all(np.diff(offsets) > 0))
            if not rises or (before is not None and first <= before[1]):
                raise InvalidRequest(
                    "the messages of a partition are out of order: pass the frame of the source as "
                    "it is, without a sort or a shuffle",
                    topic=topic,
                    partition=partition,
                    offset=first,
                )
            if not self._ranges:
                self._began = (topic, partition, first, self._number)
            self._ranges[topic, partition] = (first if before is None else before[0], last)


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[str, int, np.ndarray]]:
    """The offsets of each topic and partition, in the order of the batch."""
    topics = batch.column("topic").fill_null("").dictionary_encode()
    codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    partitions = batch.column("partition").fill_null(0).to_numpy(zero_copy_only=False)
    offsets = batch.column("offset").to_numpy(zero_copy_only=False)
    pairs = (codes << 32) | partitions.astype(np.int64)
    kinds, places = np.unique(pairs, return_inverse=True)
    names: Sequence[str] = topics.dictionary.to_pylist()
    order = np.argsort([int(np.argmax(places == at)) for at in range(len(kinds))])
    for at in order:
        pair = int(kinds[at])
        yield names[pair >> 32], pair & 0xFFFFFFFF, offsets[places == at]


def _messages(batch: pa.RecordBatch, given: frozenset[str]) -> Messages:
    """The messages with the metadata that the frame has, in the types of a Kafka source."""
    metadata = {}
    for name in MESSAGE_METADATA:
        column = _column_of(name)
        if column not in given:
            continue
        values = batch.column(column)
        if name == "timestamp":
            values = values.cast(pa.timestamp("ms", tz="UTC"), safe=False)
        elif name == "timestamp_type":
            # Spark has Kafka's numbers: -1 none, 0 created, 1 appended.
            numbers = values.to_numpy(zero_copy_only=False)
            values = _TIMESTAMP_TYPES.take(pa.array(np.nan_to_num(numbers, nan=-1).astype(int) + 1))
        metadata[name] = values
    return Messages(
        values=batch.column("value").to_pylist(),
        keys=batch.column("key").to_pylist() if "key" in given else None,
        metadata=pa.table(metadata) if metadata else None,
    )


# --- cdc write -----------------------------------------------------------------------------------
# A writing task: writes chunks of rows of several targets to data files, and returns the outcomes.
#
# Chunks are sorted by target, then in the order of the messages. The task writes one target after
# another, each within the task's memory.


def write_function(task: CdcTask) -> Callable[[Batches], Batches]:
    """The function for `mapInArrow`: maps chunks to the outcomes of the targets."""

    def write(batches: Batches) -> Batches:
        acknowledge()
        with raised_in_task():
            yield answer(partition_number(), _written(task, batches))
        set_aside("write changes")

    return write


def _written(task: CdcTask, batches: Batches) -> WrittenTargets:
    names = sorted(task.targets)
    outcomes: dict[str, TaskOutcome] = {}
    reports: list[DecodingReport] = []
    for target, chunks in groupby(_chunks(batches), key=lambda chunk: chunk[0]):
        if target == NO_TARGET:
            reports += [pickle.loads(content) for _, _, content in chunks]  # noqa: S301  of our tasks
        else:
            name = names[target]
            outcomes[name] = _outcome(task, name, task.targets[name], chunks)
    return WrittenTargets(outcomes=outcomes, reports=tuple(reports))


def _chunks(batches: Batches) -> Iterator[tuple[int, str, pa.Buffer]]:
    """The target, the source and the content of each chunk."""
    for batch in batches:
        targets = batch.column("target").to_pylist()
        sources = batch.column("source").to_pylist()
        contents = batch.column("content")
        for at, (target, source) in enumerate(zip(targets, sources, strict=True)):
            yield target, source, contents[at].as_buffer()


def _outcome(
    task: CdcTask, name: str, table: TableDescriptor, chunks: Iterable[tuple[int, str, pa.Buffer]]
) -> TaskOutcome:
    def write() -> tuple[tuple[CommitMessage, ...], int]:
        source = ""
        try:
            with TableWrite(table.context(task.memory_bytes, of_job(task.job))) as writer:
                for _, source, content in chunks:  # noqa: B007  an error names the source
                    writer.write(pa.ipc.open_stream(content).read_all())
                return tuple(writer.prepare_commit()), writer.row_count
        except InvalidRequest as error:
            raise does_not_fit(source, name, error) from error

    return attempted(write)
