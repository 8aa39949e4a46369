"""The input and the output of a merge function.

A *window* is a range of keys over all sorted runs of a section: it contains all rows of each key in
the range. A *merge function* returns at most one row for each key of a window. There are two
exceptions: `KEEP_ALL` returns all rows, for a later merge, and with `MergeSpec.lacks_older` rows
that cannot be folded without the older rows of their key stay apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lakecore.errors import Unsupported
from lakecore.merge.aggregators import AGGREGATORS
from lakecore.merge.aggregators.fold import Aggregate
from lakecore.model.merge_rules import AGGREGATE_FUNCTIONS, aggregate_functions
from lakecore.model.rows import RETRACTS, RowKind
from lakecore.options import MergeEngine, SortOrder, TableOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    import pyarrow as pa

    from lakecore.merge.keys import OrderColumns
    from lakecore.model.schema import TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceGroup:
    """A sequence group of a partial-update table: the columns `sequence` order the `columns`.

    `removes`: a -D that is not older than the group removes the whole row.
    """

    sequence: tuple[str, ...]
    columns: tuple[str, ...]
    removes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSpec:
    """The rules of one merge.

    - `key`: the columns that order and identify the rows of a bucket; the columns of the whole
      `primary_key` are equal in all rows of a key;
    - `sequence`, `sequence_descending`: the user's sequence fields and their direction;
    - `keep_deletions`: a key whose newest row is a tombstone keeps that row; only a read, or a
      compaction into the last level, may drop it;
    - `in_key_order`: the result is sorted by key, which a read does not need;
    - `ignored`: rows of these kinds are ignored;
    - `complete_levels`: compaction looks up older rows. The row of a key in the lowest level above
      0 has therefore absorbed the rows of higher levels, which a merge ignores;
    - `folds_single`: an engine that folds applies its functions even to a key with a single row;
    - `lacks_older`: older rows of a key may exist that this merge does not get. An engine that
      folds then keeps some rows of a key as they are, and numbers its rows in the column `LAYER`.

    For the engines that fold: the functions of columns, the sequence groups, and whether a -D
    discards the rows before it (`remove_on_delete`).
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
    folds_single: bool = False
    lacks_older: bool = False

    def columns_for(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The columns that a correct merge of `columns` reads; `columns` themselves are first."""
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
    """The rows of one run within a window, sorted by key.

    - `sequence_min`, `sequence_max`: bounds of the sequence numbers; for equal numbers, the row
      with the greater `commit_order` is newer;
    - `level`: the level of the file;
    - `unique`: no key occurs twice, as in data files. The rows of a write buffer may repeat keys in
      any order, but all rows of a key are in one slice (`whole_keys`);
    - `more`: whether more slices of the run follow; None: not known before the next is requested;
    - `places`: the ascending positions of the rows among those of all files; None: not needed.
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
        """The rows from `start` to `end`, without copying."""
        return replace(
            self,
            rows=self.rows.slice(start, end - start),
            keys=self.keys.slice(start, end - start),
            places=None if self.places is None else self.places[start:end],
        )


class MergeFunction(Protocol):
    """A function that merges the rows of each key to one row or none.

    The rows have the columns that the spec names, and any others.
    """

    @property
    def chooses_rows(self) -> bool:
        """Whether the merge returns input rows unchanged.

        If true, the rows of a key may be merged in several steps. If false, they are merged once:
        several steps could change the result, and the rows written would depend on when the buffer
        of the writer was spilled.
        """

    def __call__(self, window: Sequence[Slice], spec: MergeSpec) -> Iterator[pa.Table]:
        """The merged rows of the window, as consecutive tables; see `MergeSpec`."""


@runtime_checkable
class ChoosesRows(MergeFunction, Protocol):
    """A merge function that returns one of the rows of each key, and can mark these rows."""

    @property
    def newest_wins(self) -> bool:
        """Whether the newest row of a key always wins, independently of the older rows."""

    def winners(
        self, window: Sequence[Slice], spec: MergeSpec
    ) -> Iterator[tuple[Slice, np.ndarray]]:
        """The runs, in any order, each with a mask of the rows that `__call__` returns."""


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
        aggregates=_aggregates(schema, options) if options.folds_rows else (),
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
    """The aggregate functions of the non-key columns. In partial-update, a column may have none."""
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
                "the aggregate function does not support the column's type",
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
    """The row kinds that the table ignores in writes and merges."""
    if options.ignore_delete:
        return RETRACTS
    return frozenset({RowKind.UPDATE_BEFORE} if options.ignore_update_before else ())


# --- kinds ---------------------------------------------------------------------------------------
# Which row kinds a table can merge, so that a write of other kinds fails immediately.


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The row kinds that a table cannot merge, why, and the column and function that cause it."""

    kinds: frozenset[RowKind]
    reason: str
    facts: dict[str, object]


def refused_kinds(engine: MergeEngine, spec: MergeSpec) -> Refusal | None:
    """The kinds that no written row may have; None if there are none.

    A single tombstone of a key would be accepted, but the next row of the key could not be merged
    with it, and the table would become unreadable.
    """
    kinds = RETRACTS - spec.ignored
    if not kinds or engine is MergeEngine.DEDUPLICATE:
        return None
    if engine is MergeEngine.FIRST_ROW:
        reason = "merge-engine=first-row takes no rows of kind -U and -D; set ignore-delete"
        return Refusal(kinds=kinds, reason=reason, facts={})
    if engine is MergeEngine.PARTIAL_UPDATE and not spec.groups:
        if spec.remove_on_delete:
            return None
        reason = (
            "merge-engine=partial-update takes no rows of kind -U and -D by itself; set "
            "ignore-delete, partial-update.remove-record-on-delete or sequence groups"
        )
        return Refusal(kinds=kinds, reason=reason, facts={})
    for aggregate in _retracted(engine, spec):
        if aggregate.ignore_retract or AGGREGATORS[aggregate.function](aggregate).retracts:
            continue
        if spec.remove_on_delete:
            kinds -= {RowKind.DELETE}
        reason = (
            "the aggregate function cannot retract rows of kind -U and -D; set ignore-delete, or "
            f"fields.{aggregate.column}.ignore-retract"
        )
        facts: dict[str, object] = {"column": aggregate.column, "function": aggregate.function}
        return Refusal(kinds=kinds, reason=reason, facts=facts) if kinds else None
    return None


def _retracted(engine: MergeEngine, spec: MergeSpec) -> Iterator[Aggregate]:
    """The aggregate functions that would have to retract rows."""
    grouped = {name for group in spec.groups for name in group.columns}
    for aggregate in spec.aggregates:
        if engine is MergeEngine.AGGREGATION or aggregate.column in grouped:
            yield aggregate
