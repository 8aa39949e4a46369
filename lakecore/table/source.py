"""A state of a table as a stream of batches: what every face of a read is made from."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Full, Queue
from threading import Event
from typing import TYPE_CHECKING, TypeAlias

from lakecore.merge.spec import merge_spec
from lakecore.model.types import Atomic, with_nullable
from lakecore.table.read import ReadPlan, read_split
from lakecore.table.scan import ScanContext, ScanPlan, plan_scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from lakecore.model.files import Split
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.model.types import Field
    from lakecore.plan.predicate import Predicate
    from lakecore.table.context import TableContext

_READERS = 2
_BATCHES_AHEAD = 4
_POLL_SECONDS = 0.1

_Batches: TypeAlias = "Queue[pa.RecordBatch | None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """The merged rows of one snapshot (None: an empty table), as columns of `table_schema`."""

    context: TableContext
    snapshot: Snapshot | None
    table_schema: TableSchema

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of all columns."""
        return self.table_schema.arrow

    def plan(self, predicate: Predicate | None = None) -> ScanPlan:
        """The splits that may hold matching rows."""
        context = self.context
        scan = ScanContext(
            history=context.history,
            schema=self.table_schema,
            options=context.options,
            partitions=context.partitions,
        )
        return plan_scan(scan, self.snapshot, predicate)

    def read_plan(self, splits: Sequence[Split], columns: Sequence[str] | None) -> ReadPlan:
        """How to read these splits."""
        context, schema = self.context, self.table_schema
        ids = {file.schema_id for split in splits for file in split.files}
        names = schema.names if columns is None else tuple(schema.field(c).name for c in columns)
        return ReadPlan(
            layout=context.layout,
            schema=schema,
            schemas={schema_id: context.history.schema(schema_id) for schema_id in ids},
            columns=names,
            engine=str(context.options.merge_engine),
            merge=merge_spec(schema, context.options),
        )

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in batches of the columns asked for, in order of partition, bucket, key range.

        The predicate leaves out what cannot match; rows that do not match may still come. With a
        limit and no predicate, no more rows than that come.
        """
        splits = self.plan(predicate).splits
        plan = self.read_plan(splits, columns)
        left = limit if predicate is None else None
        for batch in self._read(splits, plan):
            if left is not None and batch.num_rows >= left:
                yield batch.slice(0, left)
                return
            left = None if left is None else left - batch.num_rows
            yield batch

    def native_files(
        self, columns: Sequence[str], predicate: Predicate | None = None
    ) -> list[str] | None:
        """The local Parquet files to read as they are, if that is all there is to do."""
        splits = self.plan(predicate).splits
        context, store = self.context, self.context.store
        wanted = [self.table_schema.field(name) for name in columns]
        fits = {
            schema_id: _same_columns(wanted, context.history.schema(schema_id))
            for schema_id in {file.schema_id for split in splits for file in split.files}
        }
        paths: list[str] = []
        for split in splits:
            for file in split.files:
                path = store.local_path(
                    context.layout.data_file(split.partition_path, split.bucket, file)
                )
                as_it_is = split.raw and file.format == "parquet" and not split.vectors
                if path is None or not as_it_is or not fits[file.schema_id]:
                    return None
                paths.append(path)
        return paths

    def _read(self, splits: Sequence[Split], plan: ReadPlan) -> Iterator[pa.RecordBatch]:
        context = self.context
        if len(splits) <= 1:
            for split in splits:
                yield from read_split(split, plan, context.store, context.budget)
            return
        yield from _side_by_side(
            [read_split(split, plan, context.store, context.budget) for split in splits]
        )


def _side_by_side(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """The batches of the streams one stream after the other, a few streams being read at once."""
    stop = Event()
    waiting = deque(streams)
    with ThreadPoolExecutor(_READERS) as pool:
        running: deque[tuple[_Batches, Future[None]]] = deque()
        try:
            while waiting or running:
                while waiting and len(running) < _READERS:
                    queue: _Batches = Queue(_BATCHES_AHEAD)
                    running.append((queue, pool.submit(_pump, waiting.popleft(), queue, stop)))
                queue, future = running.popleft()
                while (batch := queue.get()) is not None:
                    yield batch
                future.result()
        finally:
            stop.set()


def _pump(stream: Iterator[pa.RecordBatch], queue: _Batches, stop: Event) -> None:
    """Put the batches of a stream, then None, unless nobody wants them any more."""
    try:
        for batch in stream:
            if not _offer(queue, batch, stop):
                return
    finally:
        _offer(queue, None, stop)


def _offer(queue: _Batches, batch: pa.RecordBatch | None, stop: Event) -> bool:
    while not stop.is_set():
        try:
            queue.put(batch, timeout=_POLL_SECONDS)
        except Full:
            continue
        return True
    return False


def _same_columns(wanted: Sequence[Field], stored: TableSchema) -> bool:
    """Whether files of a schema hold these columns under the same names and plain, equal types."""
    return all(
        (twin := stored.by_id.get(field.id)) is not None
        and twin.name == field.name
        and with_nullable(twin.type, nullable=True) == with_nullable(field.type, nullable=True)
        and isinstance(field.type, Atomic)
        for field in wanted
    )
