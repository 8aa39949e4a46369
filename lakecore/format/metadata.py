"""Converts all metadata files of a table to values and back, in one place.

Both directions are pure: `encode_*` takes a value of the model; `decode_*` takes bytes, and the
path of the file, which every error names. The code for JSON files is here, that for other files in
`manifest_files.py`.

INVARIANT: decode(encode(x)) == x. A file of a newer format raises Unsupported, a damaged file
CorruptTable; no part of such a file is returned.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.format.manifest_files import (
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    encode_index_manifest,
    encode_manifest,
    encode_manifest_list,
)
from lakecore.model.manifest import ColumnStatistics, TableStatistics
from lakecore.model.schema import SCHEMA_VERSION, TableSchema
from lakecore.model.snapshot import CommitKind, Snapshot, Tag
from lakecore.model.types import field_to_json, parse_field

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "decode_consumer",
    "decode_hint",
    "decode_index_manifest",
    "decode_manifest",
    "decode_manifest_list",
    "decode_schema",
    "decode_snapshot",
    "decode_statistics",
    "decode_success",
    "decode_tag",
    "encode_consumer",
    "encode_hint",
    "encode_index_manifest",
    "encode_manifest",
    "encode_manifest_list",
    "encode_schema",
    "encode_snapshot",
    "encode_statistics",
    "encode_success",
    "encode_tag",
    "renamed_tag",
]


# --- json record ---------------------------------------------------------------------------------
# JSON objects with typed fields, and JSON text formatted like Java's.
#
# A field that is missing or has the wrong type raises CorruptTable, naming the field and the path.

_LONGS = range(-(1 << 63), 1 << 63)


def check_version(version: int, known: int, path: str, what: str) -> None:
    """Raise Unsupported for a version that is newer than the newest known one."""
    if version > known:
        raise Unsupported(
            f"the {what} was written by a newer format", version=version, known=known, path=path
        )


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON object with typed access to its fields.

    Raises CorruptTable if a field does not fit.
    """

    source: Mapping[str, Any]
    path: str
    what: str

    @classmethod
    def parse(cls, data: bytes, path: str, what: str) -> Record:
        """The object in a file; `what` names the file in messages."""
        try:
            source = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise CorruptTable(f"the {what} file is no JSON", path=path, why=error) from error
        if not isinstance(source, dict):
            raise CorruptTable(f"the {what} file is no JSON object", path=path)
        return cls(source, path, what)

    def number(self, name: str) -> int:
        value = self.optional_number(name)
        if value is None:
            raise self._bad(name)
        return value

    def optional_number(self, name: str) -> int | None:
        """A 64-bit number, or None."""
        value = self.source.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value not in _LONGS:
            raise self._bad(name)
        return value

    def text(self, name: str) -> str:
        value = self.optional_text(name)
        if value is None:
            raise self._bad(name)
        return value

    def optional_text(self, name: str) -> str | None:
        value = self.source.get(name)
        if value is not None and not isinstance(value, str):
            raise self._bad(name)
        return value

    def values(self, name: str) -> list[Any]:
        value = self.source.get(name)
        if not isinstance(value, list):
            raise self._bad(name)
        return value

    def optional_texts(self, name: str) -> Mapping[str, str] | None:
        value = self.source.get(name)
        if value is None:
            return None
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise self._bad(name)
        return value

    def _bad(self, name: str) -> CorruptTable:
        value = self.source.get(name)
        why = "lacks a field" if value is None else "has a field of the wrong type"
        return CorruptTable(f"the {self.what} file {why}", path=self.path, field=name, value=value)


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """A JSON object as the bytes of a file."""
    try:
        return "".join(json_lines(value, "")).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidRequest("a text is not Unicode", text=repr(error.object[:99])) from error


