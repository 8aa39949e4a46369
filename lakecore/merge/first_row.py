"""The `first-row` engine: the oldest row of each key wins; compacted rows win over level 0.

https://paimon.apache.org/docs/master/primary-key-table/merge-engine/first-row/

A batch read returns rows of level 0 only after compaction has moved them up (`plan/splits.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from lakecore.errors import InvalidRequest
from lakecore.merge.groups import NONE, groups_of
from lakecore.merge.order import (
    filter_rows,
    merge_order,
    of_kinds_over,
    oldest_first,
    split_mask,
    take_in_pieces,
)
from lakecore.model.rows import RETRACTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lakecore.merge.spec import MergeSpec, Slice


class FirstRow:
    """The merge function of `merge-engine` = `first-row`."""

    chooses_rows: ClassVar = True
    newest_wins: ClassVar = False

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """The oldest row of each key.

        Raises InvalidRequest for a -U or -D row of a key with other rows, unless its kind is
        ignored.
        """
        runs, firsts = _firsts(window, spec)
        if spec.in_key_order:
            yield from take_in_pieces(runs, firsts)
        else:
            for part, mask in _masks(runs, firsts):
                yield filter_rows(part.rows, mask)

    def winners(
        self, window: Sequence[Slice], spec: MergeSpec
    ) -> Iterator[tuple[Slice, np.ndarray]]:
        """The runs, each with a mask of the rows that `__call__` returns."""
        yield from _masks(*_firsts(window, spec))


def _firsts(window: Sequence[Slice], spec: MergeSpec) -> tuple[list[Slice], np.ndarray]:
    """The runs, and the position of the surviving row of each key over all runs."""
    runs = oldest_first(window, spec)
    codes, order = merge_order(runs, spec)
    groups = groups_of(codes[order])
    firsts = order[groups.starts]
    if spec.complete_levels:
        # A row that readers have seen stays, whatever sequence numbers other rows have.
        levels = np.repeat([part.level for part in runs], [part.keys.length for part in runs])
        seen = groups.first(levels[order] > 0)
        firsts = np.where(seen == NONE, firsts, order[seen])
    takes_back = of_kinds_over(runs, RETRACTS)
    if takes_back is not None:
        if (takes_back[order] & np.repeat(groups.sizes > 1, groups.sizes)).any():
            raise InvalidRequest(
                "merge-engine=first-row does not accept rows of kind -U and -D; write none, or set "
                "ignore-delete",
                key=spec.key,
            )
        if not spec.keep_deletions:
            firsts = firsts[~takes_back[firsts]]
    return runs, firsts


def _masks(runs: list[Slice], firsts: np.ndarray) -> Iterator[tuple[Slice, np.ndarray]]:
    is_first = np.zeros(sum(part.keys.length for part in runs), bool)
    is_first[firsts] = True
    yield from zip(runs, split_mask(runs, is_first), strict=True)
