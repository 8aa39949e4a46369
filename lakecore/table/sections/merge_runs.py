"""Merges the runs of a section, window by window (`windows.py`).

Memory depends on the window, not on the table: batch sizes are chosen so that the batches of all
runs and the merged rows fit the lease from the budget. The size in memory is known when rows are
decoded (`io/files/parquet_read.py`), so batches are requested by bytes, with a bound on rows.

INVARIANT: no predicate on values is applied before the merge. If it dropped the newest row of a
key, an older row would reappear.

If a catalog hides rows, a hidden row that cannot be merged or cast must block no other:

1. Engines that fold first merge the key and the columns of the filter alone, to find the visible
   keys. The values of visible keys become a condition, which prunes the second merge.
2. A key that is not visible is left out of a merge that fails.
3. A value that cannot be cast before the merge is null, and its row is flagged (`late_casts.py`).
   The merge then does not know which row of the key wins, or its values: it fails, unless the key
   is hidden in any case (`_Judging`).
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from lakecore.errors import InvalidRequest, Uncomputable
from lakecore.io.files.data_files import small_dictionaries
from lakecore.io.spill import SpillDirectory
from lakecore.lsm.levels import SortedRun
from lakecore.memory import Budget, Share
from lakecore.merge import MERGE_FUNCTIONS, chooses_value
from lakecore.merge.fold import KeyFilter, Sparing, stored
from lakecore.merge.keys import common_ranks, is_valid, shared_codes
from lakecore.model.rows import SEQUENCE_FIELD
from lakecore.model.types import STRINGS, Atomic, Field
from lakecore.plan.predicate import Column, all_of, condition_on, is_in
from lakecore.plan.pruning import matches_exactly
from lakecore.rows.evolution import map_fields
from lakecore.rows.read_rules import Condition, Group, inputs_of, judged
from lakecore.table.file_reader.late_casts import UNREAD, LateCasts
from lakecore.table.file_reader.split_files import SplitFiles, missing_is_corrupt
from lakecore.table.sections.large_rows import Values
from lakecore.table.sections.windows import (
    BATCHES_HELD,
    Rounds,
    Windows,
    batch_size,
    merge_slices,
    section_windows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from lakecore.io.stores.store import Store
    from lakecore.merge.spec import MergeFunction, MergeSpec, Slice
    from lakecore.model.files import Split
    from lakecore.table.file_reader.read_plan import ReadPlan

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
      one of them counts as visible;
    - `visible`: the keys that the catalog shows to the reader; None: not known before the merge.
    """

    function: MergeFunction | None = None
    share: Share = Share.BATCHES
    extra_batches: int = 0
    coded: frozenset[str] = frozenset()
    compared: tuple[Split, ...] = ()
    visible: pa.Table | None = None


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
        keys: pa.Table | None = None
        if plan.row_filter is not None and not MERGE_FUNCTIONS[plan.engine].chooses_rows:
            keys = _visible_keys(merging.compared or (split,), plan, store, budget)
            if not keys.num_rows:
                return
            values = [keys.column(name).combine_chunks().unique() for name in keys.schema.names]
            parts = [
                is_in(Column(name, each.type), each)
                for name, each in zip(keys.schema.names, values, strict=True)
            ]
            among = parts if plan.predicate is None else [plan.predicate, *parts]
            plan, windows = replace(plan, predicate=all_of(among)), None
        windows = section_windows(split, plan, budget) if windows is None else windows
        yield from _merged_runs(split, plan, store, budget, windows, replace(merging, visible=keys))
    except Uncomputable as error:
        place = {"partition": split.partition_path, "bucket": split.bucket}
        raise stored(error, table=plan.layout.root, **place) from error


def _merged_runs(
    split: Split, plan: ReadPlan, store: Store, budget: Budget, windows: Windows, merging: Merging
) -> Generator[pa.Table, None, None]:
    engine = _engine(plan, merging.visible)
    merge = engine if merging.function is None else merging.function
    runs = [SortedRun(files=files) for files in split.runs]
    fields, places, late = windows.fields, windows.places, windows.late
    if UNREAD in fields:
        engine = merge = _Judging(merge, _may_show(plan, merging.visible, late))
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
) -> pa.Table:
    assert plan.row_filter is not None, "called only if there is one"
    names = list(plan.merge.key)
    columns = tuple(dict.fromkeys((*inputs_of(plan.row_filter), *names)))
    narrow = replace(plan, columns=columns)
    merging = Merging(function=_Judgeable(MERGE_FUNCTIONS[plan.engine]))
    found = [plan.schema.arrow.empty_table().select(names)]
    for split in splits:
        windows = section_windows(split, narrow, budget)
        for table in _merged_runs(split, narrow, store, budget, windows, merging):
            found += (
                pa.Table.from_batches([batch.filter(judged(plan.row_filter, batch)).select(names)])
                for batch in table.select(list(columns)).to_batches()
            )
    return pa.concat_tables(found)


def _engine(plan: ReadPlan, visible: pa.Table | None) -> MergeFunction:
    """The merge function of a read.

    An unmergeable key is dropped if the predicate excludes it, or if it is not among `visible`.
    """
    engine = MERGE_FUNCTIONS[plan.engine]
    wanted = _wanted_keys(plan, visible)
    return engine if engine.chooses_rows or wanted is None else Sparing(engine, wanted)


