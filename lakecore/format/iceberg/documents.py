"""The document `vN.metadata.json`: the schemas, snapshots and tags of an Iceberg table.

An Iceberg snapshot has the id of its Paimon snapshot, which is also its sequence number. The
summary of the Iceberg snapshot holds the identity of the Paimon snapshot, because a rollback makes
ids free again.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from lakecore.errors import CorruptTable, Unsupported
from lakecore.format.layout import canonical, parse_numbered
from lakecore.model.types import (
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Root,
    Row,
    Variant,
    Vector,
    inner_types,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot, Tag


# --- schemas --------------------------------------------------------------------------------------
# Paimon schemas as Iceberg schemas and partition specs.
#
# Field ids are those of Paimon, because data files state them. The parts of lists and maps have the
# ids that `io/files/parquet_types.py` writes.
#
# TIME and TIMESTAMP(0..6) are in microseconds in Iceberg. TIMESTAMP(7..9) is refused: Paimon stores
# it as INT96, which Iceberg does not allow.

Json = dict[str, Any]

PARTITION_FIELD_ID = 1000
"""The id of the first partition field; the others follow."""

_ELEMENT_ID = 536_870_911
_IDS_PER_COLUMN = 1024
_MICROS = 6
_NAMES = {
    Root.CHAR: "string",
    Root.VARCHAR: "string",
    Root.BOOLEAN: "boolean",
    Root.BINARY: "binary",
    Root.VARBINARY: "binary",
    Root.TINYINT: "int",
    Root.SMALLINT: "int",
    Root.INT: "int",
    Root.BIGINT: "long",
    Root.FLOAT: "float",
    Root.DOUBLE: "double",
    Root.DATE: "date",
    Root.TIME: "time",
    Root.TIMESTAMP: "timestamp",
    Root.TIMESTAMP_LTZ: "timestamptz",
}
_WIDENED = frozenset({("int", "long"), ("float", "double")})


def iceberg_schema(schema: TableSchema) -> Json:
    """The Iceberg schema. Raises Unsupported, naming the column, for a type without a twin."""
    return {
        "type": "struct",
        "schema-id": schema.id,
        "fields": [_column(field, field.name) for field in schema.fields],
    }


def partition_spec(schema: TableSchema) -> Json:
    """The partition spec: the values of the partition keys as they are."""
    return {
        "spec-id": 0,
        "fields": [
            {
                "name": field.name,
                "transform": "identity",
                "source-id": field.id,
                "field-id": PARTITION_FIELD_ID + place,
            }
            for place, field in enumerate(schema.partition_fields)
        ],
    }


def atomic_name(data_type: DataType) -> str | None:
    """The Iceberg name of an atomic type; None for other types, and for those without a twin."""
    match data_type:
        case Atomic(root=Root.DECIMAL, precision=precision, scale=scale):
            return f"decimal({precision}, {scale})"
        case Atomic(root=Root.TIMESTAMP | Root.TIMESTAMP_LTZ, precision=precision) if (
            precision or 0
        ) > _MICROS:
            return None
        case Atomic(root=root):
            return _NAMES.get(root)
    return None


def reads_as(stored: object, now: object) -> bool:
    """Whether Iceberg reads files of the schema or type `stored` with the schema or type `now`."""
    if not (isinstance(stored, dict) and isinstance(now, dict)):
        return stored == now or _widens(str(stored), str(now))
    if stored["type"] != now["type"]:
        return False
    if stored["type"] == "struct":
        before = {field["id"]: field["type"] for field in stored["fields"]}
        return all(
            reads_as(before[field["id"]], field["type"])
            for field in now["fields"]
            if field["id"] in before
        )
    parts = {"element", "key", "value"} & now.keys()
    return all(reads_as(stored[part], now[part]) for part in parts)


def _widens(stored: str, now: str) -> bool:
    decimals = [text.removeprefix("decimal(").rstrip(")").split(", ") for text in (stored, now)]
    if all(len(parts) == 2 for parts in decimals):
        (before, scale), (after, scale_now) = decimals
        return scale == scale_now and int(before) <= int(after)
    return (stored, now) in _WIDENED


def _column(field: Field, path: str) -> Json:
    column: Json = {
        "id": field.id,
        "name": field.name,
        "required": not field.type.nullable,
        "type": _type(field.type, field.id, 1, path),
    }
    if field.description is not None:
        column["doc"] = field.description
    return column


def _type(data_type: DataType, column: int, depth: int, path: str) -> str | Json:
    """The type; `column` is the id of the enclosing field, `depth` counts lists and maps in it."""
    offset = column * _IDS_PER_COLUMN + depth
    match data_type:
        case Variant() | Vector():
            pass  # both are special forms of other types
        case Row(fields=fields):
            parts = [_column(field, f"{path}.{field.name}") for field in fields]
            return {"type": "struct", "fields": parts}
        case Multiset() | Map():
            key, value = inner_types(data_type)
            return {
                "type": "map",
                "key-id": _ELEMENT_ID - offset,
                "key": _type(key, column, depth + 1, path),
                "value-id": _ELEMENT_ID + offset,
                "value-required": not value.nullable,
                "value": _type(value, column, depth + 1, path),
            }
        case Array(element=element):
            return {
                "type": "list",
                "element-id": _ELEMENT_ID + offset,
                "element-required": not element.nullable,
                "element": _type(element, column, depth + 1, path),
            }
    if (name := atomic_name(data_type)) is None:
        raise Unsupported("Iceberg has no type for this column", column=path, type=str(data_type))
    return name


def partition_types(schema: TableSchema) -> Sequence[str]:
    """The Iceberg names of the types of the partition keys."""
    names = [atomic_name(field.type) for field in schema.partition_fields]
    return [name for name in names if name is not None]


# --- documents ------------------------------------------------------------------------------------

IDENTITY = "paimon-commit-identity"
HINT = "version-hint.text"
"""The file with the number of the newest document."""
ENGINE = ("engine-name", "lakecore")
"""A property of the snapshots that lakecore wrote, whose vectors are in Puffin files."""
_FOREVER = (1 << 63) - 1


def document_name(version: int) -> str:
    """The name of the document of that number."""
    return f"v{version}.metadata.json"


def document_version(name: str) -> int | None:
    """The number of the document of that name; None for other files."""
    bare = name.removesuffix(".metadata.json")
    return None if bare == name else parse_numbered(bare, "v")


_OWN = re.compile(
    r"v\d+\.metadata\.json|snap-\d+-[0-9a-f-]{36}\.avro|[0-9a-f-]{36}-m\d+\.avro"
    r"|[0-9a-f-]{36}-\d+-vectors\.puffin|version-hint\.text|retire-pending"
)


def is_own(name: str) -> bool:
    """Whether lakecore or Java Paimon writes files of that name; no other file is deleted."""
    return _OWN.fullmatch(name) is not None


def warehouse_place(root: str) -> str | None:
    """The directory of a table below `iceberg` of its warehouse; None if it is in no warehouse."""
    database, _, table = root.rstrip("/").rpartition("/")
    warehouse, _, name = database.rpartition("/")
    bare = name.removesuffix(".db")
    return None if bare in {"", name} else f"{warehouse}/iceberg/{bare}/{table}"


def above_place(place: str) -> str:
    """The warehouse above a `warehouse_place`. A deletion follows no link below this directory."""
    return place.rsplit("/", 3)[0]


def encode_document(document: Json) -> bytes:
    """The bytes of the document."""
    return json.dumps(document, indent=2).encode()


def decode_document(data: bytes, path: str) -> Json:
    """The document. Raises CorruptTable naming `path` if it lacks what lakecore needs of it."""
    try:
        document: Json = json.loads(data)
        snapshots = document["snapshots"]
        current = document["current-snapshot-id"]
        names = [canonical(each["manifest-list"]) for each in snapshots]
        numbers = [int(document[key]) for key in ("format-version", "last-column-id")]
        numbers += [int(each["schema-id"]) for each in (*document["schemas"], *snapshots)]
        numbers += [int(each["timestamp-ms"]) for each in snapshots]
        complete = isinstance(document["table-uuid"], str) and canonical(document["location"])
        known = {each["snapshot-id"] for each in snapshots}
        if complete and all(names) and numbers[0] and current in known:
            return document
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise CorruptTable("the file is no metadata of Iceberg", path=path) from error
    raise CorruptTable("the metadata of Iceberg lacks its current snapshot", path=path)


def new_document(location: str, table_uuid: str, version: int, next_row_id: int) -> Json:
    """The document of a table without snapshots."""
    row_ids = {"next-row-id": next_row_id} if version > 2 else {}
    return {
        "format-version": version,
        "table-uuid": table_uuid,
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": 0,
        "schemas": [],
        "current-schema-id": 0,
        "partition-specs": [],
        "default-spec-id": 0,
        "last-partition-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "snapshots": [],
        "current-snapshot-id": -1,
        "properties": {},
        **row_ids,
        "refs": {},
    }


def identity_of(snapshot: Snapshot) -> str:
    """A string that distinguishes the snapshot from another one with the same id."""
    made = f"{snapshot.commit_user}:{snapshot.commit_identifier}:{snapshot.time_ms}"
    return snapshot.uuid or made


def is_of(published: Json, snapshot: Snapshot) -> bool:
    """Whether an Iceberg snapshot shows this Paimon snapshot.

    Java Paimon up to 2.0 states no identity, but the time at which it published the snapshot.
    """
    identity = published.get("summary", {}).get(IDENTITY)
    if identity is None:
        return int(published["timestamp-ms"]) >= snapshot.time_ms
    return bool(identity == identity_of(snapshot))


def current(document: Json) -> Json:
    """The current snapshot."""
    now = document["current-snapshot-id"]
    found: Json = next(each for each in document["snapshots"] if each["snapshot-id"] == now)
    return found


def shows(document: Json, snapshot: Snapshot) -> bool:
    """Whether the current snapshot of the document is this Paimon snapshot."""
    published = current(document)
    return bool(published["snapshot-id"] == snapshot.id and is_of(published, snapshot))


def cut_back(document: Json, snapshot_id: int) -> Json:
    """The document as it was at an earlier snapshot."""
    kept = [each for each in document["snapshots"] if each["snapshot-id"] <= snapshot_id]
    return {
        **document,
        "snapshots": kept,
        "current-snapshot-id": snapshot_id,
        "current-schema-id": next(
            each["schema-id"] for each in kept if each["snapshot-id"] == snapshot_id
        ),
        "last-sequence-number": snapshot_id,
    }


def with_snapshot(
    document: Json, published: Json, schema: Json, spec: Json, *, last_column_id: int
) -> Json:
    """The document with one more snapshot, which is the current one."""
    others = [each for each in document["schemas"] if each["schema-id"] != schema["schema-id"]]
    row_ids = (
        {"next-row-id": published["first-row-id"] + published["added-rows"]}
        if "first-row-id" in published
        else {}
    )
    partition_ids = [field["field-id"] for field in spec["fields"]]
    return {
        **document,
        "last-sequence-number": published["sequence-number"],
        "last-column-id": max(last_column_id, document["last-column-id"]),
        "schemas": sorted([*others, schema], key=lambda each: int(each["schema-id"])),
        "current-schema-id": schema["schema-id"],
        "partition-specs": [spec],
        "last-partition-id": max(partition_ids, default=999),
        "snapshots": [*document["snapshots"], published],
        "current-snapshot-id": published["snapshot-id"],
        **row_ids,
    }


def with_state(
    document: Json, live: Collection[int], tags: Iterable[Tag], properties: Mapping[str, str]
) -> Json:
    """The document with the snapshots that are alive or tagged, the tags, and the properties."""
    published = {each["snapshot-id"]: each for each in document["snapshots"]}
    named = {
        tag.name: tag.snapshot_id
        for tag in tags
        if tag.snapshot_id in published and is_of(published[tag.snapshot_id], tag.snapshot)
    }
    wanted = {*live, *named.values(), document["current-snapshot-id"]}
    refs = {
        name: {"snapshot-id": number, "type": "tag", "max-ref-age-ms": _FOREVER}
        for name, number in named.items()
    }
    kept = [each for each in document["snapshots"] if each["snapshot-id"] in wanted]
    return {**document, "snapshots": kept, "refs": refs, "properties": dict(properties)}


# --- summary ------------------------------------------------------------------------------------

_TOTALS = ("records", "data-files", "files-size")


def has_totals(published: Json) -> bool:
    """Whether the summary of a snapshot states the totals of its table."""
    return all(f"total-{name}" in published.get("summary", {}) for name in _TOTALS)


def summary(
    operation: str,
    before: Mapping[str, str],
    added: Sequence[Json],
    removed: Sequence[Json],
    vectors: tuple[int, int],
) -> dict[str, str]:
    """The counters of a snapshot.

    `before` is the summary of the previous snapshot, `added` and `removed` are records of data
    files, `vectors` the number of deletion vectors in the snapshot, and of rows that they mark.
    """
    changed = {tuple(record["partition"].values()) for record in (*added, *removed)}
    rows = [sum(each["record_count"] for each in some) for some in (added, removed)]
    sizes = [sum(each["file_size_in_bytes"] for each in some) for some in (added, removed)]
    total = {name: int(before.get(f"total-{name}", 0)) for name in _TOTALS}
    numbers = {
        "added-data-files": len(added),
        "deleted-data-files": len(removed),
        "added-records": rows[0],
        "deleted-records": rows[1],
        "added-files-size": sizes[0],
        "removed-files-size": sizes[1],
        "changed-partition-count": len(changed),
        "total-records": total["records"] + rows[0] - rows[1],
        "total-data-files": total["data-files"] + len(added) - len(removed),
        "total-files-size": total["files-size"] + sizes[0] - sizes[1],
        "total-delete-files": vectors[0],
        "total-position-deletes": vectors[1],
        "total-equality-deletes": 0,
    }
    return {"operation": operation, **{name: str(number) for name, number in numbers.items()}}
