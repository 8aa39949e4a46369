"""Changes of a table as a stream of batches; every read method for changes is built on it.

A source is a sequence of *changes*: the rows that a snapshot added, its changelog, the rows that an
overwrite replaced, a whole state, or the difference of two states. Each row has its kind in the
column `_row_kind`, before the table's columns, and is read with the table's newest schema. With
data evolution, columns that the snapshots did not write are null, as in Paimon.

Rows are in snapshot order; within a snapshot, rows of a key are in the order of the changes.
Applying them in order gives the table. A condition filters row by row, so files may be pruned by
any statistics, and one row of a pair -U, +U may be dropped.
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
from lakecore.frames.source import limited
from lakecore.model.manifest import FileKind, ManifestEntry, fold
from lakecore.model.rows import KIND_TEXTS, RETRACTS, ROW_KIND, VALUE_KIND, VALUE_KIND_ID, RowKind
from lakecore.model.snapshot import CommitKind, Snapshot
from lakecore.model.times import to_wall_clock
from lakecore.model.types import Field, parse_type, string_array
from lakecore.options import ChangelogProducer
from lakecore.plan.predicate import Predicate, condition_on
from lakecore.plan.row_changes import files_of_first_plan
from lakecore.table.changes.wanted import Held, PlannedRows, Wanted, column_to_count
from lakecore.table.reads.scan import plan_merged, plan_scan
from lakecore.table.reads.source import each_or_expired, side_by_side
from lakecore.table.reads.stored_files import in_order_of_writing, plan_stored, shows_postponed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakecore.model.files import Split
    from lakecore.model.schema import TableSchema
    from lakecore.rows.read_rules import Condition
    from lakecore.table.context import TableContext

KIND_COLUMN = Field(id=VALUE_KIND_ID, name=ROW_KIND, type=parse_type("STRING NOT NULL"))
_TEXTS = string_array(KIND_TEXTS)
_ADDING = np.array([kind not in RETRACTS for kind in RowKind])


class Change(Protocol):
    """One change: a set of rows to read."""

    @property
    def snapshots_read(self) -> tuple[Snapshot, ...]:
        """The snapshots whose files are read."""

    def streams(self, wanted: Wanted) -> Iterator[Iterator[pa.RecordBatch]]:
        """The rows, as consecutive streams of batches with the wanted columns and `_VALUE_KIND`.

        Each stream is planned when it is requested.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRows:
    """The rows of the files that a snapshot added, or of its changelog files, as stored.

    `earlier`: snapshots before it, whose files are read too: with data evolution, such files may
    hold other columns of the same rows.
    """

    snapshot: Snapshot
    changelog: bool
    earlier: tuple[Snapshot, ...] = ()

    @property
    def snapshots_read(self) -> tuple[Snapshot, ...]:
        return (*self.earlier, self.snapshot)

    def streams(self, wanted: Wanted) -> Iterator[Iterator[pa.RecordBatch]]:
        """The rows file by file, by partition, and in manifest order within a partition."""
        producer = wanted.context.options.changelog_producer
        # Such a changelog is made by a compaction, from merged rows.
        merged = producer in (ChangelogProducer.LOOKUP, ChangelogProducer.FULL_COMPACTION)
        made = self.changelog and merged and self.snapshot.commit_kind is CommitKind.COMPACT
        yield from wanted.stored(self._splits(wanted), Held.ALL if made else Held.WRITTEN)

    def planned(self, wanted: Wanted) -> Iterator[PlannedRows]:
        """Like `streams`, but as values that another process can read."""
        yield wanted.planned(self._splits(wanted), None)

    def _splits(self, wanted: Wanted) -> list[Split]:
        entries = self.entries(wanted.context)
        splits = plan_stored(wanted.scan, entries, wanted.predicate)
        return wanted.in_order(splits, entries)

    def entries(self, context: TableContext) -> list[ManifestEntry]:
        """The manifest entries of these files."""
        history, shows = context.history, shows_postponed(context.options)
        found: list[ManifestEntry] = []
        for snapshot in (*self.earlier, self.snapshot):
            if self.changelog:
                name = snapshot.changelog_manifest_list
                manifests = history.manifest_list(name, snapshot.changelog_manifest_list_size)
            else:
                manifests = history.delta_manifests(snapshot)
            found += (
                entry
                for entry in history.entries(manifests)
                if entry.kind is FileKind.ADD and (shows or entry.bucket != POSTPONE_BUCKET)
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """The merged rows that an overwrite removed, as -D; then the rows that it added, as +I."""

    snapshot: Snapshot

    @property
    def snapshots_read(self) -> tuple[Snapshot, ...]:
        return (self.snapshot,)

    def streams(self, wanted: Wanted) -> Iterator[Iterator[pa.RecordBatch]]:
        """The removed rows come first: with dynamic buckets, a key may move to another bucket."""
        for side, splits, kind in self._sides(wanted):
            yield from side.merged(splits, kind)

    def planned(self, wanted: Wanted) -> Iterator[PlannedRows]:
        """Like `streams`, but as values that another process can read."""
        for side, splits, kind in self._sides(wanted):
            yield side.planned(splits, kind)

    def _sides(self, wanted: Wanted) -> Iterator[tuple[Wanted, list[Split], RowKind]]:
        history, snapshot = wanted.context.history, self.snapshot
        delta = self.entries(wanted.context)
        if any(entry.bucket == POSTPONE_BUCKET for entry in delta):
            raise Unsupported(
                "the changes of an overwrite that replaces postponed rows are not supported",
                snapshot_id=snapshot.id,
                table=wanted.context.identifier,
            )
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

    @property
    def snapshots_read(self) -> tuple[Snapshot, ...]:
        return (self.snapshot,)

    def streams(self, wanted: Wanted) -> Iterator[Iterator[pa.RecordBatch]]:
        """One iterator of batches for each split; the splits are ordered by partition."""
        if self._is_of_some_files(wanted):
            yield from wanted.stored(self._some_files(wanted))
            return
        splits = self._splits(wanted)
        if wanted.keeps_deletions:
            yield from wanted.with_kinds(splits, keep_deletions=True)
        else:
            yield from wanted.merged(splits, RowKind.INSERT)
        yield from wanted.stored(self._postponed(wanted))

    def planned(self, wanted: Wanted) -> Iterator[PlannedRows]:
        """Like `streams` without deletions, but as values from which another process can read."""
        if self._is_of_some_files(wanted):
            yield wanted.planned(self._some_files(wanted), None)
            return
        yield wanted.planned(self._splits(wanted), RowKind.INSERT)
        postponed = self._postponed(wanted)
        if postponed:
            yield wanted.planned(postponed, None)

    def _is_of_some_files(self, wanted: Wanted) -> bool:
        """Whether the state may lack files that hold other columns of its rows."""
        evolves = wanted.context.options.data_evolution_enabled
        return evolves and self.created_since_ms is not None

    def _some_files(self, wanted: Wanted) -> list[Split]:
        live = wanted.context.history.live_entries(self.snapshot)
        own = self._created_since(live)
        splits = plan_stored(wanted.scan, own, wanted.predicate, self.snapshot)
        return wanted.in_order(splits, live)

    def _postponed(self, wanted: Wanted) -> list[Split]:
        """The splits of the postponed bucket; none if the state does not include its rows."""
        if self.as_batch or not shows_postponed(wanted.context.options):
            return []
        live = wanted.context.history.live_entries(self.snapshot)
        entries = self._created_since(in_order_of_writing(live))
        return plan_stored(wanted.scan, entries, wanted.predicate)

    def _splits(self, wanted: Wanted) -> Sequence[Split]:
        live: list[ManifestEntry] = []

        def shown(entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
            live.extend(entries)
            return self._created_since(files_of_first_plan(entries, wanted.context.options))

        chosen = None if self.as_batch else shown
        plan = plan_scan(wanted.scan, self.snapshot, wanted.predicate, shown=chosen)
        return plan.splits if self.as_batch else wanted.in_order(plan.splits, live)

    def _created_since(self, entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
        if self.created_since_ms is None:
            return list(entries)
        since = to_wall_clock(self.created_since_ms)
        # Files of the oldest releases do not state their time.
        return [entry for entry in entries if (entry.file.creation_time_ms or 0) >= since]


@dataclass(frozen=True, kw_only=True)
class ChangesSource:
    """The rows of a sequence of changes.

    Without `kinds`, only +I and +U rows are returned, with the table's columns alone. `row_filter`:
    rows for which it is not true may be left out, or lack values; reads name its columns.
    """

    context: TableContext
    changes: tuple[Change, ...]
    kinds: bool = True
    row_filter: Condition | None = None

    def __post_init__(self) -> None:
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

    @property
    def snapshots_read(self) -> tuple[Snapshot, ...]:
        return tuple(each for change in self.changes for each in change.snapshots_read)

    @each_or_expired
    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in batches of the requested columns, in the order of the changes.

        The predicate is only used for pruning: the batches may still hold rows that do not match.
        `limit` is exact without a predicate.
        """
        names = self.schema.names if columns is None else list(columns)
        own = self.context.schema
        stored = tuple(name for name in names if name != ROW_KIND) or column_to_count(own)
        condition = condition_on(predicate, own.names)
        wanted = Wanted(
            context=self.context, columns=stored, predicate=condition, row_filter=self.row_filter
        )
        with closing(side_by_side(self._streams(wanted))) as batches:
            shown = (self._shown(batch, names) for batch in batches)
            yield from limited(shown, limit if predicate is None else None)

    def filtered(self, row_filter: Condition) -> ChangesSource:
        """The changes for a reader who drops the rows for which the filter is not true.

        Rows that may not hold all columns of the filter are left out.
        """
        return replace(self, row_filter=row_filter)

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
