"""ANALYZE: reads a table once and stores its statistics, in a snapshot of kind ANALYZE.

https://paimon.apache.org/docs/master/spark/sql-write/#analyze-table

The statistics are those of Paimon's Spark command: the number of merged rows and their size, and
for each column distinct values, nulls, bounds and lengths. Strings and binaries have no bounds.
Later snapshots name the same statistics file until the schema changes.

The number of distinct values is exact up to `_HASHES_MAX`, and else an estimate from the smallest
hashes (error about 1/256). Memory is a batch and these hashes, whatever the size of the table.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest, LakecoreError, Unsupported
from lakecore.format.layout import statistics_name
from lakecore.format.metadata import encode_statistics
from lakecore.format.partition_path import value_text
from lakecore.frames.source import checked_columns, reading
from lakecore.model.statistics import AnalyzeResult, ColumnStatistics, TableStatistics
from lakecore.model.types import BINARIES, STRINGS, TIMESTAMPS, Atomic, Root, arrow_type
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.context import require_table
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.reads.count import count_rows
from lakecore.table.reads.source import TableSource
from lakecore.table.writes.batch_write import author

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.snapshot import Snapshot
    from lakecore.model.types import Field
    from lakecore.table.context import TableContext

_HASHES_MAX = 1 << 16
_HASH_RANGE = float(1 << 64)
_LENGTHS = {
    Root.BOOLEAN: 1,
    Root.TINYINT: 1,
    Root.SMALLINT: 2,
    Root.INT: 4,
    Root.BIGINT: 8,
    Root.FLOAT: 4,
    Root.DOUBLE: 8,
    Root.DATE: 4,
    Root.TIME: 4,
    Root.TIMESTAMP: 8,
    Root.TIMESTAMP_LTZ: 8,
}
"""Bytes of a value, by type, as Spark states them."""
_SHORT_DECIMAL, _SHORT_LENGTH, _LONG_LENGTH = 18, 8, 16
_STRING_LENGTH, _BINARY_LENGTH = 20, 100
"""The lengths that Spark states for a column without values."""


def analyze(context: TableContext, columns: Sequence[str] | str | None) -> AnalyzeResult:
    """Compute and store the statistics of the newest snapshot; see `Table.analyze`."""
    schema = context.schema
    context.options.require_writable(
        primary_keys=schema.primary_keys, partition_keys=schema.partition_keys
    )
    fields = _chosen(context, columns)
    snapshot = context.history.latest_snapshot()
    require_table(context)
    if snapshot is None:
        return AnalyzeResult()
    statistics = _statistics(context, snapshot, fields)
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
    """The columns to analyze: those named, or all whose type has statistics."""
    schema = context.schema
    if columns is None:
        return [each for each in schema.fields if _length(each) is not None]
    names = checked_columns(columns, schema)
    if len(set(names)) < len(names):
        raise InvalidRequest("a column is named twice", columns=names, table=context.identifier)
    fields = [schema.field(name) for name in names]
    for each in fields:
        if _length(each) is None:
            raise Unsupported(
                "columns of this type have no statistics",
                column=each.name,
                type=each.type,
                table=context.identifier,
            )
    return fields


def _length(column: Field) -> int | None:
    """The length of a value; None for a type without statistics."""
    kind = column.type
    if not isinstance(kind, Atomic):
        return None
    if kind.root in STRINGS:
        return _STRING_LENGTH
    if kind.root in BINARIES:
        return _BINARY_LENGTH
    if kind.root is Root.DECIMAL:
        return _SHORT_LENGTH if (kind.precision or 0) <= _SHORT_DECIMAL else _LONG_LENGTH
    return _LENGTHS[kind.root]


def _statistics(
    context: TableContext, snapshot: Snapshot, fields: Sequence[Field]
) -> TableStatistics:
    source = TableSource(context=context, snapshot=snapshot, table_schema=context.schema)
    if fields:
        columns = [_Column(each) for each in fields]
        rows = 0
        with reading(source.batches([each.name for each in fields])) as batches:
            for batch in batches:
                rows += batch.num_rows
                for column in columns:
                    column.add(batch.column(column.field.name))
        found = {column.field.name: column.result() for column in columns}
    else:
        rows, found = count_rows(source, None), {}
    size_bytes = sum(entry.file.size_bytes for entry in context.history.live_entries(snapshot))
    stored = snapshot.total_record_count or rows
    return TableStatistics(
        snapshot_id=snapshot.id,
        # NOTE: the columns are those of this schema; Java looks their types up in it.
        schema_id=context.schema.id,
        merged_record_count=rows,
        merged_record_size_bytes=int(size_bytes * rows / stored) if stored else 0,
        columns=found,
    )


class _Column:
    """Computes the statistics of a column, batch by batch."""

    def __init__(self, column: Field) -> None:
        assert isinstance(column.type, Atomic)
        self.field = column
        self._root = column.type.root
        self._varies = self._root in STRINGS or self._root in BINARIES
        self._values = self._nulls = self._length_sum = 0
        self._length_max = 0
        self._has_nan = False
        self._bounds: pa.Array | None = None
        self._hashes = np.empty(0, np.uint64)

    def add(self, values: pa.Array) -> None:
        """Add the values of a batch."""
        self._nulls += values.null_count
        values = values.drop_null()
        if not len(values):
            return
        self._values += len(values)
        series = pl.from_arrow(values)
        assert isinstance(series, pl.Series)
        self._hashes = np.union1d(self._hashes, series.hash(0).to_numpy())[:_HASHES_MAX]
        if self._varies:
            count = pc.utf8_length if self._root in STRINGS else pc.binary_length
            lengths = count(values)
            self._length_sum += pc.sum(lengths).as_py()
            self._length_max = max(self._length_max, pc.max(lengths).as_py())
        else:
            self._add_bounds(values)

    def _add_bounds(self, values: pa.Array) -> None:
        if pa.types.is_floating(values.type):
            is_nan = pc.is_nan(values)
            self._has_nan |= pc.any(is_nan).as_py()
            values = values.filter(pc.invert(is_nan))
        if self._bounds is not None:
            values = pa.concat_arrays([self._bounds, values])
        if len(values):
            found = pc.min_max(values)
            self._bounds = pa.array([found["min"], found["max"]], values.type)

    def result(self) -> ColumnStatistics:
        """The statistics of all batches."""
        low, high = self._texts()
        least = _length(self.field)
        average = -(-self._length_sum // self._values) if self._values else least
        return ColumnStatistics(
            column_id=self.field.id,
            distinct_count=min(self._distinct(), self._values),
            min=low,
            max=high,
            null_count=self._nulls,
            average_length=average if self._varies else least,
            max_length=self._length_max if self._varies and self._values else least,
        )

    def _texts(self) -> tuple[str | None, str | None]:
        """The bounds; NaN is greater than all other numbers."""
        texts: list[str | None] = [None, None]
        if self._bounds is not None:
            legacy = self._root not in TIMESTAMPS
            column = self._bounds.cast(arrow_type(self.field.type))
            texts = [value_text(value, self.field, legacy=legacy) for value in column]
        if self._has_nan:
            texts = [texts[0] or "NaN", "NaN"]
        return texts[0], texts[1]

    def _distinct(self) -> int:
        """The number of distinct hashes, estimated from the smallest ones if there are too many."""
        if len(self._hashes) < _HASHES_MAX:
            return len(self._hashes)
        return round((_HASHES_MAX - 1) / (float(self._hashes[-1]) / _HASH_RANGE))
