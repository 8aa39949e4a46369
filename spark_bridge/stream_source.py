"""The reader behind `spark.readStream.format("lakecore")`.

Spark makes one reader next to the driver, which goes from offset to offset for the whole query, and
another one whose pickled form reads the partitions on executors. Spark 4.1 asks for the latest
offset without a start and without a limit; later versions give both.

INVARIANT: executors receive no table. A partition holds all values that a read of it needs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakecore import InvalidRequest, NotFound, Table, Unsupported
from lakecore.distributed import (
    KIND_COLUMN,
    ROW_KIND,
    Atomic,
    Condition,
    Field,
    Follower,
    Found,
    MemoryStore,
    Nothing,
    Replaced,
    Root,
    Snapshot,
    Split,
    State,
    StoredRows,
    StreamRequest,
    TableContext,
    TableSchema,
    Wanted,
    begin,
    commit_mark,
    condition_on,
    follow_from,
    parse_condition,
    retained_changes,
    setting_of,
    streamed,
    unguarded,
    with_nullable,
    without_delay,
    without_statistics,
    write_consumer,
)
from spark_bridge.failures import raised_shallow
from spark_bridge.plan_read import read_schema
from spark_bridge.read_job import (
    SNAPSHOT_ID,
    ChangeJob,
    ChangeUnit,
    open_sealed,
    read_changes,
    seal,
)
from spark_bridge.stream_options import Limits, Offset, StateOffset, StreamOptions, parse_offset
from spark_bridge.types import spark_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa


try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.1
    ReadLimit = ReadAllAvailable = ReadMaxFiles = None
    SupportsTriggerAvailableNow = object

_SNAPSHOT_COLUMN = Field(
    id=KIND_COLUMN.id - 1, name=SNAPSHOT_ID, type=Atomic(root=Root.BIGINT, nullable=False)
)
ONE_SNAPSHOT = Limits(snapshots=1)
"""The limit of a table with a primary key, unless another one is stated: Spark promises no order
between the tasks of a batch, and several snapshots may change the same key."""


def stream_schema(schema: TableSchema, *, changelog: bool) -> StructType:
    """The columns of a stream: those of the table, after the kind and the snapshot of a row."""
    columns = read_schema(schema)
    if not changelog:
        return columns
    if SNAPSHOT_ID in schema.by_name:
        raise Unsupported(
            "changes of a table with a column of this name are not supported; "
            "read.changelog=false reads rows without it",
            column=SNAPSHOT_ID,
        )
    kinds = [StructField(ROW_KIND, StringType()), StructField(SNAPSHOT_ID, LongType())]
    return StructType([*kinds, *columns.fields])


def stream_columns(schema: TableSchema) -> TableSchema:
    """The schema with the columns that a stream adds, unless the table has one of that name."""
    added = [f for f in (KIND_COLUMN, _SNAPSHOT_COLUMN) if f.name not in schema.by_name]
    added = [replace(f, type=with_nullable(f.type, nullable=True)) for f in added]
    return replace(schema, fields=(*added, *schema.fields))


def _has_kinds(table: Table, schema: StructType, options: StreamOptions) -> bool:
    """Whether the stream has row kinds. Raises InvalidRequest if it would hide deletions."""
    named = {ROW_KIND, SNAPSHOT_ID} & set(schema.fieldNames())
    if options.changelog is False and named:
        raise InvalidRequest(
            "read.changelog=false has no such columns: leave the option or the columns out",
            columns=sorted(named),
        )
    if options.changelog is None and table.schema.primary_keys and ROW_KIND not in named:
        raise InvalidRequest(
            "changes of a table with a primary key have kinds: set read.changelog to true for the "
            "columns _row_kind and _snapshot_id, or to false for the rows +I and +U alone",
            table=table.context.identifier,
        )
    return bool(options.changelog or named)


@raised_shallow
class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of a table, batch by batch."""

    def __init__(
        self, table: Table, schema: StructType, options: StreamOptions, *, every_column: bool
    ) -> None:
        """`schema`: the columns to read. `every_column`: whether these are all columns."""
        context = table.context
        if isinstance(unguarded(context.store), MemoryStore):
            raise Unsupported(
                "Spark cannot read a table in the memory of one process", table=context.identifier
            )
        kinds = _has_kinds(table, schema, options)
        own = stream_columns(context.schema) if kinds else context.schema
        where = options.source.where
        condition = None if where is None else parse_condition(where, own, setting_of(context))
        columns = tuple(schema.fieldNames())
        self._job = seal(
            ChangeJob(
                schema=own.arrow,
                own=context.schema.names,
                columns=columns,
                kinds=kinds,
                store=context.store,
                where=condition,
                exchange=spark_arrow_schema(schema),
            )
        )
        keyed = bool(context.schema.primary_keys)
        stated = options.limits
        self._limits = stated if stated.any or not keyed else ONE_SNAPSHOT
        self._stated = stated.any
        read = {*columns, *(() if condition is None else condition.columns)}
        self._planner: ChangePlanner | None = ChangePlanner(
            context,
            options.request,
            options.start,
            columns=None if every_column else [n for n in context.schema.names if n in read],
            where=condition,
        )
        self._last: Offset | None = None

    def __getstate__(self) -> dict[str, object]:
        """The state to pickle, without the table, which only the driver needs."""
        return {**self.__dict__, "_planner": None}

    # --- next to the driver ----------------------------------------------------------------------

    def initialOffset(self) -> dict[str, object]:  # noqa: N802  Spark's
        """Where a new query begins."""
        self._last = self._plan.begin()
        return self._last.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's
        """A Spark limit that stands for all of lakecore's limits.

        Spark passes it to `latestOffset`.
        """
        return ReadMaxFiles(self._limits.snapshots or 1) if self._limits.any else ReadAllAvailable()

    def latestOffset(  # noqa: N802  Spark's
        self, start: dict[str, object] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, object]:
        """The end of the next batch."""
        if start is None:
            return self._latest_without_start()
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self._limits
        # Spark asks for the next batch only after noting that all batches before `start` are done.
        # At the end of a run, Spark calls nothing else.
        self.commit(start)
        self._last = self._plan.latest(parse_offset(start), limits)
        return self._last.to_json()

    def _latest_without_start(self) -> dict[str, object]:
        if self._stated:
            raise Unsupported("limits of a batch need Spark 4.2 or newer; leave them out")
        if self._last is None:
            # After a restart, Spark does not pass the start.
            newest = self._plan.newest()
            self._last = self._plan.after(newest) if newest else self._plan.begin()
        else:
            self._last = self._plan.latest(self._last, Limits())
        return self._last.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's
        """Read up to the snapshot that is the latest now, and end."""
        self._plan.stop_at_latest()

    def reportLatestOffset(self) -> dict[str, object]:  # noqa: N802  Spark's
        """The latest snapshot, for the progress of the query."""
        return {"snapshot": self._plan.newest()}

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """The tasks of a batch."""
        first, last = parse_offset(start), parse_offset(end)
        self._last = last
        tasks = self._plan.tasks(first, last)
        return [InputPartition(seal(task)) for task in tasks or ((),)]

    def commit(self, end: dict[str, object]) -> None:
        """Called when the batch is done: records it in the consumer, if there is one."""
        done = parse_offset(end)
        if done.snapshot and (done.state is None or done.state.complete):
            self._plan.record(done.snapshot + 1)

    @property
    def _plan(self) -> ChangePlanner:
        assert self._planner is not None, "this reader is on an executor"
        return self._planner

    # --- on executors ----------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        job = cast("ChangeJob", open_sealed(self._job))
        units = cast("tuple[ChangeUnit, ...]", open_sealed(partition.value))
        yield from read_changes(job, units)


