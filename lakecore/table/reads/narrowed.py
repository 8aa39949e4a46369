"""Selects, from planned splits, those in which a row may match a condition.

INVARIANT: as in `scan.py`, statistics of values never remove a single file of a merged section, and
never a section whose rows are folded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.plan.splits import folds_values
from lakecore.table.reads.value_statistics import matching_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import Split
    from lakecore.plan.predicate import Predicate
    from lakecore.table.reads.scan import ScanContext


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
