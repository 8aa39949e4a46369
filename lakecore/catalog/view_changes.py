"""Changes of a stored view, as Paimon's `ViewChange`: its options, its comment, its dialects.

https://paimon.apache.org/docs/master/concepts/views/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AddDialect",
    "DropDialect",
    "RemoveViewOption",
    "SetViewOption",
    "UpdateDialect",
    "UpdateViewComment",
    "ViewChange",
    "view_change_from_json",
    "view_change_to_json",
]


@dataclass(frozen=True, slots=True)
class SetViewOption:
    """Sets an option."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class RemoveViewOption:
    """Removes an option, if the view has it."""

    key: str


@dataclass(frozen=True, slots=True)
class UpdateViewComment:
    """Sets the comment; None removes it."""

    comment: str | None


@dataclass(frozen=True, slots=True)
class AddDialect:
    """Adds the query in a dialect that the view does not have."""

    dialect: str
    query: str


@dataclass(frozen=True, slots=True)
class UpdateDialect:
    """Replaces the query in a dialect that the view has."""

    dialect: str
    query: str


@dataclass(frozen=True, slots=True)
class DropDialect:
    """Removes the query in a dialect that the view has."""

    dialect: str


ViewChange = (
    SetViewOption | RemoveViewOption | UpdateViewComment | AddDialect | UpdateDialect | DropDialect
)

_NAMES: Mapping[type[ViewChange], str] = {
    SetViewOption: "setOption",
    RemoveViewOption: "removeOption",
    UpdateViewComment: "updateComment",
    AddDialect: "addDialect",
    UpdateDialect: "updateDialect",
    DropDialect: "dropDialect",
}


def view_change_to_json(change: ViewChange) -> dict[str, object]:
    """One change as Paimon's JSON object."""
    fields = {each: getattr(change, each) for each in type(change).__slots__}
    return {"action": _NAMES[type(change)], **fields}


def view_change_from_json(body: object) -> ViewChange:
    """One change of Paimon's JSON object. Raises InvalidRequest for anything else."""
    if not isinstance(body, dict):
        raise InvalidRequest("a change of a view is an object")
    match body.get("action"):
        case "setOption":
            return SetViewOption(_text(body, "key"), _text(body, "value"))
        case "removeOption":
            return RemoveViewOption(_text(body, "key"))
        case "updateComment":
            removes = body.get("comment") is None
            return UpdateViewComment(None if removes else _text(body, "comment"))
        case "addDialect":
            return AddDialect(_text(body, "dialect"), _text(body, "query"))
        case "updateDialect":
            return UpdateDialect(_text(body, "dialect"), _text(body, "query"))
        case "dropDialect":
            return DropDialect(_text(body, "dialect"))
        case action:
            raise InvalidRequest(
                "unknown change of a view", action=action, known=list(_NAMES.values())
            )


def _text(body: Mapping[str, object], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str):
        raise InvalidRequest("a field of a change of a view is a text", field=key, value=value)
    return value
