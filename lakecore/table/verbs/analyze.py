"""ANALYZE: reads a table once and stores its statistics, in a snapshot of kind ANALYZE.

https://paimon.apache.org/docs/master/spark/sql-write/#analyze-table

The statistics are those of Paimon's Spark command: the number of merged rows and their size, and
for each column distinct values, nulls, bounds and lengths. Strings and binaries have no bounds.
Later snapshots name the same statistics file until the schema changes.

An engine with many machines may read the table in parts (`measure`) and merge the results
(`column_sketch.py`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from lakecore.errors import InvalidRequest, LakecoreError, Unsupported
from lakecore.format.layout import statistics_name
from lakecore.format.metadata import encode_statistics
from lakecore.frames.source import checked_columns, reading
from lakecore.model.statistics import AnalyzeResult, TableStatistics
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.context import require_table
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.reads.count import count_rows
from lakecore.table.reads.source import TableSource
from lakecore.table.stored_rows.followed import columns_to_follow
from lakecore.table.verbs.column_sketch import ColumnSketch, length_of
from lakecore.table.writes.batch_write import author

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.snapshot import Snapshot
    from lakecore.model.types import Field
    from lakecore.table.context import TableContext


class Measure(Protocol):
    """A function that reads columns of a table once and adds their values to sketches."""

    def __call__(self, source: TableSource, sketches: Sequence[ColumnSketch]) -> int:
        """Add all values to the sketch of their column. Returns the number of rows."""
        ...


def measured(source: TableSource, sketches: Sequence[ColumnSketch]) -> int:
    """Measure the columns in this process; see `Measure`."""
    rows = 0
    with reading(source.batches([each.field.name for each in sketches])) as batches:
        for batch in batches:
            rows += batch.num_rows
            for sketch in sketches:
                sketch.add(batch.column(sketch.field.name))
    return rows


def analyze(
    context: TableContext,
    columns: Sequence[str] | str | None,
    measure: Measure = measured,
) -> AnalyzeResult:
    """Compute and store the statistics of the newest snapshot; see `Table.analyze`."""
    schema = context.schema
    context.options.require_all_rows()
    context.options.require_writable(
        primary_keys=schema.primary_keys, partition_keys=schema.partition_keys
    )
    fields = _chosen(context, columns)
    snapshot = context.history.latest_snapshot()
    require_table(context)
    if snapshot is None:
        return AnalyzeResult()
    statistics = _statistics(context, snapshot, fields, measure)
    name = statistics_name(context.ambient.new_uuid(), 0)
    path = context.layout.statistics(name)

    def remove() -> None:
        with suppress(LakecoreError, OSError):
            context.store.delete(path)

    try:
        context.store.put(path, encode_statistics(statistics))
    except BaseException:
        remove()
        raise
    request = CommitRequest(messages=(), user=author(context).user, force=True, statistics=name)
    result = commit_and_maintain(context, request, on_failure=remove)
    return AnalyzeResult(snapshot_ids=result.snapshot_ids, statistics=statistics)


def _chosen(context: TableContext, columns: Sequence[str] | str | None) -> list[Field]:
    """The columns to analyze: those named, or all whose type has statistics.

    BLOB columns whose rows hold references must be named: their values may be in files that must
    not be read.
    """
    schema = context.schema
    if columns is None:
        references = columns_to_follow(schema, context.options)
        own = (each for each in schema.fields if each.name not in references)
        return [each for each in own if length_of(each) is not None]
    names = checked_columns(columns, schema)
    if len(set(names)) < len(names):
        raise InvalidRequest("a column is named twice", columns=names, table=context.identifier)
    fields = [schema.field(name) for name in names]
    for each in fields:
        if length_of(each) is None:
            raise Unsupported(
                "columns of this type have no statistics",
                column=each.name,
                type=each.type,
                table=context.identifier,
            )
    return fields


def _statistics(
    context: TableContext, snapshot: Snapshot, fields: Sequence[Field], measure: Measure
) -> TableStatistics:
    source = TableSource(context=context, snapshot=snapshot, table_schema=context.schema)
    sketches = [ColumnSketch(each) for each in fields]
    rows = measure(source, sketches) if sketches else count_rows(source, None)
    found = {sketch.field.name: sketch.result() for sketch in sketches}
    size_bytes = sum(entry.file.size_bytes for entry in context.history.live_entries(snapshot))
    stored = snapshot.total_record_count or rows
    return TableStatistics(
        snapshot_id=snapshot.id,
        # NOTE: the statistics name columns of this schema; Java looks up their types in it.
        schema_id=context.schema.id,
        merged_record_count=rows,
        merged_record_size_bytes=int(size_bytes * rows / stored) if stored else 0,
        columns=found,
    )
