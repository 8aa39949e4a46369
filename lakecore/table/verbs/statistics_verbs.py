"""The methods of a table that compute statistics and file indexes."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.deferred import deferred
from lakecore.errors import (
    CommitConflict,
    CommitUnknown,
    InvalidRequest,
    LakecoreError,
    Unsupported,
)
from lakecore.format.layout import FILE_INDEX_SUFFIX, statistics_name, value_text
from lakecore.format.metadata import encode_statistics
from lakecore.frames.source import checked_columns, reading
from lakecore.io.files.data_files import BatchSize
from lakecore.model.blob_rules import columns_to_follow
from lakecore.model.file_indexes import IndexedColumn, IndexesRewritten, indexed_columns, takes
from lakecore.model.files import CommitMessage, DataFile, Split
from lakecore.model.manifest import AnalyzeResult, ColumnStatistics, ManifestEntry, TableStatistics
from lakecore.model.types import BINARIES, STRINGS, TIMESTAMPS, Atomic, Field, Root, arrow_type
from lakecore.plan.conflicts import may_tie
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.context import TableContext, reload_context, require_table
from lakecore.table.file_reader.split_files import SplitFiles
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.reads.file_selection import has_index
from lakecore.table.reads.source import TableSource
from lakecore.table.run_writer.rolling_writer import FileIndexes
from lakecore.table.verbs.compact_choice import chosen_entries
from lakecore.table.writes.batch_write import author

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.reads.readable import count_rows
else:  # loads DuckDB, which tasks do not need
    count_rows = deferred("lakecore.table.reads.readable", "count_rows")


# --- rewrite file index --------------------------------------------------------------------------
# Gives existing data files the file indexes that the options ask for, without rewriting rows.
#
# 1. From each live file of the chosen partitions, read the columns to index, with the schema of the
#    file. A column is found by its id, so renames do not matter; the index contains its old name.
# 2. Write the index into the manifest, or into a file with a new name. The data file stays.
# 3. One COMPACT snapshot replaces the manifest entries. A file for which the options ask no index
#    loses its indexes. Two kinds of entries are not replaced: those whose embedded index stays the
#    same, and those that must stay before another file (`_replaced`).
#
# As in Paimon, an index file that was replaced stays until orphan files are removed: expiry only
# deletes the index file that the deleted data file names.
#
# If another commit has removed one of these files, everything is planned again from the new
# snapshot.

_Pair: TypeAlias = "tuple[DataFile, DataFile]"
"""A file as the manifest lists it now, and the same file with the wanted indexes."""

_PLANS_MAX = 5
_SIZE = BatchSize(65_536)


def rewrite_file_index(
    context: TableContext,
    partitions: Sequence[Mapping[str, object]] | None,
    where: pl.Expr | str | None,
) -> IndexesRewritten:
    """Index the files of these partitions as the options say; see `Table.rewrite_file_index`."""
    for _ in range(_PLANS_MAX):
        require_table(context)
        context = reload_context(context)
        context.options.require_writable(
            primary_keys=context.schema.primary_keys, partition_keys=context.schema.partition_keys
        )
        snapshot = context.history.latest_snapshot()
        if snapshot is None:
            return IndexesRewritten()
        entries = chosen_entries(
            context,
            context.history.live_entries(snapshot),
            partitions=partitions,
            where=where,
            buckets=None,
        )
        try:
            return _rewrite(context, snapshot, entries)
        except CommitConflict:
            continue
    raise CommitConflict(
        "other commits replaced files of every plan; rewrite the indexes when they are done",
        table=context.identifier,
        attempts=_PLANS_MAX,
    )


def _rewrite(
    context: TableContext, snapshot: Snapshot, entries: Sequence[ManifestEntry]
) -> IndexesRewritten:
    paths: list[str] = []
    buckets: dict[tuple[bytes, int, int], list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        buckets[entry.partition, entry.bucket, entry.total_buckets].append(entry)
    try:
        files = {
            bucket: replaced
            for bucket, own in buckets.items()
            if (replaced := _replaced(context, snapshot, own, paths))
        }
        messages = [
            CommitMessage(
                partition=partition,
                bucket=bucket,
                total_buckets=total,
                compact_before=tuple(before for before, _ in pairs),
                compact_after=tuple(after for _, after in pairs),
                compact_schema_id=context.schema.id,
                base_snapshot_id=snapshot.id,
                base_snapshot_uuid=snapshot.uuid,
            )
            for (partition, bucket, total), pairs in files.items()
        ]
        if not messages:
            return IndexesRewritten()
        request = CommitRequest(messages=messages, user=context.ambient.new_uuid())
        done = commit_and_maintain(context, request)
    except CommitUnknown:
        # The index files may be part of the table.
        raise
    except (LakecoreError, OSError):
        # A file that cannot be deleted is an orphan; the first failure is raised.
        for path in paths:
            with suppress(LakecoreError, OSError):
                context.store.delete(path)
        raise
    return IndexesRewritten(
        snapshot_id=done.snapshot_id,
        partitions=len({message.partition for message in messages}),
        files=sum(map(len, files.values())),
    )


def _replaced(
    context: TableContext, snapshot: Snapshot, entries: Sequence[ManifestEntry], paths: list[str]
) -> list[_Pair]:
    """The files of a bucket that get a new manifest entry, which is listed after all other entries.

    For rows with equal sequence numbers, the order of the entries decides which row is newer. Thus
    a file keeps its entry if a later file keeps its own and may have equal numbers. The commit
    raises CommitConflict if another commit added such a file meanwhile.
    """
    keyed = bool(context.schema.key_fields)
    replaced: list[_Pair] = []
    staying: list[DataFile] = []
    for entry in reversed(entries):
        file = entry.file
        tied = file.level == 0 and any(may_tie(file, other) for other in staying)
        made = file if tied else _indexed(context, snapshot, entry, paths)
        # An equal entry would be deleted with the old one: readers identify entries by content.
        if made != file:
            replaced.append((file, made))
        elif keyed and file.level == 0:
            staying.append(file)
    return replaced[::-1]


def _indexed(
    context: TableContext, snapshot: Snapshot, entry: ManifestEntry, paths: list[str]
) -> DataFile:
    """The entry of the file with its new indexes; the same entry if it has none and needs none."""
    file = entry.file
    schema = context.history.schema(file.schema_id)
    columns = _columns_to_index(context, file, schema)
    kept = tuple(name for name in file.extra_files if not name.endswith(FILE_INDEX_SUFFIX))
    if not columns:
        return replace(file, extra_files=kept, embedded_index=None) if has_index(file) else file
    container = _container(context, snapshot, entry, schema, columns)
    if len(container) <= context.options.file_index_in_manifest_threshold_bytes:
        return replace(file, extra_files=kept, embedded_index=container)
    name = f"{file.name}-{context.ambient.new_uuid()}{FILE_INDEX_SUFFIX}"
    path = context.layout.extra_file(
        context.partitions.path(entry.partition), entry.bucket, file, name
    )
    paths.append(path)
    context.store.put(path, container)
    return replace(file, extra_files=(*kept, name), embedded_index=None)


def _columns_to_index(
    context: TableContext, file: DataFile, schema: TableSchema
) -> list[IndexedColumn]:
    """The wanted indexes of a file with this schema; a column that it lacks gets none."""
    held = {field.id: field for field in file.columns_of(schema)}
    found = []
    for column in indexed_columns(context.schema, context.options):
        twin = held.get(column.field.id)
        own = None if twin is None else replace(column, field=twin)
        if own is not None and takes(own.index_type, own.value_type):
            found.append(own)
    return found


def _container(
    context: TableContext,
    snapshot: Snapshot,
    entry: ManifestEntry,
    schema: TableSchema,
    columns: Sequence[IndexedColumn],
) -> bytes:
    split = Split(
        partition=entry.partition,
        partition_path=context.partitions.path(entry.partition),
        bucket=entry.bucket,
        total_buckets=entry.total_buckets,
        runs=((entry.file,),),
        raw=True,
    )
    fields = list(dict.fromkeys(column.field for column in columns))
    source = TableSource(context=context, snapshot=snapshot, table_schema=context.schema)
    plan = replace(source.read_plan([split], []), schema=schema)
    indexes = FileIndexes(columns)
    files = SplitFiles(split, plan, context.store)
    for _, batch in files.stored_rows(entry.file, fields, _SIZE):
        indexes.add(pa.Table.from_batches([batch]))
    return indexes.finish()


# --- column sketch -------------------------------------------------------------------------------
# The statistics of one column, computed batch by batch and merged over parts of a table.
#
# The number of distinct values is exact up to `_HASHES_MAX`; larger numbers are estimated from the
# smallest hashes (error about 1/256). One batch and these hashes are in memory, whatever the size
# of the table.

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
"""Bytes of a value of each type, as in Spark's statistics."""
_SHORT_DECIMAL, _SHORT_LENGTH, _LONG_LENGTH = 18, 8, 16
_STRING_LENGTH, _BINARY_LENGTH = 20, 100
"""The lengths in Spark's statistics of a column without values."""


