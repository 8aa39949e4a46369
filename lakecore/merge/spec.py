"""What a merge is given and what it must give back.

A *window* is a range of keys over all sorted runs of a section: every row of a key that lies in
the range is in it. A *merge function* makes of a window at most one row a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakecore.model.rows import RETRACTS, RowKind
from lakecore.options import SortOrder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lakecore.merge.keys import OrderColumns
    from lakecore.model.schema import TableSchema
    from lakecore.options import TableOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSpec:
    """The rules of one merge.

    `sequence` names the user's sequence fields, `sequence_descending` their direction.
    `keep_deletions`: a key whose newest row is a deletion stays, as that row; only a read, or a
    compaction into the last level, may drop it. `in_key_order`: the rows come out sorted by key,
    which a read does not need and must not pay for. Rows of an `ignored` kind count for nothing.
    """

    key: tuple[str, ...]
    sequence: tuple[str, ...] = ()
    sequence_descending: bool = False
    ignored: frozenset[RowKind] = frozenset()
    keep_deletions: bool = False
    in_key_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The rows of one run that lie in a window, sorted by key.

    `sequence_min` and `sequence_max` bound their sequence numbers; of rows that share one, the row
    of the greater `commit_order` is newer. `unique`: no key twice, as in data files; the rows of a
    write buffer may repeat keys, and then stand in arrival order.
    """

    rows: pa.Table
    keys: OrderColumns
    sequence_min: int
    sequence_max: int
    commit_order: int = 0
    unique: bool = True


class MergeFunction(Protocol):
    """Rows of each key -> one row, or none. Rows hold the columns of the spec and any others."""

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """The merged rows, as tables whose concatenation is the window; see `MergeSpec`."""
        ...

    def needs_sequence_numbers(self, window: Sequence[Slice], spec: MergeSpec) -> bool:
        """Whether the order of the runs does not decide, so `_SEQUENCE_NUMBER` must be read."""
        ...


def merge_spec(
    schema: TableSchema,
    options: TableOptions,
    *,
    keep_deletions: bool = False,
    in_key_order: bool = False,
) -> MergeSpec:
    """The rules by which a table merges."""
    return MergeSpec(
        key=schema.trimmed_primary_keys,
        sequence=options.sequence_field,
        sequence_descending=options.sequence_field_sort_order is SortOrder.DESCENDING,
        ignored=ignored_kinds(options),
        keep_deletions=keep_deletions,
        in_key_order=in_key_order,
    )


def ignored_kinds(options: TableOptions) -> frozenset[RowKind]:
    """The kinds of rows that the table neither takes in nor merges."""
    if options.ignore_delete:
        return RETRACTS
    return frozenset({RowKind.UPDATE_BEFORE} if options.ignore_update_before else ())
