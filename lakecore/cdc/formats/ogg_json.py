"""`ogg-json`: the messages of Oracle GoldenGate. One message is one row; columns are STRING.

- `I` inserts `after`, `U` deletes `before` and inserts `after`, `D` deletes `before`. `T`
  (truncate) changes no row.
- `table` is `database.table`, `primary_keys` the primary key.

See https://docs.oracle.com/goldengate/bd1221/gg-bd/GADBD/
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from lakecore.cdc.formats.decoder import BadEvent, given
from lakecore.cdc.formats.json_values import decoder_of, msgspec, struct
from lakecore.cdc.formats.text_format import TextFormat, deleted, inserted, updated

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.cdc.formats.text_format import TableRows

__all__ = ["OGG_JSON"]


def _rows(event: Any) -> TableRows | None:
    match event.op_type:
        case "I":
            rows = inserted(given(event.after, "after", "an insertion"))
        case "U":
            before = given(event.before, "before", "an update")
            rows = updated(before, given(event.after, "after", "an update"))
        case "D":
            rows = deleted(given(event.before, "before", "a deletion"))
        case "T":
            return None
        case _:
            raise BadEvent(f"unknown op_type {event.op_type}")
    database, _, name = (event.table or "").partition(".")
    return (database, name) if name else ("", database), rows


@cache
def _envelope() -> Callable[[bytes], Any]:
    raw: Any = msgspec().Raw
    members = {
        "op_type": str | None,
        "table": str | None,
        "before": raw,
        "after": raw,
        "primary_keys": list[str] | None,
    }
    return decoder_of(struct("Ogg", members))


OGG_JSON = TextFormat(name="ogg-json", reader=_envelope, rows=_rows, key_member="primary_keys")
"""The format."""
