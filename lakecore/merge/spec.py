"""The input and the output of a merge function.

A *window* is a range of keys over all sorted runs of a section: it contains all rows of each key in
the range. A *merge function* returns at most one row for each key of a window. There are two
exceptions: `KEEP_ALL` returns all rows, for a later merge, and with `MergeSpec.lacks_older` rows
that cannot be folded without the older rows of their key stay apart.

Merge order is by key, sequence fields, sequence number and commit order
(https://paimon.apache.org/docs/master/primary-key-table/sequence-rowkind/). If whole runs are older
or newer than each other, a stable sort by key is enough, and cheap, because each run is in key
order already. Otherwise, only rows whose key occurs more than once are compared.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import Unsupported
from lakecore.merge.aggregators import AGGREGATORS
from lakecore.merge.aggregators.fold import Aggregate
from lakecore.merge.keys import sequence_codes, shared_codes
from lakecore.model.arrow_arrays import size_of
from lakecore.model.merge_rules import AGGREGATE_FUNCTIONS, aggregate_functions
from lakecore.model.rows import RETRACTS, SEQUENCE_NUMBER, VALUE_KIND, RowKind
from lakecore.options import MergeEngine, SortOrder, TableOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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


# --- merge order ---------------------------------------------------------------------------------

PIECE_ROWS = 131_072
PIECE_BYTES = 4 << 20
"""Maximum size of a piece of a window's rows; a file is written from many pieces."""
_NUMBER_BITS = 63
_IDLE_TAKERS: list[ThreadPoolExecutor] = []
_COMBINED_BYTES = 16 << 20
"""Windows up to this size are combined into one chunk, so they are in memory twice."""
_BUFFER_BYTES = 64 << 20
"""Windows from this size on are write buffers."""


def runs_decide(window: Sequence[Slice], spec: MergeSpec) -> bool:
    """Whether every row of each run is older than all rows of the next run."""
    if spec.sequence or not all(part.unique for part in window):
        return False
    ordered = sorted(window, key=_age)
    return all(older.sequence_max < newer.sequence_min for older, newer in pairwise(ordered))


def oldest_first(window: Sequence[Slice], spec: MergeSpec) -> list[Slice]:
    """The runs in an order in which later rows are newer, unless sequences decide otherwise."""
    if runs_decide(window, spec):
        return sorted(window, key=_age)
    return sorted(window, key=lambda part: part.commit_order)


def merge_order(window: Sequence[Slice], spec: MergeSpec) -> tuple[np.ndarray, np.ndarray]:
    """For all rows of `oldest_first` runs: key codes, and positions in merge order.

    The positions do not contain ignored rows.
    """
    by_run = shared_codes([part.keys for part in window])
    codes = np.concatenate(by_run)
    order = key_order(window, codes)
    alive = np.concatenate(countable_rows(window, by_run, spec))
    if not alive.all():
        order = order[alive[order]]
    if not runs_decide(window, spec):
        _settle(window, spec, codes, order)
    return codes, order


def key_order(window: Sequence[Slice], codes: np.ndarray) -> np.ndarray:
    """The positions of the rows in key order; rows of a key are in run order."""
    if len(window) > 1:
        # Runs are sorted: a sort that exploits this is the fastest.
        return np.argsort(codes, kind="stable")
    if (codes[1:] >= codes[:-1]).all():
        return np.arange(len(codes))
    return _sorted_places(codes)


def _sorted_places(codes: np.ndarray) -> np.ndarray:
    """The positions of the codes in ascending order.

    If a code and its position fit into one integer, these integers are sorted in place. A separate
    sort takes four times the memory, and Polars keeps that memory for a while.
    """
    low = int(codes.min())
    bits = (len(codes) - 1).bit_length()
    if (int(codes.max()) - low).bit_length() + bits > _NUMBER_BITS:
        return pl.Series(codes).arg_sort().to_numpy().astype(np.int64)
    places = codes - low
    places <<= bits
    places |= np.arange(len(codes))
    places.sort()
    places &= (1 << bits) - 1
    return places


def column_of(window: Sequence[Slice], name: str, rows: np.ndarray) -> pa.ChunkedArray:
    """The values of a column at these positions over all runs."""
    chunks = [chunk for part in window for chunk in part.rows.column(name).chunks]
    column = pa.chunked_array(chunks, type=window[0].rows.schema.field(name).type)
    return column.take(pa.array(rows))


def of_kinds(rows: pa.Table, kinds: frozenset[RowKind]) -> np.ndarray | None:
    """A mask of the rows of these kinds; None if there are no such rows."""
    if not kinds or rows.schema.get_field_index(VALUE_KIND) < 0:
        return None
    present = rows.column(VALUE_KIND).to_numpy()
    wanted = [int(kind) for kind in kinds]
    if present.max(initial=0) < min(wanted):
        return None
    mask = np.isin(present, wanted)
    return mask if mask.any() else None


