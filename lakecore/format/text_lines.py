"""Lines of CSV and JSON, as Java writes and reads them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.model.line_format import LineFormat


# --- csv lines -----------------------------------------------------------------------------------
# Converts columns of strings to lines of Paimon's CSV files, and back.
#
# A null is written as the null text (by default empty). A field with a separator, a quote or an
# escape character is quoted; within the quotes, an escape character precedes each quote and each
# escape character. Java before 2.1 does not escape escape characters when it writes, and so loses
# them, but it can read this form.
#
# Java reads line by line, even inside quotes, and reads a line of only blanks as a row of nulls.
# INVARIANT: a value that would be read back differently is refused.

_BYTE_ORDER_MARK = "\ufeff"
# What Java regards as blank, which differs from Unicode.
_BLANK = "[\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000]"


def csv_header(lines: LineFormat) -> str:
    """The header line with the names of the columns, including the line end."""
    names = pa.table({str(at): [name] for at, name in enumerate(lines.columns)})
    (line,) = _joined(names, lines).to_pylist()
    return f"{line}{lines.line_end}"


def csv_text(rows: pa.Table, lines: LineFormat) -> str:
    """The rows as lines with line ends. Raises InvalidRequest for a value that would be lost."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for wrong, why in (
            (pc.match_substring_regex(column, "[\r\n]"), "a line break"),
            (pc.equal(column, lines.null_text), "what stands for null: see csv.null-literal"),
        ):
            if pc.any(wrong).as_py():
                (value, *_) = pc.filter(column, wrong).to_pylist()
                raise InvalidRequest(
                    f"a CSV file cannot hold this value: it is {why}, or has one",
                    column=name, value=value,
                )  # fmt: skip
    joined = _joined(rows, lines)
    _refuse_lost_lines(rows, joined)
    return "".join(f"{line}{lines.line_end}" for line in joined.to_pylist())


def csv_columns(texts: Sequence[str], lines: LineFormat, wanted: Sequence[str]) -> list[pa.Array]:
    """The wanted columns of some lines, as strings. Fields that are missing in a line are null."""
    if not wanted:
        return []
    series = pl.Series(texts, dtype=pl.String)
    special = series.str.contains_any([lines.quote, lines.escape])
    split = series.str.split(lines.separator)
    places = [lines.columns.index(name) for name in wanted]
    columns = [split.list.get(place, null_on_oob=True) for place in places]
    at = special.arg_true().to_list()
    if at:
        count = max(places) + 1
        parsed = [_fields_of(texts[index], lines, count) for index in at]
        columns = [
            column.scatter(at, pl.Series([row[place] for row in parsed], dtype=pl.String))
            for column, place in zip(columns, places, strict=True)
        ]
    blank = series.str.contains(f"^{_BLANK}*$")
    return [
        pl.select(pl.when(blank | (column == lines.null_text)).then(None).otherwise(column))
        .to_series()
        .to_arrow()
        .cast(pa.string())
        for column in columns
    ]


def _joined(rows: pa.Table, lines: LineFormat) -> pa.ChunkedArray:
    quoted = [pc.fill_null(_quoted(column, lines), lines.null_text) for column in rows.columns]
    return pc.binary_join_element_wise(*quoted, lines.separator)


def _quoted(column: pa.ChunkedArray, lines: LineFormat) -> pa.ChunkedArray:
    marks = "".join(map(re.escape, (lines.separator, lines.quote, lines.escape)))
    special = pc.match_substring_regex(column, f"[{marks}]")
    if not pc.any(special).as_py():
        return column
    escaped = pc.replace_substring(column, lines.escape, lines.escape * 2)
    escaped = pc.replace_substring(escaped, lines.quote, lines.escape + lines.quote)
    within_quotes = pc.binary_join_element_wise(lines.quote, escaped, lines.quote, "")
    return pc.if_else(special, within_quotes, column)


def _refuse_lost_lines(rows: pa.Table, joined: pa.ChunkedArray) -> None:
    """Refuse a line that Java reads as nulls, or whose beginning Java skips."""
    blank = pc.match_substring_regex(joined, f"^{_BLANK}*$")
    valued = np.zeros(rows.num_rows, np.bool_)
    for column in rows.columns:
        valued |= column.is_valid().to_numpy()
    lost = pc.and_(blank, pa.chunked_array([pa.array(valued)]))
    marked = pc.starts_with(joined, _BYTE_ORDER_MARK)
    wrong = pc.or_(lost, marked)
    if pc.any(wrong).as_py():
        (line, *_) = pc.filter(joined, wrong).to_pylist()
        raise InvalidRequest(
            "a CSV file cannot hold this row: a reader takes the line for nulls, or for the "
            "beginning of a file",
            line=line,
        )


