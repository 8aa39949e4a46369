"""Rows as text for people: a grid that fits the width, or one block per row.

1. Each column gets the width of its widest cell. If the grid fits, it is printed.
2. Otherwise the widest text columns shrink, and their longer lines end in `…`. Numbers are never
   cut.
3. If the columns would be narrower than 12 characters, each row becomes a block of
   `column  value` lines.

Nothing is cut if `Style.whole` is set: then longer lines of cells are wrapped, or, if a cell has
several lines, each row becomes a block. A single cell of several lines is printed without a frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING

from lakecore.deferred import deferred
from lakecore.display import value_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.cells import cell_len, set_cell_size
else:
    cell_len = deferred("rich.cells", "cell_len")
    set_cell_size = deferred("rich.cells", "set_cell_size")

_NARROW = 12
_HEAD_MAX = 24
_UNICODE = ("┌┬┐", "├┼┤", "└┴┘", "─", "│", "…")
_ASCII = ("+++", "+++", "+++", "-", "|", "~")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: the lines of a value's text. Text that is not data, such as NULL, is faint."""

    text: str
    faint: bool = False

    @property
    def lines(self) -> list[str]:
        """The lines of the text; at least one."""
        return self.text.split("\n")


@dataclass(frozen=True, slots=True)
class Column:
    """The header of a column, and whether its cells are numbers."""

    name: str
    number: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a grid is printed: width in characters (None: unlimited), line characters, colours.

    With `whole`, no text is cut.
    """

    width: int | None = None
    unicode: bool = True
    colour: bool = False
    whole: bool = False


def layout(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], style: Style) -> list[str]:
    """The lines of a grid, or of one block per row if a grid would be too narrow."""
    natural = [
        max([cell_len(column.name), *(_width(row[at]) for row in rows)])
        for at, column in enumerate(columns)
    ]
    has_lines = any("\n" in cell.text for row in rows for cell in row)
    if style.whole and has_lines and len(rows) == len(columns) == 1:
        return rows[0][0].lines
    widths = natural if style.width is None else _fitted(columns, natural, style.width)
    if widths is None or (style.whole and has_lines and widths != natural):
        return _blocks(columns, rows, style)
    return _grid(columns, rows, widths, style)


def _width(cell: Cell) -> int:
    return cell_len(cell.text) if "\n" not in cell.text else max(map(cell_len, cell.lines))


def _fitted(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int] | None:
    """The column widths that fit; None if some column would be too narrow to read."""
    room = width - 3 * len(columns) - 1
    least = [
        size if column.number else min(size, max(_NARROW, min(cell_len(column.name), _HEAD_MAX)))
        for column, size in zip(columns, natural, strict=True)
    ]
    if sum(least) > room:
        return None
    widths = list(natural)
    while (excess := sum(widths) - room) > 0:
        at = max(range(len(widths)), key=lambda n: (widths[n] > least[n], widths[n]))
        others = [size for n, size in enumerate(widths) if n != at and size > least[n]]
        next_widest = max([least[at], *(size for size in others if size < widths[at])])
        widths[at] -= max(1, min(excess, widths[at] - next_widest))
    return widths


def _grid(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], widths: Sequence[int], style: Style
) -> list[str]:
    top, middle, bottom, dash, bar, _ = _UNICODE if style.unicode else _ASCII

    def rule(corners: str) -> str:
        return corners[0] + corners[1].join(dash * (size + 2) for size in widths) + corners[2]

    def lines(cells: Sequence[Cell], codes: str) -> Iterator[str]:
        parts = [_wrapped(cell, size, style) for cell, size in zip(cells, widths, strict=True)]
        for texts in zip_longest(*parts, fillvalue=""):
            shown = (
                _painted(
                    _sized(text, size, style, right=column.number), codes or _faint(cell), style
                )
                for text, cell, size, column in zip(texts, cells, widths, columns, strict=True)
            )
            yield f"{bar} " + f" {bar} ".join(shown) + f" {bar}"

    heads = [Cell(column.name) for column in columns]
    return [
        rule(top),
        *lines(heads, "1"),
        rule(middle),
        *(line for row in rows for line in lines(row, "")),
        rule(bottom),
    ]


def _wrapped(cell: Cell, width: int, style: Style) -> list[str]:
    """The lines of a cell; a longer line is broken after a blank if nothing may be cut."""
    if not style.whole:
        return cell.lines
    return [part for line in cell.lines for part in wrap(line, max(width, 1)) or [""]]


def _blocks(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], style: Style) -> list[str]:
    dash = (_UNICODE if style.unicode else _ASCII)[3]
    width = style.width or 0
    head = min(max(cell_len(column.name) for column in columns), max(_NARROW, width // 3))
    lines = []
    for number, row in enumerate(rows, 1):
        title = f"{dash * 2} row {number} "
        lines.append(title + dash * max(0, width - cell_len(title)))
        for column, cell in zip(columns, row, strict=True):
            name = _painted(_sized(column.name, head, style), "1", style)
            room = max(_NARROW, width - head - 2)
            if style.whole and "\n" in cell.text:
                lines += [name.rstrip(), *cell.lines]
                continue
            for text in cell.lines:
                shown = text if style.whole else _cut(text, room, style)
                lines.append(f"{name}  {_painted(shown, _faint(cell), style)}")
                name = " " * head
    return lines


def _sized(text: str, width: int, style: Style, *, right: bool = False) -> str:
    """The text cut or padded to exactly this width."""
    shown = _cut(text, width, style)
    blanks = " " * (width - cell_len(shown))
    return blanks + shown if right else shown + blanks


def _cut(text: str, width: int, style: Style) -> str:
    if cell_len(text) <= width:
        return text
    ellipsis = (_UNICODE if style.unicode else _ASCII)[5]
    return set_cell_size(text, width - 1).rstrip() + ellipsis


def _faint(cell: Cell) -> str:
    return "2" if cell.faint else ""


def _painted(text: str, codes: str, style: Style) -> str:
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and style.colour else text


# --- texts ---------------------------------------------------------------------------------------
# Python values as cells of a grid.

NULL = "NULL"
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


def _cell(value: object) -> Cell:
    if value in ("", NULL):
        return Cell(f"'{value}'")
    return Cell("\n".join(map(one_line, value_text(value).split("\n"))))
