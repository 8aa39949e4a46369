"""Changelogs and comparison of large rows, which are merged by their positions (`places.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakecore.io.freed_memory import release_all_freed
from lakecore.merge.equality import equal_rows, equal_values
from lakecore.merge.order import of_kinds
from lakecore.model.rows import RETRACTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakecore.model.types import Field
    from lakecore.table.run_writer.rolling_writer import RollingWriter
    from lakecore.table.sections.large_rows import Values


@dataclass(slots=True)
class PlacedChanges:
    """A changelog writer for rows that are merged by position; it reads the values row by row.

    `before` and `after` read the rows before and after a change, each in ascending order.
    """

    writer: RollingWriter
    before: Values
    after: Values

    def write(self, rows: pa.Table) -> None:
        """Append rows."""
        taken = of_kinds(rows, RETRACTS)
        for at in range(rows.num_rows):
            values = self.after if taken is None or not taken[at] else self.before
            for row in values.rows(rows.slice(at, 1)):
                self.writer.write(row)
                del row


@dataclass(slots=True)
class EqualPlaces:
    """Compares rows that are merged by position; reads values only if the positions differ."""

    before: Values
    after: Values

    def __call__(self, left: pa.Table, right: pa.Table, columns: Sequence[str]) -> np.ndarray:
        """A mask of the row indexes at which both tables have equal values; see `equal_rows`."""
        placed = [field for field in self.before.placed if field.name in columns]
        names = {field.name for field in placed}
        same = equal_rows(left, right, [name for name in columns if name not in names])
        for at in np.flatnonzero(same).tolist():
            one, other = left.slice(at, 1), right.slice(at, 1)
            same[at] = all(self._are_equal(one, other, field) for field in placed)
        return same

    def _are_equal(self, one: pa.Table, other: pa.Table, field: Field) -> bool:
        left, right = (rows.column(field.name)[0].as_py() for rows in (one, other))
        if left is None or right is None or left == right:
            return bool(left == right)
        was, became = self.before.value(left, field), self.after.value(right, field)
        equal = bool(equal_values(was, became)[0])
        del was, became
        release_all_freed()
        return equal