# --- stream plan ----------------------------------------------------------------------------------
# Which snapshots a batch of a stream has, and the tasks that read them.
#
# 1. `begin` finds the start of a new stream.
# 2. `latest` goes from an offset to the next one: over the splits of the first state, then from
#    snapshot to snapshot, as far as the limits allow.
# 3. `tasks` plans the reading of what is between two offsets, now or again after a restart.
#
# A snapshot that changes the columns that the stream reads ends a batch, and the next one fails:
# the columns of a Spark query are fixed, so the query must be started again.
#
# INVARIANT: two offsets always mean the same rows. Rows that no longer exist are an error:
# snapshots have expired, the table was rolled back, or the splits of a state have changed.


# --- stream units --------------------------------------------------------------------------------
# Groups the rows of a snapshot into units, and units into tasks.
#
# Splits of changes that may hold rows of the same key are one unit, in the order of the changes.
# The unit is usually a bucket, a partition if an overwrite may move a key to another bucket, or the
# whole table if a key may move to another partition. In a state, and in a table that has neither a
# key nor fixed buckets, each split is one unit.

TASKS_WANTED = 16


@dataclass(slots=True)
class Size:
    """The size of a batch, in snapshots, files, bytes and rows."""

    snapshots: int = 0
    files: int = 0
    bytes: int = 0
    rows: int = 0

    def plus(self, units: Sequence[ChangeUnit], *, snapshots: int) -> Size:
        """The size of the batch with these units added."""
        splits = [split for unit in units for rows in unit.rows for split in rows.splits]
        files = [file for split in splits for file in split.files]
        return Size(
            snapshots=self.snapshots + snapshots,
            files=self.files + len(files),
            bytes=self.bytes + sum(file.size_bytes for file in files),
            rows=self.rows + sum(split.row_count for split in splits),
        )

    def within(self, limits: Limits) -> bool:
        """Whether a batch of this size is within the limits."""
        return limits.hold(self.snapshots, self.files, self.bytes, self.rows)


