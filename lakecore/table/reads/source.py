"""A state of a table as a stream of batches: what every face of a read is made from."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from lakecore.io.data_files import file_columns
from lakecore.merge.spec import merge_spec
from lakecore.model.arrow_arrays import size_of
from lakecore.model.types import TIMESTAMPS, Atomic, timestamp_unit, with_nullable
from lakecore.table.reads.scan import ScanContext, ScanPlan, plan_scan
from lakecore.table.runs.large_rows import are_large
from lakecore.table.runs.read import ReadPlan, read_split
from lakecore.table.runs.split_files import check_size
from lakecore.table.runs.windows import READER, on_reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from concurrent.futures import Future

    import pyarrow as pa

    from lakecore.model.files import DataFile, Split
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.model.types import Field
    from lakecore.plan.predicate import Predicate
    from lakecore.table.context import TableContext

_READERS = 2
_TASKS_AHEAD = 4
_TASK_ROWS, _TASK_BATCHES = 65_536, 8
"""What is read at once, at most: a window gives a batch of each run, most of them small."""
_AHEAD_SHARE = 8
"""The part of the budget, as a divisor, that waiting batches have before no more are read."""
_AHEAD_BYTES = 64 << 20


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

    def read_plan(
        self,
        splits: Sequence[Split],
        columns: Sequence[str] | None,
        predicate: Predicate | None = None,
    ) -> ReadPlan:
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
            predicate=predicate,
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
        plan = self.read_plan(splits, columns, predicate)
        left = limit if predicate is None else None
        with closing(self.read(splits, plan)) as batches:
            for batch in batches:
                if left is not None and batch.num_rows >= left:
                    yield batch.slice(0, left)
                    return
                left = None if left is None else left - batch.num_rows
                yield batch
                del batch

    def native_files(
        self, columns: Sequence[str], predicate: Predicate | None = None
    ) -> list[str] | None:
        """The local Parquet files to read as they are, if that is all there is to do."""
        splits = self.plan(predicate).splits
        files = [(split, file) for split in splits for file in split.files]
        schema_ids = {file.schema_id for _, file in files}
        # Files of several schemas do not have the same columns, and engines line them up by place.
        if len(schema_ids) > 1 or not all(_as_it_is(split, file) for split, file in files):
            return None
        wanted = [self.table_schema.field(name) for name in columns]
        schemas = [self.context.history.schema(schema_id) for schema_id in schema_ids]
        if not all(_same_columns(wanted, stored) for stored in schemas):
            return None
        # Java wrote no source of a file as long as it declared keys of maps nullable in Parquet,
        # for which engines refuse the whole file.
        old = any(file.file_source is None for _, file in files)
        if old and not all(isinstance(each.type, Atomic) for s in schemas for each in s.fields):
            return None
        return self._checked_paths(files, {name for schema in schemas for name in schema.names})

    def _checked_paths(
        self, files: Sequence[tuple[Split, DataFile]], names: AbstractSet[str]
    ) -> list[str] | None:
        """Local paths; None if the store is not local, or a file lacks one of the columns.

        Raises CorruptTable for a file of another size.
        """
        context = self.context
        paths: list[str] = []
        for split, file in files:
            path = context.layout.data_file(split.partition_path, split.bucket, file)
            local = context.store.local_path(path)
            if local is None:
                return None
            # An engine's own reader knows nothing of tables: say it before.
            check_size(context.store, path, file)
            # What was migrated from Hive has no sequence numbers.
            if not file.sequence_max and not names <= {*file_columns(context.store, path)}:
                return None
            paths.append(local)
        return paths

    def read(
        self, splits: Sequence[Split], plan: ReadPlan
    ) -> Generator[pa.RecordBatch, None, None]:
        """The rows of the splits, one split after the other, a few being read at once.

        Where rows are large, nothing is read ahead.
        """
        context = self.context
        if len(splits) <= 1 or any(are_large(split.files, context.budget) for split in splits):
            for split in splits:
                yield from read_split(split, plan, context.store, context.budget)
            return
        yield from side_by_side(
            [read_split(split, plan, context.store, context.budget) for split in splits],
            # Something must come ahead under any budget.
            max(1, context.budget.size_bytes // _AHEAD_SHARE),
        )


def side_by_side(
    streams: Iterable[Iterator[pa.RecordBatch]],
    ahead_bytes: int = _AHEAD_BYTES,
) -> Generator[pa.RecordBatch, None, None]:
    """The batches of the streams one stream after the other, a few streams being read at once.

    A few batches of each are read ahead, or one if it has `ahead_bytes`.
    """
    waiting = iter(streams)
    running: deque[_Ahead] = deque()
    try:
        while True:
            running.extend(
                _Ahead(each, ahead_bytes) for each in islice(waiting, _READERS - len(running))
            )
            if not running:
                return
            yield from running[0]
            running.popleft().close()
    finally:
        for stream in running:
            stream.close()


class _Ahead:
    """A stream that a thread of its own reads a few batches ahead.

    NOTE: a few batches are a task that ends, rather than one loop that waits for room. Who reads
    may be given up without being closed, and the interpreter waits for every thread as it exits.
    """

    def __init__(self, stream: Iterator[pa.RecordBatch], ahead_bytes: int) -> None:
        self._stream = stream
        self._ahead_bytes = ahead_bytes
        self._read_bytes = self._given_bytes = 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=READER)
        self._tasks = deque(self._next() for _ in range(_TASKS_AHEAD))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (some := self._tasks.popleft().result()) is not None:
            self._tasks.append(self._next())
            while some:
                batch = some.popleft()
                self._given_bytes += size_of(batch)
                yield batch
                del batch

    def close(self) -> None:
        """Stop reading, and let go of what the stream holds."""
        under_way = [task for task in self._tasks if not task.cancel()]
        self._pool.shutdown(wait=not on_reader())
        stream = self._stream
        if not isinstance(stream, Generator):
            return
        if all(task.done() for task in under_way):
            stream.close()
        else:
            under_way[-1].add_done_callback(lambda _: stream.close())

    def _next(self) -> Future[deque[pa.RecordBatch] | None]:
        return self._pool.submit(self._read)

    def _read(self) -> deque[pa.RecordBatch] | None:
        """The next batches: one, or a few small ones; none while those that wait are large.

        None at the end.
        """
        some: deque[pa.RecordBatch] = deque()
        rows = 0
        while rows < _TASK_ROWS and len(some) < _TASK_BATCHES:
            if self._read_bytes - self._given_bytes >= self._ahead_bytes:
                break
            batch = next(self._stream, None)
            if batch is None:
                return some or None
            self._read_bytes += size_of(batch)
            rows += batch.num_rows
            some.append(batch)
            del batch
        return some


def _as_it_is(split: Split, file: DataFile) -> bool:
    """Whether the rows of a file are the rows to read."""
    whole = split.raw and not split.vectors and file.write_columns is None
    return whole and file.format == "parquet"


def _same_columns(wanted: Sequence[Field], stored: TableSchema) -> bool:
    """Whether files of a schema hold these columns under the same names and plain, equal types.

    Not of nanoseconds: engines take those too far to count for others (`io/parquet_times.py`).
    """
    return all(
        (twin := stored.by_id.get(field.id)) is not None
        and twin.name == field.name
        and with_nullable(twin.type, nullable=True) == with_nullable(field.type, nullable=True)
        and isinstance(field.type, Atomic)
        and not (
            field.type.root in TIMESTAMPS and timestamp_unit(field.type.precision or 0) == "ns"
        )
        for field in wanted
    )
