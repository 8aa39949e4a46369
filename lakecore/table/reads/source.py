"""A state of a table as a stream of batches; every read method is built on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

import polars as pl
import pyarrow as pa

from lakecore.frames.polars_source import to_frames
from lakecore.io.files.checks import Checks
from lakecore.io.files.file_checks import check_files, unchecked_bytes
from lakecore.merge.spec import merge_spec
from lakecore.model.arrow_arrays import size_of
from lakecore.table.reads.narrowed import narrowed
from lakecore.table.reads.scan import (
    ScanContext,
    ScanPlan,
    plan_scan,
    visible_partitions,
)
from lakecore.table.sections.large_rows import are_large
from lakecore.table.sections.windows import READER, on_reader
from lakecore.table.splits.decide import decide
from lakecore.table.splits.examine import decide_split, examine
from lakecore.table.splits.polars_rows import PolarsRows
from lakecore.table.splits.read import read_split
from lakecore.table.splits.read_path import (
    Decision,
    EngineScan,
    Examined,
    LateMaterialisation,
    PolarsChunks,
    Reader,
)
from lakecore.table.stored_rows.read_plan import ReadPlan
from lakecore.table.stored_rows.split_files import SplitFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from lakecore.model.files import Split
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.plan.predicate import Predicate
    from lakecore.table.context import TableContext

_UNCHECKED_BYTES_MAX = 64 << 20
"""Matching row groups are counted only if more bytes than this are unverified."""
_FEW_SHARE = 4
"""The row groups that match are few if they are at most all row groups divided by this."""
_READERS = 2
_TASKS_AHEAD = 4
_TASK_ROWS, _TASK_BATCHES = 65_536, 8
"""A task ends at this many rows or batches: the batches of a merged window are mostly small."""
_AHEAD_SHARE = 8
"""Nothing more is read ahead while waiting batches take more than the budget divided by this."""
_AHEAD_BYTES = 64 << 20


Batch = TypeVar("Batch", bound=pa.RecordBatch | pl.DataFrame)
"""A batch of rows: an Arrow record batch or a Polars frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """The merged rows of one snapshot (None: an empty table), as columns of `table_schema`.

    `only_level`: only the files of this level are read. `without`: partitions that are left out.
    `own`: only these splits are read, which were planned before.
    """

    context: TableContext
    snapshot: Snapshot | None
    table_schema: TableSchema
    only_level: int | None = None
    without: frozenset[bytes] = frozenset()
    own: tuple[Split, ...] | None = None
    _planned: list[tuple[Predicate | None, ScanPlan]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of all columns."""
        return self.table_schema.arrow

    def plan(self, predicate: Predicate | None = None) -> ScanPlan:
        """The splits that may hold matching rows; cached, because a read calls this repeatedly."""
        for known, plan in self._planned:
            if known is predicate:
                return plan
        if self.own is not None:
            splits = narrowed(self.scan_context, self.own, predicate)
            return ScanPlan(snapshot=self.snapshot, splits=splits)
        shown = None if self.only_level is None else self._of_level
        plan = plan_scan(
            self.scan_context, self.snapshot, predicate, shown=shown, without=self.without
        )
        self._planned[:] = [(predicate, plan)]
        return plan

    def partitions(self, predicate: Predicate | None = None) -> frozenset[bytes]:
        """The partitions that match the predicate and have files that this source sees."""
        shown = None if self.only_level is None else self._of_level
        return visible_partitions(self.scan_context, self.snapshot, predicate, shown=shown)

    @property
    def scan_context(self) -> ScanContext:
        """The table as a scan sees it."""
        context = self.context
        return ScanContext(
            history=context.history,
            schema=self.table_schema,
            options=context.options,
            partitions=context.partitions,
            layout=context.layout,
        )

    def _of_level(self, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        return [entry for entry in entries if entry.file.level == self.only_level]

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
            checks=self._checks,
        )

    @property
    def _checks(self) -> Checks:
        return Checks.ONCE if self.context.options.lakecore_verify_checksums else Checks.NEVER

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in batches of the requested columns, in order of partition and bucket.

        The predicate prunes only: the batches may still hold rows that do not match. `limit` is
        exact without a predicate.
        """
        splits = self.plan(predicate).splits
        plan = self.read_plan(splits, columns, predicate)
        if limit is None:
            yield from self._read(splits, plan, self._batches_of)
            return
        left = limit if predicate is None else None
        with closing(self.read(splits, plan)) as batches:
            for batch in batches:
                if left is not None and batch.num_rows >= left:
                    yield batch.slice(0, left)
                    return
                left = None if left is None else left - batch.num_rows
                yield batch
                del batch

    def frames(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Generator[pl.DataFrame, None, None]:
        """The rows of `batches` as Polars frames."""
        if limit is not None:
            yield from to_frames(self.batches(columns, predicate, limit))
            return
        splits = self.plan(predicate).splits
        yield from self._read(splits, self.read_plan(splits, columns, predicate), self._frames_of)

    def engine_files(
        self,
        columns: Sequence[str],
        predicate: Predicate | None = None,
    ) -> list[str] | None:
        """The local Parquet files, if an engine can scan them without a merge; else None.

        The checksums of these files have been verified. Returns None if the predicate leaves few
        row groups of large files: verifying whole files would cost more than reading those groups.
        """
        path = self.decide(columns, predicate).path
        if not isinstance(path, EngineScan):
            return None
        paths = list(path.paths)
        check_files(self.context.store, paths, columns, self._checks)
        return paths

    def decide(self, columns: Sequence[str], predicate: Predicate | None = None) -> Decision:
        """How a read is done: an engine scans all files, or each split has its own path."""
        splits = self.plan(predicate).splits
        plan, budget = self.read_plan(splits, columns, predicate), self.context.budget
        decision = decide(splits, plan, budget, Reader.ENGINE)
        if decision is None:
            examined = Examined(files=examine(splits, plan, self.context.store, None))
            decision = decide(splits, plan, budget, Reader.ENGINE, examined)
            assert decision is not None
            path = decision.path
            if isinstance(path, EngineScan) and self._few_match(splits, plan, path.paths):
                few = replace(examined, few_row_groups=True)
                decision = decide(splits, plan, budget, Reader.ENGINE, few)
        assert decision is not None
        return decision

    def decide_split(self, split: Split, plan: ReadPlan) -> Decision:
        """How a split is read if each split has its own path."""
        return decide_split(split, plan, self.context.store, self.context.budget)

    def check_files(self) -> None:
        """Raise CorruptTable if a file is missing or visibly damaged; reads no data."""
        splits = self.plan().splits
        plan, store = self.read_plan(splits, None), self.context.store
        for split in splits:
            SplitFiles(split, plan, store).check()

    def _few_match(self, splits: Sequence[Split], plan: ReadPlan, paths: Sequence[str]) -> bool:
        """Whether many bytes are not verified yet, and the predicate leaves few row groups."""
        store = self.context.store
        if plan.predicate is None:
            return False
        if unchecked_bytes(store, paths, plan.columns, plan.checks) <= _UNCHECKED_BYTES_MAX:
            return False
        wanted = total = 0
        for split in splits:
            files = SplitFiles(split, plan, store)
            for file in split.files:
                count = len(files.row_group_starts(file) or ())
                matching = files.wanted_row_groups(file)
                total += count
                wanted += count if matching is None else len(matching)
        return wanted * _FEW_SHARE <= total

    def read(
        self, splits: Sequence[Split], plan: ReadPlan
    ) -> Generator[pa.RecordBatch, None, None]:
        """The rows of the splits, in order; the first batch is returned as early as possible."""
        return self._read(splits, plan, self._windows_of)

    def _read(
        self,
        splits: Sequence[Split],
        plan: ReadPlan,
        read: Callable[[Split, ReadPlan], Iterator[Batch]],
    ) -> Generator[Batch, None, None]:
        """The rows of the splits, in order; a few splits are read concurrently.

        Nothing is read ahead if rows are large.
        """
        budget = self.context.budget
        if len(splits) <= 1 or any(are_large(split.files, budget) for split in splits):
            for split in splits:
                yield from read(split, plan)
            return
        yield from side_by_side(
            [read(split, plan) for split in splits],
            # Read at least something ahead under any budget.
            max(1, budget.size_bytes // _AHEAD_SHARE),
        )

    def _windows_of(self, split: Split, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
        return read_split(split, plan, self.context.store, self.context.budget)

    def _batches_of(self, split: Split, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
        rows = self._rows_of(split, plan)
        yield from rows.batches() if isinstance(rows, PolarsRows) else rows

    def _frames_of(self, split: Split, plan: ReadPlan) -> Iterator[pl.DataFrame]:
        rows = self._rows_of(split, plan)
        yield from rows.frames() if isinstance(rows, PolarsRows) else to_frames(rows)

    def _rows_of(self, split: Split, plan: ReadPlan) -> PolarsRows | Iterator[pa.RecordBatch]:
        store, budget = self.context.store, self.context.budget
        path = self.decide_split(split, plan).path
        if isinstance(path, PolarsChunks | LateMaterialisation):
            return PolarsRows(split=split, plan=plan, store=store, budget=budget, path=path)
        return read_split(split, plan, store, budget, path)


def side_by_side(
    streams: Iterable[Iterator[Batch]],
    ahead_bytes: int = _AHEAD_BYTES,
) -> Generator[Batch, None, None]:
    """The batches of the streams, in order; a few streams are read concurrently.

    A few batches of each stream are read ahead, until they take `ahead_bytes`.
    """
    waiting = iter(streams)
    running: deque[_Ahead[Batch]] = deque()
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


class _Ahead(Generic[Batch]):
    """A stream that its own thread reads a few batches ahead.

    NOTE: reading a few batches is a task that ends, not a loop that waits for room. A consumer may
    drop the stream without closing it, and the interpreter waits for every thread on exit.
    """

    def __init__(self, stream: Iterator[Batch], ahead_bytes: int) -> None:
        self._stream = stream
        self._ahead_bytes = ahead_bytes
        self._read_bytes = self._given_bytes = 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=READER)
        self._tasks = deque(self._next() for _ in range(_TASKS_AHEAD))

    def __iter__(self) -> Iterator[Batch]:
        while (some := self._tasks.popleft().result()) is not None:
            self._tasks.append(self._next())
            while some:
                batch = some.popleft()
                self._given_bytes += _bytes_of(batch)
                yield batch
                del batch

    def close(self) -> None:
        """Stop reading and release what the stream holds."""
        under_way = [task for task in self._tasks if not task.cancel()]
        self._pool.shutdown(wait=not on_reader())
        stream = self._stream
        if not isinstance(stream, Generator):
            return
        if all(task.done() for task in under_way):
            stream.close()
        else:
            under_way[-1].add_done_callback(lambda _: stream.close())

    def _next(self) -> Future[deque[Batch] | None]:
        return self._pool.submit(self._read)

    def _read(self) -> deque[Batch] | None:
        """The next batches: one, or a few small ones. None at the end of the stream.

        Empty while the batches that wait for the consumer take `ahead_bytes`.
        """
        some: deque[Batch] = deque()
        rows = 0
        while rows < _TASK_ROWS and len(some) < _TASK_BATCHES:
            if self._read_bytes - self._given_bytes >= self._ahead_bytes:
                break
            batch = next(self._stream, None)
            if batch is None:
                return some or None
            self._read_bytes += _bytes_of(batch)
            rows += len(batch)
            some.append(batch)
            del batch
        return some


def _bytes_of(batch: pa.RecordBatch | pl.DataFrame) -> int:
    return int(batch.estimated_size()) if isinstance(batch, pl.DataFrame) else size_of(batch)
