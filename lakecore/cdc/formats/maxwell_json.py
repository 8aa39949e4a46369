"""`maxwell-json`: the messages of Maxwell's daemon. One message is one row; columns are STRING.

- `insert` inserts `data`, and so does `bootstrap-insert`, for a table that is read at the start.
  `update` deletes the old row (`data` with the values of `old`) and inserts `data`. `delete`
  deletes `data`.
- DDL, and the messages around a bootstrap, change no row.
- `primary_key_columns` is the primary key.

See https://maxwells-daemon.io/dataformat/
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from lakecore.cdc.formats.decoder import BadEvent, given
from lakecore.cdc.formats.json_values import decoder_of, msgspec, overlaid, struct
from lakecore.cdc.formats.text_format import TextFormat, deleted, inserted, updated

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.cdc.formats.text_format import TableRows

__all__ = ["MAXWELL_JSON"]

_WITHOUT_ROWS = ("table-", "database-", "bootstrap-")


def _rows(event: Any) -> TableRows | None:
    kind = event.type or ""
    if kind.startswith(_WITHOUT_ROWS) and kind != "bootstrap-insert":
        return None
    data = given(event.data, "data", "every change")
    match kind:
        case "insert" | "bootstrap-insert":
            rows = inserted(data)
        case "delete":
            rows = deleted(data)
        case "update":
            rows = updated(overlaid(data, given(event.old, "old", "an update")), data)
        case _:
            raise BadEvent(f"unknown type {event.type}")
    return (event.database or "", event.table or ""), rows


@cache
def _envelope() -> Callable[[bytes], Any]:
    raw: Any = msgspec().Raw
    members = {
        "type": str | None,
        "database": str | None,
        "table": str | None,
        "data": raw,
        "old": raw,
        "primary_key_columns": list[str] | None,
    }
    return decoder_of(struct("Maxwell", members))


MAXWELL_JSON = TextFormat(
    name="maxwell-json", reader=_envelope, rows=_rows, key_member="primary_key_columns"
)
"""The format."""
