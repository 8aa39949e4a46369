"""Prints results to standard output (a grid, JSON, CSV, Parquet), and notes to standard error."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass, replace
from datetime import date
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, TypeAlias

from lakecore.cli.arguments import Format
from lakecore.cli.output import BinaryOutput, flush, write
from lakecore.deferred import deferred, deferred_module
from lakecore.display import json_text, value_text
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import polars as pl
    from polars import DataFrame
    from pyarrow.parquet import ParquetWriter
    from rich.cells import cell_len, set_cell_size

    from lakecore.frames import polars_versions
else:
    DataFrame = deferred("polars", "DataFrame")
    ParquetWriter = deferred("pyarrow.parquet", "ParquetWriter")
    pl = deferred_module("polars")
    polars_versions = deferred_module("lakecore.frames.polars_versions")
    cell_len = deferred("rich.cells", "cell_len")
    set_cell_size = deferred("rich.cells", "set_cell_size")


# --- grid -----------------------------------------------------------------------------------------
# Rows as text for people: a grid that fits the width, or one block per row.
#
# 1. Each column gets the width of its widest cell. If the grid fits, it is printed.
# 2. Otherwise the widest text columns shrink, and their longer lines end in `…`. Numbers are never
#    cut.
# 3. If the columns would be narrower than 12 characters, each row becomes a block of
#    `column  value` lines.
#
# Nothing is cut if `Style.whole` is set: then longer lines of cells are wrapped, or, if a cell has
# several lines, each row becomes a block. A single cell of several lines is printed without a
# frame.

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
        max([cell_len(column.name), *(_cell_width(row[at]) for row in rows)])
        for at, column in enumerate(columns)
    ]
    has_lines = any("\n" in cell.text for row in rows for cell in row)
    if style.whole and has_lines and len(rows) == len(columns) == 1:
        return rows[0][0].lines
    widths = natural if style.width is None else _fitted(columns, natural, style.width)
    if widths is None or (style.whole and has_lines and widths != natural):
        return _blocks(columns, rows, style)
    return _grid(columns, rows, widths, style)


def _cell_width(cell: Cell) -> int:
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


_WIDTH = 100


def say(text: str) -> None:
    """Print lines for people."""
    write(f"{text}\n")
    flush()


def note(text: str) -> None:
    """Print a note for people on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def write_frame(
    frame: DataFrame, form: Format, title: str | None = None, *, null: str = NULL
) -> None:
    """Print the rows of a frame. For people, a null is shown as the text `null`."""
    if form is not Format.TABLE:
        write_batches(frame, (), form)
        return
    columns = [Column(name, kind.is_numeric()) for name, kind in frame.schema.items()]
    write_grid(columns, printable(frame).iter_rows(), title, null=null)


def write_grid(
    columns: Iterable[Column],
    rows: Iterable[Sequence[object]],
    title: str | None = None,
    *,
    null: str = NULL,
    whole: bool = False,
) -> None:
    """Print rows of Python values for people. With `whole`, no text is cut."""
    lines = grid_lines(columns, rows, null=null, whole=whole)
    say("\n".join([*([title] if title else []), *lines]))


def grid_lines(
    columns: Iterable[Column],
    rows: Iterable[Sequence[object]],
    *,
    null: str = NULL,
    whole: bool = False,
) -> list[str]:
    """The lines of rows for people, as the terminal shows them."""
    heads = [replace(column, name=one_line(column.name)) for column in columns]
    return layout(heads, [cells(row, null) for row in rows], replace(_style(), whole=whole))


def write_batches(first: DataFrame, rest: Iterable[DataFrame], form: Format) -> None:
    """Print batches as they arrive: JSON lines, CSV, or one Parquet file. The first may be empty.

    Raises InvalidRequest if Parquet would be printed to a terminal.
    """
    if form is Format.PARQUET:
        _write_parquet(first, rest)
        return
    _to_utf8()
    as_csv = form is Format.CSV
    write(csv_text(first, header=True) if as_csv else json_lines(first))
    for batch in rest:
        write(csv_text(batch, header=False) if as_csv else json_lines(batch))
        flush()


