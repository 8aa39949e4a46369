"""The SQL that reads files for COPY INTO: the source of the rows, and two expressions per column.

The first expression is the value in the column's type. The second is the error: a message if the
file's value does not fit the column, else NULL. A value is never changed to make it fit: `1.5`,
`abc` and `3000000000` are errors in an INT column (`copy_exact.py`).

- CSV: fields are read as strings; columns are matched by position.
- JSON: fields are read as strings; columns are matched by name. Numbers of DECIMAL columns keep all
  their digits.
- Parquet: columns are matched by name, in any case, and a missing column is NULL.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import Unsupported
from lakecore.model.data_types import (
    BINARIES,
    INTEGERS,
    STRINGS,
    Array,
    Map,
    Multiset,
    Root,
    Row,
    Variant,
)
from lakecore.sql.copy_exact import (
    DIGITS,
    parts_as,
    same_as_stored,
    same_as_text,
    same_number,
    wide,
)
from lakecore.sql.tokens import exactly, quoted, quoted_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.model.data_types import Field
    from lakecore.sql.copy_format import ImportFormat

__all__ = ["FIELD", "FILE", "Column", "columns_of", "files_of", "malformed", "source_of"]

FILE = "__lakecore_file"
"""The column with the path of the file that a row is from."""
FIELD = "__lakecore_field_"
_LINE_BYTES_MAX = 64 << 20
_WHOLE = r"'\s*[+-]?[0-9]+\s*'"
_WHOLE_OR_ZERO = r"'\s*[+-]?([0-9]+|[0-9]{1,15}\.0*)\s*'"
"""A whole number, perhaps with a fraction of zeros. DuckDB reads 15 digits of JSON's exactly."""
WHOLE_TYPES = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table as SQL: the expression of its value, and that of its error."""

    name: str
    value: str
    error: str


def source_of(
    paths: Sequence[str], chosen: ImportFormat, columns: int, *, skip_bad: bool, rejects: str = ""
) -> str:
    """The table function that reads the files.

    With `skip_bad`, CSV lines that do not parse are left out, and recorded in the table `rejects`.
    """
    files = files_of(paths)
    common = [f"filename = {quoted_text(FILE)}"]
    if chosen.kind == "PARQUET":
        return (
            f"read_parquet({files}, {common[0]}, union_by_name = true, hive_partitioning = false)"
        )
    if chosen.compression is not None:
        common.append(f"compression = {quoted_text(chosen.compression)}")
    if chosen.kind == "JSON":
        # NOTE: with `ignore_errors`, DuckDB returns NULL for a line that is not JSON.
        form = "auto" if chosen.multi_line else "newline_delimited"
        common += [f"format = '{form}'", f"maximum_object_size = {_LINE_BYTES_MAX}"]
        common += [] if chosen.multi_line else ["ignore_errors = true"]
        return f"read_json_objects({files}, {', '.join(common)})"
    types = ", ".join(f"'{FIELD}{place}': 'VARCHAR'" for place in range(columns))
    settings = [
        f"columns = {{{types}}}",
        "auto_detect = false",
        "hive_partitioning = false",
        f"header = {str(chosen.header).lower()}",
        f"delim = {quoted_text(chosen.delimiter)}",
        f"quote = {quoted_text(chosen.quote)}",
        f"escape = {quoted_text(chosen.escape)}",
        "nullstr = ''",
        "allow_quoted_nulls = false",
        "null_padding = false",
        "strict_mode = true",
        f"ignore_errors = {str(skip_bad).lower()}",
        *common,
    ]
    if rejects:
        settings.append(
            f"store_rejects = true, rejects_table = '{rejects}', rejects_scan = '{rejects}_scan'"
        )
    source = f"read_csv({files}, {', '.join(settings)})"
    # A blank line is not a row. DuckDB skips it, except in files with one column.
    return f"(FROM {source} WHERE {FIELD}0 IS NOT NULL)" if columns == 1 else source


def files_of(paths: Sequence[str]) -> str:
    """The list of these files as SQL."""
    return "[" + ", ".join(quoted_text(exactly(path)) for path in paths) + "]"


def malformed(chosen: ImportFormat) -> str:
    """The error of a row that is not a record at all, as SQL; NULL if the row is a record."""
    if chosen.kind != "JSON":
        return "NULL::VARCHAR"
    return (
        "CASE WHEN json IS NULL OR json_type(json) IS DISTINCT FROM 'OBJECT' "
        "THEN 'malformed record: ' || coalesce(left(json::VARCHAR, 100), 'the line is no JSON') END"
    )


def columns_of(
    fields: Sequence[Field],
    types: Sequence[str],
    chosen: ImportFormat,
    stored: Mapping[str, str],
    *,
    by_row: bool,
    zeros: bool = False,
) -> list[Column]:
    """The columns of the table that the files fill, in order.

    `types` are DuckDB's types of the fields. `stored` maps the columns of Parquet files to their
    types. With `by_row`, bad rows are counted or left out instead of raising an error. A nested
    column is then Unsupported, because a bad part of a value would silently become NULL. With
    `zeros`, the text `5.0` is an integer.
    """
    whole = _WHOLE_OR_ZERO if zeros else _WHOLE
    columns = []
    for place, (field, kind) in enumerate(zip(fields, types, strict=True)):
        if chosen.kind == "PARQUET":
            columns.append(_of_parquet(field, kind, stored, by_row=by_row))
            continue
        if chosen.kind == "CSV":
            raw, text = "", f"{FIELD}{place}"
        else:
            pointer = "/" + field.name.replace("~", "~0").replace("/", "~1")
            raw = f"json_extract(json, {quoted_text(pointer)})"
            text = f"json_extract_string(json, {quoted_text(pointer)})"
        for null in chosen.null_if:
            text = f"nullif({text}, {quoted_text(null)})"
        if chosen.empty_as_null:
            text = f"nullif({text}, '')"
        columns.append(_of_text(field, kind, text, raw, by_row=by_row, whole=whole))
    return columns


def _of_text(field: Field, kind: str, text: str, raw: str, *, by_row: bool, whole: str) -> Column:
    data = field.type
    if isinstance(data, Array | Map | Multiset | Row) and not isinstance(data, Variant):
        if by_row:
            raise _nested(field)
        # `text` is NULL if NULL_IF or EMPTY_FIELD_AS_NULL makes the field null.
        source = f"CASE WHEN {text} IS NOT NULL THEN {raw} END" if raw else f"CAST({text} AS JSON)"
        return _of_parts(field, source, kind)
    if isinstance(data, Variant):
        value = f"CASE WHEN json_valid({text}) THEN {text} END"
        if raw:
            given = f"{text} IS NOT NULL OR json_type({raw}) = 'NULL'"
            value = f"CASE WHEN {given} THEN CAST({raw} AS VARCHAR) END"
        return _checked(field, text, value, "true")
    value = f"TRY_CAST({text} AS {kind})"
    if data.root in INTEGERS:
        value = f"CASE WHEN regexp_full_match({text}, {whole}) THEN {value} END"
    elif data.root in BINARIES:
        value = f"encode({text})"
    same = same_as_text(data, text, value)
    if data.root is Root.DECIMAL and raw:
        # DuckDB prints a JSON number with 17 digits at most; `json_transform` reads all its digits.
        number = _number_of_json(field, kind)
        exact = f"coalesce({_number_of_json(field, wide(data))} = {number}, true)"
        is_text = f"json_type({raw}) = 'VARCHAR'"
        value = f"CASE WHEN {is_text} THEN {value} WHEN {text} IS NOT NULL THEN {number} END"
        same = f"CASE WHEN {is_text} THEN {same} ELSE TRY({exact}) IS NOT false END"
    elif data.root in STRINGS and raw:
        # DuckDB prints a JSON number with 17 digits at most; the number may have more.
        number = _number_of_json(field, DIGITS)
        same += f" AND (json_type({raw}) <> 'DOUBLE' OR {same_number(text, number)})"
    return _checked(field, text, value, same)


def _number_of_json(field: Field, kind: str) -> str:
    """The SQL of a number in a JSON record, with all its digits."""
    shape = quoted_text(json.dumps({field.name: kind}, ensure_ascii=False))
    return f"json_transform(json, {shape})[{quoted_text(field.name)}]"


def _of_parts(field: Field, raw: str, kind: str) -> Column:
    """The column of a nested value.

    The value is read twice, the second time with types that have more digits. If the two results
    differ, a number has lost digits.
    """
    value, exact = f"CAST({raw} AS {kind})", parts_as(kind)
    error = "NULL::VARCHAR"
    if exact != kind:
        error = _error_of(field, raw, f"TRY(CAST({raw} AS {exact}) = {value}) IS false")
    return Column(name=field.name, value=value, error=error)


def _of_parquet(field: Field, kind: str, stored: Mapping[str, str], *, by_row: bool) -> Column:
    name = next((each for each in stored if each.lower() == field.name.lower()), None)
    name = field.name if field.name in stored else name
    if name is None:
        return Column(name=field.name, value=f"NULL::{kind}", error="NULL::VARCHAR")
    own, given = quoted(name), stored[name]
    if isinstance(field.type, Variant):
        return Column(name=field.name, value=own, error="NULL::VARCHAR")
    if isinstance(field.type, Array | Map | Multiset | Row):
        if given == kind:
            return Column(name=field.name, value=own, error="NULL::VARCHAR")
        if by_row:
            raise _nested(field)
        return _of_parts(field, own, kind)
    value = f"TRY_CAST({own} AS {kind})"
    if field.type.root in INTEGERS:
        if given == "VARCHAR":
            value = f"CASE WHEN regexp_full_match({own}, {_WHOLE}) THEN {value} END"
        elif given not in WHOLE_TYPES:
            value = f"CASE WHEN TRY_CAST({own} AS {kind}) = {own} THEN {value} END"
    elif field.type.root in BINARIES and given == "VARCHAR":
        value = f"encode({own})"
    elif field.type.root in STRINGS and given == "BLOB":
        value = f"TRY(decode({own}))"
    same = (same_as_text if given == "VARCHAR" else same_as_stored)(field.type, own, value)
    return _checked(field, own, value, same)


def _checked(field: Field, given: str, value: str, same: str) -> Column:
    """The column of a value that was cast from `given`, the file's value.

    A value is an error if the cast makes it NULL, or if `same` says that it differs from `given`.
    """
    wrong = f"{given} IS NOT NULL AND ({value} IS NULL OR ({same}) IS NOT true)"
    if not field.type.nullable and field.default_value is None:
        wrong = f"{value} IS NULL OR ({wrong})"
    return Column(name=field.name, value=value, error=_error_of(field, given, wrong))


def _error_of(field: Field, given: str, wrong: str) -> str:
    said = quoted_text(
        f"the value does not fit its column. column={field.name} type={field.type} value="
    )
    shown = f"coalesce(left(CAST({given} AS VARCHAR), 100), 'NULL')"
    return f"CASE WHEN {wrong} THEN {said} || {shown} END"


def _nested(field: Field) -> Unsupported:
    return Unsupported(
        "ON_ERROR = CONTINUE and SKIP_FILE cannot check the parts of a value; leave out ON_ERROR",
        column=field.name,
        type=field.type,
    )
