"""How the runs of a section are merged in windows, decided from metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.io.files.data_files import BatchSize
from lakecore.lsm.levels import SortedRun, runs_are_ordered
from lakecore.model.rows import KIND_FIELD, SEQUENCE_FIELD
from lakecore.model.types import arrow_type
from lakecore.plan.splits import may_hold_deletions
from lakecore.table.sections.large_rows import places_of
from lakecore.table.sections.rounds import runs_at_once
from lakecore.table.stored_rows.late_casts import NO_LATE_CASTS, LateCasts, casts_after_merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.memory import Budget
    from lakecore.model.files import Split
    from lakecore.model.types import Field
    from lakecore.table.stored_rows.places import Places
    from lakecore.table.stored_rows.read_plan import ReadPlan

_BATCH_ROWS_MAX = 262_144
_ROW_BYTES = 16
"""Memory of a row in addition to its values, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """How the runs of a section are merged, window by window.

    - `fields`: the columns that are read;
    - `places`: columns merged by place, because rows are large (`places.py`);
    - `late`: casts after the merge (`late_casts.py`);
    - `open_runs`: the most runs that are open at once;
    - `rounds`: whether there are more runs, which are first merged into fewer (`rounds.py`).
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
