"""Changes of a table as a stream of batches; every read method for changes is built on it.

A source is a sequence of *changes*: the rows that a snapshot added, its changelog, the rows that an
overwrite replaced, a whole state, or the difference of two states. Each row has its kind in the
column `_row_kind`, before the table's columns, and is read with the table's newest schema.

Rows are in snapshot order; within a snapshot, rows of a key are in the order of the changes.
Applying them in order gives the table. A condition filters row by row, so files may be pruned by
any statistics; it may drop one row of a pair -U, +U.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from lakecore.errors import NotFound, Unsupported
from lakecore.format.layout import POSTPONE_BUCKET
from lakecore.model.manifest import FileKind, fold
from lakecore.model.rows import (
    KIND_FIELD,
    KIND_TEXTS,
    RETRACTS,
    ROW_KIND,
    SEQUENCE_FIELD,
    SEQUENCE_NUMBER,
    VALUE_KIND,
    VALUE_KIND_ID,
    RowKind,
)
from lakecore.model.times import to_wall_clock
from lakecore.model.types import Field, parse_type
from lakecore.plan.changes import files_of_first_plan
from lakecore.plan.predicate import condition_on
from lakecore.table.changes.planned import PlannedRows, of_kind
from lakecore.table.reads.scan import ScanContext, plan_merged, plan_scan, plan_stored
from lakecore.table.reads.source import TableSource, side_by_side
from lakecore.table.reads.travel import with_levels_of
from lakecore.table.sections.merge_runs import merge_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakecore.model.files import Split
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.plan.predicate import Predicate
    from lakecore.table.context import TableContext
    from lakecore.table.stored_rows.read_plan import ReadPlan

KIND_COLUMN = Field(id=VALUE_KIND_ID, name=ROW_KIND, type=parse_type("STRING NOT NULL"))
_TEXTS = pa.array(KIND_TEXTS, pa.string())
_ADDING = np.array([kind not in RETRACTS for kind in RowKind])


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to read of the changes: columns of the table, and a predicate that prunes rows.

    - `keeps_deletions`: a state has the stored kind of each merged row, tombstones included;
    - `sequence`: rows have their sequence number too.
    """

    context: TableContext
    columns: tuple[str, ...]
    predicate: Predicate | None = None
    keeps_deletions: bool = False
    sequence: bool = False

    @property
    def scan(self) -> ScanContext:
        """The table as a scan sees it."""
        context = self.context
        return ScanContext(
            history=context.history,
            schema=context.schema,
            options=context.options,
            partitions=context.partitions,
            layout=context.layout,
        )

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
        context = self.context
        source = TableSource(context=context, snapshot=None, table_schema=context.schema)
        return source.read_plan(splits, columns or self.columns, self.predicate)

    def planned(self, splits: Sequence[Split], kind: RowKind | None) -> PlannedRows:
        """How to read the splits: merged rows, all of this kind.

        None: stored rows with their stored kinds (+I without a primary key).
        """
        context = self.context
        if kind is not None or not context.schema.primary_keys:
            plan = self.read_plan(splits)
            return PlannedRows(
                plan=plan, splits=tuple(splits), kind=RowKind.INSERT if kind is None else kind
            )
        extra = (SEQUENCE_FIELD, KIND_FIELD) if self.sequence else (KIND_FIELD,)
        schema = replace(context.schema, fields=(*context.schema.fields, *extra))
        source = TableSource(context=context, snapshot=None, table_schema=schema)
        names = (*self.columns, *(field.name for field in extra))
        plan = source.read_plan(splits, names, self.predicate)
        return PlannedRows(plan=plan, splits=tuple(splits), kind=None)

    def stored(self, splits: Sequence[Split]) -> Iterator[Iterator[pa.RecordBatch]]:
        """The stored rows of each split, with their stored kinds."""
        context = self.context
        yield from self.planned(splits, None).streams(context.store, context.budget)

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
                yield from self.stored([split])
            else:
                yield self._merged_with_kinds(split, plan)

    def _merged_with_kinds(self, split: Split, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
        context = self.context
        extra = (SEQUENCE_NUMBER, VALUE_KIND) if self.sequence else (VALUE_KIND,)
        for table in merge_runs(split, plan, context.store, context.budget):
            yield from table.select([*self.columns, *extra]).to_batches()


class Change(Protocol):
    """One change: a set of rows to read."""

    def streams(self, wanted: Wanted) -> Iterator[Iterator[pa.RecordBatch]]:
        """The rows, as consecutive streams of batches with the wanted columns and `_VALUE_KIND`.

        Each stream is planned when it is requested.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows:
    """The rows of the files that a snapshot added, or of its changelog files, as stored."""

    snapshot: Snapshot
    changelog: bool

    def streams(self, wanted: Wanted) -> Iterator[Iterator[pa.RecordBatch]]:
        """The rows file by file, by partition, and in manifest order within a partition."""
        yield from wanted.stored(self._splits(wanted))

    def planned(self, wanted: Wanted) -> Iterator[PlannedRows]:
        """The same rows, for another process to read."""
        yield wanted.planned(self._splits(wanted), None)

    def _splits(self, wanted: Wanted) -> list[Split]:
        entries = self.entries(wanted.context)
        splits = plan_stored(wanted.scan, entries, wanted.predicate)
        return wanted.in_order(splits, entries)

    def entries(self, context: TableContext) -> list[ManifestEntry]:
        """The manifest entries of these files."""
        history, snapshot = context.history, self.snapshot
        if self.changelog:
            name = snapshot.changelog_manifest_list
            manifests = history.manifest_list(name, snapshot.changelog_manifest_list_size)
        else:
            manifests = history.delta_manifests(snapshot)
        return [entry for entry in history.entries(manifests) if entry.kind is FileKind.ADD]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """The merged rows that an overwrite removed, as -D; then the rows that it added, as +I."""

    snapshot: Snapshot

    def streams(self, wanted: Wanted) -> Iterator[Iterator[pa.RecordBatch]]:
        """Removed rows come first: with dynamic buckets, a key may be added to another bucket."""
        for side, splits, kind in self._sides(wanted):
            yield from side.merged(splits, kind)

    def planned(self, wanted: Wanted) -> Iterator[PlannedRows]:
        """The same rows, for another process to read."""
        for side, splits, kind in self._sides(wanted):
            yield side.planned(splits, kind)

    def _sides(self, wanted: Wanted) -> Iterator[tuple[Wanted, list[Split], RowKind]]:
        history, snapshot = wanted.context.history, self.snapshot
        delta = self.entries(wanted.context)
        gone = {entry.identity for entry in delta if entry.kind is FileKind.DELETE}
        new = [entry for entry in delta if entry.kind is FileKind.ADD]
        if gone:
            base = history.manifest_list(
                snapshot.base_manifest_list, snapshot.base_manifest_list_size
            )
            old = [entry for entry in fold(history.entries(base)) if entry.identity in gone]
            before = self._before(wanted.context)
            splits = plan_merged(wanted.scan, old, before, wanted.predicate)
            yield wanted.as_of(before), wanted.in_order(splits, delta), RowKind.DELETE
        splits = plan_merged(wanted.scan, new, snapshot, wanted.predicate)
        yield wanted, wanted.in_order(splits, delta), RowKind.INSERT

    def entries(self, context: TableContext) -> list[ManifestEntry]:
        """The manifest entries of the files that the overwrite removed and added."""
        return context.history.entries(context.history.delta_manifests(self.snapshot))

    def _before(self, context: TableContext) -> Snapshot:
        """The previous snapshot. Raises NotFound if it and the removed files have expired."""
        try:
            return context.history.snapshot(self.snapshot.id - 1)
        except NotFound as error:
            raise NotFound(
                "the rows that an overwrite replaced have expired",
                overwrite=self.snapshot.id,
                table=context.identifier,
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All rows of a snapshot as +I, without rows whose changelog is not written yet.

    `created_since_ms` leaves out the files that were created before this time. `as_batch`: the rows
    that a batch read returns, whether or not their changelog is written.
    """

    snapshot: Snapshot
    created_since_ms: int | None = None
    as_batch: bool = False

    def streams(self, wanted: Wanted) -> Iterator[Iterator[pa.RecordBatch]]:
        """One iterator of batches for each split; the splits are ordered by partition."""
        splits = self._splits(wanted)
        if wanted.keeps_deletions:
            yield from wanted.with_kinds(splits, keep_deletions=True)
        else:
            yield from wanted.merged(splits, RowKind.INSERT)

    def planned(self, wanted: Wanted) -> Iterator[PlannedRows]:
        """The same rows without deletions, for another process to read."""
        yield wanted.planned(self._splits(wanted), RowKind.INSERT)

    def _splits(self, wanted: Wanted) -> Sequence[Split]:
        live: list[ManifestEntry] = []
        since = None if self.created_since_ms is None else to_wall_clock(self.created_since_ms)

        def shown(entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
            live.extend(entries)
            kept = files_of_first_plan(entries, wanted.context.options)
            # Files of the oldest releases do not state their time.
            return [e for e in kept if since is None or (e.file.creation_time_ms or 0) >= since]

        chosen = None if self.as_batch else shown
        plan = plan_scan(wanted.scan, self.snapshot, wanted.predicate, shown=chosen)
        return plan.splits if self.as_batch else wanted.in_order(plan.splits, live)


@dataclass(frozen=True, kw_only=True)
class ChangesSource:
    """The rows of a sequence of changes.

    Without `kinds`, only +I and +U rows are returned, with the table's columns alone.
    """

    context: TableContext
    changes: tuple[Change, ...]
    kinds: bool = True

    def __post_init__(self) -> None:
        if self.context.options.bucket == POSTPONE_BUCKET:
            raise Unsupported(
                "changes of a table whose buckets are postponed are not supported",
                option="bucket",
                value=POSTPONE_BUCKET,
                table=self.context.identifier,
            )
        if self.kinds and ROW_KIND in self.context.schema.by_name:
            raise Unsupported(
                "changes of a table with a column of this name are not supported",
                column=ROW_KIND,
                table=self.context.identifier,
            )

    @cached_property
    def table_schema(self) -> TableSchema:
        """The columns, as a schema."""
        schema = self.context.schema
        return replace(schema, fields=(KIND_COLUMN, *schema.fields)) if self.kinds else schema

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of all columns."""
        return self.table_schema.arrow

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in batches of the requested columns, in the order of the changes.

        The predicate prunes only: the batches may still hold rows that do not match. `limit` is
        exact without a predicate.
        """
        names = self.schema.names if columns is None else list(columns)
        own = self.context.schema
        stored = tuple(name for name in names if name != ROW_KIND) or own.names[:1]
        condition = condition_on(predicate, own.names)
        wanted = Wanted(context=self.context, columns=stored, predicate=condition)
        left = limit if predicate is None else None
        with closing(side_by_side(self._streams(wanted))) as batches:
            for batch in batches:
                rows = self._shown(batch, names)
                if left is not None and rows.num_rows >= left:
                    yield rows.slice(0, left)
                    return
                left = None if left is None else left - rows.num_rows
                yield rows

    def engine_files(
        self,
        columns: Sequence[str],
        predicate: Predicate | None = None,
    ) -> list[str] | None:
        """Always None: files do not store row kinds as strings."""
        del columns, predicate
        return None

    def _streams(self, wanted: Wanted) -> Iterator[Iterator[pa.RecordBatch]]:
        for change in self.changes:
            yield from change.streams(wanted)

    def _shown(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        kinds = batch.column(VALUE_KIND).to_numpy(zero_copy_only=False)
        if not self.kinds:
            adding = _ADDING[kinds]
            return (batch if adding.all() else batch.filter(pa.array(adding))).select(names)
        if ROW_KIND in names:
            batch = batch.append_column(KIND_COLUMN.name, _TEXTS.take(pa.array(kinds)))
        # NOTE: a -D row may hold null in a NOT NULL column; a cast would raise an error.
        columns = [batch.column(name) for name in names]
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.RecordBatch.from_arrays(columns, schema=schema)
