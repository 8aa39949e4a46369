"""Prints results to standard output (a grid, JSON, CSV, Parquet), and notes to standard error."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.cli.arguments import Format
from lakecore.cli.grid import NULL, Column, Style, cells, layout, one_line
from lakecore.cli.output import BinaryOutput, flush, write
from lakecore.deferred import deferred
from lakecore.display import json_text
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polars import DataFrame
    from pyarrow.parquet import ParquetWriter

    from lakecore.cli.frame_texts import csv_text, json_lines, printable
else:
    # Polars is imported when the first frame is printed.
    DataFrame = deferred("polars", "DataFrame")
    ParquetWriter = deferred("pyarrow.parquet", "ParquetWriter")
    csv_text = deferred("lakecore.cli.frame_texts", "csv_text")
    json_lines = deferred("lakecore.cli.frame_texts", "json_lines")
    printable = deferred("lakecore.cli.frame_texts", "printable")

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
    heads = [replace(column, name=one_line(column.name)) for column in columns]
    lines = layout(heads, [cells(row, null) for row in rows], replace(_style(), whole=whole))
    say("\n".join([*([title] if title else []), *lines]))


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
