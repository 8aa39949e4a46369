"""A split -> its rows, as Arrow batches of the requested columns.

- The files of a *raw* split are scanned without a merge; rows in deletion vectors are dropped.
- Any other split is one section of overlapping runs, merged window by window (`windows.py`).

Memory depends on the window, not on the table: batch sizes are chosen so that the batches of all
runs and the merged rows fit the lease from the budget. The size in memory is known when rows are
decoded (`io/files/parquet_read.py`), so batches are requested by bytes, with a bound on rows.

INVARIANT: no predicate on values is applied before the merge. If it dropped the newest row of a
key, an older row would reappear.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import Uncomputable
from lakecore.io.files.data_files import BatchSize
from lakecore.io.spill import SpillDirectory
from lakecore.lsm.levels import SortedRun, runs_are_ordered
from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.uncomputable import Sparing, stored
from lakecore.model.types import arrow_type
from lakecore.plan.predicate import condition_on
from lakecore.plan.pruning import matches_exactly
from lakecore.plan.splits import may_hold_deletions
from lakecore.table.runs.large_rows import Values, places_of
from lakecore.table.runs.late_casts import NO_LATE_CASTS, LateCasts, casts_after_merge
from lakecore.table.runs.rounds import Rounds, runs_at_once
from lakecore.table.runs.split_files import KIND_FIELD, SEQUENCE_FIELD, SplitFiles
from lakecore.table.runs.windows import BATCHES_HELD, merge_slices

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from lakecore.io.stores.store import Store
    from lakecore.memory import Budget
    from lakecore.merge.spec import MergeFunction
    from lakecore.model.files import Split
    from lakecore.model.types import Field
    from lakecore.table.runs.places import Places
    from lakecore.table.runs.read_plan import ReadPlan

_BATCH_ROWS_MAX = 262_144
_ROW_BYTES = 16
"""Memory of a row in addition to its values, in bytes."""
_LOCAL_READERS, _REMOTE_READERS = 2, 8
"""Of the runs of a section. A remote file is to be waited for; a local one keeps a core busy, but
for the moments in which who reads it waits for the interpreter."""
_LEASE_SHARE = 4
_LEASE_LEAST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRoom:
    """The share of the budget that merging a section takes: the budget divided by `share`.

    The merge function holds `extra_batches` batches in addition to those of the runs. A merge
    function other than the plan's engine gets `places` (large rows) or `late` casts. The columns
    `coded` are returned dictionary-encoded where possible.
    """

    share: int = _LEASE_SHARE
    extra_batches: int = 0
    places: Places | None = None
    late: LateCasts = NO_LATE_CASTS
    coded: frozenset[str] = frozenset()


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
) -> Generator[pa.Table, None, None]:
    """The merged rows of a section, window by window, in key order.

    The tables hold the plan's columns and those that the merge needs. `merge` is by default the
    plan's engine. Raises Uncomputable for a key whose rows cannot be merged, unless the predicate
    excludes the key.
    """
    try:
        yield from _merged_runs(split, plan, store, budget, merge, room or MergeRoom())
    except Uncomputable as error:
        place = {"partition": split.partition_path, "bucket": split.bucket}
        raise stored(error, table=plan.layout.root, **place) from error


def _merged_runs(
    split: Split,
    plan: ReadPlan,
    store: Store,
    budget: Budget,
    merge: MergeFunction | None,
    room: MergeRoom,
) -> Generator[pa.Table, None, None]:
    engine = _engine(plan)
    runs = [SortedRun(files=files) for files in split.runs]
    fields = merge_fields(runs, plan)
    spec, places, late = plan.merge, room.places, room.late
    if merge is None:
        merge, places = engine, places_of(split, fields, plan, budget)
        late = casts_after_merge(split.files, fields, plan) if places is None else late
    fields = (*fields, *late.fields)
    if places is not None:
        # Values are read in file order, so the merge must keep the key order.
        spec = replace(spec, in_key_order=True)
    files = SplitFiles(split, plan, store, places, late)
    readers = _LOCAL_READERS if files.are_local else _REMOTE_READERS
    with budget.acquire_up_to(budget.size_bytes // room.share, _LEASE_LEAST_BYTES) as lease:
        at_once = runs_at_once(runs, len(fields), budget)
        batches = BATCHES_HELD * min(len(runs), at_once) + room.extra_batches
        size = batch_size(fields, lease.size_bytes // batches)
        with closing(SpillDirectory()) as spills:
            if len(runs) <= at_once:
                if places is None and not late:
                    files = replace(files, coded=room.coded)
                slices = [files.slices(run, fields, size) for run in runs]
            else:
                # After runs have been merged into one, sequence numbers order the rows of a key.
                fields = tuple(dict.fromkeys((*fields, SEQUENCE_FIELD)))
                rounds = Rounds(
                    merge=engine,
                    spec=spec,
                    budget=budget,
                    spills=spills,
                    open_run=lambda run: files.slices(run, fields, size),
                    commit_order=lambda run: split.commit_order.get(run.files[0].name, 0),
                    readers=readers,
                )
                slices = rounds.streams(runs, at_once)
            merged = merge_slices(slices, merge, spec, budget, readers)
            if late:
                with closing(merged):
                    for table in merged:
                        yield late.cast(table)
                        del table
                return
            if places is None:
                yield from merged
                return
            values = Values(places, fields, plan, store)
            with closing(merged), closing(values):
                for table in merged:
                    yield from values.rows(table)


def _engine(plan: ReadPlan) -> MergeFunction:
    """The merge function of a read; it drops excluded keys that it cannot merge."""
    engine = MERGE_FUNCTIONS[plan.engine]
    wanted = condition_on(plan.predicate, plan.merge.key)
    if engine.chooses_rows or wanted is None:
        return engine
    return Sparing(engine, partial(matches_exactly, wanted))


def merge_fields(runs: Sequence[SortedRun], plan: ReadPlan) -> tuple[Field, ...]:
    """The columns to read: the requested ones, the key, and those that decide the winners."""
    spec, schema = plan.merge, plan.schema
    fields = [schema.field(name) for name in spec.columns_for(plan.columns)]
    if plan.system_columns or spec.sequence or not runs_are_ordered(runs):
        fields.append(SEQUENCE_FIELD)
    if plan.system_columns or any(may_hold_deletions(file) for run in runs for file in run.files):
        fields.append(KIND_FIELD)
    return tuple(fields)


def batch_size(fields: Sequence[Field], batch_bytes: int) -> BatchSize:
    """The size of batches of these columns that take about `batch_bytes` during a merge.

    In addition to its values, a row takes a code of its key, a position, and masks.
    """
    kinds = [arrow_type(field.type) for field in fields]
    least = sum(kind.bit_width if pa.types.is_primitive(kind) else 32 for kind in kinds) / 8
    rows = max(1, min(int(batch_bytes / (least + _ROW_BYTES)), _BATCH_ROWS_MAX))
    return BatchSize(rows, max(1, batch_bytes))


def _read_raw(
    split: Split, plan: ReadPlan, store: Store, budget: Budget
) -> Iterator[pa.RecordBatch]:
    fields = [plan.schema.field(name) for name in plan.columns]
    files = SplitFiles(split, plan, store)
    with budget.acquire_up_to(budget.size_bytes // _LEASE_SHARE, _LEASE_LEAST_BYTES) as lease:
        size = batch_size(fields, lease.size_bytes // 3)
        for file in split.files:
            yield from files.rows(file, fields, size)
