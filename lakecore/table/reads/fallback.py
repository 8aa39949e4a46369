"""Reads that fall back to another branch, partition by partition (`scan.fallback-branch`).

A partition that the table has is read from the table, all others from the fallback branch; a table
without partitions is one partition. A table has a partition if a read would see a file of it,
regardless of conditions on values
(https://paimon.apache.org/docs/master/maintenance/manage-branches/).

A tag or a time selects a state on each of the two branches. A snapshot id names a snapshot of the
table. The fallback branch is then read at the time of that snapshot, or at its own first snapshot
if that one is later.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import InvalidRequest, NotFound
from lakecore.model.types import with_nullable
from lakecore.table.context import TableContext, on_branch
from lakecore.table.reads.scan import ScanPlan, Skipped
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.time_travel import Travel, as_of, resolve, stated_travel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from lakecore.frames.source import EngineFile
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.plan.predicate import Predicate
    from lakecore.rows.read_rules import Condition


def with_fallback(source: TableSource, context: TableContext, travel: Travel) -> FallbackSource:
    """The rows of the source, and the rows of partitions that only the fallback branch has.

    Raises NotFound if the branch or tag does not exist, InvalidRequest if the branch's columns
    differ from the table's.
    """
    rest = fallback_source(context, travel)
    schema = rest.table_schema
    _check_columns(context, source.table_schema, schema)
    nullable = [
        replace(column, type=with_nullable(column.type, nullable=True))
        if schema.by_name[column.name].type.nullable
        else column
        for column in source.table_schema.fields
    ]
    both = replace(source.table_schema, fields=tuple(nullable))
    return FallbackSource(main=source, rest=rest, table_schema=both)


def fallback_source(context: TableContext, travel: Travel) -> TableSource:
    """All rows of the fallback branch, at the state that the read sees."""
    other = _branch(context)
    snapshot, schema = _state(context, other, stated_travel(context, travel))
    return TableSource(context=as_of(other, schema), snapshot=snapshot, table_schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackSource:
    """The rows of a table, and of its fallback branch for partitions that the table lacks."""

    main: TableSource
    rest: TableSource
    table_schema: TableSchema
    _known: list[tuple[Predicate | None, TableSource]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @property
    def context(self) -> TableContext:
        return self.main.context

    @property
    def schema(self) -> pa.Schema:
        return self.table_schema.arrow

    def sources(self, predicate: Predicate | None = None) -> tuple[TableSource, TableSource]:
        """Two sources: the table, and the branch without the partitions that the table has."""
        for known, rest in self._known:
            if known is predicate:
                return self.main, rest
        rest = replace(self.rest, without=self.main.partitions(predicate))
        self._known[:] = [(predicate, rest)]
        return self.main, rest

    def plan(self, predicate: Predicate | None = None) -> ScanPlan:
        """The splits of the table and of the branch, with the snapshot of the table."""
        plans = [source.plan(predicate) for source in self.sources(predicate)]
        skipped = [plan.skipped for plan in plans]
        return ScanPlan(
            snapshot=plans[0].snapshot,
            splits=tuple(chain.from_iterable(plan.splits for plan in plans)),
            files_total=sum(plan.files_total for plan in plans),
            skipped=Skipped(
                by_partition=sum(each.by_partition for each in skipped),
                by_bucket=sum(each.by_bucket for each in skipped),
                by_statistics=sum(each.by_statistics for each in skipped),
                hidden_level_0=sum(each.hidden_level_0 for each in skipped),
                hidden_rows=sum(each.hidden_rows for each in skipped),
            ),
        )

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Like `TableSource.batches`: the rows of the table, then the rows of the branch."""
        names = self._names(columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        left = limit
        for source in self.sources(predicate):
            for batch in source.batches(names, predicate, left):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
                if left is not None and predicate is None:
                    left = max(0, left - batch.num_rows)
                del batch

    def frames(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pl.DataFrame]:
        """Like `TableSource.frames`: the rows of the table, then the rows of the branch."""
        left = limit
        for source in self.sources(predicate):
            for frame in source.frames(self._names(columns), predicate, left):
                yield frame
                if left is not None and predicate is None:
                    left = max(0, left - len(frame))
                del frame

    def engine_files(
        self, columns: Sequence[str], predicate: Predicate | None = None
    ) -> list[EngineFile] | None:
        """Like `TableSource.engine_files`, for both sources; None if one source returns None."""
        found: list[EngineFile] = []
        for source in self.sources(predicate):
            files = source.engine_files(columns, predicate)
            if files is None:
                return None
            found += files
        return found

    def filtered(self, row_filter: Condition) -> FallbackSource:
        """Both sources for a reader who drops the rows for which the filter is not true."""
        main, rest = (each.filtered(row_filter) for each in (self.main, self.rest))
        return replace(self, main=main, rest=rest)

    def check_files(self) -> None:
        """Raise CorruptTable if a file is missing or visibly damaged; reads no data."""
        for source in self.sources():
            source.check_files()

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        schema = self.table_schema
        return [*schema.names] if columns is None else [schema.field(c).name for c in columns]


def _branch(context: TableContext) -> TableContext:
    name = context.options.scan_fallback_branch
    assert name is not None, "called only if there is one"
    try:
        return on_branch(context, name, own=("branch", "bucket"))
    except NotFound as error:
        raise NotFound(
            "the branch of scan.fallback-branch does not exist",
            branch=name,
            table=context.identifier,
        ) from error


def _state(
    context: TableContext, other: TableContext, travel: Travel
) -> tuple[Snapshot | None, TableSchema]:
    """The snapshot and the schema of the fallback branch (`other`) that a read uses."""
    history = other.history
    if travel.snapshot_id is not None:
        time_ms = context.history.snapshot(travel.snapshot_id).time_ms
        travel = Travel(timestamp=time_ms)
        try:
            return resolve(other, travel)
        except NotFound:
            first = history.earliest_snapshot_id()
            if first is None:
                return None, other.schema
            snapshot = history.snapshot(first)
            return snapshot, history.schema(snapshot.schema_id)
    if travel.timestamp is not None:
        try:
            return resolve(other, travel)
        except NotFound:
            return None, other.schema  # the branch has no snapshot of this time or earlier
    if travel.tag is not None:
        return resolve(other, travel)
    return history.latest_snapshot(), other.schema


def _check_columns(context: TableContext, own: TableSchema, other: TableSchema) -> None:
    columns = [
        [f"{c.name} {with_nullable(c.type, nullable=True)}" for c in schema.fields]
        for schema in (own, other)
    ]
    if columns[0] != columns[1] or own.partition_keys != other.partition_keys:
        raise InvalidRequest(
            "the branch of scan.fallback-branch must have the columns and partition keys of the "
            "table",
            branch=context.options.scan_fallback_branch,
            columns=columns[0],
            columns_of_branch=columns[1],
            partition_keys=own.partition_keys,
            partition_keys_of_branch=other.partition_keys,
            table=context.identifier,
        )
