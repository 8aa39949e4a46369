"""`aws-dms-json`: the messages of AWS DMS. One message is one row; columns are STRING.

- `load` and `insert` insert `data`, `delete` deletes `data`. `update` deletes the old row, and
  inserts `data` without its members `BI_NAME`. These hold old values: the old row has the value of
  `BI_NAME` in the column `NAME`.
- A `record-type` that is not `data` changes no row. No primary key is stated.

See https://docs.aws.amazon.com/dms/latest/userguide/CHAP_Target.Kafka.html
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from lakecore.cdc.formats.decoder import BadEvent, given
from lakecore.cdc.formats.json_values import decoder_of, msgspec, objects, struct
from lakecore.cdc.formats.text_format import TextFormat, deleted, inserted, updated

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.cdc.formats.text_format import TableRows

__all__ = ["DMS_JSON"]

_BEFORE = "BI_"


def _rows(event: Any) -> TableRows | None:
    about = event.metadata
    if about is None:
        raise BadEvent("the message has no metadata")
    if about.record_type != "data":
        return None
    data = given(event.data, "data", "every change")
    match about.operation:
        case "load" | "insert":
            rows = inserted(data)
        case "delete":
            rows = deleted(data)
        case "update":
            rows = _update(data)
        case _:
            raise BadEvent(f"unknown operation {about.operation}")
    return (about.schema_name or "", about.table_name or ""), rows


def _update(data: bytes) -> list[tuple[bytes, int]]:
    members = objects([data])[0]
    after = {name: value for name, value in members.items() if not name.startswith(_BEFORE)}
    before = {
        name.removeprefix(_BEFORE): value
        for name, value in members.items()
        if name.startswith(_BEFORE)
    }
    encode = msgspec().json.encode
    return updated(encode({**after, **before}), encode(after))


@cache
def _envelope() -> Callable[[bytes], Any]:
    about = struct(
        "Metadata",
        dict.fromkeys(("record_type", "operation", "schema_name", "table_name"), str | None),
        record_type="record-type",
        schema_name="schema-name",
        table_name="table-name",
    )
    return decoder_of(struct("Dms", {"data": msgspec().Raw, "metadata": about | None}))


DMS_JSON = TextFormat(name="aws-dms-json", reader=_envelope, rows=_rows)
"""The format."""
