"""Merge functions: they merge the runs of a window to at most one row for each key. Pure.

`MERGE_FUNCTIONS` maps each merge engine to its function; a new engine is one entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.merge import aggregation, partial_update
from lakecore.merge.aggregators import AGGREGATORS
from lakecore.merge.deduplicate import KEEP_ALL, Deduplicate, FirstRow
from lakecore.merge.fold import FoldEngine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.merge.spec import MergeFunction, MergeSpec

MERGE_FUNCTIONS: Mapping[str, MergeFunction] = {
    "deduplicate": Deduplicate(),
    "first-row": FirstRow(),
    "partial-update": FoldEngine(
        partial_update.fold_partial_update,
        partial_update.functions_of_columns,
        partial_update.kept_by_partial_update,
    ),
    "aggregation": FoldEngine(
        aggregation.fold_aggregation,
        aggregation.functions_of_columns,
        aggregation.kept_by_aggregation,
    ),
}


def interim_function(merge: MergeFunction) -> MergeFunction:
    """The function for rows that `merge` will merge again, together with other rows."""
    return merge if merge.chooses_rows else KEEP_ALL


def chooses_value(spec: MergeSpec, column: str) -> bool:
    """Whether the merge only selects one of the column's values, and never looks at them.

    To merge such a column, it is enough to know which values are null.
    """
    ordering = {name for group in spec.groups for name in group.sequence}
    if column in {*spec.key, *spec.sequence, *ordering}:
        return False
    functions = (
        AGGREGATORS[each.function](each) for each in spec.aggregates if each.column == column
    )
    return all(function.choice is not None for function in functions)
