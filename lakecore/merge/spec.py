"""What a merge is given and what it must give back.

A *window* is a range of keys over all sorted runs of a section: every row of a key that lies in
the range is in it. A *merge function* makes of a window at most one row a key; only `KEEP_ALL`
leaves them all, for another to merge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lakecore.errors import Unsupported
from lakecore.merge.aggregators.fold import Aggregate
from lakecore.model.merge_rules import AGGREGATE_FUNCTIONS, aggregate_functions
from lakecore.model.rows import RETRACTS, RowKind
from lakecore.options import MergeEngine, SortOrder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    import pyarrow as pa

    from lakecore.merge.keys import OrderColumns
    from lakecore.model.schema import TableSchema
    from lakecore.options import TableOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceGroup:
    """Columns of a partial-update table that the columns of `sequence` order.

    `removes`: a -D that is not older than what the group holds removes the whole row.
    """

    sequence: tuple[str, ...]
    columns: tuple[str, ...]
    removes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSpec:
    """The rules of one merge.

    `key` orders and identifies the rows of a bucket; the columns of the whole `primary_key` are the
    same in all rows of a key. `sequence` names the user's sequence fields, `sequence_descending`
    their direction. `keep_deletions`: a key whose newest row is a deletion stays, as that row; only
    a read, or a compaction into the last level, may drop it. `in_key_order`: the rows come out
    sorted by key, which a read does not need and must not pay for. Rows of an `ignored` kind count
    for nothing.

    `complete_levels`: compaction looked up what lay above, so that of the rows of a key above level
    0 the one of the lowest level has taken up the others, and those count no more.

    For the engines that fold: the functions of columns, the sequence groups, and whether a -D
    forgets what came before it (`remove_on_delete`).
    """

    key: tuple[str, ...]
    primary_key: tuple[str, ...] = ()
    sequence: tuple[str, ...] = ()
    sequence_descending: bool = False
    ignored: frozenset[RowKind] = frozenset()
    keep_deletions: bool = False
    in_key_order: bool = False
    aggregates: tuple[Aggregate, ...] = ()
    groups: tuple[SequenceGroup, ...] = ()
    remove_on_delete: bool = False
    complete_levels: bool = False

    def columns_for(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The columns to read so that these come out right, those themselves first."""
        wanted = dict.fromkeys(columns)
        deciding = [
            name
            for group in self.groups
            if group.removes or not wanted.keys().isdisjoint((*group.columns, *group.sequence))
            for name in group.sequence
        ]
        return tuple(dict.fromkeys([*wanted, *self.key, *self.sequence, *deciding]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The rows of one run that lie in a window, sorted by key.

    `sequence_min` and `sequence_max` bound their sequence numbers; of rows that share one, the row
    of the greater `commit_order` is newer. They come from a file of `level`. `unique`: no key
    twice, as in data files; the rows of a write buffer may repeat keys, in any order, but a key
    that is in one slice of a run is not in the next (`whole_keys`). `more`: whether other slices of
    the run come after it; None: that is not known before the next was asked for. `places`: where
    the rows lie among those of all files, ascending; None: nobody wants to know.
    """

    rows: pa.Table
    keys: OrderColumns
    sequence_min: int
    sequence_max: int
    commit_order: int = 0
    level: int = 0
    unique: bool = True
    more: bool | None = None
    places: range | np.ndarray | None = None

    def cut(self, start: int, end: int) -> Slice:
        """Some of the rows; nothing is copied."""
        return replace(
            self,
            rows=self.rows.slice(start, end - start),
            keys=self.keys.slice(start, end - start),
            places=None if self.places is None else self.places[start:end],
        )


class MergeFunction(Protocol):
    """Rows of each key -> one row, or none. Rows hold the columns of the spec and any others."""

    @property
    def chooses_rows(self) -> bool:
        """Whether the rows that come out are rows that went in, as they were.

        Then some rows of a key may be merged before the others, and again with them. Where it is
        not so, the memory that a writer has would decide what it writes.
        """
        ...

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """The merged rows, as tables whose concatenation is the window; see `MergeSpec`."""
        ...


@runtime_checkable
class ChoosesRows(MergeFunction, Protocol):
    """A merge function of which a key's row is one that went in, and that can say which."""

    @property
    def newest_wins(self) -> bool:
        """Whether that is the newest one, whatever older ones there are."""
        ...

    def winners(
        self, window: Sequence[Slice], spec: MergeSpec
    ) -> Iterator[tuple[Slice, np.ndarray]]:
        """The runs, in any order, each with a mask of the rows that `__call__` gives out."""
        ...


def merge_spec(
    schema: TableSchema,
    options: TableOptions,
    *,
    keep_deletions: bool = False,
    in_key_order: bool = False,
) -> MergeSpec:
    """The rules by which a table merges."""
    engine = options.merge_engine
    partial = engine is MergeEngine.PARTIAL_UPDATE
    groups = _sequence_groups(options) if partial else ()
    removes = {
        MergeEngine.PARTIAL_UPDATE: options.partial_update_remove_record_on_delete,
        MergeEngine.AGGREGATION: options.aggregation_remove_record_on_delete,
    }
    return MergeSpec(
        key=schema.trimmed_primary_keys,
        primary_key=schema.primary_keys,
        sequence=options.sequence_field,
        sequence_descending=options.sequence_field_sort_order is SortOrder.DESCENDING,
        ignored=ignored_kinds(options),
        keep_deletions=keep_deletions,
        in_key_order=in_key_order,
        aggregates=_aggregates(schema, options),
        groups=groups,
        remove_on_delete=removes.get(engine, False),
        complete_levels=options.needs_lookup,
    )


def _sequence_groups(options: TableOptions) -> tuple[SequenceGroup, ...]:
    removing = set(options.partial_update_remove_record_on_sequence_group)
    groups = []
    for names, columns in options.fields_sequence_group.items():
        sequence = tuple(name.strip() for name in names.split(","))
        groups.append(
            SequenceGroup(
                sequence=sequence, columns=columns, removes=not removing.isdisjoint(sequence)
            )
        )
    return tuple(groups)


def _aggregates(schema: TableSchema, options: TableOptions) -> tuple[Aggregate, ...]:
    """The functions of the columns outside the primary key; partial-update needs none."""
    found = []
    for name, function in aggregate_functions(schema, options).items():
        kind = schema.by_name[name].type
        if function not in AGGREGATE_FUNCTIONS:
            raise Unsupported(
                "unknown aggregate function",
                column=name,
                function=function,
                known=sorted(AGGREGATE_FUNCTIONS),
            )
        if not AGGREGATE_FUNCTIONS[function](kind):
            raise Unsupported(
                "the aggregate function does not take the column's type",
                column=name,
                type=kind,
                function=function,
            )
        found.append(
            Aggregate(
                column=name,
                function=function,
                type=kind,
                ignore_retract=options.fields_ignore_retract.get(name, False),
                distinct=options.fields_distinct.get(name, False),
                delimiter=options.fields_list_agg_delimiter.get(name, ","),
                nested_key=options.fields_nested_key.get(name, ()),
                nested_key_null_strategy=options.fields_nested_key_null_strategy.get(name),
                nested_sequence_field=options.fields_nested_sequence_field.get(name, ()),
                count_limit=options.fields_count_limit.get(name),
                ts_field=options.fields_ts_field.get(name),
            )
        )
    return tuple(found)


def ignored_kinds(options: TableOptions) -> frozenset[RowKind]:
    """The kinds of rows that the table neither takes in nor merges."""
    if options.ignore_delete:
        return RETRACTS
    return frozenset({RowKind.UPDATE_BEFORE} if options.ignore_update_before else ())