def json_lines(value: Any, indent: str) -> Iterator[str]:
    """The lines of a JSON value as Java prints it: an object on many lines, a list on one."""
    match value:
        case dict() if value:
            inner = f"{indent}  "
            for index, (name, part) in enumerate(value.items()):
                yield f"{',' if index else '{'}\n{inner}{_scalar(name)} : "
                yield from json_lines(part, inner)
            yield f"\n{indent}}}"
        case list() if value:
            for index, part in enumerate(value):
                yield ", " if index else "[ "
                yield from json_lines(part, indent)
            yield " ]"
        case dict():
            yield "{ }"
        case list():
            yield "[ ]"
        case _:
            yield _scalar(value)


def _scalar(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- json files ----------------------------------------------------------------------------------

SNAPSHOT_VERSION = 3
_RENAMED_FROM = "renamedFrom"
_SCHEMAS_KEPT = 256


# --- schemas ------------------------------------------------------------------------------------


def encode_schema(schema: TableSchema) -> bytes:
    """The bytes of a schema file."""
    out: dict[str, Any] = {
        "version": schema.version,
        "id": schema.id,
        "fields": [field_to_json(field) for field in schema.fields],
        "highestFieldId": schema.highest_field_id,
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
    }
    if schema.comment is not None:
        out["comment"] = schema.comment
    out["timeMillis"] = schema.time_ms
    return json_bytes(out)


@lru_cache(_SCHEMAS_KEPT)
def decode_schema(data: bytes, path: str) -> TableSchema:
    """The schema that a schema file holds. Cached, because every opening of a table reads it.

    The options include the defaults of old format versions: `bucket` is 1 up to version 1, and
    `file.format` is orc up to version 2.
    """
    record = Record.parse(data, path, "schema")
    version = record.optional_number("version") or 1
    check_version(version, SCHEMA_VERSION, path, "schema")
    options = dict(record.optional_texts("options") or {})
    if version <= 1:
        options.setdefault("bucket", "1")
    if version <= 2:
        options.setdefault("file.format", "orc")
    try:
        fields = tuple(parse_field(field) for field in record.values("fields"))
    except InvalidRequest as error:
        raise CorruptTable("the schema file has a bad column", path=path, why=error) from error
    names = [field.name for field in fields]
    if len({*names}) < len(names) or len({field.id for field in fields}) < len(names):
        raise CorruptTable(
            "two columns of the schema have the same name or id", path=path, columns=names
        )
    return TableSchema(
        version=version,
        id=record.number("id"),
        fields=fields,
        highest_field_id=record.number("highestFieldId"),
        partition_keys=_key(record, "partitionKeys", names),
        primary_keys=_key(record, "primaryKeys", names),
        options=options,
        comment=record.optional_text("comment"),
        time_ms=record.optional_number("timeMillis") or 0,
    )


def _key(record: Record, name: str, columns: Sequence[str]) -> tuple[str, ...]:
    values = record.values(name)
    for value in values:
        if value not in columns:
            raise CorruptTable(
                "a key of the schema is not a column",
                path=record.path,
                field=name,
                key=value,
                columns=columns,
            )
    return tuple(values)


# --- snapshots and tags -------------------------------------------------------------------------


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The bytes of a snapshot file; fields that are None are left out."""
    return json_bytes(_snapshot_fields(snapshot))


def decode_snapshot(data: bytes, path: str) -> Snapshot:
    """The snapshot that a snapshot file, or a long-lived changelog, holds."""
    return _snapshot(Record.parse(data, path, "snapshot"))


def encode_tag(tag: Tag) -> bytes:
    """The bytes of a tag file: those of its snapshot, and its retention if set."""
    out = _snapshot_fields(tag.snapshot)
    if tag.create_time is not None:
        out["tagCreateTime"] = list(tag.create_time)
    if tag.retained_seconds is not None:
        out["tagTimeRetained"] = tag.retained_seconds
    return json_bytes(out)


def renamed_tag(data: bytes, path: str, old_name: str | None) -> bytes:
    """The bytes of a tag file, with the name from which the tag is being renamed, or without it.

    Every reader ignores this field.
    """
    fields = {**Record.parse(data, path, "tag").source}
    if old_name is None and _RENAMED_FROM not in fields:
        return data
    fields.pop(_RENAMED_FROM, None)
    return json_bytes(fields if old_name is None else {**fields, _RENAMED_FROM: old_name})


def decode_tag(data: bytes, name: str, path: str) -> Tag:
    """The tag that a tag file holds; `name` is its name, which the file does not state."""
    record = Record.parse(data, path, "tag")
    time: tuple[int, ...] | None = None
    if record.source.get("tagCreateTime") is not None:
        parts = record.values("tagCreateTime")
        if not 3 <= len(parts) <= 7 or not all(isinstance(part, int) for part in parts):
            raise CorruptTable("the tag has a bad creation time", path=path, value=parts)
        # Java omits seconds and nanoseconds that are zero.
        time = (*parts, *[0] * (7 - len(parts)))
    retained = record.source.get("tagTimeRetained")
    if retained is not None and not isinstance(retained, int | float):
        raise CorruptTable("the tag has a bad retention", path=path, value=retained)
    return Tag(
        name=name,
        snapshot=_snapshot(record),
        create_time=time,
        retained_seconds=None if retained is None else float(retained),
    )


def _snapshot_fields(snapshot: Snapshot) -> dict[str, Any]:
    fields = {
        "version": snapshot.version,
        "uuid": snapshot.uuid,
        "id": snapshot.id,
        "schemaId": snapshot.schema_id,
        "baseManifestList": snapshot.base_manifest_list,
        "baseManifestListSize": snapshot.base_manifest_list_size,
        "deltaManifestList": snapshot.delta_manifest_list,
        "deltaManifestListSize": snapshot.delta_manifest_list_size,
        "changelogManifestList": snapshot.changelog_manifest_list,
        "changelogManifestListSize": snapshot.changelog_manifest_list_size,
        "indexManifest": snapshot.index_manifest,
        "commitUser": snapshot.commit_user,
        "writerVersion": snapshot.writer_version,
        "commitIdentifier": snapshot.commit_identifier,
        "commitKind": str(snapshot.commit_kind),
        "timeMillis": snapshot.time_ms,
        "totalRecordCount": snapshot.total_record_count,
        "deltaRecordCount": snapshot.delta_record_count,
        "changelogRecordCount": snapshot.changelog_record_count,
        "watermark": snapshot.watermark,
        "statistics": snapshot.statistics,
        "properties": None if snapshot.properties is None else dict(snapshot.properties),
        "nextRowId": snapshot.next_row_id,
        "operation": snapshot.operation,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _snapshot(record: Record) -> Snapshot:
    version = record.optional_number("version") or 1
    check_version(version, SNAPSHOT_VERSION, record.path, "snapshot")
    kind = record.text("commitKind")
    if kind not in CommitKind.__members__:
        raise Unsupported("unknown kind of commit", kind=kind, path=record.path)
    return Snapshot(
        version=version,
        uuid=record.optional_text("uuid"),
        id=record.number("id"),
        schema_id=record.number("schemaId"),
        base_manifest_list=record.text("baseManifestList"),
        base_manifest_list_size=record.optional_number("baseManifestListSize"),
        delta_manifest_list=record.text("deltaManifestList"),
        delta_manifest_list_size=record.optional_number("deltaManifestListSize"),
        changelog_manifest_list=record.optional_text("changelogManifestList"),
        changelog_manifest_list_size=record.optional_number("changelogManifestListSize"),
        index_manifest=record.optional_text("indexManifest"),
        commit_user=record.text("commitUser"),
        writer_version=record.optional_text("writerVersion"),
        commit_identifier=record.number("commitIdentifier"),
        commit_kind=CommitKind(kind),
        time_ms=record.number("timeMillis"),
        total_record_count=record.optional_number("totalRecordCount"),
        delta_record_count=record.optional_number("deltaRecordCount"),
        changelog_record_count=record.optional_number("changelogRecordCount"),
        watermark=record.optional_number("watermark"),
        statistics=record.optional_text("statistics"),
        properties=record.optional_texts("properties"),
        next_row_id=record.optional_number("nextRowId"),
        operation=record.optional_text("operation"),
    )


# --- consumers and hints ------------------------------------------------------------------------


def encode_consumer(next_snapshot: int) -> bytes:
    """The bytes of a consumer that will read that snapshot next."""
    return json_bytes({"nextSnapshot": next_snapshot})


def decode_consumer(data: bytes, path: str) -> int:
    """The snapshot that a consumer will read next."""
    return Record.parse(data, path, "consumer").number("nextSnapshot")


def encode_hint(snapshot_id: int) -> bytes:
    """The bytes of a hint file that states a snapshot id."""
    return str(snapshot_id).encode()


def decode_hint(data: bytes) -> int | None:
    """The snapshot id in a hint file; None if it is unreadable, for example half written."""
    text = data.decode("ascii", errors="replace").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def encode_success(created_ms: int, modified_ms: int) -> bytes:
    """The bytes of a success file, with the times when it was made and last written."""
    return json_bytes({"creationTime": created_ms, "modificationTime": modified_ms})


def decode_success(data: bytes, path: str) -> int:
    """When a success file was made, in milliseconds since 1970."""
    return Record.parse(data, path, "success file").number("creationTime")


# --- load records --------------------------------------------------------------------------------
# The records of files that COPY INTO has loaded: their file names and bytes.
#
# A record is the file `copy-into/history/load-HASH-TIME` in the table's directory. HASH consists of
# 16 hexadecimal digits of the SHA-256 of the loaded file's path. TIME is the time of the load.
# Paimon on Spark writes and reads the same records.
#
# https://paimon.apache.org/docs/master/spark/sql-write/#repeated-imports

_HASH_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRecord:
    """A loaded file: its identity, and what was loaded. Times are milliseconds since 1970."""

    path: str
    size_bytes: int
    modified_ms: int
    loaded_ms: int
    snapshot_id: int
    rows: int


def record_prefix(path: str) -> str:
    """The start of the names of all records of a loaded file."""
    return f"load-{sha256(path.encode()).hexdigest()[:_HASH_DIGITS]}-"


def record_name(record: LoadRecord) -> str:
    """The file name of a record."""
    return f"{record_prefix(record.path)}{record.loaded_ms}"


def encode_load_record(record: LoadRecord) -> bytes:
    """The bytes of a record."""
    return json_bytes(
        {
            "filePath": record.path,
            "fileSize": record.size_bytes,
            "lastModified": record.modified_ms,
            "loadedAt": record.loaded_ms,
            "snapshotId": record.snapshot_id,
            "rowsLoaded": record.rows,
        }
    )


def decode_load_record(data: bytes, path: str) -> LoadRecord:
    """The record that a file holds. Raises CorruptTable if the file is not a record."""
    record = Record.parse(data, path, "load record")
    return LoadRecord(
        path=record.text("filePath"),
        size_bytes=record.number("fileSize"),
        modified_ms=record.number("lastModified"),
        loaded_ms=record.number("loadedAt"),
        snapshot_id=record.number("snapshotId"),
        rows=record.number("rowsLoaded"),
    )


# --- statistics file -----------------------------------------------------------------------------
# The statistics file of a table: converts it to a value and back.
#
# See https://paimon.apache.org/docs/master/spark/sql-write/. The JSON is that of Java, including
# the order of fields.

_COLUMN_STATISTICS = {
    "distinctCount": "distinct_count",
    "min": "min",
    "max": "max",
    "nullCount": "null_count",
    "avgLen": "average_length",
    "maxLen": "max_length",
}
"""The optional fields of the statistics of a column, and their names in the model."""


def encode_statistics(statistics: TableStatistics) -> bytes:
    """The bytes of a statistics file; fields that are None are left out."""
    out: dict[str, Any] = {
        "snapshotId": statistics.snapshot_id,
        "schemaId": statistics.schema_id,
        "mergedRecordCount": statistics.merged_record_count,
        "mergedRecordSize": statistics.merged_record_size_bytes,
    }
    known = {name: value for name, value in out.items() if value is not None}
    return json_bytes({**known, "colStats": _column_fields(statistics)})


def column_statistics_text(statistics: TableStatistics) -> str:
    """The statistics of all columns as JSON, as they are in the file."""
    return "".join(json_lines(_column_fields(statistics), ""))


def _column_fields(statistics: TableStatistics) -> dict[str, Any]:
    found = {}
    for name, column in statistics.columns.items():
        values = {key: getattr(column, own) for key, own in _COLUMN_STATISTICS.items()}
        known = {key: value for key, value in values.items() if value is not None}
        found[name] = {"colId": column.column_id, **known}
    return found


def decode_statistics(data: bytes, path: str) -> TableStatistics:
    """The statistics that a statistics file holds."""
    record = Record.parse(data, path, "statistics")
    columns: dict[str, ColumnStatistics] = {}
    stated = record.source.get("colStats") or {}
    if not isinstance(stated, dict):
        raise CorruptTable("the statistics file has no columns", path=path, field="colStats")
    for name, source in stated.items():
        if not isinstance(source, dict):
            raise CorruptTable("the statistics file has a bad column", path=path, field=name)
        column = Record(source, path, "statistics")
        columns[name] = ColumnStatistics(
            column_id=column.number("colId"),
            distinct_count=column.optional_number("distinctCount"),
            min=column.optional_text("min"),
            max=column.optional_text("max"),
            null_count=column.optional_number("nullCount"),
            average_length=column.optional_number("avgLen"),
            max_length=column.optional_number("maxLen"),
        )
    return TableStatistics(
        snapshot_id=record.number("snapshotId"),
        schema_id=record.number("schemaId"),
        merged_record_count=record.optional_number("mergedRecordCount"),
        merged_record_size_bytes=record.optional_number("mergedRecordSize"),
        columns=columns,
    )


# --- rollback record -----------------------------------------------------------------------------
# Converts the record of a rollback in progress to bytes and back.
#
# lakecore writes it before the first change and deletes it after the last, so that a rollback whose
# process died can be finished. The record holds the target snapshot and all snapshots to remove,
# whose manifests name the files. Paimon does not know this file, and ignores it.


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRecord:
    """A rollback: `target` becomes the latest snapshot; the snapshots `removed` are deleted.

    `kept_by` are the snapshots of the removed tags and long-lived changelogs.
    """

    target: Snapshot
    removed: tuple[Snapshot, ...]
    kept_by: tuple[Snapshot, ...] = ()


def encode_rollback(record: RollbackRecord) -> bytes:
    """The bytes of a record."""
    return json.dumps(
        {
            "target": encode_snapshot(record.target).decode(),
            "removed": [encode_snapshot(each).decode() for each in record.removed],
            "keptBy": [encode_snapshot(each).decode() for each in record.kept_by],
        }
    ).encode()


def decode_rollback(data: bytes, path: str) -> RollbackRecord:
    """Parse the record. Raises CorruptTable if it is damaged."""
    try:
        found = json.loads(data)
        target, removed, kept_by = found["target"], found["removed"], found["keptBy"]
        texts = [target, *removed, *kept_by]
        snapshots = [decode_snapshot(text.encode(), path) for text in texts]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptTable("the record of a rollback cannot be read", path=path) from error
    count = len(removed)
    return RollbackRecord(
        target=snapshots[0],
        removed=tuple(snapshots[1 : 1 + count]),
        kept_by=tuple(snapshots[1 + count :]),
    )
