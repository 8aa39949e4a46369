"""`canal-json`: the messages of Alibaba Canal. One message holds the rows of one statement.

- INSERT and ROW insert each row of `data`; DELETE deletes each row of `data`. UPDATE deletes the
  old row (the row of `data` with the values of `old`), and inserts the row of `data`.
- A message with `isDdl` changes no row.
- `mysqlType` states the columns with their types; without it every column is STRING.
- `pkNames` is the primary key.

See https://github.com/alibaba/canal/wiki/Canal-Kafka-RocketMQ-QuickStart
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from lakecore.cdc.formats.decoder import DELETE, INSERT, BadEvent, Changes
from lakecore.cdc.formats.json_values import decoder_of, msgspec, overlaid, struct
from lakecore.cdc.formats.shapes import TextShape, TypedShape
from lakecore.cdc.types.canal import canal_column
from lakecore.cdc.types.mapping import DEFAULT_MAPPING, TypeMapping

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.cdc.formats.groups import Shape

__all__ = ["CanalJson"]


class CanalJson:
    """The format, with the options of `--type_mapping`."""

    name = "canal-json"

    def __init__(self, mapping: TypeMapping = DEFAULT_MAPPING) -> None:
        self._mapping = mapping

    def envelope(self) -> Callable[[bytes], Any]:
        """The function that parses a message."""
        return _envelope()

    def changes(self, event: Any) -> Changes | None:
        """The rows of a message."""
        if event.isDdl:
            return None
        if event.data is None:
            raise BadEvent("the message has no data")
        table = (event.database or "", event.table or "")
        data = [bytes(row) for row in event.data]
        match event.type:
            case "INSERT" | "ROW":
                rows = [(row, INSERT) for row in data]
            case "DELETE":
                rows = [(row, DELETE) for row in data]
            case "UPDATE":
                rows = _updates(data, event.old)
            case _:
                raise BadEvent(f"unknown type {event.type}")
        return Changes(table, bytes(event.mysqlType), rows)

    def primary_key(self, event: Any, key: bytes | None) -> tuple[str, ...]:  # noqa: ARG002
        """The primary key in `pkNames`."""
        return tuple(event.pkNames or ())

    def shape(self, schema: bytes) -> Shape:
        """The conversion to columns: with types if the message has `mysqlType`."""
        if schema in {b"", b"null"}:
            return TextShape()
        types = decoder_of(dict[str, str])(schema)
        return TypedShape([canal_column(name, text, self._mapping) for name, text in types.items()])


def _updates(data: list[bytes], old: list[Any] | None) -> list[tuple[bytes, int]]:
    if old is None or len(old) != len(data):
        raise BadEvent("an update has not one old row for each row of data")
    rows: list[tuple[bytes, int]] = []
    for after, changed in zip(data, old, strict=True):
        before = bytes(changed)
        rows.append((after if before == b"null" else overlaid(after, before), DELETE))
        rows.append((after, INSERT))
    return rows


@cache
def _envelope() -> Callable[[bytes], Any]:
    raw: Any = msgspec().Raw
    members = {
        "isDdl": bool | None,
        "type": str | None,
        "database": str | None,
        "table": str | None,
        "data": list[raw] | None,
        "old": list[raw] | None,
        "mysqlType": raw,
        "pkNames": list[str] | None,
    }
    return decoder_of(struct("Canal", members))