def _fields_of(line: str, lines: LineFormat, count: int) -> list[str | None]:
    """The first fields of a line with quotes or escape characters, parsed as Java does."""
    separator, quote, escape = lines.separator, lines.quote, lines.escape
    found: list[str | None] = []
    field: list[str] = []
    quoted = within = False
    at, end = 0, len(line)
    while at < end and len(found) < count:
        letter = line[at]
        following = line[at + 1] if at + 1 < end else ""
        if letter == escape:
            if (quoted or within) and following in (quote, escape) and following:
                field.append(following)
                at += 1
        elif letter == quote:
            if (quoted or within) and following == quote:
                field.append(following)
                at += 1
            else:
                inside = at > 2 and line[at - 1] != separator
                if inside and following and following != separator:
                    if field and re.fullmatch(f"{_BLANK}*", "".join(field)):
                        field.clear()
                    else:
                        field.append(letter)
                quoted = not quoted
            within = not within
        elif letter == separator and not quoted:
            found.append("".join(field))
            field.clear()
            within = False
        else:
            field.append(letter)
            within = True
        at += 1
    if len(found) < count and not quoted:
        found.append("".join(field))
    return found + [None] * (count - len(found))


# --- json lines ----------------------------------------------------------------------------------
# Converts columns of strings to lines of Paimon's JSON files, and back: one object for each row.
#
# Every value is written as a JSON string: also numbers, booleans, and values in lists and objects
# (a MAP is an object). A null is `null`. A reader also accepts JSON numbers and booleans, and
# returns their text in the file.

Json: TypeAlias = "str | bool | Sequence[Json] | Mapping[str, Json] | None"

_CONTROL = re.compile(r"\\u00([0-9a-f]{2})")


def json_text(rows: pa.Table, line_end: str) -> str:
    """The rows as lines with line ends. Raises InvalidRequest for a map with the same key twice."""
    try:
        records = rows.to_pylist(maps_as_pydicts="strict")
    except KeyError as error:
        raise InvalidRequest("a JSON file holds no map with a key twice", cause=error) from error
    dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return "".join(f"{_as_java(dump(record))}{line_end}" for record in records)


def json_columns(texts: Sequence[str], wanted: Sequence[pa.Field], path: str) -> list[pa.Array]:
    """The wanted columns of some lines, as strings. A column that is missing in a line is null."""
    try:
        # One call for all lines. Numbers keep their text.
        records = json.loads(f"[{','.join(texts)}]", parse_int=str, parse_float=str)
        if len(records) != len(texts) or not all(isinstance(each, dict) for each in records):
            raise ValueError("a line is not an object")  # noqa: TRY301  as malformed JSON
        return [_column([each.get(field.name) for each in records], field.type) for field in wanted]
    except (ValueError, TypeError, AttributeError, pa.ArrowException, RecursionError) as error:
        raise CorruptTable(
            "a line of the data file is not as its schema says", path=path, cause=error
        ) from error


def _column(values: list[Json], kind: pa.DataType) -> pa.Array:
    """The values of a column.

    For nested types, values are converted here, because Arrow accepts too much.
    """
    if pa.types.is_string(kind):
        try:
            return pa.array(values, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            pass
    return pa.array([_as_text(value, kind) for value in values], kind)


def _as_text(value: Json, kind: pa.DataType) -> object:
    """The value in the form that Arrow accepts: booleans as strings, maps as pairs."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        raise TypeError(f"{type(value).__name__} is no value of a column without parts")
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {part.name: _as_text(value.get(part.name), part.type) for part in kind}
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [(key, _as_text(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_as_text(item, kind.value_type) for item in value]
    raise TypeError(f"{type(value).__name__} is no value of type {kind}")


def _as_java(line: str) -> str:
    """The line with control characters escaped in upper-case hex digits, as Java's encoder does."""
    return _CONTROL.sub(lambda found: f"\\u00{found[1].upper()}", line) if "\\u00" in line else line
