"""A split -> its rows, as Arrow batches of the columns asked for.

- A *raw* split is scanned file by file as it is, less the rows its deletion vectors name.
- Any other split is one section of overlapping runs, merged window by window (`windows.py`).

Memory follows the window, not the table: batches are sized so that those of all runs, and what is
merged of them, fit the lease taken from the budget. The bytes of rows in memory are known when they
are decoded (`io/parquet_read.py`); what is asked for is bytes, and rows only as a bound.

INVARIANT: no predicate on values is applied here before the merge. Hiding the newest row of a key
would bring an older one back.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import CorruptTable, NotFound
from lakecore.format.deletion_vector import decode_vectors
from lakecore.io.data_files import BatchSize, read_positions
from lakecore.io.spill import SpillDirectory
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
from lakecore.table.rounds import Rounds, runs_at_once
from lakecore.table.row_groups import matching_row_groups
from lakecore.table.windows import BATCHES_HELD, merge_slices

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
_BATCH_ROWS_MAX = 262_144
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRoom:
    """What merging a section takes of the budget: one part in `share`.

    The merge function holds `batches_beside` those of the runs.
    """

    share: int = _LEASE_SHARE
    batches_beside: int = 0


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
        del table


def merge_runs(
    split: Split,
    plan: ReadPlan,
    store: Store,
    budget: Budget,
    merge: MergeFunction | None = None,
    room: MergeRoom | None = None,
) -> Iterator[pa.Table]:
    """The merged rows of a section, window after window in key order.

    The tables hold the plan's columns and those that merging needed. `merge`: None is the plan's
    engine.
    """
    in_rounds = merge is None
    merge = MERGE_FUNCTIONS[plan.engine] if merge is None else merge
    runs = [SortedRun(files=files) for files in split.runs]
    fields = merge_fields(runs, plan)
    room = MergeRoom() if room is None else room
    at_once = runs_at_once(runs, len(fields), budget) if in_rounds else len(runs)
    with budget.acquire_up_to(budget.size_bytes // room.share, _LEASE_LEAST_BYTES) as lease:
        batches = BATCHES_HELD * min(len(runs), at_once) + room.batches_beside
        size = batch_size(fields, lease.size_bytes // batches)
        with closing(SpillDirectory()) as spills:
            if len(runs) <= at_once:
                slices = [_run_slices(run, fields, split, plan, store, size) for run in runs]
            else:
                # Rows of a key are told apart by their numbers once runs have become one.
                fields = tuple(dict.fromkeys((*fields, SEQUENCE_FIELD)))
                rounds = Rounds(
                    merge=merge,
                    spec=plan.merge,
                    budget=budget,
                    spills=spills,
                    open_run=lambda run: _run_slices(run, fields, split, plan, store, size),
                    commit_order=lambda run: split.commit_order.get(run.files[0].name, 0),
                )
                slices = rounds.streams(runs, at_once)
            yield from merge_slices(slices, merge, plan.merge, budget)


def merge_fields(runs: Sequence[SortedRun], plan: ReadPlan) -> tuple[Field, ...]:
    """The columns to read: those asked for, the key, and what deciding the winners takes."""
    spec, schema = plan.merge, plan.schema
    fields = [schema.field(name) for name in spec.columns_for(plan.columns)]
    if plan.system_columns or spec.sequence or not runs_are_ordered(runs):
        fields.append(SEQUENCE_FIELD)
    if plan.system_columns or any(may_hold_deletions(file) for run in runs for file in run.files):
        fields.append(KIND_FIELD)
    return tuple(fields)


def batch_size(fields: Sequence[Field], batch_bytes: int) -> BatchSize:
    """The size of batches of these columns that take about so many bytes while they are merged.

    Beside its values a row takes a code of its key, its place in an order, and masks.
    """
    kinds = [arrow_type(field.type) for field in fields]
    least = sum(kind.bit_width if pa.types.is_primitive(kind) else 32 for kind in kinds) / 8
    rows = max(1, min(int(batch_bytes / (least + _ROW_BYTES)), _BATCH_ROWS_MAX))
    return BatchSize(rows, max(1, batch_bytes))


def _run_slices(
    run: SortedRun,
    fields: Sequence[Field],
    split: Split,
    plan: ReadPlan,
    store: Store,
    size: BatchSize,
) -> Iterator[Slice]:
    for file in run.files:
        for batch in read_data_file(file, fields, split, plan, store, size):
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
            # What comes next is read without this beside it: a row may be large.
            del batch, rows, keys


def _read_raw(
    split: Split, plan: ReadPlan, store: Store, budget: Budget
) -> Iterator[pa.RecordBatch]:
    fields = [plan.schema.field(name) for name in plan.columns]
    with budget.acquire_up_to(budget.size_bytes // _LEASE_SHARE, _LEASE_LEAST_BYTES) as lease:
        size = batch_size(fields, lease.size_bytes // 3)
        for file in split.files:
            yield from read_data_file(file, fields, split, plan, store, size)


def read_data_file(
    file: DataFile,
    fields: Sequence[Field],
    split: Split,
    plan: ReadPlan,
    store: Store,
    size: BatchSize,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file as columns `fields` of the table's schema, old schemas cast to it.

    Rows that the file's deletion vector names are left out. Raises CorruptTable if a file that the
    snapshot names is not there, or is damaged.
    """
    with missing_is_corrupt(plan.layout.data_file(split.partition_path, split.bucket, file)):
        deleted = _deleted_rows(file, split, plan, store)
    for position, batch in read_stored_rows(file, fields, split, plan, store, size):
        rows = batch.num_rows
        if deleted is not None:
            low, high = np.searchsorted(deleted, (position, position + rows))
            if low != high:
                mask = np.ones(rows, bool)
                mask[deleted[low:high] - position] = False
                batch = batch.filter(pa.array(mask))  # noqa: PLW2901  the batch, less its deleted rows
        yield batch
        del batch