def write_record(record: Mapping[str, object], form: Format, text: str) -> None:
    """Print one result: its lines for people, one JSON object, or one row of CSV or Parquet."""
    if form is Format.TABLE:
        say(text)
        return
    if form is Format.PARQUET:
        row = {key: v if _is_plain(v) else json_text(v) for key, v in record.items()}
        _write_parquet(DataFrame([row]), ())
        return
    _to_utf8()
    if form is Format.JSON:
        say(json_text(record))
        return
    values = {key: v if _is_plain(v) else json_text(v) for key, v in record.items()}
    say(_csv_line(values) + "\n" + _csv_line(values.values()))


def _write_parquet(first: DataFrame, rest: Iterable[DataFrame]) -> None:
    """Write one Parquet file. The file is valid also if Ctrl-C ends a stream."""
    if sys.stdout.isatty():
        raise InvalidRequest("Parquet is no text for a terminal: add > FILE, or a pipe")
    head = first.to_arrow()
    with BinaryOutput() as output, ParquetWriter(output, head.schema) as writer:
        if head.num_rows:
            writer.write_table(head)
        for batch in rest:
            writer.write_table(batch.to_arrow().cast(head.schema))


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _csv_line(values: Iterable[object]) -> str:
    return ",".join(_csv_cell(value) for value in values)


def _csv_cell(value: object) -> str:
    text = "" if value is None else str(value)
    quoted = value == "" or any(mark in text for mark in ',"\r\n')
    return '"' + text.replace('"', '""') + '"' if quoted else text


def _to_utf8() -> None:
    """Print JSON as UTF-8, regardless of the terminal's encoding."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


def _style() -> Style:
    terminal = sys.stdout.isatty()
    encoding = sys.stdout.encoding or "ascii"
    try:
        "│─…".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        unicode = False
    else:
        unicode = True
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Style(width=_width(), unicode=unicode, colour=terminal and not plain)


def _width() -> int | None:
    """The width of the terminal, or COLUMNS; None if the output is not a terminal."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated) > 0:
        return int(stated)
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _WIDTH
    except OSError:
        return _WIDTH


def rows_text(count: int) -> str:
    """A number of rows in words."""
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


# --- frames as text -------------------------------------------------------------------------------
# Frames as text: JSON lines and CSV; and as values that Python can represent.
#
# In JSON and CSV, a binary value is hexadecimal text, a decimal is text with all its digits, and
# dates and times are ISO 8601. A MAP with text keys is an object; any other is a list of `key` and
# `value`, and so is every MAP of Polars 1. NaN and infinity, which JSON lacks, are null in JSON.
#
# DATE and TIMESTAMP have a larger range than Python (years 1 to 9999) and Polars (about 262 000
# years). A value outside Python's range is text with a sign before its year. A value outside
# Polars' range is its number of days or time units since 1970, with the unit.

PolarsType: TypeAlias = "pl.DataType | pl.datatypes.DataTypeClass"
_ISO = "%Y-%m-%dT%H:%M:%S%.f"
_UNITS = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = date(1970, 1, 1).toordinal()
_DAY_MAX = 95_000_000
"""Up to this distance from 1970, in days, Polars can write dates and timestamps of any zone."""


