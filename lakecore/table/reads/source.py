"""A state of a table as a stream of batches; every read method is built on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, Protocol, TypeVar

import polars as pl
import pyarrow as pa

from lakecore.errors import KEPT_LONGER, CorruptTable, LakecoreError, NotFound
from lakecore.frames.polars_source import to_frames
from lakecore.frames.source import EngineFile, limited
from lakecore.io.files.file_checks import check_files, unchecked_bytes
from lakecore.io.files.file_format import Checks
from lakecore.memory import Share
from lakecore.merge.spec import merge_spec
from lakecore.model.arrow_arrays import size_of
from lakecore.model.blob_rules import columns_to_follow, require_known_blobs
from lakecore.plan.manifests import neighbours
from lakecore.plan.predicate import Predicate, columns_of
from lakecore.plan.splits import folds_values
from lakecore.rows.evolution import require_types
from lakecore.table.file_reader.read_plan import ReadPlan
from lakecore.table.file_reader.split_files import SplitFiles, missing_is_corrupt
from lakecore.table.reads.file_selection import (
    matching_values,
    on_stored_columns,
    without_references,
)
from lakecore.table.reads.scan import (
    ScanContext,
    ScanPlan,
    of_last_level,
    plan_scan,
    visible_partitions,
)
from lakecore.table.sections.windows import on_reader, reader_threads
from lakecore.table.splits.polars_rows import PolarsRows
from lakecore.table.splits.read import read_split
from lakecore.table.splits.read_planner import (
    Decision,
    EngineScan,
    Examined,
    LateMaterialisation,
    PolarsChunks,
    Reader,
    decide,
    decide_split,
    examine,
)
from lakecore.table.splits.survivors import engine_files, known_survivors, survivors

if TYPE_CHECKING:
    from concurrent.futures import Future

    from lakecore.model.files import Split
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.row_mask import RowMask
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.rows.read_rules import Condition
    from lakecore.table.context import TableContext


# --- expired -------------------------------------------------------------------------------------
# One error for every read of a snapshot that has expired while it was read, or before.
#
# A file that such a read misses was deleted by the expiry, or by a rollback. The error names the
# options by which snapshots stay longer. If the snapshot or a tag of it still exists, a missing
# file is damage, and the error stays CorruptTable.

P = ParamSpec("P")
T = TypeVar("T")


class _OfSnapshots(Protocol):
    @property
    def context(self) -> TableContext: ...

    @property
    def snapshots_read(self) -> Iterable[Snapshot]: ...


_Source = TypeVar("_Source", bound=_OfSnapshots)


@contextmanager
def expired_is_not_found(context: TableContext, snapshots: Iterable[Snapshot]) -> Iterator[None]:
    """Raise NotFound for a missing file if one of the snapshots no longer exists."""
    try:
        yield
    except (CorruptTable, NotFound) as error:
        gone = _first_gone(context, snapshots)
        if gone is None:
            raise
        raise NotFound(
            "the snapshot has expired, or was rolled back, before it was read to the end; "
            f"{KEPT_LONGER}",
            snapshot_id=gone.id,
            table=context.identifier,
        ) from error


def or_expired(read: Callable[Concatenate[_Source, P], T]) -> Callable[Concatenate[_Source, P], T]:
    """The method of a source, with the error of `expired_is_not_found`."""

    @wraps(read)
    def called(source: _Source, /, *args: P.args, **named: P.kwargs) -> T:
        with expired_is_not_found(source.context, source.snapshots_read):
            return read(source, *args, **named)

    return called


def each_or_expired(
    read: Callable[Concatenate[_Source, P], Iterator[T]],
) -> Callable[Concatenate[_Source, P], Generator[T, None, None]]:
    """The generator method of a source, with the error of `expired_is_not_found`."""

    @wraps(read)
    def called(source: _Source, /, *args: P.args, **named: P.kwargs) -> Generator[T, None, None]:
        with expired_is_not_found(source.context, source.snapshots_read):
            yield from read(source, *args, **named)

    return called


def _first_gone(context: TableContext, snapshots: Iterable[Snapshot]) -> Snapshot | None:
    """The first of the snapshots that is neither listed, nor tagged, nor a kept changelog."""
    try:
        return next((each for each in snapshots if not _is_kept(context, each)), None)
    except LakecoreError:  # then the first error says more
        return None


def _is_kept(context: TableContext, snapshot: Snapshot) -> bool:
    history = context.history
    if snapshot.is_same(history.listed_snapshot(snapshot.id)):
        return True
    if snapshot.id in history.changelog_ids():
        return True
    names = history.tag_names()
    return any(snapshot.is_same(history.tag(name).snapshot) for name in names)


# --- narrowed ------------------------------------------------------------------------------------
# Selects, from planned splits, those in which a row may match a condition.
#
# INVARIANT: as in `scan.py`, statistics of values never remove a single file of a merged section,
# and never a section whose rows are folded.


def narrowed(
    context: ScanContext, splits: Sequence[Split], predicate: Predicate | None
) -> tuple[Split, ...]:
    """The splits, without the raw files and the merged sections in which no row can match."""
    files = [file for split in splits for file in split.files]
    mask = matching_values(files, context.history, context.schema, predicate)
    match = {file.name: bool(each) for file, each in zip(files, mask, strict=True)}
    folds = folds_values(context.options)
    kept: list[Split] = []
    for split in splits:
        if not split.raw:
            if folds or any(match[file.name] for file in split.files):
                kept.append(split)
            continue
        runs = tuple(tuple(file for file in run if match[file.name]) for run in split.runs)
        if any(runs):
            kept.append(replace(split, runs=tuple(run for run in runs if run)))
    return tuple(kept)


# --- side by side --------------------------------------------------------------------------------
# Several streams of batches, read concurrently and returned in order.

_READERS = 2
_TASKS_AHEAD = 4
_TASK_ROWS, _TASK_BATCHES = 65_536, 8
"""A task ends at this many rows or batches: the batches of a merged window are mostly small."""
_AHEAD_BYTES = 64 << 20
_SHARE_BYTES, _SHARES = 8 << 20, 16
"""A share of a read has this many bytes, or, of a small table, this part of the bytes."""

Batch = TypeVar("Batch", bound=pa.RecordBatch | pl.DataFrame)


def side_by_side(
    streams: Iterable[Iterator[Batch]], ahead_bytes: int = _AHEAD_BYTES
) -> Generator[Batch, None, None]:
    """The batches of the streams, in order; a few streams are read concurrently.

    From each of these streams, a few batches are read ahead, up to `ahead_bytes`.
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