def units_of_state(state: State, wanted: Wanted) -> list[ChangeUnit]:
    """A unit for each split of a state."""
    return [
        ChangeUnit(snapshot_id=state.snapshot.id, rows=(replace(rows, splits=(slim,)),))
        for rows in state.planned(wanted)
        for slim in map(without_statistics, rows.splits)
    ]


def units_of(change: StoredRows | Replaced, wanted: Wanted) -> list[ChangeUnit]:
    """The units of the changes of a snapshot."""
    replaced = isinstance(change, Replaced)
    planned = list(change.planned(wanted))
    groups: dict[object, list[tuple[int, Split]]] = {}
    for number, rows in enumerate(planned):
        for place, split in enumerate(rows.splits):
            key = _together(split, wanted.context, replaced=replaced)
            own = groups.setdefault((number, place) if key is None else key, [])
            own.append((number, without_statistics(split)))
    return [
        ChangeUnit(
            snapshot_id=change.snapshot.id,
            rows=tuple(
                replace(rows, splits=splits)
                for number, rows in enumerate(planned)
                if (splits := tuple(split for each, split in own if each == number))
            ),
        )
        for own in groups.values()
    ]


def _together(split: Split, context: TableContext, *, replaced: bool) -> object:
    """A value that is equal for splits that may share keys; None if no splits can share keys."""
    schema, fixed = context.schema, context.options.bucket > 0
    if not schema.primary_keys:
        return (split.partition, split.bucket) if fixed else None
    if not set(schema.partition_keys) <= set(schema.primary_keys):
        return "table"  # a key may move to another partition
    return split.partition, split.bucket if fixed or not replaced else None


def plan_mark(units: Sequence[ChangeUnit]) -> str:
    """A short hash of the names of the units' files, which identifies the units."""
    text = "\n".join(
        ",".join(file.name for rows in unit.rows for split in rows.splits for file in split.files)
        for unit in units
    )
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def packed(units: Sequence[ChangeUnit], context: TableContext) -> list[tuple[ChangeUnit, ...]]:
    """The units in tasks of about equal weight, in order."""
    options = context.options
    weights = [sum(_weights(unit, options.source_split_open_file_cost_bytes)) for unit in units]
    fair = sum(weights) // TASKS_WANTED
    least = options.source_split_open_file_cost_bytes
    target = min(options.source_split_target_size_bytes, max(least, fair))
    tasks: list[list[ChangeUnit]] = []
    room = 0
    for unit, weight in zip(units, weights, strict=True):
        if not tasks or weight > room:
            tasks.append([])
            room = target
        tasks[-1].append(unit)
        room -= weight
    return [tuple(task) for task in tasks]


