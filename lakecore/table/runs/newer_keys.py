"""Which rows of the oldest run of a section come out, told while they are decoded.

Where the newest row of a key wins, and every row of the oldest run is older than all others, a row
of it comes out unless a newer run holds its key. A flag for each key there could be, from the first
to the last of the newer runs, tells. So the keys of the oldest run, which mostly has most of the
rows, need not be read before its values.
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
from lakecore.table.runs.windows import called_back

if TYPE_CHECKING:
    from lakecore.model.files import Split
    from lakecore.table.runs.read import ReadPlan

_SPAN_MAX = 8
"""Keys there could be, for each stored row, up to which they are flagged: as many bytes as the keys
themselves have."""
_LEAST = -(1 << 63)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerKeys:
    """What newer runs hold of the column `key`.

    `lacking` has a flag for each key from `low` on, set if nobody holds it, between two for all
    that are less or greater. Chunks of the oldest run may be asked about side by side.
    """

    key: str
    low: int
    lacking: np.ndarray
    _ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def lack(self, keys: pl.Series) -> pl.Series:
        """Whether nobody holds the key, of each of these, which are numbers; so of nulls.

        Raises an error of Polars for keys that fall.
        """
        # Elsewhere Polars takes some names for patterns.
        keys = keys.alias("")
        if keys.null_count():
            return self.lack(keys.fill_null(0)) | keys.is_null()
        numbers = keys.to_numpy()
        if (numbers[1:] < numbers[:-1]).any():
            raise pl.exceptions.ComputeError("keys are out of order")
        # A difference that overflows is that of no key with a flag of its own.
        places = numbers - np.int64(self.low - 1)
        return pl.Series(self.lacking.take(places, mode="clip"))

    def kept(self, rows: pl.LazyFrame, start: int) -> pl.DataFrame:
        """Of rows of the oldest run, from `start` on, those whose keys nobody holds.

        Raises an error of Polars if a key is null or out of order.
        """
        # NOTE: it goes down to the Parquet reader, which may ask of what are no rows.
        key = by_name(self.key).to_physical()
        kept = rows.filter(key.map_batches(self.lack, pl.Boolean, is_elementwise=True))
        with called_back():
            frame = kept.collect()
        if frame[self.key].null_count() or not self.are_in_order(start, frame[self.key]):
            raise pl.exceptions.ComputeError("keys are null, or out of order")
        return frame

    def are_in_order(self, start: int, keys: pl.Series) -> bool:
        """Whether keys of rows that stay rise, and from and to those asked about beside them.

        They are from the row `start` of the oldest run on.
        """
        # They lie in pieces, which are not put together.
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
                # What is out of order says nothing of others.
                self._ends[start] = ends[0][0], ends[-1][1]
        return rise


def flagged_keys(split: Split, plan: ReadPlan) -> range | None:
    """The keys that newer runs may hold, if to know which is all the oldest run needs.

    None: it is not, or they are too many.
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
    # A level that has taken up others hides them, whatever their numbers (`complete_levels`).
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
    """The flags of the keys of these rows, which are all of the span."""
    (key,) = plan.merge.key
    numbers = _numbers(newer[key])
    lacking = np.ones(1 + len(span) + 1, bool)
    lacking[numbers - np.int64(span.start - 1)] = False
    return NewerKeys(key=key, low=span.start, lacking=lacking)


def are_within(span: range, keys: pl.Series) -> bool:
    """Whether these keys are of the span, as the manifest says."""
    numbers = _numbers(keys)
    return bool(numbers.min() >= span.start and numbers.max() < span.stop)


def columns_and_key(plan: ReadPlan) -> list[str]:
    """What is read of the oldest run: the columns of the plan, and the key."""
    return list(dict.fromkeys((*plan.columns, *plan.merge.key)))


def _numbers(keys: pl.Series) -> np.ndarray:
    return keys.alias("").to_physical().cast(pl.Int64).to_numpy()
