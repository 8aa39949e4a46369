"""Decodes messages of a JSON format to batches of changes.

A `JsonFormat` reads the envelope of a message: which rows it inserts and deletes, in which table,
under which schema. The decoder does what all formats share: it handles errors and tombstones,
groups rows by table, and converts them to columns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lakecore.cdc.events import ChangeBatch, SourceSchema, SourceTable
from lakecore.cdc.formats.shapes import JsonError, TextShape
from lakecore.cdc.quarantine import concern
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.rows import RowKind

# --- messages ------------------------------------------------------------------------------------
# Messages of a topic or a file, and the error that names a bad message.

_SHOWN_MAX = 200
_PLACE = ("topic", "partition", "offset", "file", "byte")


class BadMessage(InvalidRequest):
    """Raised for a message that cannot be read. The facts of the error say where the message is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Messages in the order of their source. A value of None is a tombstone.

    `metadata` has one row for each message: its position (`topic`, `partition`, `offset`, or
    `file`, `byte`) and other facts about it.
    """

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    metadata: pa.Table | None = None

    def __post_init__(self) -> None:
        assert self.keys is None or len(self.keys) == len(self.values)
        assert self.metadata is None or self.metadata.num_rows == len(self.values)

    def key(self, index: int) -> bytes | None:
        return None if self.keys is None else self.keys[index]

    def bad(
        self, index: int, reason: str, of: SourceTable | None = None, **facts: object
    ) -> BadMessage:
        """The error that says what is wrong with a message, and where the message is.

        `of`: the table that the error concerns; None if the message names no table.
        """
        places: dict[str, object] = {"number": index}
        if self.metadata is not None:
            row = self.metadata.slice(index, 1).to_pylist()[0]
            places = {name: row[name] for name in _PLACE if name in row}
        value = self.values[index] or b""
        text = value[:_SHOWN_MAX].decode(errors="replace")
        error = BadMessage(reason, **places, **facts, value=text)
        if of is not None:
            concern(error, [of])
        return error


# --- groups --------------------------------------------------------------------------------------
# Collects the rows of many messages by table and schema, and converts them to batches.
#
# A decoder reads the envelopes and adds the rows, as JSON text, to the group of their table. When
# the schema of a table changes, its group ends and another begins, so that the order of the rows of
# a table is kept.
#
# If rows do not fit, a binary search finds the first such row, and the error names its message.
# With `OnBad`, a caller can continue without this message: the caller receives the error, and all
# rows of the message are left out.

OnBad: TypeAlias = Callable[[BadMessage], None]
"""Called with the error of a message that cannot be read; it may raise the error."""


class Shape(Protocol):
    """A *shape*: the conversion of the rows of one schema to columns."""

    def read(
        self, raws: Sequence[Any], primary_key: tuple[str, ...]
    ) -> tuple[SourceSchema, pa.Table]:
        """The schema of the rows, and the rows. Raises InvalidRequest or JsonError."""


@dataclass(slots=True)
class Group:
    """The rows of one table under one schema, in order, each with its kind and message number."""

    table: SourceTable
    shape: Shape
    primary_key: tuple[str, ...]
    raws: list[Any] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)

    def add(self, raw: Any, kind: int, index: int) -> None:
        """Add a row in the form that the shape reads, with its kind and its message's number."""
        self.raws.append(raw)
        self.kinds.append(kind)
        self.indexes.append(index)


