"""Converts manifest lists and manifests to values and back, in the forms of `manifest_records.py`.

lakecore writes the newest set of fields, which every engine reads. It reads fields by name: a field
that an older writer lacked is None, and a field that a newer writer added is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakecore.errors import CorruptTable
from lakecore.format.manifest_records import (
    DEFAULT_COMPRESSION,
    DEFAULT_FORMAT,
    INDEX_MANIFEST_SCHEMA,
    MANIFEST_LIST_SCHEMA,
    MANIFEST_SCHEMA,
    as_tuple,
    check_version,
    decoded,
    encoded,
    listed,
)
from lakecore.model.files import (
    EMPTY_ROW,
    NO_STATS,
    DataFile,
    FileSource,
    GlobalIndex,
    IndexFile,
    Stats,
    VectorRange,
)
from lakecore.model.manifest import FileKind, IndexEntry, ManifestEntry, ManifestFile

if TYPE_CHECKING:
    from collections.abc import Sequence

MANIFEST_VERSION = 2

_KINDS = {int(kind): kind for kind in FileKind}
_SOURCES = {int(source): source for source in FileSource}


# --- manifest lists -----------------------------------------------------------------------------


def encode_manifest_list(
    manifests: Sequence[ManifestFile],
    compression: str = DEFAULT_COMPRESSION,
    file_format: str = DEFAULT_FORMAT,
) -> bytes:
    """The bytes of a manifest list; an empty list becomes a container without blocks."""
    records = (
        {
            "_VERSION": MANIFEST_VERSION,
            "_FILE_NAME": manifest.name,
            "_FILE_SIZE": manifest.size_bytes,
            "_NUM_ADDED_FILES": manifest.added_count,
            "_NUM_DELETED_FILES": manifest.deleted_count,
            "_PARTITION_STATS": _stats_record(manifest.partition_stats),
            "_SCHEMA_ID": manifest.schema_id,
            "_MIN_BUCKET": manifest.bucket_min,
            "_MAX_BUCKET": manifest.bucket_max,
            "_MIN_LEVEL": manifest.level_min,
            "_MAX_LEVEL": manifest.level_max,
            "_MIN_ROW_ID": manifest.row_id_min,
            "_MAX_ROW_ID": manifest.row_id_max,
        }
        for manifest in manifests
    )
    return encoded(MANIFEST_LIST_SCHEMA, records, compression, file_format)


def decode_manifest_list(data: bytes, path: str) -> list[ManifestFile]:
    """The manifests that a manifest list names, in order."""
    manifests: list[ManifestFile] = []
    # The order is that of `MANIFEST_LIST_SCHEMA`.
    for (
        version,
        name,
        size_bytes,
        added_count,
        deleted_count,
        partition_min,
        partition_max,
        partition_null_counts,
        schema_id,
        bucket_min,
        bucket_max,
        level_min,
        level_max,
        row_id_min,
        row_id_max,
    ) in decoded(data, path, MANIFEST_LIST_SCHEMA):
        check_version(version, MANIFEST_VERSION, path)
        manifests.append(
            ManifestFile(
                name=name,
                size_bytes=size_bytes,
                added_count=added_count,
                deleted_count=deleted_count,
                schema_id=schema_id,
                partition_stats=_stats(partition_min, partition_max, partition_null_counts),
                bucket_min=bucket_min,
                bucket_max=bucket_max,
                level_min=level_min,
                level_max=level_max,
                row_id_min=row_id_min,
                row_id_max=row_id_max,
            )
        )
    return manifests


# --- manifests ----------------------------------------------------------------------------------


def encode_manifest(
    entries: Sequence[ManifestEntry],
    compression: str = DEFAULT_COMPRESSION,
    file_format: str = DEFAULT_FORMAT,
) -> bytes:
    """The bytes of a manifest."""
    records = (
        {
            "_VERSION": MANIFEST_VERSION,
            "_KIND": int(entry.kind),
            "_PARTITION": entry.partition,
            "_BUCKET": entry.bucket,
            "_TOTAL_BUCKETS": entry.total_buckets,
            "_FILE": _file_record(entry.file),
        }
        for entry in entries
    )
    return encoded(MANIFEST_SCHEMA, records, compression, file_format)


def decode_manifest(data: bytes, path: str) -> list[ManifestEntry]:
    """The entries of a manifest, in order. Equal partitions share one bytes object."""
    entries: list[ManifestEntry] = []
    partitions: dict[bytes, bytes] = {}
    # The order is that of `MANIFEST_SCHEMA`. One flat loop: planning spends its time here.
    for (
        version,
        kind,
        partition,
        bucket,
        total_buckets,
        name,
        size_bytes,
        row_count,
        key_min,
        key_max,
        key_stats_min,
        key_stats_max,
        key_null_counts,
        value_stats_min,
        value_stats_max,
        value_null_counts,
        sequence_min,
        sequence_max,
        schema_id,
        level,
        extra_files,
        creation_time_ms,
        delete_row_count,
        embedded_index,
        file_source,
        value_stats_columns,
        external_path,
        first_row_id,
        write_columns,
        write_columns_sequences,
    ) in decoded(data, path, MANIFEST_SCHEMA):
        check_version(version, MANIFEST_VERSION, path)
        file = DataFile(
            name=name,
            size_bytes=size_bytes,
            row_count=row_count,
            key_min=key_min,
            key_max=key_max,
            key_stats=_stats(key_stats_min, key_stats_max, key_null_counts),
            value_stats=_stats(value_stats_min, value_stats_max, value_null_counts),
            sequence_min=sequence_min,
            sequence_max=sequence_max,
            schema_id=schema_id,
            level=level,
            extra_files=tuple(extra_files),
            creation_time_ms=creation_time_ms,
            delete_row_count=delete_row_count,
            embedded_index=embedded_index,
            file_source=_file_source(file_source, path),
            value_stats_columns=as_tuple(value_stats_columns),
            external_path=external_path,
            first_row_id=first_row_id,
            write_columns=as_tuple(write_columns),
            write_columns_sequences=as_tuple(write_columns_sequences),
        )
        entries.append(
            ManifestEntry(
                kind=_kind(kind, path),
                partition=partitions.setdefault(partition, partition),
                bucket=bucket,
                total_buckets=total_buckets,
                file=file,
            )
        )
    return entries


def _file_record(file: DataFile) -> dict[str, Any]:
    return {
        "_FILE_NAME": file.name,
        "_FILE_SIZE": file.size_bytes,
        "_ROW_COUNT": file.row_count,
        "_MIN_KEY": file.key_min,
        "_MAX_KEY": file.key_max,
        "_KEY_STATS": _stats_record(file.key_stats),
        "_VALUE_STATS": _stats_record(file.value_stats),
        "_MIN_SEQUENCE_NUMBER": file.sequence_min,
        "_MAX_SEQUENCE_NUMBER": file.sequence_max,
        "_SCHEMA_ID": file.schema_id,
        "_LEVEL": file.level,
        "_EXTRA_FILES": file.extra_files,
        "_CREATION_TIME": file.creation_time_ms,
        "_DELETE_ROW_COUNT": file.delete_row_count,
        "_EMBEDDED_FILE_INDEX": file.embedded_index,
        "_FILE_SOURCE": None if file.file_source is None else int(file.file_source),
        "_VALUE_STATS_COLS": listed(file.value_stats_columns),
        "_EXTERNAL_PATH": file.external_path,
        "_FIRST_ROW_ID": file.first_row_id,
        "_WRITE_COLS": listed(file.write_columns),
        "_WRITE_COLS_SEQUENCES": listed(file.write_columns_sequences),
    }


def _kind(number: int, path: str) -> FileKind:
    kind = _KINDS.get(number)
    if kind is None:
        raise CorruptTable("unknown kind of manifest entry", kind=number, path=path)
    return kind


def _file_source(number: int | None, path: str) -> FileSource | None:
    if number is None:
        return None
    source = _SOURCES.get(number)
    if source is None:
        raise CorruptTable("unknown source of a data file", source=number, path=path)
    return source


def _stats_record(stats: Stats) -> dict[str, Any]:
    return {
        "_MIN_VALUES": stats.min_values,
        "_MAX_VALUES": stats.max_values,
        "_NULL_COUNTS": listed(stats.null_counts),
    }


def _stats(low: bytes, high: bytes, null_counts: list[int | None] | None) -> Stats:
    if null_counts == [] and low == high == EMPTY_ROW:
        return NO_STATS
    counts = None if null_counts is None else tuple(null_counts)
    return Stats(min_values=low, max_values=high, null_counts=counts)


# --- index manifest ------------------------------------------------------------------------------
# Reads and writes index manifests, which list all live index files of a table.
#
# Each index manifest is complete, so it contains no deletions.

INDEX_MANIFEST_VERSION = 1


def encode_index_manifest(
    entries: Sequence[IndexEntry],
    compression: str = DEFAULT_COMPRESSION,
    file_format: str = DEFAULT_FORMAT,
) -> bytes:
    """The bytes of an index manifest; `entries` are all live index files of the table."""
    records = (
        {
            "_VERSION": INDEX_MANIFEST_VERSION,
            "_KIND": int(FileKind.ADD),
            "_PARTITION": entry.partition,
            "_BUCKET": entry.bucket,
            **_index_record(entry.file),
        }
        for entry in entries
    )
    return encoded(INDEX_MANIFEST_SCHEMA, records, compression, file_format)


def decode_index_manifest(data: bytes, path: str) -> list[IndexEntry]:
    """The live index files of a table."""
    entries: list[IndexEntry] = []
    # The order is that of `INDEX_MANIFEST_SCHEMA`.
    for (
        version,
        kind,
        partition,
        bucket,
        index_type,
        name,
        size_bytes,
        row_count,
        vectors,
        external_path,
        global_index,
    ) in decoded(data, path, INDEX_MANIFEST_SCHEMA):
        check_version(version, INDEX_MANIFEST_VERSION, path)
        if kind != FileKind.ADD:
            raise CorruptTable(
                "an index manifest adds files, and nothing else", kind=kind, file=name, path=path
            )
        file = IndexFile(
            index_type=index_type,
            name=name,
            size_bytes=size_bytes,
            row_count=row_count,
            vectors=_vectors(vectors),
            external_path=external_path,
            global_index=_global_index(global_index),
        )
        entries.append(IndexEntry(partition=partition, bucket=bucket, file=file))
    return entries


def _vectors(records: list[dict[str, Any] | None] | None) -> tuple[VectorRange, ...] | None:
    if records is None:
        return None
    return tuple(
        VectorRange(
            data_file=record["f0"],
            offset=record["f1"],
            length=record["f2"],
            cardinality=record.get("_CARDINALITY"),
        )
        for record in records
        if record is not None
    )


def _global_index(record: dict[str, Any] | None) -> GlobalIndex | None:
    if record is None:
        return None
    return GlobalIndex(
        row_range_start=record["_ROW_RANGE_START"],
        row_range_end=record["_ROW_RANGE_END"],
        index_field_id=record["_INDEX_FIELD_ID"],
        extra_field_ids=as_tuple(record.get("_EXTRA_FIELD_IDS")),
        index_meta=record.get("_INDEX_META"),
        source_meta=record.get("_SOURCE_META"),
    )


def _index_record(file: IndexFile) -> dict[str, Any]:
    vectors, found = file.vectors, file.global_index
    return {
        "_INDEX_TYPE": file.index_type,
        "_FILE_NAME": file.name,
        "_FILE_SIZE": file.size_bytes,
        "_ROW_COUNT": file.row_count,
        "_DELETIONS_VECTORS_RANGES": None
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
        "_EXTERNAL_PATH": file.external_path,
        "_GLOBAL_INDEX": None
        if found is None
        else {
            "_ROW_RANGE_START": found.row_range_start,
            "_ROW_RANGE_END": found.row_range_end,
            "_INDEX_FIELD_ID": found.index_field_id,
            "_EXTRA_FIELD_IDS": listed(found.extra_field_ids),
            "_INDEX_META": found.index_meta,
            "_SOURCE_META": found.source_meta,
        },
    }
