"""Which rows of a data file a read keeps, by their positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of a file to keep: `selected` (None: all) except `deleted`, both as positions."""

    deleted: np.ndarray | None
    selected: BitMap | None

    def of(self, batch: pa.RecordBatch, position: int) -> tuple[np.ndarray | range, pa.RecordBatch]:
        """The kept rows of a batch, with their positions. Its first row is at `position`."""
        end = position + batch.num_rows
        mask: np.ndarray | None = None
        if self.selected is not None:
            rows = BitMap()
            rows.add_range(position, end)
            mask = np.zeros(batch.num_rows, bool)
            mask[np.array(self.selected & rows, np.int64) - position] = True
        if self.deleted is not None:
            low, high = np.searchsorted(self.deleted, (position, end))
            if low != high:
                mask = np.ones(batch.num_rows, bool) if mask is None else mask
                mask[self.deleted[low:high] - position] = False
        if mask is None:
            return range(position, end), batch
        return position + np.flatnonzero(mask), batch.filter(pa.array(mask))


def groups_holding(rows: BitMap, starts: Sequence[int], row_count: int) -> list[int]:
    """The row groups that hold at least one of these rows; group i begins at `starts[i]`."""
    ends = [*starts[1:], row_count]
    return [
        number
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
        if rows.range_cardinality(start, end)
    ]