def in_shares(splits: Sequence[Split]) -> list[list[Split]]:
    """The splits in order, in shares that are worth a thread: many small ones make one share."""
    least = min(_SHARE_BYTES, sum(split.size_bytes for split in splits) / _SHARES)
    return neighbours(splits, lambda split: split.size_bytes, least)


def _one_after_another(
    splits: Sequence[Split],
    plan: ReadPlan,
    read: Callable[[Split, ReadPlan], Iterator[Batch]],
) -> Generator[Batch, None, None]:
    for split in splits:
        yield from read(split, plan)


class _Ahead(Generic[Batch]):
    """A stream that a separate thread reads a few batches ahead.

    NOTE: reading a few batches is a task that ends, not a loop that waits for room. On exit, the
    interpreter waits for every thread. If a consumer dropped the stream without closing it, a
    thread that waited for room would wait for ever, and the exit would hang.
    """

    def __init__(self, stream: Iterator[Batch], ahead_bytes: int) -> None:
        self._stream = stream
        self._ahead_bytes = ahead_bytes
        self._read_bytes = self._given_bytes = 0
        self._pool = reader_threads(1)
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


# --- source --------------------------------------------------------------------------------------

_UNCHECKED_BYTES_MAX = 64 << 20
"""With at most this many unverified bytes, verifying the files is always cheap enough."""
_FEW_SHARE = 4
"""Matching row groups are few if there are at least this many times as many in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """The merged rows of one snapshot (None: an empty table), as columns of `table_schema`.

    `last_level_only`: only files of the last level are read. `without`: partitions to leave out.
    `own`: the splits to read, if planned before. `as_stored`: references to BLOB values are not
    followed, because the rows are written again. `row_filter`: a condition on columns that each
    read requests; rows that do not match may be left out, or lack values.
    """

    context: TableContext
    snapshot: Snapshot | None
    table_schema: TableSchema
    last_level_only: bool = False
    without: frozenset[bytes] = frozenset()
    own: tuple[Split, ...] | None = None
    as_stored: bool = False
    row_filter: Condition | None = None
    _planned: list[tuple[Predicate | None, ScanPlan]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @property
    def schema(self) -> pa.Schema:
        return self.table_schema.arrow

    @property
    def snapshots_read(self) -> tuple[Snapshot, ...]:
        """The snapshot; none for an empty table."""
        return () if self.snapshot is None else (self.snapshot,)

    @or_expired
    def plan(self, predicate: Predicate | None = None) -> ScanPlan:
        """The splits that may hold matching rows; cached, because a read calls this repeatedly."""
        for known, plan in self._planned:
            if known is predicate:
                return plan
        if self.own is not None:
            splits = narrowed(self.scan_context, self.own, self._pruning(predicate))
            return ScanPlan(snapshot=self.snapshot, splits=splits)
        if self.snapshot is not None and self.snapshot.schema_id > self.table_schema.id:
            newer = self.context.history.schema(self.snapshot.schema_id)
            self._require_types(newer, sorted(columns_of(predicate) if predicate else ()))
        shown = self._of_last_level if self.last_level_only else None
        plan = plan_scan(
            self.scan_context, self.snapshot, predicate, shown=shown, without=self.without
        )
        self._planned[:] = [(predicate, plan)]
        return plan

    @or_expired
    def partitions(self, predicate: Predicate | None = None) -> frozenset[bytes]:
        """The partitions that match the predicate and have files that this source sees."""
        shown = self._of_last_level if self.last_level_only else None
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

    def _of_last_level(self, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        return of_last_level(self.context.history, self.context.options, entries)

    @or_expired
    def read_plan(
        self,
        splits: Sequence[Split],
        columns: Sequence[str] | None,
        predicate: Predicate | None = None,
    ) -> ReadPlan:
        """The columns, types and predicate with which these splits are read."""
        context, schema = self.context, self.table_schema
        ids = {file.schema_id for split in splits for file in split.files}
        names = schema.names if columns is None else tuple(schema.field(c).name for c in columns)
        require_known_blobs(map(schema.field, names), schema, context.options)
        schemas = {schema_id: context.history.schema(schema_id) for schema_id in ids}
        for schema_id in ids:
            if schema_id > schema.id:
                self._require_types(schemas[schema_id], names)
        return ReadPlan(
            layout=context.layout,
            schema=schema,
            schemas=schemas,
            columns=names,
            engine=str(context.options.merge_engine),
            merge=merge_spec(schema, context.options),
            predicate=self._pruning(predicate),
            checks=self.checks,
            options=context.options,
            row_filter=self.row_filter,
            follows=(frozenset() if self.as_stored else columns_to_follow(schema, context.options)),
        )

    def _pruning(self, predicate: Predicate | None) -> Predicate | None:
        """The part of a predicate on values that files store."""
        stored = on_stored_columns(self.table_schema, predicate)
        return without_references(stored, self.table_schema, self.context.options)

    def _require_types(self, newer: TableSchema, columns: Sequence[str]) -> None:
        require_types(self.table_schema, newer, columns, self.context.identifier)

    def filtered(self, row_filter: Condition) -> TableSource:
        """The source for a reader who drops the rows for which the filter is not true."""
        return replace(self, row_filter=row_filter)

    @property
    def checks(self) -> Checks:
        return Checks.ONCE if self.context.options.lakecore_verify_checksums else Checks.NEVER

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in batches of the requested columns, in order of partition and bucket.

        The predicate is only used for pruning: the batches may still hold rows that do not match.
        `limit` is exact without a predicate.
        """
        splits = self.plan(predicate).splits
        plan = self.read_plan(splits, columns, predicate)
        if limit is None:
            yield from self._read(splits, plan, self._batches_of)
            return
        if predicate is None:
            plan = replace(plan, first_rows=limit)
        with closing(self.read(splits, plan)) as batches:
            yield from limited(batches, limit if predicate is None else None)

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

    @or_expired
    def engine_files(
        self, columns: Sequence[str], predicate: Predicate | None = None
    ) -> list[EngineFile] | None:
        """The local Parquet files, if an engine can scan them without a merge; else None.

        The checksums of these files have been verified. Returns None if the predicate leaves few
        row groups of large files: verifying whole files would cost more than reading those groups.
        """
        path = self.decide(columns, predicate).path
        if not isinstance(path, EngineScan):
            return None
        paths, store = list(path.paths), self.context.store
        check_files(store, paths, columns, self.checks)
        splits = self.plan(predicate).splits
        return engine_files(splits, paths, self.read_plan(splits, columns, predicate), store)

    @or_expired
    def surviving_files(
        self, columns: Sequence[str], *, known_only: bool = False
    ) -> list[EngineFile] | None:
        """The local Parquet files for an engine to scan, each with a bitmap of the rows to return.

        Unlike in `engine_files`, the files may need a merge: the bitmap then has the rows that
        survive it. With `known_only`, returns None unless earlier reads have computed all bitmaps.
        The checksums of the files have been verified.
        """
        path = self._scanned(columns, None, Reader.MARKING).path
        if not isinstance(path, EngineScan):
            return None
        splits, store = self.plan().splits, self.context.store
        plan = self.read_plan(splits, columns)
        surviving: dict[str, RowMask] = {}
        for split in splits:
            if split.raw:
                continue
            masks = (
                known_survivors(split, plan, store)
                if known_only
                else survivors(split, plan, store, self.context.budget)
            )
            if masks is None:
                return None
            surviving |= masks
        check_files(store, path.paths, columns, self.checks)
        return engine_files(splits, path.paths, plan, store, surviving)

    def decide(self, columns: Sequence[str], predicate: Predicate | None = None) -> Decision:
        """The way to read: an engine scans all files, or each split has its own path."""
        return self._scanned(columns, predicate, Reader.ENGINE)

    @or_expired
    def _scanned(self, columns: Sequence[str], predicate: Predicate | None, by: Reader) -> Decision:
        splits = self.plan(predicate).splits
        plan, budget = self.read_plan(splits, columns, predicate), self.context.budget
        decision = decide(splits, plan, budget, by)
        if decision is None:
            examined = Examined(files=examine(splits, plan, self.context.store, None))
            decision = decide(splits, plan, budget, by, examined)
            assert decision is not None
            path = decision.path
            if isinstance(path, EngineScan) and self._few_match(splits, plan, path.paths):
                few = replace(examined, few_row_groups=True)
                decision = decide(splits, plan, budget, by, few)
        assert decision is not None
        return decision

    @or_expired
    def decide_split(self, split: Split, plan: ReadPlan) -> Decision:
        """How a split is read if each split has its own path."""
        return decide_split(split, plan, self.context.store, self.context.budget)

    @or_expired
    def check_files(self) -> None:
        """Raise CorruptTable if a local file is missing or visibly damaged.

        Remote files are not checked, because each would be fetched twice. Only the last byte of the
        first remote file is read, to raise StorageError if the storage does not answer.
        """
        splits = self.plan().splits
        plan, store = self.read_plan(splits, None), self.context.store
        opened = [SplitFiles(split, plan, store) for split in splits]
        for files in opened:
            files.check()
        remote = next((files for files in opened if not files.are_local), None)
        if remote is not None:
            path = remote.path(remote.split.files[0])
            with missing_is_corrupt(path), store.open_input(path) as file:
                file.seek(max(0, file.size() - 1))  # an earlier byte fetches a megabyte
                file.read(1)

    def _few_match(self, splits: Sequence[Split], plan: ReadPlan, paths: Sequence[str]) -> bool:
        """Whether reading the matching row groups is cheaper than verifying the whole files.

        True if many bytes are not verified yet and the predicate leaves few row groups.
        """
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

    @each_or_expired
    def _read(
        self,
        splits: Sequence[Split],
        plan: ReadPlan,
        read: Callable[[Split, ReadPlan], Iterator[Batch]],
    ) -> Generator[Batch, None, None]:
        """The rows of the splits, in order; a few splits are read concurrently.

        Nothing is read ahead if rows are large, or if the first split has all rows that are wanted.
        """
        budget, wanted = self.context.budget, plan.first_rows
        in_first = sum(file.row_count for file in splits[0].files) if splits else 0
        is_enough = wanted is not None and wanted <= in_first
        if (
            is_enough
            or len(splits) <= 1
            or any(budget.is_large(split.row_bytes) for split in splits)
        ):
            for split in splits:
                yield from read(split, plan)
            return
        yield from side_by_side(
            [_one_after_another(some, plan, read) for some in in_shares(splits)],
            # Read at least something ahead under any budget.
            max(1, Share.AHEAD.of(budget.size_bytes)),
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
