"""Decodes messages of a JSON format to batches of changes.

A `JsonFormat` reads the envelope of a message: which rows it inserts and deletes, in which table,
under which schema. The decoder does what all formats share: it handles errors and tombstones,
groups rows by table, and converts them to columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lakecore.cdc.events import SourceTable
from lakecore.cdc.formats.groups import Group, Groups
from lakecore.errors import Unsupported
from lakecore.model.rows import RowKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.cdc.events import ChangeBatch
    from lakecore.cdc.formats.groups import OnBad, Shape
    from lakecore.cdc.formats.messages import Messages

__all__ = [
    "DELETE",
    "INSERT",
    "BadEvent",
    "Changes",
    "Decoder",
    "JsonDecoder",
    "JsonFormat",
    "given",
]

INSERT, DELETE = int(RowKind.INSERT), int(RowKind.DELETE)


class BadEvent(ValueError):
    """Raised for a message that is valid JSON but not a valid event of its format."""


class Changes(NamedTuple):
    """The rows of one message: JSON objects with their row kinds. `table` is (database, name)."""

    table: tuple[str, str]
    schema: bytes
    rows: Sequence[tuple[bytes, int]]


class Decoder(Protocol):
    """Decodes messages to changes. Use one for each source: it may remember earlier messages."""

    def decode(self, messages: Messages, on_bad: OnBad) -> list[ChangeBatch]:
        """The changes, by table and schema; `on_bad` gets each message that cannot be read."""
        ...


class JsonFormat(Protocol):
    """A JSON format: reads the envelope of its messages."""

    @property
    def name(self) -> str:
        """The name of the format in the option `value.format`."""
        ...

    def envelope(self) -> Callable[[bytes], Any]:
        """The function that parses a message. It raises ValueError for text that is not one."""
        ...

    def changes(self, event: Any) -> Changes | None:
        """The rows of a message; None if it changes no rows. Raises BadEvent."""
        ...

    def primary_key(self, event: Any, key: bytes | None) -> tuple[str, ...]:
        """The primary key that the message or its key states; empty if neither does."""
        ...

    def shape(self, schema: bytes) -> Shape:
        """The conversion of rows to columns, under the schema of the message.

        Raises InvalidRequest or ValueError.
        """
        ...


class JsonDecoder:
    """Decodes messages of one format, of one or more tables."""

    def __init__(self, message_format: JsonFormat) -> None:
        self._format = message_format
        self._decode = message_format.envelope()
        self._shapes: dict[tuple[tuple[str, str], bytes], Shape] = {}

    def decode(self, messages: Messages, on_bad: OnBad) -> list[ChangeBatch]:
        """The changes of the messages, by table and schema."""
        groups = Groups(messages, on_bad)
        decode, changes_of = self._decode, self._format.changes
        for index, value in enumerate(messages.values):
            if value is None:
                continue
            try:
                event = decode(value)
                changes = changes_of(event)
                if changes is None:
                    continue
                table, schema, rows = changes
                group = groups.find(table, schema)
                if group is None:
                    key = self._format.primary_key(event, messages.key(index))
                    group = Group(SourceTable(*table), self._shape(table, schema), key)
                    groups.begin(table, schema, group)
            except (RecursionError, ValueError, Unsupported) as error:
                reason = str(error) if isinstance(error, BadEvent) else "the message cannot be read"
                facts = {} if isinstance(error, BadEvent) else {"cause": error}
                on_bad(messages.bad(index, reason, format=self._format.name, **facts))
                continue
            for raw, kind in rows:
                group.add(raw, kind, index)
        return groups.batches()

    def _shape(self, table: tuple[str, str], schema: bytes) -> Shape:
        found = self._shapes.get((table, schema))
        if found is None:
            found = self._shapes[table, schema] = self._format.shape(schema)
        return found


def given(raw: bytes, name: str, event: str) -> bytes:
    """The JSON text of a member. Raises BadEvent if the member is null or absent."""
    value = bytes(raw)
    if not value or value == b"null":
        raise BadEvent(f"the message has no {name}, which {event} needs")
    return value
