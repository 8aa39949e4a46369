"""`debezium-bson`: Debezium's events for MongoDB. Each document is a text in extended JSON.

Each top-level field is a column of type STRING; the primary key is `_id`. Before version 6, MongoDB
does not report the old document; then the `_id` in the message's key identifies the row to delete.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakecore.cdc.events import SourceSchema, SourceTable
from lakecore.cdc.formats.decoder import DELETE, INSERT, BadEvent
from lakecore.cdc.formats.extended_json import document_texts, parsed_json
from lakecore.cdc.formats.groups import Group, Groups
from lakecore.cdc.formats.json_values import decoder_of, msgspec, struct
from lakecore.cdc.types.mapping import STRING
from lakecore.model.types import Field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.cdc.events import ChangeBatch
    from lakecore.cdc.formats.groups import OnBad
    from lakecore.cdc.formats.messages import Messages

__all__ = ["DebeziumBson"]

_ID = "_id"


class DebeziumBson:
    """Decodes messages of one or more collections."""

    def decode(self, messages: Messages, on_bad: OnBad) -> list[ChangeBatch]:
        """The changes of the messages, by collection."""
        groups = Groups(messages, on_bad)
        decode = _envelope()
        for index, value in enumerate(messages.values):
            if value is None:
                continue
            try:
                root = decode(value)
                event = root.payload if bytes(root.schema) else root
                rows = _rows(event, messages.key(index))
            except (RecursionError, ValueError, KeyError, TypeError, AttributeError) as error:
                reason = str(error) if isinstance(error, BadEvent) else "the message cannot be read"
                on_bad(messages.bad(index, reason, format="debezium-bson", cause=error))
                continue
            if not rows:
                continue
            source = event.source
            table = ("", "") if source is None else (source.db or "", source.collection or "")
            group = groups.find(table, None)
            if group is None:
                group = groups.begin(
                    table, None, Group(SourceTable(*table), DocumentShape(), (_ID,))
                )
            for row, kind in rows:
                group.add(row, kind, index)
        return groups.batches()


class DocumentShape:
    """Converts documents to string columns, in order of appearance."""

    def read(
        self, raws: Sequence[Any], primary_key: tuple[str, ...]
    ) -> tuple[SourceSchema, pa.Table]:
        """The schema of the rows, and the rows."""
        names: dict[str, None] = {}
        for row in raws:
            names.update(dict.fromkeys(row))
        fields = tuple(Field(id=at, name=name, type=STRING) for at, name in enumerate(names))
        columns = {name: pa.array([row.get(name) for row in raws], pa.string()) for name in names}
        return SourceSchema(fields=fields, primary_key=primary_key), pa.table(columns)


def _rows(event: Any, key: bytes | None) -> list[tuple[dict[str, str | None], int]]:
    if event is None:
        raise BadEvent("the message has no payload")
    match event.op:
        case "c" | "r":
            return [(_document(event.after, "after"), INSERT)]
        case "u":
            return [(_before(event, key), DELETE), (_document(event.after, "after"), INSERT)]
        case "d":
            return [(_before(event, key), DELETE)]
        case "t" | "m":
            return []
    raise BadEvent("the message has no op" if event.op is None else f"unknown op {event.op}")


def _document(text: str | None, name: str) -> dict[str, str | None]:
    if text is None:
        raise BadEvent(f"the message has no {name}")
    return document_texts(text)


def _before(event: Any, key: bytes | None) -> dict[str, str | None]:
    if event.before is not None:
        return document_texts(event.before)
    if key is None:
        raise BadEvent("neither a document before nor a key says what is deleted")
    parsed = _key()(key)
    members = parsed.payload if parsed.payload is not None else parsed
    if members.id is None:
        raise BadEvent("the key of the message has no id")
    return document_texts(json.dumps({_ID: parsed_json(members.id)}))


@cache
def _envelope() -> Callable[[bytes], Any]:
    source = struct("Source", {"db": str | None, "collection": str | None})
    event = {
        "op": str | None,
        "before": str | None,
        "after": str | None,
        "source": source | None,
    }
    payload = struct("Payload", event)
    raw: Any = msgspec().Raw
    return decoder_of(struct("Envelope", {"schema": raw, "payload": payload | None, **event}))


@cache
def _key() -> Callable[[bytes], Any]:
    members = {"id": str | None}
    return decoder_of(struct("Key", {**members, "payload": struct("Inner", members) | None}))
