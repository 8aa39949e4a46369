"""`debezium-json`: Debezium's events as JSON, with or without the schema around the payload.

- `c` and `r` insert `after`; `u` deletes `before` and inserts `after`; `d` deletes `before`.
- `t` (truncate), `m` (message), tombstones, and events that only carry DDL change no row.
- With a schema, columns have its types; without, every column is STRING.
- The primary key is `pkNames`, else the fields of the message's key.

An update or deletion without `before` is refused, because it does not say which row it changes.
PostgreSQL sends `before` only for tables with `REPLICA IDENTITY FULL`.

See https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-events
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from lakecore.cdc.formats.decoder import DELETE, INSERT, BadEvent, Changes, given
from lakecore.cdc.formats.json_values import decoder_of, msgspec, object_decoder, struct
from lakecore.cdc.formats.shapes import TextShape, TypedShape
from lakecore.cdc.types.debezium import ConnectField, debezium_column
from lakecore.cdc.types.mapping import DEFAULT_MAPPING, TypeMapping

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.cdc.formats.groups import Shape

__all__ = ["DebeziumJson", "key_names"]

_NULL = b"null"
_UNAVAILABLE = (b"__debezium_unavailable_value", b"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")
"""Debezium's placeholder for an unchanged large value of PostgreSQL, as text and as Base64."""


class DebeziumJson:
    """The format, with the options of `--type_mapping`."""

    name = "debezium-json"

    def __init__(self, mapping: TypeMapping = DEFAULT_MAPPING) -> None:
        self._mapping = mapping

    def envelope(self) -> Callable[[bytes], Any]:
        """The function that parses a message."""
        return _envelope()

    def changes(self, event: Any) -> Changes | None:
        """The rows of a message."""
        schema = bytes(event.schema)
        payload = event.payload if schema else event
        if payload is None:
            raise BadEvent("the message has no payload")
        rows = _rows(payload)
        source = payload.source
        table = ("", "") if source is None else (source.db or "", source.table or "")
        return None if rows is None else Changes(table, schema, rows)

    def primary_key(self, event: Any, key: bytes | None) -> tuple[str, ...]:
        """The primary key in `pkNames`, or else the names of the key's fields."""
        names = (event.payload if bytes(event.schema) else event).pkNames
        return tuple(names) if names is not None else key_names(key)

    def shape(self, schema: bytes) -> Shape:
        """The conversion to columns: with types if the message has a schema."""
        fields = [] if schema in {b"", _NULL} else _row_fields(schema)
        if not fields:
            return TextShape()
        return TypedShape([debezium_column(each, self._mapping) for each in fields])


def _rows(payload: Any) -> list[tuple[bytes, int]] | None:
    kind = payload.op
    match kind:
        case "c" | "r":
            return [(given(payload.after, "after", "an insertion"), INSERT)]
        case "u":
            after = given(payload.after, "after", "an update")
            if any(each in after for each in _UNAVAILABLE):
                raise BadEvent(
                    "an update lacks a large value that did not change; set REPLICA IDENTITY FULL "
                    "on the table"
                )
            return [(_before(payload), DELETE), (after, INSERT)]
        case "d":
            return [(_before(payload), DELETE)]
        case "t" | "m":
            return None
        case None if bytes(payload.ddl) not in {b"", _NULL}:
            return None
    raise BadEvent("the message has no op" if kind is None else f"unknown op {kind}")


def _before(payload: Any) -> bytes:
    before = bytes(payload.before)
    if before in {b"", _NULL}:
        raise BadEvent(
            "an update or deletion has no before image; for PostgreSQL, set REPLICA IDENTITY FULL "
            "on the table"
        )
    return before


@cache
def _envelope() -> Callable[[bytes], Any]:
    raw: Any = msgspec().Raw
    source = struct("Source", {"db": str | None, "table": str | None})
    event = {
        "op": str | None,
        "before": raw,
        "after": raw,
        "source": source | None,
        "pkNames": list[str] | None,
        "ddl": raw,
    }
    payload = struct("Payload", event)
    return decoder_of(struct("Envelope", {"schema": raw, "payload": payload | None, **event}))


@cache
def _schema_decoder() -> Callable[[bytes], Any]:
    members = {
        "type": str | None,
        "field": str | None,
        "name": str | None,
        "parameters": dict[str, str] | None,
        "doc": str | None,
    }
    inner: Any = struct("Column", members)
    row: Any = struct("Row", {**members, "fields": list[inner] | None})
    return decoder_of(struct("Schema", {"fields": list[row] | None}))


def _row_fields(schema: bytes) -> list[ConnectField]:
    """The fields of the row, from `after` or else from `before`."""
    parsed = _schema_decoder()(schema)
    rows = {each.field: each.fields for each in parsed.fields or ()}
    return [
        ConnectField(
            field=each.field,
            type=each.type or "string",
            name=each.name,
            parameters=each.parameters,
            comment=each.doc,
        )
        for each in rows.get("after") or rows.get("before") or ()
        if each.field is not None
    ]


def key_names(key: bytes | None) -> tuple[str, ...]:
    """The member names of a message's key, or of the key's `payload` if it has a schema.

    Empty if the key is not an object.
    """
    if not key:
        return ()
    decode = object_decoder()
    try:
        members = decode(key)
        if "schema" in members and "payload" in members:
            members = decode(bytes(members["payload"]))
    except ValueError:
        return ()
    return tuple(members)
