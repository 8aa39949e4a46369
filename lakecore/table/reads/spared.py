"""Reads the rows that a row filter keeps: a hidden row that cannot be read blocks no other.

A cast may fail on a value, and the rows of a key may not merge. For each split that may fail:

1. Read the columns of the filter, and the key. They say which rows are visible; a row whose values
   of these columns cannot be cast is not.
2. Read the wanted columns of these rows. In a raw split, the rows are selected by their positions.
   In a section, the keys become a condition, which drops other keys before values are cast, and
   from a merge that fails.

A key of several columns becomes a condition on each column: a hidden key whose parts all occur in
visible keys is not dropped. Files that hold only some columns are read at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lakecore.merge import MERGE_FUNCTIONS
from lakecore.plan.predicate import Column, all_of, is_in
from lakecore.table.splits.read import read_split, scan_at
from lakecore.table.stored_rows.late_casts import late_casts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakecore.model.files import Split
    from lakecore.plan.predicate import Predicate
    from lakecore.table.reads.source import TableSource
    from lakecore.table.stored_rows.read_plan import ReadPlan

    Keeps = Callable[[pa.RecordBatch], pa.Array]

__all__ = ["spared_batches"]


def spared_batches(
    source: TableSource,
    columns: Sequence[str],
    predicate: Predicate | None,
    judged: Sequence[str],
    keeps: Keeps,
) -> Iterator[pa.RecordBatch]:
    """The batches of the source, perhaps without rows that the filter does not keep.

    `keeps` is the filter, and `judged` are the columns that it reads.
    """
    splits = source.plan(predicate).splits
    plan = source.read_plan(splits, columns, predicate)
    if not any(_may_fail(split, plan, columns) for split in splits):
        yield from source.batches(columns, predicate)
        return
    for split in splits:
        if not _may_fail(split, plan, columns):
            yield from source.read([split], plan)
            continue
        narrow = replace(source.read_plan([split], judged or columns[:1]), spares=True)
        if split.raw:
            chosen = _selected(source, split, narrow, keeps)
            if chosen.selected:
                yield from source.read([chosen], plan)
            continue
        keys = _visible_keys(source, split, narrow, keeps)
        if keys is not None:
            parts = keys if plan.predicate is None else (plan.predicate, *keys)
            yield from source.read([split], replace(plan, predicate=all_of(parts)))


def _may_fail(split: Split, plan: ReadPlan, columns: Sequence[str]) -> bool:
    """Whether a row can make the read of the split fail, and it can be spared."""
    if not split.raw and not plan.schema.primary_keys:
        return False
    if any(file.write_columns is not None for file in split.files):
        return False
    if not split.raw and not MERGE_FUNCTIONS[plan.engine].chooses_rows:
        return True
    return bool(late_casts(split.files, map(plan.schema.field, columns), plan.schemas))


def _selected(source: TableSource, split: Split, narrow: ReadPlan, keeps: Keeps) -> Split:
    """The raw split, with the positions of the visible rows; files without any are left out."""
    context = source.context
    found: dict[str, BitMap] = {}
    for file in split.files:
        one = replace(split, runs=((file,),))
        rows = BitMap()
        for places, batch in scan_at(one, narrow, context.store, context.budget):
            kept = keeps(batch).to_numpy(zero_copy_only=False)
            rows.update(np.asarray(places, np.uint32)[kept])
        if rows:
            found[file.name] = rows
    runs = (tuple(file for file in run if file.name in found) for run in split.runs)
    return replace(split, runs=tuple(filter(None, runs)), selected=found)


def _visible_keys(
    source: TableSource, split: Split, narrow: ReadPlan, keeps: Keeps
) -> tuple[Predicate, ...] | None:
    """The condition that a key of the section is that of a visible row; None if there is none."""
    context, names = source.context, narrow.merge.key
    plan = replace(narrow, columns=tuple(dict.fromkeys((*narrow.columns, *names))))
    found = [
        batch.filter(keeps(batch)).select(names)
        for batch in read_split(split, plan, context.store, context.budget)
    ]
    keys = pa.Table.from_batches(found) if found else None
    if keys is None or not keys.num_rows:
        return None
    columns = {name: keys.column(name).combine_chunks().unique() for name in names}
    return tuple(is_in(Column(name, values.type), values) for name, values in columns.items())
