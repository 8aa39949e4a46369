"""How a compaction merges if it must look up older rows or write a changelog.

It wraps the merge function of the table's engine. For each window:

1. Keys that have a row in level 0 but none in a level above it are looked up in the levels above
   the output (`lookup.py`). The rows found are merged with the others. In a first-row table, the
   rows of a key that is found are dropped. With deletion vectors, the rows found are marked.
2. The engine merges. Tombstones stay in the result until the changelog is written.
3. The rows of the changelog (`merge/changelog.py`) are written, and the merged rows are returned.

A key with a single row keeps that row unchanged, and the changelog holds the same row. (In Paimon,
a lookup changelog contains the merge function's result, which is not what a read returns; see
docs/decisions.) With deletion vectors, reads do not merge. Therefore, if the file is rewritten, the
merge functions are also applied to single rows: in an aggregation, a -U of a new key adds a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from lakecore.merge.changelog import ChangedKeys, changed_keys, changelog_rows
from lakecore.merge.equality import equal_rows
from lakecore.merge.groups import NONE
from lakecore.merge.keys import order_columns
from lakecore.merge.order import column_of, filter_rows, of_kinds
from lakecore.model.rows import LAYER, RETRACTS
from lakecore.table.stored_rows.late_casts import NO_LATE_CASTS, LateCasts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.merge.changelog import Equal
    from lakecore.merge.spec import MergeFunction, MergeSpec, Slice
    from lakecore.table.compactions.lookup import UpperLevels

EXTRA_BATCHES = 6
"""Batches in memory besides the batches of the runs: looked-up rows, changes, sort order."""


class Changes(Protocol):
    """A writer of changelog rows."""

    def write(self, rows: pa.Table, /) -> None:
        """Append rows."""
        ...


@dataclass(slots=True, kw_only=True)
class CompactionMerge:
    """The merge function of a compaction.

    - `upper`: the levels above the output; None if there are none or no look-up is needed;
    - `only_marks`: rows of the upper levels cannot change the result, and are only marked in
      deletion vectors;
    - `folds_single`: see `MergeSpec`;
    - `changelog`: the writer of changes; None if there is no changelog;
    - `before_level`: set for a full-compaction changelog, which compares with this level;
    - `compared`, `equal`: see `changelog_rows`;
    - `late`: casts that are applied to rows before they are compared or written.
    """

    chooses_rows: ClassVar = False
    engine: MergeFunction
    upper: UpperLevels | None
    only_marks: bool
    folds_single: bool
    changelog: Changes | None
    before_level: int | None
    compared: Sequence[str] | None
    first_row: bool
    equal: Equal = equal_rows
    late: LateCasts = NO_LATE_CASTS

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """The merged rows; see `MergeFunction`."""
        known: np.ndarray | None = None
        keys = changed_keys(window, spec, self.before_level)
        new = keys.without_before
        if self.upper is not None and len(new):
            wanted = order_columns([column_of(window, name, keys.first[new]) for name in spec.key])
            if self.only_marks:
                self.upper.mark(wanted)
            elif self.first_row:
                known = np.zeros(keys.count, bool)
                known[new] = self.upper.known(wanted)
            else:
                found = self.upper.rows(wanted)
                if found:
                    window = [*window, *found]
                    keys = changed_keys(window, spec, self.before_level)
        done = 0
        kept = replace(spec, keep_deletions=True, folds_single=self.folds_single)
        for merged in self.engine(window, kept):
            piece = slice(done, done + merged.num_rows)
            done = piece.stop
            self._write_changes(window, keys, known, piece, merged)
            keep = np.ones(merged.num_rows, bool)
            if known is not None:
                keep &= ~known[piece]
            deletions = None if spec.keep_deletions else of_kinds(merged, RETRACTS)
            if deletions is not None:
                keep &= ~deletions
            yield filter_rows(merged, keep)
        assert done == keys.count, "every key of the window was merged to one row"

    def _write_changes(
        self,
        window: Sequence[Slice],
        keys: ChangedKeys,
        known: np.ndarray | None,
        piece: slice,
        merged: pa.Table,
    ) -> None:
        """Write the changelog rows of a range of keys, given their merged rows."""
        if self.changelog is None:
            return
        changed, before = keys.changed[piece], keys.before[piece]
        if self.first_row:
            # First-row: existing rows stay, and keys found in upper levels were reported before.
            changed = changed & (before == NONE)
            changed = changed if known is None else changed & ~known[piece]
            self.changelog.write(self.late.cast(filter_rows(merged, changed)))
            return
        if not changed.any():
            return
        before = before[changed]
        held = before != NONE
        at = np.where(held, np.cumsum(held) - 1, NONE)
        rows = _all_rows(window).take(pa.array(before[held]))
        after = filter_rows(merged, changed)
        changes = changelog_rows(rows, after, at, self.compared, self._equal)
        self.changelog.write(self.late.cast(changes))

    def _equal(self, left: pa.Table, right: pa.Table, columns: Sequence[str]) -> np.ndarray:
        cast = self.late.cast
        return self.equal(cast(left), cast(right), columns)


class OlderRowsNeeded(Exception):
    """Raised for rows that cannot be folded without the older rows of their key."""


@dataclass(frozen=True, slots=True)
class WholeFold:
    """A merge function that raises OlderRowsNeeded if `engine` keeps rows of a key apart."""

    chooses_rows: ClassVar = False
    engine: MergeFunction

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """The merged rows; see `MergeFunction`."""
        for merged in self.engine(window, spec):
            if LAYER in merged.schema.names:
                raise OlderRowsNeeded
            yield merged


def _all_rows(window: Sequence[Slice]) -> pa.Table:
    return pa.concat_tables([part.rows for part in window])
