"""A split -> its rows, as Arrow batches of the columns asked for.

- A *raw* split is scanned file by file as it is, less the rows its deletion vectors name.
- Any other split is one section of overlapping runs, merged window by window:
  1. hold one batch of each run;
  2. the bound is the smallest last key among the runs that have more to give: no later batch can
     hold a key at or below it;
  3. the rows up to the bound are the window: merge them, give them out;
  4. refill the runs that are used up, and go on.

Memory follows the window, not the table: `k` runs need `3 * k` batches (of each run one is held,
the next is known, and the one after it is read while the window merges), sized to the lease taken
from the budget. Which rows a window has depends on the files alone, not on how fast they are read.

INVARIANT: no predicate on values is applied here before the merge. Hiding the newest row of a key
would bring an older one back.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import CorruptTable, NotFound
from lakecore.format.deletion_vector import decode_vectors
from lakecore.io.data_files import read_positions
from lakecore.lsm.levels import SortedRun, runs_are_ordered
from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import MergeSpec, Slice
from lakecore.model.rows import (
    SEQUENCE_NUMBER,
    SEQUENCE_NUMBER_ID,
    VALUE_KIND,
    VALUE_KIND_ID,
)
from lakecore.model.types import Atomic, Field, Root, arrow_type
from lakecore.plan.evolution import conform_batch, map_fields, stored_fields
from lakecore.plan.predicate import columns_of, condition_on
from lakecore.plan.splits import may_hold_deletions
from lakecore.table.row_groups import matching_row_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakecore.format.layout import Layout
    from lakecore.io.store import Store
    from lakecore.memory import Budget
    from lakecore.merge.spec import MergeFunction
    from lakecore.model.files import DataFile, Split
    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate

SEQUENCE_FIELD = Field(
    id=SEQUENCE_NUMBER_ID, name=SEQUENCE_NUMBER, type=Atomic(root=Root.BIGINT, nullable=False)
)
KIND_FIELD = Field(
    id=VALUE_KIND_ID, name=VALUE_KIND, type=Atomic(root=Root.TINYINT, nullable=False)
)
READER = "lakecore-read"
"""How the names of the threads that read ahead begin."""
_BATCH_ROWS_MAX = 262_144
_COMPRESSION_GUESS = 4
"""Bytes in memory for a byte in a compressed file, when nothing better is known."""
_ROW_BYTES = 16
"""What a row takes beside its values."""
_LEASE_SHARE = 4
_LEASE_LEAST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """All that reading a split takes, but for the store and the budget. Picklable.

    `schema` is the one the rows are given out in, `schemas` those of the files by id, `columns`
    the names of the columns to give out, in order. The predicate may leave out row groups. With
    `system_columns`, sections give out the sequence number and the kind of each row, too.
    """

    layout: Layout
    schema: TableSchema
    schemas: Mapping[int, TableSchema]
    columns: tuple[str, ...]
    engine: str
    merge: MergeSpec
    predicate: Predicate | None = None
    system_columns: bool = False

    @property
    def output(self) -> pa.Schema:
        """The Arrow schema of the batches."""
        return pa.schema([self.schema.arrow.field(name) for name in self.columns])


def read_split(
    split: Split, plan: ReadPlan, store: Store, budget: Budget
) -> Iterator[pa.RecordBatch]:
    """The rows of a split in batches of the plan's columns. Raw rows come in file order."""
    if split.raw:
        yield from _read_raw(split, plan, store, budget)
        return
    columns = list(plan.columns)
    for table in merge_runs(split, plan, store, budget):
        yield from table.select(columns).to_batches()


