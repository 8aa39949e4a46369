"""`debezium-avro`: Debezium's events in Avro, with a schema registry.

The events are those of debezium-json: `c`, `r`, `u`, `d`; `t` and `m` change no row. The record
type of `after`, or else of `before`, gives the columns of a row. The fields of the message's key
are the primary key.

See https://debezium.io/documentation/reference/stable/configuration/avro.html
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fastavro import schemaless_reader

from lakecore.cdc.events import SourceSchema, SourceTable
from lakecore.cdc.formats.decoder import DELETE, INSERT
from lakecore.cdc.formats.groups import Group, Groups
from lakecore.cdc.formats.schema_registry import SchemaRegistry, schema_number
from lakecore.cdc.formats.shapes import converted
from lakecore.cdc.types.avro import AvroColumn, avro_columns, without_null
from lakecore.cdc.types.mapping import DEFAULT_MAPPING, TypeMapping
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import Field, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.cdc.events import ChangeBatch
    from lakecore.cdc.formats.groups import OnBad
    from lakecore.cdc.formats.messages import Messages

__all__ = ["DebeziumAvro"]

_WITHOUT_ROWS = frozenset({"t", "m"})


class DebeziumAvro:
    """Decodes messages of one or more tables. Asks the registry once for each schema."""

    def __init__(self, registry: SchemaRegistry, mapping: TypeMapping = DEFAULT_MAPPING) -> None:
        self._registry = registry
        self._mapping = mapping
        self._shapes: dict[int, AvroShape] = {}

    def decode(self, messages: Messages, on_bad: OnBad) -> list[ChangeBatch]:
        """The changes of the messages, by table and schema."""
        groups = Groups(messages, on_bad)
        for index, value in enumerate(messages.values):
            if value is None:
                continue
            try:
                number, event = self._read(value)
                rows = _rows(event)
                if not rows:
                    continue
                source = event.get("source") or {}
                table = (str(source.get("db") or ""), str(source.get("table") or ""))
                group = groups.find(table, number)
                if group is None:
                    key = self._key_names(messages.key(index))
                    group = Group(SourceTable(*table), self._shape(number), key)
                    groups.begin(table, number, group)
            except (ValueError, EOFError, IndexError, KeyError, TypeError, Unsupported) as error:
                reason = "not a message of debezium-avro"
                on_bad(messages.bad(index, reason, format="debezium-avro", cause=error))
                continue
            for row, kind in rows:
                group.add(row, kind, index)
        return groups.batches()

    def _read(self, message: bytes) -> tuple[int, Any]:
        number, data = schema_number(message)
        return number, schemaless_reader(io.BytesIO(data), self._registry.schema(number), None)

    def _key_names(self, key: bytes | None) -> tuple[str, ...]:
        if not key:
            return ()
        schema = self._registry.schema(schema_number(key)[0])
        fields = schema.get("fields", ()) if isinstance(schema, dict) else ()
        return tuple(each["name"] for each in fields)

    def _shape(self, number: int) -> AvroShape:
        found = self._shapes.get(number)
        if found is None:
            schema = self._registry.schema(number)
            found = AvroShape(avro_columns(_row_record(schema), self._mapping))
            self._shapes[number] = found
        return found


class AvroShape:
    """Converts rows, as fastavro reads them, to columns."""

    def __init__(self, columns: Sequence[AvroColumn]) -> None:
        self._columns = tuple(columns)
        self._fields = tuple(
            Field(id=at, name=each.name, type=each.type, description=each.comment)
            for at, each in enumerate(columns)
        )

    def read(
        self, raws: Sequence[Any], primary_key: tuple[str, ...]
    ) -> tuple[SourceSchema, pa.Table]:
        """The schema of the rows, and the rows."""
        columns = [
            converted(each.convert, [row.get(each.field) for row in raws], each.name)
            for each in self._columns
        ]
        schema = SourceSchema(fields=self._fields, primary_key=primary_key)
        arrow = pa.schema([each.with_nullable(True) for each in arrow_schema(self._fields)])
        return schema, pa.Table.from_arrays(columns, schema=arrow)


def _rows(event: Any) -> list[tuple[Any, int]]:
    kind = event["op"]
    if kind in _WITHOUT_ROWS:
        return []
    rows: list[tuple[Any, int]] = []
    if kind in {"u", "d"}:
        rows.append((event["before"], DELETE))
    if kind in {"c", "r", "u"}:
        rows.append((event["after"], INSERT))
    if not rows:
        raise InvalidRequest("unknown op", op=kind)
    if any(row is None for row, _ in rows):
        raise InvalidRequest("the message lacks before or after", op=kind)
    return rows


def _row_record(schema: Any) -> Any:
    """The record type of a row.

    Avro refers to a record type that was defined before by its name.
    """
    fields = {each["name"]: without_null(each["type"]) for each in schema["fields"]}
    for side in ("before", "after"):
        if isinstance(fields.get(side), dict):
            return fields[side]
    raise InvalidRequest("the schema has no record of a row", fields=sorted(fields))
