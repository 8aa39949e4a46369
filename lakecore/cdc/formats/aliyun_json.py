"""`aliyun-json`: the messages of Alibaba Cloud's data integration. One message is one row.

- `payload.op` is INSERT, UPDATE_BEFORE, UPDATE_AFTER or DELETE; the row kinds are +I, -U, +U, -D.
  The row is `dataColumn` of `payload.after`, or of `payload.before` for -U and -D.
- `schema.dataColumn` states the columns with their types, `schema.primaryKey` the primary key and
  `schema.source` the table. A message with `ddl` changes no row.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from lakecore.cdc.formats.decoder import BadEvent, Changes, given
from lakecore.cdc.formats.json_values import decoder_of, msgspec, struct
from lakecore.cdc.formats.shapes import TypedShape
from lakecore.cdc.types.canal import aliyun_column
from lakecore.cdc.types.mapping import DEFAULT_MAPPING, TypeMapping
from lakecore.model.rows import RowKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.cdc.formats.groups import Shape

__all__ = ["AliyunJson"]

_KINDS = {
    "INSERT": RowKind.INSERT,
    "UPDATE_BEFORE": RowKind.UPDATE_BEFORE,
    "UPDATE_AFTER": RowKind.UPDATE_AFTER,
    "DELETE": RowKind.DELETE,
}


class AliyunJson:
    """The format, with the options of `--type_mapping`."""

    name = "aliyun-json"

    def __init__(self, mapping: TypeMapping = DEFAULT_MAPPING) -> None:
        self._mapping = mapping

    def envelope(self) -> Callable[[bytes], Any]:
        """The function that parses a message."""
        return _envelope()

    def changes(self, event: Any) -> Changes | None:
        """The row of a message."""
        if event.ddl:
            return None
        payload = event.payload
        if payload is None:
            raise BadEvent("the message has no payload")
        kind = _KINDS.get(payload.op)
        if kind is None:
            raise BadEvent(f"unknown op {payload.op}")
        side = "before" if kind.retracts else "after"
        image = getattr(payload, side)
        if image is None:
            raise BadEvent(f"the message has no payload.{side}")
        row = given(image.dataColumn, f"payload.{side}.dataColumn", "every change")
        schema = event.schema
        if schema is None or schema.dataColumn is None:
            raise BadEvent("the message has no schema.dataColumn")
        source = schema.source
        table = ("", "") if source is None else (source.dbName or "", source.tableName or "")
        return Changes(table, bytes(schema.dataColumn), [(row, int(kind))])

    def primary_key(self, event: Any, key: bytes | None) -> tuple[str, ...]:  # noqa: ARG002
        """The primary key in `schema.primaryKey`."""
        return tuple(event.schema.primaryKey or ())

    def shape(self, schema: bytes) -> Shape:
        """The conversion to columns: with the stated types."""
        columns = _columns_decoder()(schema)
        return TypedShape([aliyun_column(each.name, each.type, self._mapping) for each in columns])


@cache
def _envelope() -> Callable[[bytes], Any]:
    raw: Any = msgspec().Raw
    image = struct("Image", {"dataColumn": raw})
    payload = struct("Payload", {"op": str | None, "before": image | None, "after": image | None})
    source = struct("Source", {"dbName": str | None, "tableName": str | None})
    schema = struct(
        "Schema",
        {"dataColumn": raw, "primaryKey": list[str] | None, "source": source | None},
    )
    members = {"ddl": bool | None, "payload": payload | None, "schema": schema | None}
    return decoder_of(struct("Aliyun", members))


@cache
def _columns_decoder() -> Callable[[bytes], Any]:
    column: Any = struct("Column", {"name": str, "type": str})
    return decoder_of(list[column])
