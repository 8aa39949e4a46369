"""Converts schema, snapshot, tag, consumer, hint and success files to values and back.

The JSON is formatted like Java's, including the field order, so an unchanged value has exactly the
bytes that Java wrote. Unknown fields are ignored; an absent optional field is None, never 0. A
newer format version is refused, because its meaning is unknown.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.format.json_record import Record, check_version, json_bytes
from lakecore.model.schema import SCHEMA_VERSION, TableSchema
from lakecore.model.snapshot import CommitKind, Snapshot, Tag
from lakecore.model.types import field_to_json, parse_field

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    Its options include the defaults of old format versions: `bucket` is 1 up to version 1, and
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
