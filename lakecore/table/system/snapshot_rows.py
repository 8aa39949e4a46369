"""The rows of system tables that show one snapshot: its files, partitions, indexes, statistics."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from lakecore.format.statistics_file import column_statistics_text
from lakecore.table.system.cell_texts import file_texts, partition_texts, wall_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from lakecore.model.files import DataFile
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext
    from lakecore.table.system.cell_texts import Row

    Sums = tuple[int, int, int, datetime | None]


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
    groups: dict[bytes, list[DataFile]] = defaultdict(list)
    for entry in context.history.live_entries(snapshot):
        groups[entry.partition].append(entry.file)
    return {partition: _sums(files) for partition, files in groups.items()}


def _partition_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    rows: list[tuple[str, Row]] = []
    for partition, sums in partition_sums(context, snapshot).items():
        texts = context.partitions.texts(partition)
        name = "/".join(f"{column}={text}" for column, text in texts.items())
        rows.append((name, (*sums, None, None, None, None)))
    return ((name, *row) for name, row in sorted(rows, key=lambda pair: pair[0]))


def _bucket_rows(context: TableContext, snapshot: Snapshot) -> Iterable[Row]:
    groups: dict[tuple[bytes, int], list[DataFile]] = defaultdict(list)
    for entry in context.history.live_entries(snapshot):
        groups[entry.partition, entry.bucket].append(entry.file)
    names = partition_texts([partition for partition, _ in groups], context)
    rows = [
        (name, bucket, *_sums(files))
        for name, ((_, bucket), files) in zip(names, groups.items(), strict=True)
    ]
    return sorted(rows, key=lambda row: row[:2])


def _sums(files: Sequence[DataFile]) -> Sums:
    """Row count, bytes and number of some files, and the creation time of the newest."""
    times = [file.creation_time_ms for file in files if file.creation_time_ms is not None]
    return (
        sum(file.row_count for file in files),
        sum(file.size_bytes for file in files),
        len(files),
        wall_time(max(times, default=None)),
    )


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
