"""Compares two merged states of a range of keys, and returns the changes from one to the other.

If a key is in both states and its columns differ, only the later row is returned, as +U. This is
how Paimon compares two tags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from lakecore.merge.equality import equal_rows
from lakecore.merge.keys import shared_codes
from lakecore.model.rows import VALUE_KIND, RowKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.merge.spec import MergeFunction, MergeSpec, Slice

BEFORE, AFTER = 0, 1
"""The `commit_order` of slices of the earlier and of the later state."""


class _Difference:
    """A merge function for at most two slices, one for each of the two states."""

    chooses_rows: ClassVar = False

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """Rows in key order, with their kinds: -D deleted, +I new, +U changed."""
        del spec
        sides = {part.commit_order: part for part in window}
        if len(sides) < 2:
            (part,) = window
            kind = RowKind.DELETE if part.commit_order == BEFORE else RowKind.INSERT
            yield _with_kinds(part.rows, np.full(part.rows.num_rows, kind, np.int8))
            return
        before, after = sides[BEFORE], sides[AFTER]
        old, new = shared_codes([before.keys, after.keys])
        at = np.minimum(np.searchsorted(old, new), len(old) - 1)
        both = old[at] == new
        changed = both.copy()
        changed[both] = ~equal_rows(
            before.rows.take(pa.array(at[both])),
            after.rows.filter(pa.array(both)),
            before.rows.column_names,
        )
        gone = ~np.isin(old, new)
        kept = changed | ~both
        kinds = np.concatenate(
            [
                np.full(int(gone.sum()), RowKind.DELETE, np.int8),
                np.where(both[kept], np.int8(RowKind.UPDATE_AFTER), np.int8(RowKind.INSERT)),
            ]
        )
        rows = pa.concat_tables(
            [before.rows.filter(pa.array(gone)), after.rows.filter(pa.array(kept))]
        )
        order = np.argsort(np.concatenate([old[gone], new[kept]]), kind="stable")
        yield _with_kinds(rows.take(pa.array(order)), kinds[order])


DIFFERENCE: MergeFunction = _Difference()


def _with_kinds(rows: pa.Table, kinds: np.ndarray) -> pa.Table:
    return rows.append_column(VALUE_KIND, pa.array(kinds))