class Groups:
    """The groups of one list of messages, in the order of their first rows."""

    def __init__(self, messages: Messages, on_bad: OnBad) -> None:
        self._messages = messages
        self._on_bad = on_bad
        self._open: dict[Hashable, tuple[Hashable, Group]] = {}
        self._all: list[Group] = []

    def find(self, table: Hashable, schema: Hashable) -> Group | None:
        """The open group of a table, if it has this schema."""
        found = self._open.get(table)
        return found[1] if found is not None and found[0] == schema else None

    def begin(self, table: Hashable, schema: Hashable, group: Group) -> Group:
        """Make `group` the open group of the table."""
        self._open[table] = (schema, group)
        self._all.append(group)
        return group

    def replace(self, parts: Callable[[Group], list[Group]]) -> None:
        """Replace each group by other groups with the same rows."""
        self._all = [part for group in self._all for part in parts(group)]

    def batches(self) -> list[ChangeBatch]:
        found = [self._batch(group) for group in self._all]
        return [batch for batch in found if batch is not None and len(batch)]

    def _batch(self, group: Group) -> ChangeBatch | None:
        while group.raws:
            try:
                schema, rows = group.shape.read(group.raws, group.primary_key)
            except (InvalidRequest, JsonError):
                group = self._without_first_bad(group)
                continue
            metadata = self._messages.metadata
            return ChangeBatch(
                table=group.table,
                schema=schema,
                rows=rows,
                kinds=pa.array(np.array(group.kinds, np.int8)),
                metadata=None if metadata is None else metadata.take(pa.array(group.indexes)),
                order=pa.array(group.indexes, pa.int64()),
            )
        return None

    def _without_first_bad(self, group: Group) -> Group:
        """The group without the rows of the first message that cannot be read."""
        low, high = 0, len(group.raws)
        while high - low > 1:
            middle = (low + high) // 2
            if _error_of(group, low, middle) is None:
                low = middle
            else:
                high = middle
        error = _error_of(group, low, high)
        assert error is not None, "rows can be read one by one, but not together"
        bad = group.indexes[low]
        reason = error.message if isinstance(error, InvalidRequest) else str(error)
        facts = error.facts if isinstance(error, InvalidRequest) else {}
        shown = {name: value for name, value in facts.items() if name not in {"value", "number"}}
        if "value" in facts:
            shown["column_value"] = facts["value"]
        self._on_bad(self._messages.bad(bad, reason, group.table, **shown))
        kept = [at for at, index in enumerate(group.indexes) if index != bad]
        return replace(
            group,
            raws=[group.raws[at] for at in kept],
            kinds=[group.kinds[at] for at in kept],
            indexes=[group.indexes[at] for at in kept],
        )


def _error_of(group: Group, start: int, stop: int) -> InvalidRequest | JsonError | None:
    try:
        group.shape.read(group.raws[start:stop], group.primary_key)
    except (InvalidRequest, JsonError) as error:
        return error
    return None


# --- decoder -------------------------------------------------------------------------------------

INSERT, DELETE = int(RowKind.INSERT), int(RowKind.DELETE)


class BadEvent(ValueError):
    """Raised for a message that is valid JSON but not a valid event of its format."""


class Changes(NamedTuple):
    """The rows of one message: JSON objects with their row kinds. `table` is (database, name)."""

    table: tuple[str, str]
    schema: bytes
    rows: Sequence[tuple[bytes, int]]


class Decoder(Protocol):
    """Decodes messages to changes. A decoder may remember messages: use one for each source."""

    def decode(self, messages: Messages, on_bad: OnBad) -> list[ChangeBatch]:
        """The changes, by table and schema; `on_bad` gets each message that cannot be read."""


class JsonFormat(Protocol):
    """A JSON format: reads the envelope of its messages."""

    @property
    def name(self) -> str:
        """The name of the format in the option `value.format`."""

    def envelope(self) -> Callable[[bytes], Any]:
        """The function that parses a message, and raises ValueError for any other text."""

    def changes(self, event: Any) -> Changes | None:
        """The rows of a message; None if it changes no rows. Raises BadEvent."""

    def primary_key(self, event: Any, key: bytes | None) -> tuple[str, ...]:
        """The primary key that the message or its key states; empty if neither does."""

    def shape(self, schema: bytes, primary_key: tuple[str, ...]) -> Shape:
        """The conversion of rows to columns, under the schema and the key of the message.

        Raises InvalidRequest or ValueError.
        """


