"""The rows of each system table, from the metadata of a table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.forks import require_threads
from lakecore.format.json_files import column_statistics_text
from lakecore.model.types import field_to_json
from lakecore.table.context import require_table
from lakecore.table.maintenance.branches import branch_times
from lakecore.table.maintenance.consumers import list_consumers
from lakecore.table.reads.fallback import fallback_source
from lakecore.table.reads.told import told_snapshot
from lakecore.table.reads.travel import Travel, resolve
from lakecore.table.system.cell_texts import (
    duration_text,
    file_texts,
    json_text,
    local_time,
    partition_texts,
    wall_time,
)
from lakecore.table.system.system_columns import system_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from polars.dataframe.group_by import GroupBy

    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot, Tag
    from lakecore.table.context import TableContext
    from lakecore.table.system.cell_texts import Row

    Sums = tuple[int, int, int, datetime | None]


# --- snapshot rows -------------------------------------------------------------------------------
# The rows of system tables that show one snapshot: its files, partitions, indexes, statistics.


def _file_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    entries = sorted(
        context.history.live_entries(snapshot), key=lambda entry: (entry.partition, entry.bucket)
    )
    texts = file_texts([entry.file for entry in entries], context)
    partitions = partition_texts([entry.partition for entry in entries], context)
    for entry, text, partition in zip(entries, texts, partitions, strict=True):
        file = entry.file
        path = context.layout.data_file(
            context.partitions.path(entry.partition), entry.bucket, file
        )
        yield (
            partition,
            entry.bucket,
            path,
            file.format,
            file.schema_id,
            file.level,
            file.row_count,
            file.size_bytes,
            text.key_min,
            text.key_max,
            text.null_counts,
            text.value_min,
            text.value_max,
            file.sequence_min,
            file.sequence_max,
            wall_time(file.creation_time_ms),
            file.delete_row_count,
            None if file.file_source is None else file.file_source.name,
            file.first_row_id,
            None if file.write_columns is None else list(file.write_columns),
        )


def _manifest_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    history = context.history
    changelog = history.manifest_list(snapshot.changelog_manifest_list)
    manifests = (*history.manifests(snapshot), *changelog)
    low = partition_texts([m.partition_stats.min_values for m in manifests], context)
    high = partition_texts([m.partition_stats.max_values for m in manifests], context)
    for manifest, least, greatest in zip(manifests, low, high, strict=True):
        yield (
            manifest.name,
            manifest.size_bytes,
            manifest.added_count,
            manifest.deleted_count,
            manifest.schema_id,
            least,
            greatest,
            manifest.row_id_min,
            manifest.row_id_max,
        )


def partition_sums(context: TableContext, snapshot: Snapshot) -> Mapping[bytes, Sums]:
    """Row count, bytes and number of the files of each partition, and the newest creation time."""
    partitions, facts = context.history.live_facts(snapshot)
    sums = _sums(facts.group_by("partition", maintain_order=True))
    return {partitions[number]: own for (number,), own in sums}


def _partition_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    rows: list[tuple[str, Row]] = []
    for partition, sums in partition_sums(context, snapshot).items():
        texts = context.partitions.texts(partition)
        name = "/".join(f"{column}={text}" for column, text in texts.items())
        rows.append((name, (*sums, None, None, None, None)))
    return ((name, *row) for name, row in sorted(rows, key=lambda pair: pair[0]))


def _bucket_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    partitions, facts = context.history.live_facts(snapshot)
    names = partition_texts(partitions, context)
    sums = _sums(facts.group_by("partition", "bucket", maintain_order=True))
    rows = [(names[number], bucket, *own) for (number, bucket), own in sums]
    return sorted(rows, key=lambda row: row[:2])


def _sums(groups: GroupBy) -> Iterator[tuple[tuple[int, ...], Sums]]:
    """For each group of files: row count, bytes, number, and the creation time of the newest."""
    found = groups.agg(
        pl.col("row_count", "size_bytes").sum(),
        count=pl.len(),
        newest_ms=pl.col("creation_time_ms").max(),
    )
    for *group, rows, size_bytes, count, newest_ms in found.iter_rows():
        yield tuple(group), (rows, size_bytes, count, wall_time(newest_ms))


_KEY_RANGE_CELLS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 18)
"""The cells of a row of `files` that `file_key_ranges` shows."""


def _key_range_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    for row in _file_rows(context, snapshot):
        yield tuple(row[cell] for cell in _KEY_RANGE_CELLS)


def _index_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    entries = context.history.index_entries(snapshot)
    partitions = partition_texts([entry.partition for entry in entries], context)
    for entry, partition in zip(entries, partitions, strict=True):
        file = entry.file
        vectors = file.vectors
        yield (
            partition,
            entry.bucket,
            file.index_type,
            file.name,
            file.size_bytes,
            file.row_count,
            None
            if vectors is None
            else [
                {
                    "f0": vector.data_file,
                    "f1": vector.offset,
                    "f2": vector.length,
                    "_CARDINALITY": vector.cardinality,
                }
                for vector in vectors
            ],
        )


def _statistics_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    statistics = context.history.statistics(snapshot)
    if statistics is not None:
        yield (
            statistics.snapshot_id,
            statistics.schema_id,
            statistics.merged_record_count,
            statistics.merged_record_size_bytes,
            column_statistics_text(statistics),
        )


ROWS_OF_SNAPSHOT: Mapping[str, Callable[[TableContext, Snapshot], Iterable[Row]]] = {
    "files": _file_rows,
    "manifests": _manifest_rows,
    "partitions": _partition_rows,
    "buckets": _bucket_rows,
    "file_key_ranges": _key_range_rows,
    "table_indexes": _index_rows,
    "statistics": _statistics_rows,
}


# --- table rows ----------------------------------------------------------------------------------
# The rows of system tables that do not depend on a snapshot.


def _snapshot_rows(context: TableContext) -> Iterable[Row]:
    history = context.history
    return (
        _snapshot_row(told_snapshot(history.snapshot(found), context))
        for found in history.snapshot_ids()
    )


def _snapshot_row(snapshot: Snapshot) -> Row:
    return (
        snapshot.id,
        snapshot.schema_id,
        snapshot.commit_user,
        snapshot.commit_identifier,
        str(snapshot.commit_kind),
        local_time(snapshot.time_ms),
        snapshot.base_manifest_list,
        snapshot.delta_manifest_list,
        snapshot.changelog_manifest_list,
        snapshot.total_record_count,
        snapshot.delta_record_count,
        snapshot.changelog_record_count,
        snapshot.watermark,
        snapshot.next_row_id,
    )


def _schema_rows(context: TableContext) -> Iterable[Row]:
    history = context.history
    return (_schema_row(history.schema(found)) for found in history.schema_ids())


def _schema_row(schema: TableSchema) -> Row:
    return (
        schema.id,
        json_text([field_to_json(field) for field in schema.fields]),
        json_text(schema.partition_keys),
        json_text(schema.primary_keys),
        json_text(dict(schema.options)),
        schema.comment,
        local_time(schema.time_ms),
    )


def _option_rows(context: TableContext) -> Iterable[Row]:
    return context.schema.options.items()


def _tag_rows(context: TableContext) -> Iterable[Row]:
    return (
        _tag_row(tag, told_snapshot(tag.snapshot, context))
        for tag in map(context.history.tag, context.history.tag_names())
    )


def _tag_row(tag: Tag, snapshot: Snapshot) -> Row:
    created: datetime | None = None
    if tag.create_time is not None:
        year, month, day, hour, minute, second, nanos = tag.create_time
        created = datetime(year, month, day, hour, minute, second, nanos // 1_000_000 * 1000)
    return (
        tag.name,
        snapshot.id,
        snapshot.schema_id,
        local_time(snapshot.time_ms),
        snapshot.total_record_count,
        created,
        None if tag.retained_seconds is None else duration_text(tag.retained_seconds),
    )


def _consumer_rows(context: TableContext) -> Iterable[Row]:
    return ((each.consumer_id, each.next_snapshot) for each in list_consumers(context))


def _branch_rows(context: TableContext) -> Iterable[Row]:
    return ((name, local_time(made_ms)) for name, made_ms in branch_times(context))


def _aggregation_rows(context: TableContext) -> Iterable[Row]:
    """The columns of the newest schema, each with its options `fields.NAME...`."""
    schema = context.history.latest_schema() or context.schema
    keys: dict[str, list[str]] = defaultdict(list)
    values: dict[str, list[str]] = defaultdict(list)
    for key, value in schema.options.items():
        parts = key.split(".")
        if len(parts) > 2 and parts[0] == "fields":
            keys[parts[1]].append(key)
            values[parts[1]].append(value)
    for field in schema.fields:
        yield (
            field.name,
            str(field.type),
            f"[{', '.join(values[field.name])}]",
            f"[{', '.join(keys[field.name])}]",
            field.description,
        )


ROWS_OF_TABLE: Mapping[str, Callable[[TableContext], Iterable[Row]]] = {
    "snapshots": _snapshot_rows,
    "schemas": _schema_rows,
    "options": _option_rows,
    "tags": _tag_rows,
    "branches": _branch_rows,
    "consumers": _consumer_rows,
    "aggregation_fields": _aggregation_rows,
}


# --- system rows ---------------------------------------------------------------------------------


def check_shown(context: TableContext, name: str) -> None:
    """Raise Unsupported for a system table that would show values of rows hidden from the reader.

    Statistics, key ranges and partitions contain values of rows.
    """
    if name in ROWS_OF_SNAPSHOT:
        context.options.require_all_rows()


def system_rows(context: TableContext, name: str) -> pa.Table:
    """The current rows of a system table, in its Arrow schema."""
    require_threads()
    check_shown(context, name)
    rows: Iterable[Row]
    if name in ROWS_OF_TABLE:
        require_table(context)
        rows = ROWS_OF_TABLE[name](context)
    else:
        snapshot, travelled = resolve(context, Travel())
        then = replace(context, schema=travelled)
        rows = () if snapshot is None else ROWS_OF_SNAPSHOT[name](then, snapshot)
        if name == "partitions" and context.falls_back:
            rows = _with_fallback_partitions(context, rows)
    return table_of(rows, system_schema(name))


def _with_fallback_partitions(context: TableContext, rows: Iterable[Row]) -> Iterable[Row]:
    """The partitions of the table and of its fallback branch, as in Java.

    The other system tables show only one branch.
    """
    rest = fallback_source(context, Travel())
    found = {row[0]: row for row in rows}
    if rest.snapshot is not None:
        for row in ROWS_OF_SNAPSHOT["partitions"](rest.context, rest.snapshot):
            found.setdefault(row[0], row)
    return [found[name] for name in sorted(found, key=str)]


def table_of(rows: Iterable[Row], schema: TableSchema) -> pa.Table:
    """The rows as an Arrow table with these columns."""
    arrow = schema.arrow
    columns = list(zip(*rows, strict=True)) or [()] * len(arrow)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, arrow, strict=True)]
    return pa.Table.from_arrays(arrays, schema=arrow)
