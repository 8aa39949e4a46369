"""`json`: each message is a row to insert. Columns are STRING; there is no primary key.

A message names no table, so only the action for one table can read this format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakecore.cdc.formats.json_values import decoder_of, msgspec
from lakecore.cdc.formats.text_format import TextFormat, inserted

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.cdc.formats.text_format import TableRows

__all__ = ["PLAIN_JSON"]


def _rows(event: Any) -> TableRows:
    return ("", ""), inserted(bytes(event))


def _envelope() -> Callable[[bytes], Any]:
    return decoder_of(msgspec().Raw)


PLAIN_JSON = TextFormat(name="json", reader=_envelope, rows=_rows)
"""The format."""
