"""Merges the runs of a section, window by window (`windows.py`).

Memory depends on the window, not on the table: batch sizes are chosen so that the batches of all
runs and the merged rows fit the lease from the budget. The size in memory is known when rows are
decoded (`io/files/parquet_read.py`), so batches are requested by bytes, with a bound on rows.

INVARIANT: no predicate on values is applied before the merge. If it dropped the newest row of a
key, an older row would reappear.

If a catalog hides rows, a hidden row that cannot be merged or cast must block no other. If the
merge returns rows unchanged, values are cast after it (`late_casts.py`). Otherwise:

1. Merge the key and the columns of the filter. They say which keys are visible.
2. The visible keys become a condition, which drops other keys before values are cast, and from a
   merge that fails.

A key of several columns becomes a condition on each column: a hidden key whose parts all occur in
visible keys is not dropped.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import Uncomputable
from lakecore.io.files.data_files import small_dictionaries
from lakecore.io.spill import SpillDirectory
from lakecore.lsm.levels import SortedRun
from lakecore.memory import Share
from lakecore.merge import MERGE_FUNCTIONS, chooses_value
from lakecore.merge.fold import Sparing, stored
from lakecore.model.rows import SEQUENCE_FIELD
from lakecore.model.types import STRINGS, Atomic
from lakecore.plan.predicate import Column, all_of, condition_on, is_in
from lakecore.plan.pruning import matches_exactly
from lakecore.rows.evolution import map_fields
from lakecore.rows.read_rules import inputs_of, judged
from lakecore.table.sections.large_rows import Values
from lakecore.table.sections.windows import (
    BATCHES_HELD,
    Rounds,
    batch_size,
    merge_slices,
    section_windows,
)
from lakecore.table.stored_rows.split_files import SplitFiles, missing_is_corrupt

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from lakecore.io.stores.store import Store
    from lakecore.memory import Budget
    from lakecore.merge.spec import MergeFunction
    from lakecore.model.files import Split
    from lakecore.model.types import Field
    from lakecore.plan.predicate import Predicate
    from lakecore.table.sections.windows import Windows
    from lakecore.table.stored_rows.read_plan import ReadPlan

_LOCAL_READERS, _REMOTE_READERS = 2, 8
"""Concurrent readers of the runs of a section. A remote read mostly waits for the network; a local
one keeps a core busy, except while it waits for the interpreter lock."""
LEASE_LEAST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """The merge function of a compaction, and its memory. By default, rows merge as in a read.

    - `function`: the merge function (None: the plan's engine);
    - `share`: the part of the budget that the merge leases;
    - `extra_batches`: how many batches the function holds besides the batches of the runs;
    - `coded`: columns that are returned dictionary-encoded where possible;
    - `compared`: this section and those that it is compared with, if any. A key that is visible in
      one of them counts as visible.
    """

    function: MergeFunction | None = None
    share: Share = Share.BATCHES
    extra_batches: int = 0
    coded: frozenset[str] = frozenset()
    compared: tuple[Split, ...] = ()


_OF_A_READ = Merging()


def merge_runs(
    split: Split,
    plan: ReadPlan,
    store: Store,
    budget: Budget,
    windows: Windows | None = None,
    merging: Merging = _OF_A_READ,
) -> Generator[pa.Table, None, None]:
    """The merged rows of a section, window by window, in key order.

    `windows` says how the runs are merged; by default as in a read. The tables hold the plan's
    columns and all columns that the merge needs. Raises Uncomputable for a key whose rows cannot be
    merged, unless the predicate excludes the key.
    """
    try:
        if plan.row_filter is not None and not MERGE_FUNCTIONS[plan.engine].chooses_rows:
            keys = _visible_keys(merging.compared or (split,), plan, store, budget)
            if keys is None:
                return
            plan, windows = replace(plan, predicate=keys), None
        windows = section_windows(split, plan, budget) if windows is None else windows
        yield from _merged_runs(split, plan, store, budget, windows, merging)
    except Uncomputable as error:
        place = {"partition": split.partition_path, "bucket": split.bucket}
        raise stored(error, table=plan.layout.root, **place) from error


def _merged_runs(
    split: Split,
    plan: ReadPlan,
    store: Store,
    budget: Budget,
    windows: Windows,
    merging: Merging,
) -> Generator[pa.Table, None, None]:
    engine = _engine(plan)
    merge = engine if merging.function is None else merging.function
    runs = [SortedRun(files=files) for files in split.runs]
    fields, places, late = windows.fields, windows.places, windows.late
    # Values are read in file order, so the merge must keep the key order.
    spec = plan.merge if places is None else replace(plan.merge, in_key_order=True)
    files = SplitFiles(split, plan, store, places, late)
    readers = _LOCAL_READERS if files.are_local else _REMOTE_READERS
    with (
        budget.acquire_up_to(merging.share.of(budget.size_bytes), LEASE_LEAST_BYTES) as lease,
        ExitStack() as opened,
    ):
        batches = BATCHES_HELD * min(len(runs), windows.open_runs) + merging.extra_batches
        size = batch_size(fields, lease.size_bytes // batches)
        if not windows.rounds:
            if places is None and not late:
                files = replace(files, coded=merging.coded)
            slices = [files.slices(run, fields, size) for run in runs]
        else:
            # In a run that was merged from several runs, sequence numbers order a key's rows.
            fields = tuple(dict.fromkeys((*fields, SEQUENCE_FIELD)))
            rounds = Rounds(
                merge=engine,
                spec=spec,
                budget=budget,
                spills=opened.enter_context(closing(SpillDirectory())),
                open_run=lambda run: files.slices(run, fields, size),
                commit_order=lambda run: split.commit_order.get(run.files[0].name, 0),
                readers=readers,
            )
            slices = rounds.streams(runs, windows.open_runs)
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


def _visible_keys(
    splits: Iterable[Split], plan: ReadPlan, store: Store, budget: Budget
) -> Predicate | None:
    """The plan's predicate, for the keys whose merged rows are visible; None if there are none."""
    assert plan.row_filter is not None, "called only if there is one"
    names = plan.merge.key
    columns = tuple(dict.fromkeys((*inputs_of(plan.row_filter), *names)))
    narrow = replace(plan, columns=columns, row_filter=None)
    found: list[pa.RecordBatch] = []
    for split in splits:
        windows = section_windows(split, narrow, budget)
        for table in _merged_runs(split, narrow, store, budget, windows, _OF_A_READ):
            found += (
                batch.filter(judged(plan.row_filter, batch)).select(names)
                for batch in table.select(list(columns)).to_batches()
            )
    keys = pa.Table.from_batches(found) if found else None
    if keys is None or not keys.num_rows:
        return None
    parts = [] if plan.predicate is None else [plan.predicate]
    for name in names:
        values = keys.column(name).combine_chunks().unique()
        parts.append(is_in(Column(name, values.type), values))
    return all_of(parts)


def _engine(plan: ReadPlan) -> MergeFunction:
    """The merge function of a read.

    If the predicate excludes a key, an unmergeable key is dropped.
    """
    engine = MERGE_FUNCTIONS[plan.engine]
    wanted = condition_on(plan.predicate, plan.merge.key)
    if engine.chooses_rows or wanted is None:
        return engine
    return Sparing(engine, partial(matches_exactly, wanted))


# --- coded columns -------------------------------------------------------------------------------
# Which string columns are merged dictionary-encoded, without decoding them.
#
# These are columns with few distinct values, in a merge that returns rows unchanged. The merge
# moves dictionary indices, not values. This is faster only if all files have small dictionaries,
# because the output carries the dictionary of every file.

_LEAST_ROWS = 65_536
"""In splits with fewer rows, all columns are decoded: reading footers would cost more."""
_FILES_MAX = 64
"""In splits with more files, all columns are decoded: too many footers would be read."""
_COLUMNS_MAX = 128
"""The most encoded columns. Each has a fixed cost per batch, and wide batches hold few rows."""


def coded_columns(
    split: Split, fields: Sequence[Field], plan: ReadPlan, store: Store
) -> frozenset[str]:
    """The columns to merge dictionary-encoded. Raises CorruptTable if a file is missing."""
    files = split.files
    few = sum(file.row_count for file in files) < _LEAST_ROWS or len(files) > _FILES_MAX
    if few or not MERGE_FUNCTIONS[plan.engine].chooses_rows:
        return frozenset()
    texts = [
        field
        for field in fields
        if isinstance(field.type, Atomic)
        and field.type.root in STRINGS
        and field.name not in plan.schema.partition_keys
        and chooses_value(plan.merge, field.name)
    ]
    for file in sorted(files, key=lambda file: -file.row_count):
        stored = {
            mapping.read: mapping.stored.name
            for mapping in map_fields(texts, plan.schemas[file.schema_id].fields)
            if mapping.stored is not None
            and not mapping.changed
            # Arrow could take a name with a dot for a nested field.
            and "." not in mapping.stored.name + mapping.read.name
        }
        if not stored:
            return frozenset()
        path = plan.layout.data_file(split.partition_path, split.bucket, file)
        with missing_is_corrupt(path):
            small = small_dictionaries(store, path, tuple(stored.values()))
        texts = [field for field, name in stored.items() if name in small]
    return frozenset(field.name for field in texts if len(texts) <= _COLUMNS_MAX)
