"""Which row groups of a data file may hold matching rows.

INVARIANT: if rows are merged afterwards, only conditions on the key prune row groups. Such a
condition is true for all rows of a key or for none, so no older row reappears.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.io.files.data_files import row_group_bounds
from lakecore.model.types import arrow_type
from lakecore.plan.pruning import may_match

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.io.files.file_format import RowGroup
    from lakecore.io.stores.store import Store
    from lakecore.model.types import Field
    from lakecore.plan.predicate import Predicate
    from lakecore.rows.mapping import ColumnMapping

_LOW, _HIGH, _NULLS = range(3)


def matching_row_groups(
    store: Store, path: str, condition: Predicate, columns: Mapping[str, ColumnMapping]
) -> list[int] | None:
    """The row groups that may hold a matching row, ascending; None if the file has no row groups.

    `columns` are those of the condition. A column that the file lacks, or stores with another type,
    counts as unknown.
    """
    found = bounded_row_groups(store, path, columns)
    if found is None or len(found.groups) <= 1:
        return None
    rows = np.array([group.row_count for group in found.groups], np.int64)
    mask = may_match(condition, found.low, found.high, found.nulls, rows)
    return [int(index) for index in np.flatnonzero(mask)]


@dataclass(frozen=True, slots=True)
class BoundedRowGroups:
    """The row groups of a file, with minimum, maximum and null count of each column.

    Unknown values are null.
    """

    groups: Sequence[RowGroup]
    low: pa.RecordBatch
    high: pa.RecordBatch
    nulls: pa.RecordBatch


def bounded_row_groups(
    store: Store, path: str, columns: Mapping[str, ColumnMapping]
) -> BoundedRowGroups | None:
    """The row groups with bounds of these columns; None if the file has no row groups."""
    stored = {
        name: mapping.stored.name
        for name, mapping in columns.items()
        if mapping.stored is not None and not mapping.changed
    }
    groups = row_group_bounds(store, path, list(stored.values()))
    if groups is None:
        return None
    fields = [mapping.read for mapping in columns.values()]
    low, high, nulls = (
        pa.RecordBatch.from_arrays(
            [_column(groups, field, stored.get(field.name), part) for field in fields],
            [field.name for field in fields],
        )
        for part in (_LOW, _HIGH, _NULLS)
    )
    return BoundedRowGroups(groups, low, high, nulls)


def _column(groups: Sequence[RowGroup], field: Field, name: str | None, part: int) -> pa.Array:
    """Minima, maxima or null counts of a column, one value for each row group."""
    if part == _NULLS:
        return pa.array([None if name is None else g.null_counts[name] for g in groups], pa.int64())
    kind = arrow_type(field.type)
    bounds = [None if name is None else group.bounds[name] for group in groups]
    values = [None if bound is None else bound[part] for bound in bounds]
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.nulls(len(groups), kind)
