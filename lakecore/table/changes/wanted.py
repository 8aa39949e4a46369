"""What to read of changes, and how the splits of a change are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import Unsupported
from lakecore.frames.source import reading
from lakecore.model.rows import (
    KIND_FIELD,
    RETRACTS,
    SEQUENCE_FIELD,
    SEQUENCE_NUMBER,
    VALUE_KIND,
    RowKind,
)
from lakecore.model.types import is_blob
from lakecore.rows.read_rules import Condition, inputs_of
from lakecore.table.file_reader.blob_resolution import followed
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.time_travel import with_levels_of
from lakecore.table.sections.merge_runs import merge_runs
from lakecore.table.splits.read import read_split

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from lakecore.io.stores.store import Store
    from lakecore.memory import Budget
    from lakecore.model.files import Split
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.plan.predicate import Predicate
    from lakecore.table.context import TableContext
    from lakecore.table.file_reader.read_plan import ReadPlan
    from lakecore.table.reads.scan import ScanContext


# --- planned -------------------------------------------------------------------------------------
# Rows of changes as a value: splits, how to read them, and the kind of the rows.
#
# A process that planned the changes of a snapshot sends such values to other processes, which read
# the rows without the table's metadata.


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRows:
    """Splits to read one after another, and the row kind of all their rows.

    With `kind` None, the rows have their stored kinds, in the last column of the plan.
    """

    plan: ReadPlan
    splits: tuple[Split, ...]
    kind: RowKind | None

    def streams(self, store: Store, budget: Budget) -> Iterator[Iterator[pa.RecordBatch]]:
        """The rows of each split, with the columns of the plan and `_VALUE_KIND`."""
        for split in self.splits:
            rows = read_split(split, self.plan, store, budget)
            yield rows if self.kind is None else of_kind(rows, self.kind)


def of_kind(
    batches: Iterable[pa.RecordBatch], kind: RowKind
) -> Generator[pa.RecordBatch, None, None]:
    """The batches, with this kind in the column `_VALUE_KIND` of each row."""
    with reading(iter(batches)) as rows:
        for batch in rows:
            kinds = pa.array(np.full(batch.num_rows, kind, np.int8))
            if VALUE_KIND in batch.schema.names:
                batch = batch.drop_columns([VALUE_KIND])  # noqa: PLW2901 - the same rows
            yield batch.append_column(VALUE_KIND, kinds)


# --- wanted --------------------------------------------------------------------------------------

_RETRACTS = np.array([kind in RETRACTS for kind in RowKind])


class Held(Enum):
    """Which columns rows hold.

    - WRITTEN: columns that the writer of a row set; with an engine that folds, also values to be
      folded;
    - MERGED: all columns; rows of kind -U and -D hold only columns that their writer set;
    - ALL: all columns.
    """

    WRITTEN = "written"
    MERGED = "merged"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to read of the changes: columns of the table, and a predicate that prunes rows.

    - `keeps_deletions`: a state has the stored kind of each merged row, tombstones included;
    - `sequence`: rows have their sequence number too;
    - `row_filter`: the filter of the reader; `columns` include the columns of the filter, and rows
      that may not hold them are left out.
    """

    context: TableContext
    columns: tuple[str, ...]
    predicate: Predicate | None = None
    keeps_deletions: bool = False
    sequence: bool = False
    row_filter: Condition | None = None

    @property
    def scan(self) -> ScanContext:
        """The table as a scan sees it."""
        return self._source.scan_context

    @property
    def _source(self) -> TableSource:
        return self._source_with(self.context.schema)

    def _source_with(self, schema: TableSchema) -> TableSource:
        return TableSource(
            context=self.context, snapshot=None, table_schema=schema, row_filter=self.row_filter
        )

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns of the row filter."""
        return () if self.row_filter is None else inputs_of(self.row_filter)

    def as_of(self, snapshot: Snapshot) -> Wanted:
        """The same request, with the level options that were set at the time of a snapshot."""
        schema = self.context.history.schema(snapshot.schema_id)
        return replace(self, context=with_levels_of(self.context, schema))

    def in_order(self, splits: Sequence[Split], entries: Iterable[ManifestEntry]) -> list[Split]:
        """The splits, ordered by partition; within a partition, they keep their order.

        Without a primary key, partitions are in the order in which `entries` first name them: the
        older one comes first (https://paimon.apache.org/docs/master/append-table/bucketed/).
        `scan.plan-sort-partition` takes precedence over this order.
        """
        seen = None if self.context.schema.primary_keys else [each.partition for each in entries]
        return self.context.partitions.in_scan_order(splits, seen)

    def read_plan(self, splits: Sequence[Split], columns: Sequence[str] | None = None) -> ReadPlan:
        """How to read these splits; `columns` replaces the wanted columns."""
        return self._source.read_plan(splits, columns or self.columns, self.predicate)

    def planned(self, splits: Sequence[Split], kind: RowKind | None) -> PlannedRows:
        """How to read the splits: merged rows, all of this kind.

        With `kind` None: stored rows with their stored kinds (+I without a primary key).
        """
        context = self.context
        if kind is not None or not context.schema.primary_keys:
            if kind is None and context.options.data_evolution_enabled:
                self._require_columns(splits)
            plan = self.read_plan(splits)
            return PlannedRows(
                plan=plan, splits=tuple(splits), kind=RowKind.INSERT if kind is None else kind
            )
        extra = (SEQUENCE_FIELD, KIND_FIELD) if self.sequence else (KIND_FIELD,)
        schema = replace(context.schema, fields=(*context.schema.fields, *extra))
        source = self._source_with(schema)
        names = (*self.columns, *(field.name for field in extra))
        plan = source.read_plan(splits, names, self.predicate)
        return PlannedRows(plan=plan, splits=tuple(splits), kind=None)

    def _require_columns(self, splits: Sequence[Split]) -> None:
        """Raise Unsupported if the files of a split lack a wanted column that is NOT NULL.

        A column that a snapshot did not write is null in its changes. Java raises an error too.
        """
        schema, history = self.context.schema, self.context.history
        needed = [
            field
            for field in map(schema.field, self.columns)
            if not field.nullable and field.name not in schema.partition_keys
        ]
        for split in splits if needed else ():
            held: set[int] = set()
            for file in split.files:
                held.update(f.id for f in file.columns_of(history.schema(file.schema_id)))
            missing = [field.name for field in needed if field.id not in held]
            if missing:
                raise Unsupported(
                    "a snapshot wrote only some columns, and not these, which are NOT NULL; read "
                    "the changes of other columns",
                    columns=missing,
                    option="data-evolution.enabled",
                    files=[file.name for file in split.files],
                    table=self.context.identifier,
                )

    def stored(
        self, splits: Sequence[Split], held: Held = Held.WRITTEN
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        """The stored rows of each split, with their stored kinds."""
        context = self.context
        if self.needs and context.options.data_evolution_enabled:
            splits = [part for each in splits if (part := self._holding(each)).files]
        for batches in self.planned(splits, None).streams(context.store, context.budget):
            yield self._held(batches, held)

    def _holding(self, split: Split) -> Split:
        """The split without files of rows that lack a needed column."""
        fields = map(self.context.schema.field, self.needs)
        partition_keys = self.context.schema.partition_keys
        needed = {field.id for field in fields if field.name not in partition_keys}
        groups = [[file] for file in split.files] if split.raw else [split.files]
        history = self.context.history
        kept: set[str] = set()
        for files in groups:
            schemas = ((file, history.schema(file.schema_id)) for file in files)
            own = {field.id for file, schema in schemas for field in file.columns_of(schema)}
            kept.update(file.name for file in files if needed <= own)
        runs = (tuple(file for file in run if file.name in kept) for run in split.runs)
        return replace(split, runs=tuple(filter(None, runs)))

    def _held(self, batches: Iterator[pa.RecordBatch], held: Held) -> Iterator[pa.RecordBatch]:
        """The rows that hold the needed columns. A null of a row may stand for an unset value."""
        schema = self.context.schema
        needs = [
            name
            for name in self.needs
            if name not in (*schema.primary_keys, *schema.partition_keys)
        ]
        if not needs or not schema.primary_keys or held is Held.ALL:
            yield from batches
            return
        if held is Held.WRITTEN and self.context.options.folds_rows:
            return
        for batch in batches:
            kinds = batch.column(VALUE_KIND).to_numpy(zero_copy_only=False)
            unset = [batch.column(name).is_null().to_numpy(zero_copy_only=False) for name in needs]
            yield batch.filter(pa.array(~(_RETRACTS[kinds] & np.logical_or.reduce(unset))))

    def merged(self, splits: Sequence[Split], kind: RowKind) -> Iterator[Iterator[pa.RecordBatch]]:
        """The merged rows of each split, all with the same kind."""
        context = self.context
        if self.sequence and context.schema.primary_keys:
            for batches in self.with_kinds(splits, keep_deletions=False):
                yield of_kind(batches, kind)
            return
        yield from self.planned(splits, kind).streams(context.store, context.budget)

    def with_kinds(
        self, splits: Sequence[Split], *, keep_deletions: bool
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        """The merged rows of each split with their stored kinds; tombstones if `keep_deletions`."""
        context = self.context
        plan = self.read_plan(splits)
        merge = replace(plan.merge, keep_deletions=keep_deletions)
        plan = replace(plan, merge=merge, system_columns=True)
        for split in splits:
            if split.raw or not context.schema.primary_keys:
                yield from self.stored([split], Held.MERGED)
            else:
                yield self._held(self._merged_with_kinds(split, plan), Held.MERGED)

    def _merged_with_kinds(self, split: Split, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
        context = self.context
        extra = (SEQUENCE_NUMBER, VALUE_KIND) if self.sequence else (VALUE_KIND,)
        merged = (
            batch
            for table in merge_runs(split, plan, context.store, context.budget)
            for batch in table.select([*self.columns, *extra]).to_batches()
        )
        yield from followed(merged, plan, context.store, context.budget)


def column_to_count(schema: TableSchema) -> tuple[str, ...]:
    """The column that is read to count rows: a nullable one, if there is any.

    In the changes of a snapshot, a NOT NULL column may be missing.
    """
    small = [field for field in schema.fields if not is_blob(field.type)]
    return tuple(f.name for f in sorted(small, key=lambda field: not field.nullable))[:1]
