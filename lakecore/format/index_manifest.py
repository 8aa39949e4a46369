"""Reads and writes index manifests, which list all live index files of a table.

Each index manifest is complete, so it contains no deletions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakecore.errors import CorruptTable
from lakecore.format.manifest_records import (
    DEFAULT_COMPRESSION,
    DEFAULT_FORMAT,
    as_tuple,
    check_version,
    decoded,
    encoded,
    listed,
)
from lakecore.format.manifest_schemas import INDEX_MANIFEST_SCHEMA
from lakecore.model.files import GlobalIndex, IndexFile, VectorRange
from lakecore.model.manifest import FileKind, IndexEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

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