class JsonDecoder:
    """Decodes messages of one format, of one or more tables."""

    def __init__(self, message_format: JsonFormat) -> None:
        self._format = message_format
        self._decode = message_format.envelope()
        self._shapes: dict[tuple[tuple[str, str], bytes, tuple[str, ...]], Shape] = {}

    def decode(self, messages: Messages, on_bad: OnBad) -> list[ChangeBatch]:
        groups = Groups(messages, on_bad)
        decode, changes_of = self._decode, self._format.changes
        for index, value in enumerate(messages.values):
            if value is None:
                continue
            of: SourceTable | None = None
            try:
                event = decode(value)
                changes = changes_of(event)
                if changes is None:
                    continue
                table, schema, rows = changes
                group = groups.find(table, schema)
                if group is None:
                    of = SourceTable(*table)
                    key = self._format.primary_key(event, messages.key(index))
                    group = Group(of, self._shape(table, schema, key), key)
                    groups.begin(table, schema, group)
            except (RecursionError, ValueError, Unsupported) as error:
                reason = str(error) if isinstance(error, BadEvent) else "the message cannot be read"
                facts = {} if isinstance(error, BadEvent) else {"cause": error}
                on_bad(messages.bad(index, reason, of, format=self._format.name, **facts))
                continue
            for raw, kind in rows:
                group.add(raw, kind, index)
        groups.replace(lambda group: self._by_key(group, messages, on_bad))
        return groups.batches()

    def _by_key(self, group: Group, messages: Messages, on_bad: OnBad) -> list[Group]:
        """The group, or its parts if its messages state several keys under one schema.

        To read every key costs half as much as all other decoding, so all keys are read only if the
        key of the last message differs.
        """
        if not group.raws or self._stated(messages, group, group.indexes[-1]) == group.primary_key:
            return [group]
        parts = [replace(group, raws=[], kinds=[], indexes=[])]
        for index, some in groupby(range(len(group.raws)), lambda at: group.indexes[at]):
            key = self._stated(messages, parts[-1], index)
            if key != parts[-1].primary_key:
                value = messages.values[index]
                changes = None if value is None else self._format.changes(self._decode(value))
                assert changes is not None, "the message has rows"
                try:
                    shape = self._shape(*changes[:2], key)
                except (InvalidRequest, ValueError) as error:
                    name, reason = self._format.name, "the message cannot be read"
                    on_bad(messages.bad(index, reason, group.table, format=name, cause=error))
                    continue
                parts.append(Group(group.table, shape, key))
            for at in some:
                parts[-1].add(group.raws[at], group.kinds[at], index)
        return parts

    def _stated(self, messages: Messages, group: Group, index: int) -> tuple[str, ...]:
        """The primary key that a message states, or else the key of the group."""
        value = messages.values[index]
        if value is None:
            return group.primary_key
        try:
            key = self._format.primary_key(self._decode(value), messages.key(index))
        except (RecursionError, ValueError):
            return group.primary_key
        return key or group.primary_key

    def _shape(self, table: tuple[str, str], schema: bytes, key: tuple[str, ...]) -> Shape:
        found = self._shapes.get((table, schema, key))
        if found is None:
            found = self._shapes[table, schema, key] = self._format.shape(schema, key)
        return found


def given(raw: bytes, name: str, event: str) -> bytes:
    """The JSON text of a member. Raises BadEvent if the member is null or absent."""
    value = bytes(raw)
    if not value or value == b"null":
        raise BadEvent(f"the message has no {name}, which {event} needs")
    return value


# --- text format ---------------------------------------------------------------------------------
# JSON formats whose messages state no types: every column is STRING.
#
# Such a format is defined by three functions and a name; `TextFormat` has the common part.

TableRows: TypeAlias = "tuple[tuple[str, str], Sequence[tuple[bytes, int]]]"
"""The database and the name of a table, and its rows with their kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """A format. `rows` returns the rows of a message (None without changes) or raises BadEvent.

    `key_member`: the member of a message that lists the primary key.
    """

    name: str
    reader: Callable[[], Callable[[bytes], Any]]
    rows: Callable[[Any], TableRows | None]
    key_member: str | None = None

    def envelope(self) -> Callable[[bytes], Any]:
        return self.reader()

    def changes(self, event: Any) -> Changes | None:
        found = self.rows(event)
        return None if found is None else Changes(found[0], b"", found[1])

    def primary_key(self, event: Any, key: bytes | None) -> tuple[str, ...]:  # noqa: ARG002
        """The primary key in the member `key_member`; empty without that member."""
        return tuple(getattr(event, self.key_member) or ()) if self.key_member else ()

    def shape(self, schema: bytes, primary_key: tuple[str, ...]) -> Shape:  # noqa: ARG002
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