def printable(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame, with strings for dates and timestamps that Python cannot represent."""
    return frame.with_columns(
        _plain_values(pl.col(name), kind).alias(name)
        for name, kind in frame.schema.items()
        if _has_dates(kind) and (kind.is_nested() or not _in_python(frame[name]))
    )


def json_lines(frame: pl.DataFrame) -> str:
    """One JSON object per row, each on its line."""
    return _plain(frame).write_ndjson()


def csv_text(frame: pl.DataFrame, *, header: bool) -> str:
    """The rows as CSV. A null is empty, an empty string is `""`, and nested values are JSON."""
    plain = _plain(frame)
    nested = [name for name, kind in plain.schema.items() if kind.is_nested()]
    texts = [
        pl.Series(
            name,
            [None if value is None else json_text(value) for value in plain[name].to_list()],
            pl.String,
        )
        for name in nested
    ]
    return plain.with_columns(texts).write_csv(include_header=header)


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame, converted to types that JSON and CSV write correctly."""
    return frame.select(
        _plain_values(pl.col(name), kind).alias(name) for name, kind in frame.schema.items()
    )


def _plain_values(values: pl.Expr, kind: PolarsType) -> pl.Expr:
    match kind:
        case pl.Binary():
            return values.bin.encode("hex")
        case pl.Date():
            return _date_text(values, "%Y-%m-%d", _DAY_MAX, "days")
        case pl.Datetime():
            form = _ISO if kind.time_zone is None else f"{_ISO}%:z"
            end = min(_DAY_MAX * 86_400 * _UNITS[kind.time_unit], 2**63 - 1)
            return _date_text(values, form, end, kind.time_unit)
        case pl.Time():
            return values.dt.to_string("%H:%M:%S%.f")
        case pl.List():
            return values.list.eval(_plain_values(pl.element(), kind.inner))
        case polars_versions.Map():
            entry = pl.Struct({"key": kind.key, "value": kind.value})
            listed = values.map.entries().list.eval(_plain_values(pl.element(), entry))
            named = kind.key == pl.String
            return listed.cast(pl.Map(pl.String, _plain_type(kind.value))) if named else listed
        case pl.Struct():
            parts = [
                _plain_values(values.struct.field(name), part).alias(name)
                for name, part in kind.to_schema().items()
            ]
            return pl.when(values.is_not_null()).then(pl.struct(parts)) if parts else values
        case _:
            return values


def _date_text(values: pl.Expr, form: str, end: int, unit: str) -> pl.Expr:
    """Dates or timestamps as text.

    A value more than `end` units from 1970 becomes its number of units, with the name of the unit.
    """
    numbers = values.to_physical().cast(pl.Int64)
    text = pl.when(numbers.is_between(-end, end)).then(values).dt.to_string(form)
    return text.fill_null(pl.concat_str(numbers, pl.lit(f" {unit}")))


def _has_dates(kind: PolarsType) -> bool:
    match kind:
        case pl.Date() | pl.Datetime():
            return True
        case pl.List():
            return _has_dates(kind.inner)
        case polars_versions.Map():
            return _has_dates(kind.key) or _has_dates(kind.value)
        case pl.Struct():
            return any(_has_dates(part) for part in kind.to_schema().values())
        case _:
            return False


def _in_python(values: pl.Series) -> bool:
    """Whether Python can represent all of these dates or timestamps."""
    kind = values.dtype
    if isinstance(kind, pl.Datetime) and kind.time_unit == "ns":
        return True  # 64-bit nanoseconds only reach from 1677 to 2262
    numbers = values.to_physical().cast(pl.Int64)
    each_day = 86_400 * _UNITS[kind.time_unit] if isinstance(kind, pl.Datetime) else 1
    first, last = (day.toordinal() - _EPOCH for day in (date.min, date.max))
    return bool(numbers.is_between((first + 1) * each_day, last * each_day - 1).all())


def _plain_type(kind: PolarsType) -> PolarsType:
    """The type that `_plain_values` converts this type to."""
    match kind:
        case pl.Binary() | pl.Date() | pl.Datetime() | pl.Time():
            return pl.String()
        case pl.List():
            return pl.List(_plain_type(kind.inner))
        case polars_versions.Map():
            key, value = _plain_type(kind.key), _plain_type(kind.value)
            named = kind.key == pl.String
            return pl.Map(key, value) if named else pl.List(pl.Struct({"key": key, "value": value}))
        case pl.Struct():
            return pl.Struct({name: _plain_type(part) for name, part in kind.to_schema().items()})
        case _:
            return kind
