"""Commit messages as JSON values, so that a pipeline can store them and commit them after a crash.

Only classes of `lakecore.model.files` are read back, so a state file cannot run code. A value is an
object whose `type` names its class; bytes are Base64, and tuples are lists.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import MISSING, fields, is_dataclass

from lakecore.errors import CorruptTable
from lakecore.model.files import (
    CommitMessage,
    DataFile,
    FileSource,
    GlobalIndex,
    IndexFile,
    Stats,
    VectorRange,
)

__all__ = ["message_from_json", "message_to_json"]

_TYPE = "type"
_BYTES = "base64"
_CLASSES: dict[str, type] = {
    each.__name__: each
    for each in (CommitMessage, DataFile, GlobalIndex, IndexFile, Stats, VectorRange)
}


def message_to_json(message: CommitMessage) -> object:
    """The message as a JSON value."""
    return _encoded(message)


def message_from_json(value: object, path: str) -> CommitMessage:
    """The message of a value that `message_to_json` returned.

    Raises CorruptTable for any other value.
    """
    try:
        decoded = _decoded(value)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise CorruptTable("a commit message is damaged", path=path, cause=error) from error
    if not isinstance(decoded, CommitMessage):
        raise CorruptTable("a commit message was expected", path=path, value=type(decoded).__name__)
    return decoded


def _encoded(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        stated = {
            each.name: _encoded(getattr(value, each.name))
            for each in fields(value)
            if each.default is MISSING or getattr(value, each.name) != each.default
        }
        return {_TYPE: type(value).__name__, **stated}
    match value:
        case bytes():
            return {_BYTES: base64.b64encode(value).decode()}
        case tuple() | list():
            return [_encoded(each) for each in value]
        case FileSource():
            return int(value)
        case None | bool() | int() | str():
            return value
        case _:
            raise AssertionError(f"a commit message holds {type(value).__name__}")


def _decoded(value: object) -> object:
    match value:
        case {"base64": str(text)}:
            return base64.b64decode(text, validate=True)
        case {"type": str(name), **stated}:
            given = {str(key): _decoded(each) for key, each in stated.items()}
            if given.get("file_source") is not None:
                given["file_source"] = FileSource(int(str(given["file_source"])))
            return _CLASSES[name](**given)
        case list():
            return tuple(_decoded(each) for each in value)
        case dict():
            raise ValueError("an object without a type")
        case _:
            return value
