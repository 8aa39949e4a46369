"""Values as short text and as HTML, for terminals and notebooks.

INVARIANT: whatever a name or a value holds, it stays on its line and within its cell: control
characters are written as escapes, and HTML is escaped.
"""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _typeshed import DataclassInstance

CELL_MAX = 60
ROWS_MAX = 50
"""The most characters shown of a text, and the most rows shown of a list."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024


def one_line(value: object, most: int = CELL_MAX) -> str:
    """The value as text, cut to `most` characters, with control characters escaped."""
    text = str(value)
    if len(text) > most:
        text = text[: most - 1] + "…"
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def pairs_text(pairs: Iterable[tuple[str, object]], indent: str = "") -> str:
    """One line for each name and value, with aligned values."""
    shown = [(one_line(name), one_line(value, 4 * CELL_MAX)) for name, value in pairs]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{indent}{name:<{width}}  {value}".rstrip() for name, value in shown)


def rows_text(rows: Sequence[Sequence[object]], indent: str = "", what: str = "rows") -> str:
    """One line for each row, with aligned cells. Rows after `ROWS_MAX` are only counted."""
    cells = [[one_line(cell) for cell in row] for row in rows[:ROWS_MAX]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        indent + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        for row in cells
    ]
    if len(rows) > ROWS_MAX:
        lines.append(f"{indent}… {len(rows) - ROWS_MAX} more {what}")
    return "\n".join(line.rstrip() for line in lines)


def pairs_html(title: str, pairs: Iterable[tuple[str, object]]) -> str:
    """An HTML table of names and values below a title."""
    lines = "".join(
        f"<tr><th style='text-align:left'>{_cell(name)}</th>"
        f"<td style='text-align:left'>{_cell(value, 4 * CELL_MAX)}</td></tr>"
        for name, value in pairs
    )
    return f"<table><caption>{_cell(title, 4 * CELL_MAX)}</caption><tbody>{lines}</tbody></table>"


def rows_html(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[object]], what: str = "rows"
) -> str:
    """An HTML table of the first `ROWS_MAX` rows below a title.

    Rows after these are only counted.
    """
    head = "".join(f"<th style='text-align:left'>{_cell(name)}</th>" for name in heads)
    lines = "".join(
        "<tr>"
        + "".join(f"<td style='text-align:left'>{_cell(value)}</td>" for value in row)
        + "</tr>"
        for row in rows[:ROWS_MAX]
    )
    more = len(rows) - ROWS_MAX
    left = f"<tr><td colspan='{len(heads)}'>… {more} more {what}</td></tr>" if more > 0 else ""
    return (
        f"<table><caption>{_cell(title, 4 * CELL_MAX)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{lines}{left}</tbody></table>"
    )


def facts_html(value: DataclassInstance) -> str:
    """The fields of a dataclass as an HTML table below the name of its class."""
    named = [(each.name.replace("_", " "), getattr(value, each.name)) for each in fields(value)]
    return pairs_html(type(value).__name__, [each for each in named if each[1] is not None])


def show_bytes(size_bytes: int) -> str:
    """A size for people: 1.5 MiB."""
    size, unit = float(size_bytes), 0
    while size >= _STEP and unit + 1 < len(_UNITS):
        size /= _STEP
        unit += 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{size_bytes} B"


def short_repr(value: object) -> str:
    """The `repr` of a dataclass, without the fields that are None, 0 or empty."""
    assert is_dataclass(value)
    said = {each.name: getattr(value, each.name) for each in fields(value)}
    shown = ", ".join(f"{name}={each!r}" for name, each in said.items() if each)
    return f"{type(value).__name__}({shown})"


class ShownFacts:
    """Base class of frozen results: prints them as aligned names and values, or as HTML.

    A subclass is a dataclass with `repr=False`; it defines `_title` and `_shown`.
    """

    __slots__ = ()
    _title: ClassVar[str]

    def __repr__(self) -> str:
        return short_repr(self)

    def __str__(self) -> str:
        return pairs_text(self._shown())

    def _repr_html_(self) -> str:
        return pairs_html(self._title, self._shown())

    def _shown(self) -> list[tuple[str, object]]:
        """The names and values to print."""
        raise NotImplementedError


def public_names(value: object, *, hidden: Iterable[str] = ()) -> list[str]:
    """The public names of an object, for `dir`."""
    names = {*dir(type(value)), *getattr(value, "__dict__", ())}
    return sorted(name for name in names - set(hidden) if not name.startswith("_"))


def _cell(value: object, most: int = CELL_MAX) -> str:
    return html.escape(one_line(value, most), quote=True)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


# --- value texts ---------------------------------------------------------------------------------
# Values of rows as text, and as JSON.

_FRACTION = re.compile(r"(\.\d*?)0+(?=\D|$)")


def value_text(value: object) -> str:
    """A value of a row as text: bytes in hex, nested values as JSON."""
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


def json_text(value: object) -> str:
    """A Python value as one line of JSON."""
    return json.dumps(_storable(value), ensure_ascii=False, separators=(",", ":"))


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
