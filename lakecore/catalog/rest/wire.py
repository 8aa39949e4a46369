"""Converts schemas, schema changes and snapshots to and from the JSON of the REST protocol.

https://paimon.apache.org/docs/master/concepts/rest/rest-api/

This module has both directions, because lakecore is both a client and a server of the protocol.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from lakecore.errors import InvalidRequest
from lakecore.format import metadata
from lakecore.model.data_types import field_to_json, parse_field, parse_type, type_to_json
from lakecore.model.schema import TableSchema
from lakecore.model.schema_change import (
    AddColumn,
    Change,
    DropColumn,
    Move,
    MoveKind,
    RemoveOption,
    RenameColumn,
    SetOption,
    UpdateColumnComment,
    UpdateColumnDefaultValue,
    UpdateColumnNullability,
    UpdateColumnPosition,
    UpdateColumnType,
    UpdateComment,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakecore.model.snapshot import Snapshot

Json: TypeAlias = "dict[str, Any]"


# --- schemas --------------------------------------------------------------------------------------


def schema_to_json(schema: TableSchema) -> Json:
    """A schema as JSON, without its id and time, which the server sets."""
    return {
        "fields": [field_to_json(field) for field in schema.fields],
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
        "comment": schema.comment,
    }


def schema_from_json(body: Mapping[str, Any], schema_id: int, time_ms: int) -> TableSchema:
    """Parse a schema, and set its id and time. Raises InvalidRequest for a malformed `body`."""
    try:
        fields = tuple(parse_field(field) for field in body["fields"])
        return TableSchema(
            id=schema_id,
            fields=fields,
            highest_field_id=max((_highest(field.id, field.type) for field in fields), default=-1),
            partition_keys=_texts(body.get("partitionKeys") or []),
            primary_keys=_texts(body.get("primaryKeys") or []),
            options=_options(body.get("options") or {}),
            comment=_text_or_none(body.get("comment")),
            time_ms=time_ms,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidRequest("the schema of the table is malformed", why=error) from error


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise TypeError(f"not a list of strings: {value!r}")
    return tuple(value)


def _options(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise TypeError("options are an object of strings")
    return value


def _text_or_none(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"not a string: {value!r}")
    return value


def _highest(own: int, data_type: object) -> int:
    """The highest id of a field and its nested fields."""
    inner = [own]
    for name in ("element", "key", "value"):
        below = getattr(data_type, name, None)
        if below is not None:
            inner.append(_highest(own, below))
    inner += [_highest(field.id, field.type) for field in getattr(data_type, "fields", ())]
    return max(inner)


# --- schema changes -------------------------------------------------------------------------------

_ACTIONS: Mapping[str, tuple[Callable[..., Change], Mapping[str, str]]] = {
    "addColumn": (
        AddColumn,
        {"path": "fieldNames", "type": "dataType", "comment": "comment", "move": "move"},
    ),
    "renameColumn": (RenameColumn, {"path": "fieldNames", "name": "newName"}),
    "dropColumn": (DropColumn, {"path": "fieldNames"}),
    "updateColumnType": (
        UpdateColumnType,
        {"path": "fieldNames", "type": "newDataType", "keep_nullability": "keepNullability"},
    ),
    "updateColumnNullability": (
        UpdateColumnNullability,
        {"path": "fieldNames", "nullable": "newNullability"},
    ),
    "updateColumnComment": (UpdateColumnComment, {"path": "fieldNames", "comment": "newComment"}),
    "updateColumnDefaultValue": (
        UpdateColumnDefaultValue,
        {"path": "fieldNames", "default_value": "newDefaultValue"},
    ),
    "updateColumnPosition": (UpdateColumnPosition, {"move": "move"}),
    "setOption": (SetOption, {"key": "key", "value": "value"}),
    "removeOption": (RemoveOption, {"key": "key"}),
    "updateComment": (UpdateComment, {"comment": "comment"}),
}
"""Each action: the change, and the field of the JSON for each of its attributes."""


def change_to_json(change: Change) -> Json:
    """A schema change as JSON."""
    action, keys = next((name, keys) for name, (k, keys) in _ACTIONS.items() if k is type(change))
    return {"action": action, **{key: _to_json(change, own) for own, key in keys.items()}}


def _to_json(change: Change, attribute: str) -> object:
    match getattr(change, attribute):
        case tuple() as path:
            return list(path)
        case Move() as move if isinstance(change, AddColumn | UpdateColumnPosition):
            name = change.path[-1] if isinstance(change, AddColumn) else change.name
            return {"fieldName": name, "referenceFieldName": move.column, "type": move.kind.name}
        case value:
            return type_to_json(value) if attribute == "type" else value


def change_from_json(body: Mapping[str, Any]) -> Change:
    """Parse a schema change. Raises InvalidRequest for an unknown or malformed change."""
    try:
        if body["action"] not in _ACTIONS:
            raise InvalidRequest("unknown schema change", action=body["action"])
        kind, keys = _ACTIONS[body["action"]]
        values = {own: _from_json(body, own, key) for own, key in keys.items()}
        if kind is UpdateColumnPosition:
            values["name"] = str(body["move"]["fieldName"])
        return kind(**values)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidRequest("a schema change is malformed", why=error) from error


def _from_json(body: Mapping[str, Any], attribute: str, key: str) -> object:
    match attribute:
        case "path":
            path = _texts(body[key])
            if not path:
                raise ValueError(f"{key} names no column")
            return path
        case "type":
            return parse_type(body[key], context=_texts(body["fieldNames"])[-1])
        case "move":
            move = body.get(key)
            if move is None:
                return None
            return Move(MoveKind[move["type"]], _text_or_none(move.get("referenceFieldName")))
        case "nullable":
            return bool(body[key])
        case "keep_nullability":
            return bool(body.get(key, False))
        case "comment" | "default_value":
            return _text_or_none(body.get(key))
    return str(body[key])


# --- snapshots ------------------------------------------------------------------------------------


def snapshot_to_json(snapshot: Snapshot) -> Json:
    """A snapshot as JSON, with the fields of a snapshot file."""
    fields: Json = json.loads(metadata.encode_snapshot(snapshot))
    return fields


def snapshot_from_json(body: object, where: str) -> Snapshot:
    """Parse a snapshot. Raises CorruptTable, naming `where`, if it is malformed."""
    return metadata.decode_snapshot(json.dumps(body).encode(), where)