def _weights(unit: ChangeUnit, open_cost_bytes: int) -> Iterator[int]:
    for rows in unit.rows:
        for split in rows.splits:
            for file in split.files:
                yield max(file.size_bytes, open_cost_bytes)


# --- stream plan ---------------------------------------------------------------------------------

SKIPPED_MAX = 16
"""After so many snapshots without changes, an empty batch records that they are done."""


class ChangePlanner:
    """Plans the changes of a table as batches. Not thread-safe: each query has its own."""

    def __init__(
        self,
        context: TableContext,
        request: StreamRequest,
        stated: Mapping[str, str],
        *,
        columns: Sequence[str] | None,
        where: Condition | None,
    ) -> None:
        """`stated`: options that name a start.

        `columns`: the table's columns that the stream reads. None: all, including columns added
        later.
        """
        self._given = context
        self._request = request
        self._stated = stated
        self._columns = columns
        self._follower: Follower | None = None
        self._after = -1
        self._ahead: Found | None = None
        self._states: dict[int, list[ChangeUnit]] = {}
        self._fitting = {context.schema.id}
        self._context = streamed(context)
        names = context.schema.names
        predicate = None if where is None else condition_on(where.predicate, names)
        self._wanted = Wanted(context=self._context, columns=names, predicate=predicate)
        self._recorded: int | None = None
        self.last: int | None = None
        """The last snapshot to read; None: the stream has no end."""

    # --- from offset to offset -------------------------------------------------------------------

    def begin(self) -> Offset:
        """The start of a new stream. Records a new consumer, unless it begins with a state."""
        begun, schema = begin(self._given, self._request, self._stated), self._context.schema.id
        start = begun.start
        if start is None:
            if begun.recorded:
                raise NotFound(
                    "the consumer has read snapshots, and the table has none: it was created "
                    "again; delete the consumer",
                    consumer_id=self._context.options.consumer_id,
                    table=self._context.identifier,
                )
            state = StateOffset() if begun.with_state else None
            return Offset(snapshot=0, schema=schema, state=state)
        if start.state is not None:
            return self._offset(start.state.id, StateOffset(since=start.created_since_ms))
        if not begun.recorded:
            self.record(start.next_id)
        return self._offset(start.next_id - 1)

    def stop_at_latest(self) -> None:
        """Read no further than the snapshot that is the latest now."""
        self.last = self.newest()

    def newest(self) -> int:
        """The latest snapshot; 0 if nothing is committed."""
        retained = retained_changes(self._context)
        return 0 if retained is None else retained.latest

    def after(self, snapshot_id: int) -> Offset:
        """The offset after a snapshot."""
        return self._offset(snapshot_id)

    def latest(self, start: Offset, limits: Limits) -> Offset:
        """The end of the batch that begins at `start`; `start` itself if nothing is to read."""
        if start.state is None:
            return self._follow(start, limits)
        if start.snapshot == 0:
            begun = (
                None if self.last == 0 else begin(self._given, self._request, self._stated).start
            )
            if begun is None or begun.state is None:
                return start
            start = self._offset(begun.state.id, StateOffset(since=begun.created_since_ms))
        if start.state is None or not start.state.complete:
            end = self._within_state(start, limits)
            if end.state is None or end.state.count != 0:
                return end
            start = end  # the state has no rows
        return self._follow(start, limits)

    def _within_state(self, start: Offset, limits: Limits) -> Offset:
        assert start.state is not None
        units = self._units_of_state(start)
        done, size = start.state.done, Size()
        while done < len(units):
            grown = size.plus([units[done]], snapshots=0)
            if done > start.state.done and not grown.within(limits):
                break
            done, size = done + 1, grown
        state = replace(start.state, done=done, count=len(units), plan=plan_mark(units))
        return self._offset(start.snapshot, state)

    def _follow(self, start: Offset, limits: Limits) -> Offset:
        """The end of a batch of changes that begins at `start`."""
        if self.last is not None and start.snapshot >= self.last:
            self._check_commit(start)
            return start
        follower = self._following(start)
        size, end, over = Size(), start.snapshot, False
        while not over and (self.last is None or self._next(follower, start) <= self.last):
            found = self._ahead or follower.step()
            if isinstance(found, Nothing):
                break
            self._ahead = found
            snapshot = _change_of(found).snapshot
            if self.last is not None and snapshot.id > self.last:
                over = True
            elif not self._fits(snapshot):
                if not size.snapshots:
                    raise self._other_columns(snapshot)
                over = True
            else:
                units = self._units_of(found) if limits.any else ()
                grown = size.plus(units, snapshots=1)
                over = size.snapshots > 0 and not grown.within(limits)
            if not over:
                size, end, self._ahead = grown, snapshot.id, None
        seen = self._next(follower, start) - 1
        if self._ahead is None and (size.snapshots or seen - end >= SKIPPED_MAX):
            end = max(end, seen)
        self._after = end
        return start if end == start.snapshot else self._offset(end)

    def _next(self, follower: Follower, start: Offset) -> int:
        if self._ahead is not None:
            return self._ahead.snapshot_id
        return start.snapshot + 1 if follower.next_id is None else follower.next_id

    def _following(self, start: Offset) -> Follower:
        """The follower at this offset: the last one used, or a new one."""
        if self._follower is None or self._after != start.snapshot:
            self._check_commit(start)
            self._follower = follow_from(self._context, start.snapshot + 1)
            self._after, self._ahead = start.snapshot, None
        return self._follower

    def _offset(self, snapshot_id: int, state: StateOffset | None = None) -> Offset:
        snapshot = self._context.history.snapshot_if_there(snapshot_id) if snapshot_id else None
        return Offset(
            snapshot=snapshot_id,
            schema=self._context.schema.id,
            commit="" if snapshot is None else commit_mark(snapshot),
            state=state,
        )

    def _check_commit(self, offset: Offset) -> None:
        """Raise NotFound if the snapshot of an offset was rolled back."""
        if not offset.snapshot:
            return
        there = self._context.history.snapshot_if_there(offset.snapshot)
        rolled_back = there is not None and offset.commit not in {"", commit_mark(there)}
        if rolled_back or (there is None and self.newest() < offset.snapshot):
            raise NotFound(
                "the table was rolled back: a snapshot that the stream has read does not exist any "
                "more; begin a new query with a new checkpoint",
                snapshot_id=offset.snapshot,
                latest=self.newest(),
                table=self._context.identifier,
            )

    # --- the rows between two offsets ------------------------------------------------------------

    def tasks(self, start: Offset, end: Offset) -> list[tuple[ChangeUnit, ...]]:
        """The tasks that read the rows between the offsets, in the order of the snapshots.

        Raises NotFound if some of the rows no longer exist.
        """
        if end.schema > self._context.schema.id:
            raise InvalidRequest(
                "the checkpoint is of a newer schema of the table than this query reads: make the "
                "streaming frame again",
                schema_id=self._context.schema.id,
                checkpoint_schema_id=end.schema,
                table=self._context.identifier,
            )
        self._check_commit(end)
        units: list[ChangeUnit] = []
        after = start.snapshot
        if start.state is not None:
            units += self._rest_of_state(start, end)
            after = start.snapshot or end.snapshot
        if after < end.snapshot:
            self._check_commit(replace(start, state=None))
            units += self._between(after + 1, end.snapshot)
        return packed(units, self._context)

    def _rest_of_state(self, start: Offset, end: Offset) -> Sequence[ChangeUnit]:
        assert start.state is not None
        place = start if start.snapshot else end
        if place.snapshot == 0 or start.state.complete:
            # The snapshot of a state that was read may have expired.
            return ()
        planned = end.state if end.state is not None and end.snapshot == place.snapshot else None
        units = self._units_of_state(place)
        known = {each.plan for each in (start.state, planned) if each is not None and each.plan}
        if known - {plan_mark(units)}:
            raise InvalidRequest(
                "the state that the stream reads is planned in other splits than before the "
                "restart; restore changed options (source.split.*, where), or begin a new query "
                "with a new checkpoint",
                snapshot_id=place.snapshot,
                splits=len(units),
                table=self._context.identifier,
            )
        return units[start.state.done : None if planned is None else planned.done]

    def _between(self, first: int, last: int) -> list[ChangeUnit]:
        follower = follow_from(without_delay(self._context), first, last)
        units: list[ChangeUnit] = []
        while (found := follower.step()) is not Nothing.MORE:
            if not isinstance(found, Found):
                raise NotFound(
                    "a snapshot of the checkpoint does not exist; the table was rolled back",
                    snapshot_id=follower.next_id,
                    latest=self.newest(),
                    table=self._context.identifier,
                )
            snapshot = _change_of(found).snapshot
            if not self._fits(snapshot):
                raise self._other_columns(snapshot)
            units += self._units_of(found)
        return units

    def _units_of_state(self, offset: Offset) -> list[ChangeUnit]:
        """A unit for each split of the state."""
        found = self._states.get(offset.snapshot)
        if found is None:
            self._check_commit(offset)
            snapshot = self._state_snapshot(offset.snapshot)
            if not self._fits(snapshot):
                raise self._other_columns(snapshot)
            assert offset.state is not None
            state = State(snapshot=snapshot, created_since_ms=offset.state.since)
            found = units_of_state(state, self._wanted)
            self._states = {offset.snapshot: found}
        return found

    def _state_snapshot(self, snapshot_id: int) -> Snapshot:
        snapshot = self._context.history.snapshot_if_there(snapshot_id)
        if snapshot is None:
            retained = retained_changes(self._context)
            raise NotFound(
                "the state that the stream reads has expired before it was read; begin a new "
                "query with a new checkpoint, and keep snapshots longer, or read larger batches",
                snapshot_id=snapshot_id,
                earliest=None if retained is None else retained.earliest,
                table=self._context.identifier,
            )
        return snapshot

    def _units_of(self, found: Found) -> list[ChangeUnit]:
        return units_of(_change_of(found), self._wanted)

    # --- other schemas, consumers ----------------------------------------------------------------

    def _fits(self, snapshot: Snapshot) -> bool:
        """Whether the columns of the stream are the same in the schema of a snapshot."""
        number = snapshot.schema_id
        own = self._context.schema
        if number > own.id and number not in self._fitting:
            if _columns(self._context.history.schema(number), self._columns, own) != _columns(
                own, self._columns, own
            ):
                return False
            self._fitting.add(number)
        return True

    def _other_columns(self, snapshot: Snapshot) -> InvalidRequest:
        return InvalidRequest(
            "the columns of the table have changed, and a running query keeps its own: make the "
            "streaming frame again and start the query with the same checkpoint; it goes on with "
            "this snapshot",
            snapshot_id=snapshot.id,
            schema_id=self._context.schema.id,
            new_schema_id=snapshot.schema_id,
            table=self._context.identifier,
        )

    def record(self, next_id: int) -> None:
        """Record in the consumer of the stream, if any, that all earlier snapshots are done."""
        consumer_id = self._context.options.consumer_id
        if consumer_id is not None and next_id != self._recorded:
            write_consumer(self._context, consumer_id, next_id)
            self._recorded = next_id


def _change_of(found: Found) -> StoredRows | Replaced:
    (change,) = found.source.changes
    assert isinstance(change, StoredRows | Replaced)
    return change


def _columns(schema: TableSchema, names: Sequence[str] | None, own: TableSchema) -> object:
    """Id, name and type of the columns that a stream reads (None: all), which must not change."""
    ids = None if names is None else {own.field(name).id for name in names}
    return {
        field.id: (field.name, with_nullable(field.type, nullable=True))
        for field in schema.fields
        if ids is None or field.id in ids
    }