def read_stored_rows(  # noqa: PLR0913  what to read, where it is, and how
    file: DataFile,
    fields: Sequence[Field],
    split: Split,
    plan: ReadPlan,
    store: Store,
    size: BatchSize,
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
            row_groups = wanted_row_groups(file, split, plan, store)
        for position, batch in read_positions(
            store,
            path,
            fields=physical,
            batch_rows=size.rows,
            batch_bytes=size.size_bytes,
            row_groups=row_groups,
        ):
            yield position, conform_batch(batch, mappings)
            del batch


@contextmanager
def missing_is_corrupt(path: str) -> Iterator[None]:
    """Raises CorruptTable, within it, if this file of a snapshot is not there."""
    try:
        yield
    except NotFound as error:
        raise CorruptTable(
            "a file of the snapshot is missing; was the snapshot expired meanwhile?", file=path
        ) from error


def wanted_row_groups(
    file: DataFile, split: Split, plan: ReadPlan, store: Store
) -> list[int] | None:
    """The row groups that the plan's predicate leaves; None: all."""
    names = plan.schema.names if split.raw else plan.merge.key
    condition = condition_on(plan.predicate, names)
    if condition is None:
        return None
    fields = [plan.schema.field(name) for name in sorted(columns_of(condition))]
    mappings = map_fields(fields, plan.schemas[file.schema_id].fields)
    columns = {mapping.read.name: mapping for mapping in mappings}
    path = plan.layout.data_file(split.partition_path, split.bucket, file)
    return matching_row_groups(store, path, condition, columns)


def _deleted_rows(file: DataFile, split: Split, plan: ReadPlan, store: Store) -> np.ndarray | None:
    """The positions that the file's deletion vector names, ascending; None without a vector."""
    if file.name not in split.vectors:
        return None
    index_file, where = split.vectors[file.name]
    path = plan.layout.live_index_file(split.partition_path, split.bucket, index_file)
    positions = decode_vectors(store.read(path), [where], path)[file.name]
    return positions.astype(np.int64)
