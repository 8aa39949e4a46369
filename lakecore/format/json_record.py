"""JSON objects with typed fields, and JSON text formatted like Java's.

A field that is missing or has the wrong type raises CorruptTable, naming the field and the path.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
        """A required number."""
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
        """A required string."""
        value = self.optional_text(name)
        if value is None:
            raise self._bad(name)
        return value

    def optional_text(self, name: str) -> str | None:
        """A string, or None."""
        value = self.source.get(name)
        if value is not None and not isinstance(value, str):
            raise self._bad(name)
        return value

    def values(self, name: str) -> list[Any]:
        """A list."""
        value = self.source.get(name)
        if not isinstance(value, list):
            raise self._bad(name)
        return value

    def optional_texts(self, name: str) -> Mapping[str, str] | None:
        """A mapping of strings to strings, or None."""
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
