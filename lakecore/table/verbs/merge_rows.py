"""MERGE into a table with a primary key: the table is streamed, and only changed rows are written.

For each part of the source (one, if it fits in memory):

1. the source's values of the `on` columns prune partitions, buckets, files and row groups of the
   table, unless a clause concerns rows that the source does not match;
2. for each split, the key, the `on` columns and the columns of conditions are read and joined with
   the source, and the clause of each pair is chosen;
3. from the splits and row groups with pairs, the remaining columns are read, and the changed rows
   are written. If `on` does not contain the whole key, a source row may match many rows of the
   table: then step 2 already reads all columns;
4. after all parts, the source rows without a match are inserted.

It is an error if several source rows match one row of the table, because the result would be
ambiguous.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.frames.arrow_frames import to_frame
from lakecore.frames.incoming import incoming_batches
from lakecore.frames.source import reading
from lakecore.memory import Budget, Share
from lakecore.merge.keys import order_columns, shared_codes
from lakecore.model.types import Field, with_nullable
from lakecore.plan.predicate import UNKNOWN, Column, Predicate, all_of, between, is_in
from lakecore.plan.row_changes import deletion_columns
from lakecore.rows.fit import Place, fit, show
from lakecore.scalar.values import Sql, pairs
from lakecore.table.reads.row_values import holds, said_plainly, values_of
from lakecore.table.splits.read import read_split
from lakecore.table.verbs.change_rows import updated
from lakecore.table.verbs.merge_plan import (
    FAN,
    SOURCE,
    TARGET,
    Action,
    Match,
    MergePlan,
    Picked,
    RowParts,
    Step,
    in_part,
)
from lakecore.table.verbs.row_writer import RowWriter, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakecore.model.files import Split
    from lakecore.model.schema import TableSchema
    from lakecore.table.context import TableContext
    from lakecore.table.reads.source import TableSource

_LISTED_MAX = 1000
"""Up to this many values of a column prune as a list of values; more, as their range."""
_CHUNK_ROWS = 131_072
_CHUNK_BYTES = 32 << 20
_AT_TARGET, _AT_SOURCE = "_lakecore_target", "_lakecore_source"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePart:
    """A part of the source; `found` flags its rows that matched a row of the table."""

    rows: pa.Table
    number: int
    count: int
    found: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """Pairs of table and source rows for which more columns must be read before the write."""

    step: Step
    keys: pa.Table
    source: Picked


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMerge:
    """A MERGE into a table with a primary key, while it runs."""

    context: TableContext
    target: TableSource
    plan: MergePlan
    writer: RowWriter

    def run(self, source: MergeSource, *, inserts: bool) -> np.ndarray:
        """Merge the source. With `inserts`, source rows without a match are inserted.

        If the source is one part, returns a flag for each source row: whether it matched.
        """
        count = source.part_count
        marks: list[np.ndarray] = []
        for number in range(count):
            rows = source.part(number)
            found = np.zeros(rows.num_rows, bool)
            self.change(SourcePart(rows=rows, number=number, count=count, found=found))
            marks.append(np.packbits(found))
        # Insert after all changes, so that insertions get larger sequence numbers: one part may
        # insert a key that another part changes.
        new = inserts and self.plan.steps[Match.NOT_MATCHED]
        for number, mark in enumerate(marks if new else ()):
            rows = rows if count == 1 else source.part(number)
            self.insert(rows, np.unpackbits(mark, count=rows.num_rows) == 0)
        return found

    def change(self, part: SourcePart) -> None:
        """For a part of the source, change the rows of the table, matched or not."""
        by_source = self.plan.steps[Match.NOT_MATCHED_BY_SOURCE]
        if part.rows.num_rows or by_source:
            predicate = None
            if not by_source and self.plan.on:
                predicate = holding(part.rows, self.plan.on, self.context.schema)
            for split in self.target.plan(predicate).splits:
                self._merge_split(split, predicate, part)

    def insert(self, rows: pa.Table, new: np.ndarray) -> None:
        """Insert the rows at the positions `new` of a part of the source."""
        places = np.flatnonzero(new)
        for start in range(0, len(places), _CHUNK_ROWS):
            picked = Picked(rows, places[start : start + _CHUNK_ROWS])
            for step, chosen in chosen_steps(self.plan.steps[Match.NOT_MATCHED], picked, None):
                self._insert(step, picked.of(chosen))

    def _merge_split(self, split: Split, predicate: Predicate | None, part: SourcePart) -> None:
        plan, context = self.plan, self.context
        read = self.target.read_plan([split], plan.first, predicate)
        waiting: list[_Waiting] = []
        keys = join_keys(part.rows, plan, SOURCE)
        with reading(read_split(split, read, context.store, context.budget)) as batches:
            for whole in in_chunks(batches, part.rows.num_rows):
                self.writer.saw(whole.num_rows)
                rows = in_part(whole, plan.on, part.number, part.count)
                at, of = matching_pairs(join_keys(rows, plan, TARGET), keys, plan)
                part.found[of] = True
                if plan.steps[Match.MATCHED]:
                    check_once(rows, at, context)
                    waiting += self._matched(Picked(rows, at), Picked(part.rows, of))
                if plan.steps[Match.NOT_MATCHED_BY_SOURCE]:
                    alone = np.ones(rows.num_rows, bool)
                    alone[at] = False
                    self._alone(Picked(rows, np.flatnonzero(alone)))
        if waiting:
            self._read_again(split, waiting)

    def _matched(self, target: Picked, source: Picked) -> Iterator[_Waiting]:
        """Apply the clauses to matched pairs of rows. Yields the pairs that need more columns."""
        for step, chosen in chosen_steps(self.plan.steps[Match.MATCHED], source, target):
            pairs = (target.of(chosen), source.of(chosen))
            self._check_same(step, *pairs)
            if set(step.rest).isdisjoint(self.plan.rest):
                self._change(step, *pairs)
            else:
                names = self.context.schema.trimmed_primary_keys
                yield _Waiting(step=step, keys=pairs[0].table(names), source=pairs[1])

    def _alone(self, target: Picked) -> None:
        """Apply the clauses for rows that the source does not match."""
        for step, chosen in chosen_steps(
            self.plan.steps[Match.NOT_MATCHED_BY_SOURCE], None, target
        ):
            self._change(step, target.of(chosen), None)

    def _read_again(self, split: Split, waiting: Sequence[_Waiting]) -> None:
        """Read the remaining columns of the waiting pairs, by key, and change their rows."""
        schema, context = self.context.schema, self.context
        names = schema.trimmed_primary_keys
        keys = pa.concat_tables([each.keys for each in waiting])
        predicate = holding(keys, names, schema)
        columns = [n for n in schema.names if n in {*self.plan.first, *self.plan.rest}]
        read = self.target.read_plan([split], columns, predicate)
        begins = np.cumsum([0, *(each.keys.num_rows for each in waiting)])
        with reading(read_split(split, read, context.store, context.budget)) as batches:
            for rows in in_chunks(batches, 0):
                at, of = _same_keys(rows, keys, names)
                for each, start, end in zip(waiting, begins[:-1], begins[1:], strict=True):
                    mine = (of >= start) & (of < end)
                    if mine.any():
                        source = each.source.of(of[mine] - start)
                        self._change(each.step, Picked(rows, at[mine]), source)

    def _change(self, step: Step, target: Picked, source: Picked | None) -> None:
        """Update or delete rows of the table."""
        schema = self.context.schema
        if step.action is Action.DELETE:
            names = deletion_columns(schema, self.context.options)
            self.writer.delete(target.table(names))
            return
        assert step.shape is not None
        names = tuple(dict.fromkeys((*step.rest, *schema.primary_keys)))
        before = target.table(names)
        rows = step.sides.rows(step.values.values(), source, target)
        values = values_of(rows, step.values, schema.arrow)
        self.writer.update(before, updated(before, values, step.shape, schema))

    def _insert(self, step: Step, source: Picked) -> None:
        rows = step.sides.rows(step.values.values(), source, None)
        self.writer.insert(pa.table(values_of(rows, step.values, self.context.schema.arrow)))

    def _check_same(self, step: Step, target: Picked, source: Picked) -> None:
        """Raise InvalidRequest if an update of all columns would change the key."""
        for name in step.same:
            either = pl.col(TARGET + name).ne_missing(pl.col(SOURCE + name))
            changes = holds(step.sides.rows([either], source, target), either)
            if pc.any(changes).as_py():
                index = pc.index(changes, pa.scalar(True)).as_py()
                raise InvalidRequest(
                    "a column of the primary key cannot be updated: merge on it, or name the "
                    "columns to set",
                    column=name,
                    value=show(source.column(name)[index]),
                    table=self.context.identifier,
                )


def holding(rows: pa.Table, names: Iterable[str], schema: TableSchema) -> Predicate:
    """The predicate that each of these columns has one of its values in `rows`."""
    types = schema.arrow
    return all_of(
        [_one_of(Column(name, types.field(name).type), rows.column(name)) for name in names]
    )


def check_once(rows: pa.Table, at: np.ndarray, context: TableContext) -> None:
    """Raise InvalidRequest if a row of the table occurs in several pairs."""
    times = np.bincount(at, minlength=rows.num_rows)
    if (times > 1).any():
        raise InvalidRequest(
            "several rows of the source match one row of the table: make it one",
            key=key_of(rows, pa.array(times > 1), context.schema),
            table=context.identifier,
        )


def chosen_steps(
    steps: Sequence[Step], source: Picked | None, target: Picked | None
) -> Iterator[tuple[Step, np.ndarray]]:
    """Each step, with the positions of the rows for which it is the first that applies."""
    one = target if source is None else source
    assert one is not None
    left = np.arange(len(one.at))
    for step in steps:
        if not len(left):
            return
        if step.condition is None:
            yield step, left
            return
        rows = step.sides.rows(
            [step.condition],
            None if source is None else source.of(left),
            None if target is None else target.of(left),
        )
        apply = holds(rows, step.condition).to_numpy()
        if apply.any():
            yield step, left[apply]
        left = left[~apply]


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """The columns that rows of a side are joined on."""

    rows: pa.Table
    count: int


def join_keys(rows: pa.Table, plan: MergePlan, side: str) -> JoinKeys:
    """The join columns of a side: the columns `on`, or the columns that the condition reads."""
    if plan.condition is None:
        names = [f"on{index}" for index in range(len(plan.on))]
        return JoinKeys(rows.select(list(plan.on)).rename_columns(names), rows.num_rows)
    own = plan.sides.of_side([plan.condition], side)
    columns = {name: rows.column(column) for name, column in own.items()}
    if not columns:
        columns = {side: pa.chunked_array([pa.nulls(rows.num_rows)])}
    return JoinKeys(pa.table(columns), rows.num_rows)


def matching_pairs(
    target: JoinKeys, source: JoinKeys, plan: MergePlan
) -> tuple[np.ndarray, np.ndarray]:
    """The matching rows, as two arrays of equal length: positions in table and source."""
    condition = plan.condition
    if isinstance(condition, Sql):
        return pairs(condition, target.rows, source.rows)
    left, right = _counted(target, _AT_TARGET), _counted(source, _AT_SOURCE)
    if condition is None:
        joined = left.join(right, on=target.rows.column_names, how="inner")
    else:
        with said_plainly(condition):
            joined = left.join_where(right, condition)
    return joined[_AT_TARGET].to_numpy(), joined[_AT_SOURCE].to_numpy()


def _counted(keys: JoinKeys, number: str) -> pl.DataFrame:
    return to_frame(keys.rows).with_columns(pl.int_range(keys.count, dtype=pl.Int64).alias(number))


def _same_keys(
    rows: pa.Table, keys: pa.Table, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """For each row whose key occurs in `keys`: its position, and the position of its key."""
    mine, wanted = shared_codes(
        [order_columns([each.column(name) for name in names]) for each in (rows, keys)]
    )
    order = np.argsort(wanted, kind="stable")
    place = np.searchsorted(wanted, mine, sorter=order)
    place[place == len(order)] = 0
    of = order[place]
    at = np.flatnonzero(wanted[of] == mine)
    return at, of[at]


def _one_of(column: Column, values: pa.ChunkedArray) -> Predicate:
    """The predicate that a column has one of the values.

    For many values, the predicate tests only the range of the values.
    """
    distinct = pc.unique(values.drop_null())
    if len(distinct) <= _LISTED_MAX:
        return is_in(column, distinct)
    if pa.types.is_floating(column.type):
        return UNKNOWN  # NaN is within no bounds
    bounds = pc.min_max(distinct)
    return between(column, bounds["min"], bounds["max"])


def in_chunks(batches: Iterator[pa.RecordBatch], rows_min: int) -> Iterator[pa.Table]:
    """The batches as tables of at least `rows_min` rows, fewer if the rows are large."""
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        held.append(batch)
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        if rows >= max(rows_min, _CHUNK_ROWS) or size_bytes >= _CHUNK_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size_bytes = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


# --- merge source --------------------------------------------------------------------------------
# The source of a MERGE: rows of any origin, held so that they can be read more than once.
#
# The rows are held in memory under a lease of the budget. If they do not fit, they are written to
# local disk and merged in parts (`row_parts.py`). The hash of the `on` columns determines the part
# of a row on both sides, so a row and its matches are in parts of the same number.

_UNLEASED_BYTES = 1 << 20
_HELD_BYTES_MAX = 1 << 30  # Arrow counts string bytes in 32 bits when it reorders rows


class MergeSource:
    """All rows of a source; a context manager that releases their memory and disk.

    Without `on` columns, rows are assigned to arbitrary parts; callers then accept only one part.
    The `on` columns are cast to the types of the table's columns for the comparison.
    """

    def __init__(
        self, data: object, on: Sequence[Field], budget: Budget, *, columns: Sequence[Field] = ()
    ) -> None:
        """`columns`: the columns of the table, whose types decide how Python values are read."""
        self._on = on
        self._budget = budget
        self._limit = min(Share.SOURCE.of(budget.size_bytes), _HELD_BYTES_MAX)
        self._lease = budget.acquire(0)
        self._spilled = RowParts([field.name for field in on], nulls_anywhere=True)
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._spilled_bytes = 0
        self._rows = 0
        self.schema = pa.schema([])
        try:
            for batch in incoming_batches(data, columns, bytes_max=self._limit):
                self._take(batch)
            if self._spilled:
                self._spill()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def part_count(self) -> int:
        """The number of parts; 1 if all rows are in memory."""
        if not self._spilled:
            return 1
        return min(FAN, -(-self._spilled_bytes // max(1, self._limit)))

    def part(self, number: int) -> pa.Table:
        """The rows of a part, with the columns of `schema`."""
        if not self._spilled:
            return self._joined(self._held)
        rows = self._joined(list(self._spilled.part(number, self.part_count)))
        self._lease.resize(rows.nbytes)
        return rows

    def close(self) -> None:
        self._held = []
        self._spilled.close()
        self._lease.release()

    def _take(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        for field in self._on:
            at = batch.schema.get_field_index(field.name)
            if at < 0:
                raise InvalidRequest(
                    "the source lacks a column to merge on", column=field.name, columns=names
                )
            place = Place(column=f"source.{field.name}", first_row=self._rows)
            fitted = fit(batch.column(at), with_nullable(field.type, nullable=True), place)
            batch = batch.set_column(at, field.name, fitted)
        self._rows += batch.num_rows
        rows = _without_views(pa.Table.from_batches([batch]))
        try:
            self.schema = pa.unify_schemas(
                [self.schema, rows.schema], promote_options="permissive"
            ).remove_metadata()
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidRequest(
                "the parts of the source have different types", cause=error
            ) from error
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        fits = self._held_bytes <= self._limit and self._lease.resize(self._held_bytes)
        if not fits and self._held_bytes > min(_UNLEASED_BYTES, self._limit):
            self._spill()

    def _spill(self) -> None:
        if self._held:
            rows = pa.concat_tables(self._held, promote_options="permissive")
            self._spilled.add(rows)
            self._spilled_bytes += self._held_bytes
        self._held, self._held_bytes = [], 0
        self._lease.resize(0)

    def _joined(self, tables: list[pa.Table]) -> pa.Table:
        empty = self.schema.empty_table()
        return pa.concat_tables([empty, *tables], promote_options="permissive").combine_chunks()


def _without_views(rows: pa.Table) -> pa.Table:
    """The same values in types without views, because Arrow's `take` refuses views."""
    if not any("view" in str(kind) for kind in rows.schema.types):
        return rows
    return to_frame(rows).to_arrow(compat_level=pl.CompatLevel.oldest())
