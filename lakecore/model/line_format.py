"""How data files hold rows as lines of CSV, JSON or text.

Every value is a string; `rows/line_texts.py` defines its form. A file has no header with column
names, so a reader must know the columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.options import LINE_FORMATS, TableOptions

if TYPE_CHECKING:
    from collections.abc import Sequence


_ENDS = ("\n", "\r\n", "\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """The format of a file, and its columns in order.

    `separator`, `quote`, `escape` and `null_text` are used for CSV only.
    """

    kind: str
    columns: tuple[str, ...]
    separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    null_text: str = ""
    header: bool = False
    line_end: str = "\n"


def line_format(
    file_format: str, columns: Sequence[str], options: TableOptions
) -> LineFormat | None:
    """The format of files of lines with these columns; None for other file formats.

    Raises Unsupported for a delimiter of several characters, because Java reads only the first, and
    InvalidRequest if two special characters are the same.
    """
    if file_format not in LINE_FORMATS:
        return None
    ends = {
        "csv": ("csv.line-delimiter", options.csv_line_delimiter),
        "json": ("json.line-delimiter", options.json_line_delimiter),
        "text": ("text.line-delimiter", options.text_line_delimiter),
    }
    key, line_end = ends[file_format]
    if line_end not in _ENDS:
        raise Unsupported(
            "lines end with a line feed, a carriage return, or both",
            option=key, value=line_end, table=options.table,
        )  # fmt: skip
    found = LineFormat(kind=file_format, columns=tuple(columns), line_end=line_end)
    return _csv(found, options) if file_format == "csv" else found


def _csv(found: LineFormat, options: TableOptions) -> LineFormat:
    given = {
        "csv.field-delimiter": options.csv_field_delimiter,
        "csv.quote-character": options.csv_quote_character,
        "csv.escape-character": options.csv_escape_character,
    }
    for key, text in given.items():
        if len(text) != 1 or not "\t" <= text <= "~":
            raise Unsupported(
                "this option of CSV files is one ASCII character",
                option=key, value=text, table=options.table,
            )  # fmt: skip
    if len({*given.values(), "\n", "\r"}) < len(given) + 2:
        raise InvalidRequest(
            "the characters of CSV files must differ, and end no line",
            table=options.table, **{key.removeprefix("csv."): text for key, text in given.items()},
        )  # fmt: skip
    if {*options.csv_null_literal} & {*given.values(), "\n", "\r"}:
        raise InvalidRequest(
            "what stands for null in CSV files has no characters with a meaning",
            option="csv.null-literal", value=options.csv_null_literal, table=options.table,
        )  # fmt: skip
    return LineFormat(
        kind=found.kind,
        columns=found.columns,
        separator=options.csv_field_delimiter,
        quote=options.csv_quote_character,
        escape=options.csv_escape_character,
        null_text=options.csv_null_literal,
        header=options.csv_include_header,
        line_end=found.line_end,
    )
