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
    from collections.abc import Mapping

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
    """Parse a schema, which gets this id and time. Raises InvalidRequest for a malformed `body`."""
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
        raise TypeError(f"not a list of texts: {value!r}")
    return tuple(value)


def _options(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise TypeError("options are an object of texts")
    return value


def _text_or_none(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"not a text: {value!r}")
    return value


def _highest(own: int, data_type: object) -> int:
    """The highest id of a field and of the fields of ROWs below it."""
    inner = [own]
    for name in ("element", "key", "value"):
        below = getattr(data_type, name, None)
        if below is not None:
            inner.append(_highest(own, below))
    inner += [_highest(field.id, field.type) for field in getattr(data_type, "fields", ())]
    return max(inner)


# --- schema changes -------------------------------------------------------------------------------


def change_to_json(change: Change) -> Json:
    """A schema change as JSON."""
    match change:
        case AddColumn(path=path, type=kind, comment=comment, move=move):
            return {
                "action": "addColumn",
                "fieldNames": list(path),
                "dataType": type_to_json(kind),
                "comment": comment,
                "move": None if move is None else _move_to_json(path[-1], move),
            }
        case RenameColumn(path=path, name=name):
            return {"action": "renameColumn", "fieldNames": list(path), "newName": name}
        case DropColumn(path=path):
            return {"action": "dropColumn", "fieldNames": list(path)}
        case UpdateColumnType(path=path, type=kind, keep_nullability=keep):
            return {
                "action": "updateColumnType",
                "fieldNames": list(path),
                "newDataType": type_to_json(kind),
                "keepNullability": keep,
            }
        case UpdateColumnNullability(path=path, nullable=nullable):
            return {
                "action": "updateColumnNullability",
                "fieldNames": list(path),
                "newNullability": nullable,
            }
        case UpdateColumnComment(path=path, comment=comment):
            return {
                "action": "updateColumnComment",
                "fieldNames": list(path),
                "newComment": comment,
            }
        case UpdateColumnDefaultValue(path=path, default_value=value):
            return {
                "action": "updateColumnDefaultValue",
                "fieldNames": list(path),
                "newDefaultValue": value,
            }
        case UpdateColumnPosition(name=name, move=move):
            return {"action": "updateColumnPosition", "move": _move_to_json(name, move)}
        case SetOption(key=key, value=value):
            return {"action": "setOption", "key": key, "value": value}
        case RemoveOption(key=key):
            return {"action": "removeOption", "key": key}
        case UpdateComment(comment=comment):
            return {"action": "updateComment", "comment": comment}


def change_from_json(body: Mapping[str, Any]) -> Change:
    """Parse a schema change. Raises InvalidRequest for an unknown or malformed change."""
    try:
        return _change(body)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidRequest("a schema change is malformed", why=error) from error


def _change(body: Mapping[str, Any]) -> Change:
    action = body["action"]
    match action:
        case "setOption":
            return SetOption(key=str(body["key"]), value=str(body["value"]))
        case "removeOption":
            return RemoveOption(key=str(body["key"]))
        case "updateComment":
            return UpdateComment(comment=_text_or_none(body.get("comment")))
        case "updateColumnPosition":
            return UpdateColumnPosition(
                name=str(body["move"]["fieldName"]), move=_move_from_json(body["move"])
            )
    return _column_change(action, body)


def _column_change(action: object, body: Mapping[str, Any]) -> Change:
    path = _texts(body["fieldNames"])
    if not path:
        raise ValueError("fieldNames names no column")
    match action:
        case "addColumn":
            move = body.get("move")
            return AddColumn(
                path=path,
                type=parse_type(body["dataType"], context=path[-1]),
                comment=_text_or_none(body.get("comment")),
                move=None if move is None else _move_from_json(move),
            )
        case "renameColumn":
            return RenameColumn(path=path, name=str(body["newName"]))
        case "dropColumn":
            return DropColumn(path=path)
        case "updateColumnType":
            return UpdateColumnType(
                path=path,
                type=parse_type(body["newDataType"], context=path[-1]),
                keep_nullability=bool(body.get("keepNullability", False)),
            )
        case "updateColumnNullability":
            return UpdateColumnNullability(path=path, nullable=bool(body["newNullability"]))
        case "updateColumnComment":
            return UpdateColumnComment(path=path, comment=_text_or_none(body.get("newComment")))
        case "updateColumnDefaultValue":
            value = _text_or_none(body.get("newDefaultValue"))
            return UpdateColumnDefaultValue(path=path, default_value=value)
    raise InvalidRequest("unknown schema change", action=action)


def _move_to_json(name: str, move: Move) -> Json:
    return {"fieldName": name, "referenceFieldName": move.column, "type": move.kind.name}


def _move_from_json(body: Mapping[str, Any]) -> Move:
    return Move(MoveKind[body["type"]], _text_or_none(body.get("referenceFieldName")))


# --- snapshots ------------------------------------------------------------------------------------


def snapshot_to_json(snapshot: Snapshot) -> Json:
    """A snapshot as JSON, with the fields of a snapshot file."""
    fields: Json = json.loads(metadata.encode_snapshot(snapshot))
    return fields


def snapshot_from_json(body: object, where: str) -> Snapshot:
    """Parse a snapshot. Raises CorruptTable, naming `where`, if it is malformed."""
    return metadata.decode_snapshot(json.dumps(body).encode(), where)