def merge_runs(
    split: Split,
    plan: ReadPlan,
    store: Store,
    budget: Budget,
    merge: MergeFunction | None = None,
    *,
    batches_beside: int = 0,
) -> Iterator[pa.Table]:
    """The merged rows of a section, window after window in key order.

    The tables hold the plan's columns and those that merging needed. `merge` (None: the plan's
    engine) may hold `batches_beside` those of the runs.
    """
    merge = MERGE_FUNCTIONS[plan.engine] if merge is None else merge
    runs = [SortedRun(files=files) for files in split.runs]
    fields = merge_fields(runs, plan)
    with budget.acquire_up_to(budget.size_bytes // _LEASE_SHARE, _LEASE_LEAST_BYTES) as lease:
        batch_rows = rows_of(split, lease.size_bytes // (3 * len(runs) + batches_beside), fields)
        slices = [_run_slices(run, fields, split, plan, store, batch_rows) for run in runs]
        yield from merge_slices(slices, merge, plan.merge)


def merge_slices(
    runs: Sequence[Iterator[Slice]], merge: MergeFunction, spec: MergeSpec
) -> Generator[pa.Table, None, None]:
    """Sorted streams of slices, merged window by window; closes the streams at the end.

    A key must not go on from one slice of a stream to the next; see `whole_keys`.
    """
    ahead = ThreadPoolExecutor(1, thread_name_prefix=READER)
    cursors = [_Cursor(slices, ahead) for slices in runs]
    try:
        yield from _merge_windows(cursors, merge, spec)
    finally:
        for cursor in cursors:
            cursor.close()
        ahead.shutdown(wait=not on_reader())
    # All is read, so the thread is idle, and to wait for its end is safe from any thread.
    ahead.shutdown()


def on_reader() -> bool:
    """Whether this is a thread that reads ahead.

    NOTE: an iterator that is dropped ends in whatever thread dropped it last; Polars lets go in the
    next one that calls it. A reading thread that waited for another, or for itself, might wait for
    ever: what it ends is let go of when the read under way is done.
    """
    return current_thread().name.startswith(READER)


def _merge_windows(
    cursors: list[_Cursor], merge: MergeFunction, spec: MergeSpec
) -> Iterator[pa.Table]:
    while True:
        for cursor in cursors:
            cursor.fill()
        held = [cursor for cursor in cursors if cursor.pending is not None]
        if not held:
            return
        lasts = [cursor.last_key() for cursor in held if not cursor.at_last_batch]
        bound = min(lasts) if lasts else None
        window = [part for cursor in held if (part := cursor.take_up_to(bound)) is not None]
        yield from (table for table in merge(window, spec) if table.num_rows)


class _Cursor:
    """One sorted run, read batch by batch; two batches ahead."""

    def __init__(self, slices: Iterator[Slice], ahead: ThreadPoolExecutor) -> None:
        self._slices = slices
        self._ahead = ahead
        self._reading = ahead.submit(_next_filled, slices)
        self._next: Slice | None = None
        self._started = False
        self.pending: Slice | None = None

    @property
    def at_last_batch(self) -> bool:
        """Whether nothing comes after the rows held."""
        return self._next is None

    def fill(self) -> None:
        """Hold the next rows, if none are held and there are more."""
        if not self._started:
            self._started = True
            self._read_on()
        if self.pending is None and self._next is not None:
            self.pending = self._next
            self._read_on()

    def last_key(self) -> tuple[object, ...]:
        """The key of the last row held."""
        assert self.pending is not None
        return self.pending.keys.at(self.pending.keys.length - 1)

    def take_up_to(self, bound: tuple[object, ...] | None) -> Slice | None:
        """The held rows with keys at or below the bound (None: all); the others stay."""
        held = self.pending
        assert held is not None
        length = held.keys.length
        count = length if bound is None else held.keys.count_up_to(bound)
        self.pending = None if count == length else _cut(held, count, length - count)
        if count == 0:
            return None
        return held if count == length else _cut(held, 0, count)

    def close(self) -> None:
        """Stop reading, and close the files."""
        if not self._reading.cancel() and not on_reader():
            wait([self._reading])
        slices = self._slices
        if not isinstance(slices, Generator):
            return
        if self._reading.done():
            slices.close()
        else:
            self._reading.add_done_callback(lambda _: slices.close())

    def _read_on(self) -> None:
        self._next = self._reading.result()
        if self._next is not None:
            self._reading = self._ahead.submit(_next_filled, self._slices)


def _next_filled(slices: Iterator[Slice]) -> Slice | None:
    """The next slice that has rows: deletion vectors may leave none of a batch."""
    return next((part for part in slices if part.keys.length), None)


def _cut(part: Slice, start: int, length: int) -> Slice:
    return Slice(
        rows=part.rows.slice(start, length),
        keys=part.keys.slice(start, length),
        sequence_min=part.sequence_min,
        sequence_max=part.sequence_max,
        commit_order=part.commit_order,
        level=part.level,
        unique=part.unique,
    )


def merge_fields(runs: Sequence[SortedRun], plan: ReadPlan) -> tuple[Field, ...]:
    """The columns to read: those asked for, the key, and what deciding the winners takes."""
    spec, schema = plan.merge, plan.schema
    fields = [schema.field(name) for name in spec.columns_for(plan.columns)]
    if plan.system_columns or spec.sequence or not runs_are_ordered(runs):
        fields.append(SEQUENCE_FIELD)
    if plan.system_columns or any(may_hold_deletions(file) for run in runs for file in run.files):
        fields.append(KIND_FIELD)
    return tuple(fields)


def rows_of(split: Split, batch_bytes: int, fields: Sequence[Field] | None = None) -> int:
    """How many rows of its files make a batch of about that many bytes in memory.

    `fields` are the columns that are read, None all: numbers alone are known to take less.
    """
    row_bytes = _ROW_BYTES + _COMPRESSION_GUESS * split.size_bytes / max(1, split.row_count)
    kinds = [pa.null()] if fields is None else [arrow_type(field.type) for field in fields]
    if all(pa.types.is_primitive(kind) for kind in kinds):
        row_bytes = min(row_bytes, _ROW_BYTES + sum(kind.bit_width for kind in kinds) / 8)
    return max(1, min(int(batch_bytes / row_bytes), _BATCH_ROWS_MAX))


def _run_slices(
    run: SortedRun,
    fields: Sequence[Field],
    split: Split,
    plan: ReadPlan,
    store: Store,
    batch_rows: int,
) -> Iterator[Slice]:
    for file in run.files:
        for batch in read_data_file(file, fields, split, plan, store, batch_rows):
            keys = order_columns([batch.column(name) for name in plan.merge.key])
            rows = pa.Table.from_batches([batch])
            yield Slice(
                rows=rows,
                keys=keys,
                sequence_min=file.sequence_min,
                sequence_max=file.sequence_max,
                commit_order=split.commit_order.get(file.name, 0),
                level=file.level,
            )


def _read_raw(
    split: Split, plan: ReadPlan, store: Store, budget: Budget
) -> Iterator[pa.RecordBatch]:
    fields = [plan.schema.field(name) for name in plan.columns]
    with budget.acquire_up_to(budget.size_bytes // _LEASE_SHARE, _LEASE_LEAST_BYTES) as lease:
        batch_rows = rows_of(split, lease.size_bytes // 3)
        for file in split.files:
            yield from read_data_file(file, fields, split, plan, store, batch_rows)


def read_data_file(
    file: DataFile,
    fields: Sequence[Field],
    split: Split,
    plan: ReadPlan,
    store: Store,
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file as columns `fields` of the table's schema, old schemas cast to it.

    Rows that the file's deletion vector names are left out. Raises CorruptTable if a file that the
    snapshot names is not there, or is damaged.
    """
    with missing_is_corrupt(plan.layout.data_file(split.partition_path, split.bucket, file)):
        deleted = _deleted_rows(file, split, plan, store)
    for position, batch in read_stored_rows(file, fields, split, plan, store, batch_rows):
        rows = batch.num_rows
        if deleted is not None:
            low, high = np.searchsorted(deleted, (position, position + rows))
            if low != high:
                mask = np.ones(rows, bool)
                mask[deleted[low:high] - position] = False
                batch = batch.filter(pa.array(mask))  # noqa: PLW2901  the batch, less its deleted rows
        yield batch


def read_stored_rows(  # noqa: PLR0913  what to read, where it is, and how
    file: DataFile,
    fields: Sequence[Field],
    split: Split,
    plan: ReadPlan,
    store: Store,
    batch_rows: int,
    *,
    row_groups: Iterable[int] | None = None,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of `read_data_file`, deleted rows included, with the position of the first row.

    `row_groups` are those to read; None: all that the plan's predicate leaves.
    """
    file_schema = plan.schemas[file.schema_id]
    mappings = map_fields(fields, (*file_schema.fields, SEQUENCE_FIELD, KIND_FIELD))
    physical = stored_fields(mappings)
    path = plan.layout.data_file(split.partition_path, split.bucket, file)
    with missing_is_corrupt(path):
        if row_groups is None:
            row_groups = _row_groups(file_schema, split, plan, store, path)
        for position, batch in read_positions(
            store, path, fields=physical, batch_rows=batch_rows, row_groups=row_groups
        ):
            yield position, conform_batch(batch, mappings)


@contextmanager
def missing_is_corrupt(path: str) -> Iterator[None]:
    """Raises CorruptTable, within it, if this file of a snapshot is not there."""
    try:
        yield
    except NotFound as error:
        raise CorruptTable(
            "a file of the snapshot is missing; was the snapshot expired meanwhile?", file=path
        ) from error


def _row_groups(
    file_schema: TableSchema, split: Split, plan: ReadPlan, store: Store, path: str
) -> list[int] | None:
    """The row groups to read; None: all."""
    names = plan.schema.names if split.raw else plan.merge.key
    condition = condition_on(plan.predicate, names)
    if condition is None:
        return None
    fields = [plan.schema.field(name) for name in sorted(columns_of(condition))]
    mappings = map_fields(fields, file_schema.fields)
    columns = {mapping.read.name: mapping for mapping in mappings}
    return matching_row_groups(store, path, condition, columns)


def _deleted_rows(file: DataFile, split: Split, plan: ReadPlan, store: Store) -> np.ndarray | None:
    """The positions that the file's deletion vector names, ascending; None without a vector."""
    if file.name not in split.vectors:
        return None
    index_file, where = split.vectors[file.name]
    path = plan.layout.live_index_file(split.partition_path, split.bucket, index_file)
    positions = decode_vectors(store.read(path), [where], path)[file.name]
    return positions.astype(np.int64)
