"""JSON formats whose messages state no types: every column is STRING.

Such a format is defined by three functions and a name. This module has their common part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from lakecore.cdc.formats.decoder import DELETE, INSERT, Changes
from lakecore.cdc.formats.shapes import TextShape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.cdc.formats.groups import Shape

__all__ = ["TableRows", "TextFormat", "deleted", "inserted", "updated"]

TableRows: TypeAlias = "tuple[tuple[str, str], Sequence[tuple[bytes, int]]]"
"""The database and the name of a table, and its rows with their kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """A format. `rows` returns the rows of a message (None if it changes none) or raises BadEvent.

    `key_member` is the member of a message that lists the primary key.
    """

    name: str
    reader: Callable[[], Callable[[bytes], Any]]
    rows: Callable[[Any], TableRows | None]
    key_member: str | None = None

    def envelope(self) -> Callable[[bytes], Any]:
        """The function that parses a message."""
        return self.reader()

    def changes(self, event: Any) -> Changes | None:
        """The rows of a message."""
        found = self.rows(event)
        return None if found is None else Changes(found[0], b"", found[1])

    def primary_key(self, event: Any, key: bytes | None) -> tuple[str, ...]:  # noqa: ARG002
        """The primary key in the member `key_member`; empty without that member."""
        return tuple(getattr(event, self.key_member) or ()) if self.key_member else ()

    def shape(self, schema: bytes) -> Shape:  # noqa: ARG002
        """The conversion to columns: all are strings."""
        return TextShape()


def inserted(row: bytes) -> list[tuple[bytes, int]]:
    """The rows of an insertion."""
    return [(row, INSERT)]


def deleted(row: bytes) -> list[tuple[bytes, int]]:
    """The rows of a deletion."""
    return [(row, DELETE)]


def updated(before: bytes, after: bytes) -> list[tuple[bytes, int]]:
    """The rows of an update: the old row is deleted, and the new one inserted."""
    return [*deleted(before), *inserted(after)]
