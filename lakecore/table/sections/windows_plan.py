"""How the runs of a section are merged in windows, decided from metadata."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.io.files.data_files import BatchSize
from lakecore.io.freed_memory import release_freed
from lakecore.lsm.levels import SortedRun, runs_are_ordered
from lakecore.merge import interim_function
from lakecore.merge.deduplicate import KEEP_ALL
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import Slice
from lakecore.model.arrow_arrays import size_of
from lakecore.model.rows import KIND_FIELD, SEQUENCE_FIELD
from lakecore.model.types import arrow_type
from lakecore.plan.splits import may_hold_deletions
from lakecore.table.sections.large_rows import places_of
from lakecore.table.sections.windows import counted, in_pieces, merge_slices, with_whole_keys
from lakecore.table.stored_rows.late_casts import NO_LATE_CASTS, LateCasts, casts_after_merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakecore.io.spill import SpillDirectory, SpilledRun
    from lakecore.memory import Budget
    from lakecore.merge.spec import MergeFunction, MergeSpec
    from lakecore.model.files import Split
    from lakecore.model.types import Field
    from lakecore.table.stored_rows.read_plan import ReadPlan
    from lakecore.table.stored_rows.row_groups import Places


# --- rounds --------------------------------------------------------------------------------------
# Merges many sorted runs of level 0 to a few runs on local disk, so that a merge fits the budget.
#
# An open run holds pages of each of its columns in addition to its batches. If the runs of a
# section would hold more than their share of the budget:
#
# 1. the runs of level 0 are split into groups of neighbours, in commit order;
# 2. each group is merged, window by window, into one run on local disk, and closed;
# 3. these runs and the runs of the other levels are merged.
#
# A group is merged by the table's merge function if that may merge the rows of a key in several
# steps; otherwise all rows are kept (`interim_function`). Tombstones are always kept.

_OPEN_SHARE = 4
"""Open runs, without their batches, take at most the budget divided by this."""
_COLUMN_BYTES = 768 << 10
"""Bytes of memory for the pages of a column, stored and decoded."""
_ROW_GROUP_BYTES = 24 << 20
"""Bytes of memory for the decoded row groups and the footer of a run with many columns."""
_DECODED_RATIO = 4
_AT_ONCE_MIN = 4
_PIECE_SHARE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How runs are merged in rounds. Each call of `open_run` reads a run from its start.

    `readers` runs of a round are read concurrently.
    """

    merge: MergeFunction
    spec: MergeSpec
    budget: Budget
    spills: SpillDirectory
    open_run: Callable[[SortedRun], Iterator[Slice]]
    commit_order: Callable[[SortedRun], int]
    readers: int = 1

    def streams(self, runs: Sequence[SortedRun], at_once: int) -> list[Iterator[Slice]]:
        """The rows of the runs; runs of level 0 are merged first, at most `at_once` in a group."""
        level_0 = sorted((run for run in runs if run.level == 0), key=self.commit_order)
        others = [run for run in runs if run.level != 0]
        count = -(-len(level_0) // at_once)
        step = max(1, -(-len(level_0) // max(1, count)))
        groups = [level_0[start : start + step] for start in range(0, len(level_0), step)]
        merged = [self._merged(group) for group in groups]
        return [*merged, *(self.open_run(run) for run in others)]

    def _merged(self, group: Sequence[SortedRun]) -> Iterator[Slice]:
        """The rows of the single run that a group of runs is merged into."""
        interim = interim_function(self.merge)
        spec = replace(self.spec, keep_deletions=True, in_key_order=True)
        low = min(run.sequence_min for run in group)
        high = max(run.sequence_max for run in group)
        slices = [self.open_run(run) for run in group]
        merging = merge_slices(slices, interim, spec, self.budget, self.readers)
        with closing(merging) as merged:
            first = next(merged, None)
            if first is None:
                return iter(())
            piece_bytes = max(1, self.budget.size_bytes // _PIECE_SHARE)
            row_bytes = max(1, size_of(first) // first.num_rows)
            rows_max = max(1, piece_bytes // row_bytes)

            def pieces() -> Iterator[pa.Table]:
                for table in chain([first], merged):
                    yield from in_pieces([table], rows_max)
                    release_freed(self.budget.size_bytes)

            run = self.spills.write(first.schema, pieces(), low, high)
        release_freed(self.budget.size_bytes)
        order = max(self.commit_order(each) for each in group)
        return counted(self._slices(run, order, unique=interim is not KEEP_ALL), run.row_count)

    def _slices(self, run: SpilledRun, commit_order: int, *, unique: bool) -> Iterator[Slice]:
        tables: Iterable[pa.Table] = (
            pa.Table.from_batches([batch]) for batch in self.spills.read(run)
        )
        if not unique:
            tables = with_whole_keys(tables, self.spec.key, self.budget)
        for rows in tables:
            yield Slice(
                rows=rows,
                keys=order_columns([rows.column(name) for name in self.spec.key]),
                sequence_min=run.sequence_min,
                sequence_max=run.sequence_max,
                commit_order=commit_order,
                unique=unique,
            )
            del rows


def runs_at_once(runs: Sequence[SortedRun], columns: int, budget: Budget) -> int:
    """How many of these runs may be open at the same time, with that many columns each."""
    most = min(_COLUMN_BYTES * columns, _ROW_GROUP_BYTES)
    held = [
        min(most, _DECODED_RATIO * max((file.size_bytes for file in run.files), default=0))
        for run in runs
    ]
    mean = max(1, sum(held) // max(1, len(held)))
    return max(_AT_ONCE_MIN, budget.size_bytes // _OPEN_SHARE // mean)


# --- windows plan --------------------------------------------------------------------------------

_BATCH_ROWS_MAX = 262_144
_ROW_BYTES = 16
"""Memory of a row in addition to its values, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """How the runs of a section are merged, window by window.

    - `fields`: the columns that are read;
    - `places`: columns merged by place, because rows are large (`row_groups.py`);
    - `late`: casts after the merge (`late_casts.py`);
    - `open_runs`: the most runs that are open at once;
    - `rounds`: whether there are more runs, which are first merged into fewer.
    """

    fields: tuple[Field, ...]
    places: Places | None
    late: LateCasts
    open_runs: int
    rounds: bool


def section_windows(split: Split, plan: ReadPlan, budget: Budget) -> Windows:
    """How a read merges a section."""
    fields = merge_fields([SortedRun(files=files) for files in split.runs], plan)
    places = places_of(split, fields, plan, budget)
    late = NO_LATE_CASTS if places is not None else casts_after_merge(split.files, fields, plan)
    return windows_with(split, plan, budget, places, late)


def windows_with(
    split: Split, plan: ReadPlan, budget: Budget, places: Places | None, late: LateCasts
) -> Windows:
    """How a section is merged, given the columns merged by place and the late casts."""
    runs = [SortedRun(files=files) for files in split.runs]
    fields = (*merge_fields(runs, plan), *late.fields)
    open_runs = runs_at_once(runs, len(fields), budget)
    rounds = len(runs) > open_runs
    return Windows(fields=fields, places=places, late=late, open_runs=open_runs, rounds=rounds)


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

    The estimate of a row includes its values, its encoded key, a position, and masks.
    """
    kinds = [arrow_type(field.type) for field in fields]
    least = sum(kind.bit_width if pa.types.is_primitive(kind) else 32 for kind in kinds) / 8
    rows = max(1, min(int(batch_bytes / (least + _ROW_BYTES)), _BATCH_ROWS_MAX))
    return BatchSize(rows, max(1, batch_bytes))