def length_of(column: Field) -> int | None:
    """The length of a value in Spark's statistics; None for a type without statistics."""
    kind = column.type
    if not isinstance(kind, Atomic):
        return None
    if kind.root in STRINGS:
        return _STRING_LENGTH
    if kind.root in BINARIES:
        return _BINARY_LENGTH
    if kind.root is Root.DECIMAL:
        return _SHORT_LENGTH if kind.digits <= _SHORT_DECIMAL else _LONG_LENGTH
    return _LENGTHS[kind.root]


class ColumnSketch:
    """Computes the statistics of a column, batch by batch. Picklable."""

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

    def merge(self, other: ColumnSketch) -> None:
        """Merge another sketch of the same column into this one."""
        self._values += other._values
        self._nulls += other._nulls
        self._length_sum += other._length_sum
        self._length_max = max(self._length_max, other._length_max)
        self._has_nan |= other._has_nan
        self._hashes = np.union1d(self._hashes, other._hashes)[:_HASHES_MAX]
        if other._bounds is not None:
            self._add_bounds(other._bounds)

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
        least = length_of(self.field)
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


# --- analyze -------------------------------------------------------------------------------------
# ANALYZE: reads a table once and stores its statistics, in a snapshot of kind ANALYZE.
#
# https://paimon.apache.org/docs/master/spark/sql-write/#analyze-table
#
# The statistics are those of Paimon's Spark command: the number of merged rows and their size, and
# for each column distinct values, nulls, bounds and lengths. Strings and binaries have no bounds.
# Later snapshots name the same statistics file until the schema changes.
#
# An engine with many machines may read the table in parts (`measure`) and merge the results.


class Measure(Protocol):
    """A function that reads columns of a table once and adds their values to sketches."""

    def __call__(self, source: TableSource, sketches: Sequence[ColumnSketch]) -> int:
        """Add all values to the sketch of their column. Returns the number of rows."""


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
    context: TableContext, columns: Sequence[str] | str | None, measure: Measure = measured
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