def _wanted_keys(plan: ReadPlan, visible: pa.Table | None) -> KeyFilter | None:
    condition = condition_on(plan.predicate, plan.merge.key)
    if visible is None:
        return None if condition is None else partial(matches_exactly, condition)

    def wanted(keys: pa.Table) -> np.ndarray:
        names = plan.merge.key
        ours, theirs = ([each.column(name) for name in names] for each in (keys, visible))
        own, shown = common_ranks([ours, theirs])
        found = np.isin(own, shown)
        return found if condition is None else found & matches_exactly(condition, keys)

    return wanted


# --- hidden keys ---------------------------------------------------------------------------------
# Which keys are hidden, although their rows cannot be merged.


@dataclass(frozen=True, slots=True)
class _Judgeable:
    """A merge function that leaves out the keys that cannot be merged."""

    chooses_rows: ClassVar = False
    engine: MergeFunction

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        try:
            yield from self.engine(window, spec)
        except Uncomputable:
            codes = shared_codes([part.keys for part in window])
            keys = np.unique(np.concatenate(codes))
            counts = [int(np.searchsorted(own, keys[len(keys) // 2])) for own in codes]
            ends = [part.keys.length for part in window]
            for first, last in ((np.zeros_like(counts), counts), (counts, ends)):
                places = zip(window, first, last, strict=True)
                half = [part.cut(begin, end) for part, begin, end in places if begin < end]
                if half and len(keys) > 1:
                    yield from self(half, spec)


@dataclass(frozen=True, slots=True)
class _Judging:
    """A merge function that fails if a key with a flagged row may be visible.

    If no row of the key could be visible, its rows are merged as they are. All rows of a key must
    be judged together, so a merge in several steps keeps every row until the last step.
    """

    chooses_rows: ClassVar = False
    engine: MergeFunction
    may_show: Callable[[pa.Table, np.ndarray], bool]
    """Whether a key may be visible, from rows and the number of the key of each row."""

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        flags = np.concatenate([is_valid(part.rows.column(UNREAD.name)) for part in window])
        window = [replace(part, rows=part.rows.drop_columns(UNREAD.name)) for part in window]
        if flags.any():
            codes = np.concatenate(shared_codes([part.keys for part in window]))
            concerned = np.isin(codes, codes[flags])
            rows = pa.concat_tables([part.rows for part in window]).filter(pa.array(concerned))
            if self.may_show(rows, np.unique(codes[concerned], return_inverse=True)[1]):
                raise InvalidRequest("a stored value cannot be cast to the column's type")
        yield from self.engine(window, spec)


def _may_show(
    plan: ReadPlan, visible: pa.Table | None, late: LateCasts
) -> Callable[[pa.Table, np.ndarray], bool]:
    row_filter, wanted = plan.row_filter, _wanted_keys(plan, visible)
    assert row_filter is not None, "rows are flagged only if there is one"
    chooses = MERGE_FUNCTIONS[plan.engine].chooses_rows

    def may_show(rows: pa.Table, keys: np.ndarray) -> bool:
        if wanted is not None:
            mask = wanted(rows.select(list(plan.merge.key)))
            rows, keys = rows.filter(pa.array(mask)), keys[mask]
        if visible is not None or not len(keys):
            return len(keys) > 0
        if chooses:
            parts = (part for batch in rows.to_batches() for part in late.judge(batch, row_filter))
            return any(bool(np.asarray(keeps).any()) for _, keeps in parts)
        return bool(_may_pass(row_filter, rows, keys, plan.merge).any())

    return may_show


def _may_pass(
    condition: Condition, rows: pa.Table, keys: np.ndarray, spec: MergeSpec
) -> np.ndarray:
    """For each key, whether the condition may be true for a row that is folded from these rows.

    Each value of the folded row is that of any of the rows, or null, unless it is computed.
    """
    if isinstance(condition, Group):
        parts = [_may_pass(part, rows, keys, spec) for part in condition.parts]
        join = np.logical_and if condition.all_true else np.logical_or
        return reduce(join, parts, np.full(keys.max() + 1, condition.all_true))
    names = set(inputs_of(condition))
    values = names - set(spec.key)
    may = np.zeros(keys.max() + 1, bool)
    unordered = replace(spec, key=(), sequence=(), groups=())
    if len(values) > 1 or not all(chooses_value(unordered, name) for name in values):
        return ~may
    given = rows.select(list(names))
    nulls = pa.table(
        {
            name: pa.nulls(len(given), given.column(name).type)
            if name in values
            else given.column(name)
            for name in given.schema.names
        },
        schema=given.schema,
    )
    for each in (given, nulls):
        masks = [judged(condition, batch) for batch in each.to_batches()]
        may[keys[pa.chunked_array(masks, pa.bool_()).to_numpy()]] = True
    return may


# --- coded columns -------------------------------------------------------------------------------
# Which string columns are merged dictionary-encoded, without decoding them.
#
# Such a column has few distinct values, and the merge returns rows unchanged. The merge moves
# dictionary indices, not values, which is faster only if all files have small dictionaries, because
# the output carries the dictionary of every file.

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