def of_kinds_over(window: Sequence[Slice], kinds: frozenset[RowKind]) -> np.ndarray | None:
    """A mask of the rows of these kinds over all runs; None if there are no such rows."""
    masks = [of_kinds(part.rows, kinds) for part in window]
    if all(mask is None for mask in masks):
        return None
    return np.concatenate(
        [
            np.zeros(part.keys.length, bool) if mask is None else mask
            for part, mask in zip(window, masks, strict=True)
        ]
    )


def filter_rows(rows: pa.Table, mask: np.ndarray) -> pa.Table:
    """The masked rows; nothing is copied if the mask selects all rows or none."""
    places = np.flatnonzero(mask)
    if len(places) == len(mask):
        return rows
    if not len(places):
        return rows.slice(0, 0)
    if any(column.num_chunks > 1 for column in rows.columns):
        return rows.filter(pa.array(mask))
    # With one chunk, a filter would compute the positions again for each column.
    return pc.take(rows, pa.array(places), boundscheck=False)


def split_mask(window: Sequence[Slice], mask: np.ndarray) -> list[np.ndarray]:
    """Split a mask over all runs into one mask for each run."""
    return np.split(mask, np.cumsum([part.keys.length for part in window])[:-1])


def take_in_pieces(window: Sequence[Slice], positions: np.ndarray) -> Iterator[pa.Table]:
    """The rows at these positions over all runs, in pieces, to avoid a second full copy."""
    rows = pa.concat_tables([part.rows for part in window])
    size_bytes = size_of(rows)
    step = piece_rows(rows, size_bytes)
    if step == 1:
        # Large rows are not copied.
        yield from (rows.slice(position, 1) for position in positions.tolist())
        return
    if size_bytes <= _COMBINED_BYTES:
        # Otherwise Arrow would combine the chunks of each column for each piece.
        rows = rows.combine_chunks()
    starts = range(0, max(1, len(positions)), step)

    def piece(start: int) -> pa.Table:
        return pc.take(rows, pa.array(positions[start : start + step]), boundscheck=False)

    # Take the next piece while this one is written: Arrow releases the interpreter lock.
    with _taker(size_bytes) as taker:
        coming = taker.submit(piece, 0)
        try:
            for start in starts[1:]:
                done = coming.result()
                coming = taker.submit(piece, start)
                yield done
            yield coming.result()
        finally:
            if not coming.cancel():
                wait([coming])


@contextmanager
def _taker(size_bytes: int) -> Iterator[ThreadPoolExecutor]:
    """The thread that copies rows from a window of `size_bytes`.

    All windows use the same thread, which reuses the memory that it has freed. For a write buffer,
    freed memory is returned to the system before and after.
    """
    try:
        taker = _IDLE_TAKERS.pop()
    except IndexError:
        taker = ThreadPoolExecutor(1, thread_name_prefix="lakecore-take")
    try:
        if size_bytes >= _BUFFER_BYTES:
            taker.submit(_release_freed)
        yield taker
        if size_bytes >= _BUFFER_BYTES:
            taker.submit(_release_freed)
    finally:
        _IDLE_TAKERS.append(taker)


def _release_freed() -> None:
    pa.default_memory_pool().release_unused()
    # Release the memory of the sort.
    pa.system_memory_pool().release_unused()


def piece_rows(rows: pa.Table, size_bytes: int) -> int:
    """The number of rows to copy in one piece; all `rows` together have `size_bytes`."""
    fitting: int = PIECE_BYTES * rows.num_rows // max(1, size_bytes)
    return max(1, min(PIECE_ROWS, fitting))


def _age(part: Slice) -> tuple[int, int]:
    return (part.sequence_min, part.sequence_max)


def countable_rows(
    window: Sequence[Slice], codes: list[np.ndarray], spec: MergeSpec
) -> list[np.ndarray]:
    """For each run, a mask of the rows that are merged.

    The other rows are ignored because of their kind, or absorbed by a lower level
    (`complete_levels`).
    """
    masks = [
        np.ones(part.keys.length, bool) if ignored is None else ~ignored
        for part in window
        for ignored in [of_kinds(part.rows, spec.ignored)]
    ]
    if spec.complete_levels:
        compacted = [at for at, part in enumerate(window) if part.level > 0]
        seen = np.empty(0, np.int64)
        for at in sorted(compacted, key=lambda at: window[at].level):
            masks[at] &= np.isin(codes[at], seen, assume_unique=True, invert=True)
            seen = np.concatenate([seen, codes[at]])
    return masks


def _settle(window: Sequence[Slice], spec: MergeSpec, codes: np.ndarray, order: np.ndarray) -> None:
    """Sort the rows of each key that has several rows. Changes `order` in place."""
    ordered = codes[order]
    same = ordered[1:] == ordered[:-1]
    repeated = np.zeros(len(order), bool)
    repeated[1:] |= same
    repeated[:-1] |= same
    contested = order[repeated]
    if not len(contested):
        return
    by = [contested, column_of(window, SEQUENCE_NUMBER, contested).to_numpy()]
    if spec.sequence:
        fields = [column_of(window, name, contested) for name in spec.sequence]
        by.append(sequence_codes(fields, descending=spec.sequence_descending))
    by.append(codes[contested])
    order[repeated] = contested[np.lexsort(by)]
