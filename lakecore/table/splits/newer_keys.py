"""Which rows of the oldest run of a section survive, decided while they are decoded.

The newest row of a key wins. If every row of the oldest run is older than all other rows, a row of
the oldest run survives unless a newer run holds its key. An array has one flag for each possible
key between the first and the last key of the newer runs. The oldest run usually has most of the
rows; with the flags, its keys need no separate read before its values.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
from polars.selectors import by_name

from lakecore.format.binary_row import decode_rows
from lakecore.lsm.levels import SortedRun
from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import ChoosesRows
from lakecore.model.types import arrow_type
from lakecore.plan.splits import may_hold_deletions
from lakecore.table.sections.windows import called_back

if TYPE_CHECKING:
    from lakecore.model.files import Split
    from lakecore.table.stored_rows.read_plan import ReadPlan

_SPAN_MAX = 8
"""The most flags for each stored row: then the flags take as many bytes as the keys."""
_LEAST = -(1 << 63)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerKeys:
    """The keys that newer runs hold; `key` is the name of the key column.

    `lacking` has one flag for each key from `low` on: True if no newer run holds the key. One more
    flag at each end stands for all smaller and all larger keys. The methods are thread-safe.
    """

    key: str
    low: int
    lacking: np.ndarray
    _ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def lack(self, keys: pl.Series) -> pl.Series:
        """For each key (a number), whether no newer run holds it; True for a null.

        Raises a Polars error if the keys are not in ascending order.
        """
        # Polars may take a name for a pattern, so use an empty one.
        keys = keys.alias("")
        if keys.null_count():
            return self.lack(keys.fill_null(0)) | keys.is_null()
        numbers = keys.to_numpy()
        if (numbers[1:] < numbers[:-1]).any():
            raise pl.exceptions.ComputeError("keys are out of order")
        # A difference that overflows belongs to a key outside the flags; `clip` handles it.
        places = numbers - np.int64(self.low - 1)
        return pl.Series(self.lacking.take(places, mode="clip"))

    def kept(self, rows: pl.LazyFrame, start: int) -> pl.DataFrame:
        """The rows of the oldest run, from row `start` on, whose keys no newer run holds.

        Raises a Polars error if a key is null or out of order.
        """
        # NOTE: the filter is pushed down to the Parquet reader, which may call it with values that
        # belong to no row.
        key = by_name(self.key).to_physical()
        kept = rows.filter(key.map_batches(self.lack, pl.Boolean, is_elementwise=True))
        with called_back():
            frame = kept.collect()
        if frame[self.key].null_count() or not self.are_in_order(start, frame[self.key]):
            raise pl.exceptions.ComputeError("keys are null, or out of order")
        return frame

    def are_in_order(self, start: int, keys: pl.Series) -> bool:
        """Whether the keys of surviving rows ascend, also across the chunks checked before.

        `start` is the position of the chunk's first row in the oldest run.
        """
        # The keys are chunked; check each chunk without copying them into one.
        pieces = [_numbers(piece) for piece in keys.get_chunks() if len(piece)]
        ends = [(int(piece[0]), int(piece[-1])) for piece in pieces]
        if not ends:
            return True
        rise = all((piece[1:] >= piece[:-1]).all() for piece in pieces)
        with self._lock:
            starts = sorted(self._ends)
            at = bisect_left(starts, start)
            before, after = starts[:at][-1:], starts[at:][:1]
            around = [
                *(self._ends[each] for each in before),
                *ends,
                *(self._ends[each] for each in after),
            ]
            rise = rise and all(last <= first for (_, last), (first, _) in pairwise(around))
            if rise:
                # Record only the bounds of chunks that are in order.
                self._ends[start] = ends[0][0], ends[-1][1]
        return rise


def flagged_keys(split: Split, plan: ReadPlan) -> range | None:
    """The range of keys that newer runs may hold, if flags can decide for the oldest run.

    None if they cannot decide, or if the range is too large.
    """
    oldest, *newer = (SortedRun(files=run) for run in split.runs)
    engine, spec = MERGE_FUNCTIONS[plan.engine], plan.merge
    if not newer or not (isinstance(engine, ChoosesRows) and engine.newest_wins):
        return None
    if spec.sequence or spec.ignored or split.vectors or len(spec.key) > 1:
        return None
    files = [file for run in newer for file in run.files]
    if any(may_hold_deletions(file) for file in oldest.files):
        return None
    if oldest.sequence_max >= min(file.sequence_min for file in files):
        return None
    # With `complete_levels`, the lowest level wins, whatever the sequence numbers are.
    if min(file.level for file in oldest.files) <= max(file.level for file in files):
        return None
    kind = arrow_type(plan.schema.field(spec.key[0]).type)
    if not (pa.types.is_integer(kind) or pa.types.is_date(kind)):
        return None
    bounds = decode_rows(
        [bound for file in files for bound in (file.key_min, file.key_max)], plan.schema.key_fields
    )
    (numbers,) = order_columns(bounds.columns).columns
    low, high = int(np.min(numbers)), int(np.max(numbers))
    small = high - low < _SPAN_MAX * split.row_count
    return range(low, high + 1) if small and low > _LEAST else None


def newer_keys(plan: ReadPlan, span: range, newer: pl.DataFrame) -> NewerKeys:
    """Compute the flags from the keys of the newer rows. All these keys must be within `span`."""
    (key,) = plan.merge.key
    numbers = _numbers(newer[key])
    lacking = np.ones(1 + len(span) + 1, bool)
    lacking[numbers - np.int64(span.start - 1)] = False
    return NewerKeys(key=key, low=span.start, lacking=lacking)


def are_within(span: range, keys: pl.Series) -> bool:
    """Whether these keys are within the span that the manifest states."""
    numbers = _numbers(keys)
    return bool(numbers.min() >= span.start and numbers.max() < span.stop)


def columns_and_key(plan: ReadPlan) -> list[str]:
    """The columns to read from the oldest run: the plan's columns, and the key."""
    return list(dict.fromkeys((*plan.columns, *plan.merge.key)))


def _numbers(keys: pl.Series) -> np.ndarray:
    return keys.alias("").to_physical().cast(pl.Int64).to_numpy()
