"""Python values as text: cells of a grid, and JSON."""

from __future__ import annotations

import json
import math
import re
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING

from lakecore.cli.grid import Cell

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NULL", "cells", "json_text", "one_line"]

NULL = "NULL"
_FRACTION = re.compile(r"(\.\d*?)0+(?=\D|$)")
_ESCAPES = {
    **{code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))},
    **{code: f"\\u{code:04x}" for code in (0x2028, 0x2029)},
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}


def cells(row: Sequence[object], null: str = NULL) -> list[Cell]:
    """The cells of a row: null is a faint NULL, and the text "NULL" or "" is quoted."""
    return [Cell(null, faint=True) if value is None else _cell(value) for value in row]


def one_line(text: str) -> str:
    """The text with control characters escaped, so that it cannot control the terminal."""
    return text.translate(_ESCAPES)


def json_text(value: object) -> str:
    """A Python value as one line of JSON."""
    return json.dumps(_storable(value), ensure_ascii=False, separators=(",", ":"))


def _cell(value: object) -> Cell:
    if value in ("", NULL):
        return Cell(f"'{value}'")
    return Cell("\n".join(map(one_line, _shown(value).split("\n"))))


def _shown(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return value.hex()
        case Decimal():
            return format(value, "f")
        case dict() | list():
            return json.dumps(_storable(value), ensure_ascii=False)
        case datetime() | time():
            return _FRACTION.sub(r"\1", str(value))
        case _:
            return str(value)


def _storable(value: object) -> object:
    """The value converted to Python types that JSON can represent."""
    match value:
        case dict():
            return {str(_storable(key)): _storable(each) for key, each in value.items()}
        case list() | tuple():
            return [_storable(each) for each in value]
        case float():
            return value if math.isfinite(value) else None
        case None | bool() | int() | str():
            return value
        case bytes():
            return value.hex()
        case Decimal():
            return format(value, "f")
        case datetime() | date() | time():
            return value.isoformat()
        case _:
            return str(value)
