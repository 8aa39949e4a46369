"""The `aggregation` engine: each column of a key's rows is folded by its own function.

https://paimon.apache.org/docs/master/primary-key-table/merge-engine/aggregation/

1. Primary key columns are unchanged. A sequence field has the last value. A column without a
   function has the last non-null value.
2. The functions retract the values of a -U or -D row, and the result is still a +I row. With
   `aggregation.remove-record-on-delete`, a -D discards the rows before it instead, and later rows
   are folded onto the values of the -D. If the last row of a key is a -D, the key is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakecore.merge.aggregators import AGGREGATORS
from lakecore.merge.aggregators.fold import LAST, Fold, kept_last
from lakecore.merge.fold import Column, Contested, Folded, Kept, fold_column, kept_of_column
from lakecore.model.rows import SEQUENCE_NUMBER, VALUE_KIND, RowKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.merge.spec import MergeSpec


def functions_of_columns(spec: MergeSpec, columns: Sequence[str]) -> dict[str, Fold]:
    """The function of each of these columns."""
    functions = {aggregate.column: aggregate for aggregate in spec.aggregates}
    return {
        name: Fold(choice=LAST)
        if name in spec.primary_key
        else AGGREGATORS[functions[name].function](functions[name])
        for name in columns
        if name not in {SEQUENCE_NUMBER, VALUE_KIND}
    }


def kept_by_aggregation(contested: Contested, spec: MergeSpec) -> Kept:
    """The rows that a fold without the older rows of their keys would lose.

    A -D that removes the record makes the rows before it superfluous. A fold that ends with a
    retraction has no sequence, so retractions that no added row follows stay apart.
    """
    groups, kinds = contested.groups, contested.kinds
    alone, over = np.zeros(groups.length, bool), np.zeros(groups.length, bool)
    if spec.remove_on_delete and kinds is not None:
        removed = np.repeat(groups.last(kinds == RowKind.DELETE), groups.sizes)
        at = np.arange(groups.length)
        over, alone = at < removed, at == removed
        alone[groups.lasts] = False
    for aggregate in spec.aggregates:
        if aggregate.column in contested.columns:
            alone |= kept_of_column(contested, aggregate, contested.all_rows)
    retract = contested.retract
    if spec.sequence and retract is not None:
        parts = groups.apart(alone)
        alone |= kept_last(np.ones(groups.length, bool), parts, retract)
    return Kept(alone & ~over, over)


def fold_aggregation(contested: Contested, spec: MergeSpec) -> Folded:
    """One row for each key. Raises InvalidRequest if a function cannot retract a row."""
    chosen = contested.all_rows
    deleted = np.zeros(contested.groups.count, bool)
    if spec.remove_on_delete and contested.kinds is not None:
        removed = contested.groups.last(contested.kinds == RowKind.DELETE)
        chosen = chosen.since(removed)
        deleted = removed == contested.groups.lasts
    functions = {aggregate.column: aggregate for aggregate in spec.aggregates}
    columns: dict[str, Column] = {}
    for name in contested.columns:
        if name in spec.primary_key:
            columns[name] = contested.groups.lasts
        else:
            columns[name] = fold_column(contested, functions[name], chosen)
    return Folded(columns=columns, deleted=deleted)
