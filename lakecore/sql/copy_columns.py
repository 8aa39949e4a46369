"""The SQL that reads files for COPY INTO: the source of the rows, and two expressions per column.

The first expression is the value in the column's type. The second is the error: a message if the
file's value does not fit the column, else NULL. A value is never changed to make it fit: `1.5`,
`abc` and `3000000000` are errors in an INT column.

- CSV: fields are read as strings; columns are matched by position.
- JSON: fields are read as strings; columns are matched by name. Numbers of DECIMAL columns keep all
  their digits.
- Parquet: columns are matched by name, in any case, and a missing column is NULL.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import Unsupported
from lakecore.model.data_types import (
    BINARIES,
    INTEGERS,
    LENGTH_MAX,
    STRINGS,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Root,
    Row,
    Variant,
)
from lakecore.scalar.syntax_trees import IS_DUCKDB_1
from lakecore.sql.tokens import exactly, quoted, quoted_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.sql.copy_format import ImportFormat


# --- copy exact ----------------------------------------------------------------------------------
# SQL conditions for COPY INTO: whether a cast has kept the value of the file.
#
# DuckDB's casts round decimals and fractions of seconds, drop the time from dates, ignore time
# zones, and make large floats infinite. If a condition is not TRUE, the value does not fit its
# column.

_PRECISION_MAX = 38
_DIGITS_MORE = 18
_DATED = (Root.DATE, Root.TIMESTAMP, Root.TIMESTAMP_LTZ)
DIGITS = "DECIMAL(38, 18)"
"""The type in which numbers of any kind are compared."""
_TIME_DIGITS_MAX = 3
"""TIME is stored in milliseconds."""
_DATE = r"\s*[0-9]+[-/ ][0-9]+[-/ ][0-9]+"
_UTC = r"(Z|[+-]00(:?00)?)?\s*"
_PARTS = re.compile(r'"(?:[^"]|"")*"|\b(?:TINYINT|SMALLINT|INTEGER|BIGINT|DECIMAL\(\d+,\d+\))')


def same_as_text(data: Atomic, text: str, value: str) -> str:
    """An SQL condition: the cast of the string `text` to `value` was exact.

    `text` is not NULL.
    """
    match data.root:
        case Root.DECIMAL:
            plain = rf"'\s*[+-]?[0-9]*(\.[0-9]{{0,{data.decimals}}}0*)?\s*'"
            return (
                f"(regexp_full_match({text}, {plain}) "
                f"OR (contains(lower({text}), 'e') AND {_same_decimal(data, text, value)}))"
            )
        case Root.DATE:
            # The text of a date may have a time: it must be midnight.
            return (
                f"(regexp_full_match({text}, '{_DATE}([ T][0-9:.]*)?\\s*{_UTC}') "
                f"AND TRY_CAST(trim({text}) AS TIMESTAMP) = {value})"
            )
        case Root.TIME:
            time = rf"\s*[0-9:]+{_fraction(min(data.digits, _TIME_DIGITS_MAX))}\s*"
            return f"(regexp_full_match({text}, '{time}') AND {value} < TIME '24:00:00')"
        case Root.TIMESTAMP | Root.TIMESTAMP_LTZ:
            zone = _UTC if data.root is Root.TIMESTAMP else "([^0-9.:].*)?"
            time = rf"([ T][0-9:]*{_fraction(data.digits)}\s*{zone})?\s*"
            return f"regexp_full_match({text}, '{_DATE}{time}')"
        case Root.FLOAT | Root.DOUBLE:
            return rf"(isfinite({value}) OR regexp_matches(lower({text}), '^\s*[+-]?(inf|nan)'))"
        case _:
            return _short_enough(data, value)


def same_as_stored(data: Atomic, own: str, value: str) -> str:
    """The same condition for a cast of `own`, which is neither a string nor NULL."""
    if data.root in STRINGS or data.root in BINARIES:
        return _short_enough(data, value)
    if data.root in (Root.FLOAT, Root.DOUBLE):
        return f"(isfinite({value}) OR NOT isfinite(CAST({own} AS DOUBLE)))"
    same = f"coalesce(TRY({value} = {own}), false)"
    if data.root not in _DATED:
        return same
    # No DATE or TIMESTAMP of Paimon is infinite. DuckDB cannot test TIMESTAMPTZ_NS.
    tested = f"CAST({value} AS TIMESTAMPTZ)" if data.root is Root.TIMESTAMP_LTZ else value
    return f"(isfinite({tested}) AND {same})"


def same_number(text: str, number: str) -> str:
    """The condition that `text`, a JSON number as DuckDB prints it, equals `number`."""
    same = f"TRY(TRY_CAST({text} AS {DIGITS}) = {number})"
    return f"coalesce({same}, contains(json::VARCHAR, {text}))"


def wide(data: Atomic) -> str:
    """A DECIMAL type of DuckDB that has more fraction digits than the DECIMAL type `data`."""
    return f"DECIMAL({_PRECISION_MAX}, {min(_PRECISION_MAX, data.decimals + _DIGITS_MORE)})"


def parts_as(kind: str) -> str:
    """The DuckDB type `kind` of a nested value, with more fraction digits in each DECIMAL.

    An integer type within `kind` becomes a DECIMAL.
    """

    def widened(found: re.Match[str]) -> str:
        if found[0].startswith('"'):
            return found[0]
        scale = int(found[0].rstrip(")").rpartition(",")[2]) if "," in found[0] else 0
        return f"DECIMAL({_PRECISION_MAX},{min(_PRECISION_MAX, scale + _DIGITS_MORE)})"

    return _PARTS.sub(widened, kind)


def _same_decimal(data: Atomic, text: str, value: str) -> str:
    """The condition for a DECIMAL: a cast to a type with more fraction digits gives an equal value.

    If the number is too large for that type, the condition is true.
    """
    return f"coalesce(TRY(TRY_CAST({text} AS {wide(data)}) = {value}), true)"


def _fraction(digits: int) -> str:
    return rf"(\.[0-9]{{0,{digits}}}0*)?"


def _short_enough(data: Atomic, value: str) -> str:
    """The condition that a string or bytes are not longer than their type allows."""
    length = data.length
    if length is None or length >= LENGTH_MAX:
        return "true"
    count = "octet_length" if data.root in BINARIES else "length"
    return f"{count}({value}) <= {length}"


# --- copy columns --------------------------------------------------------------------------------

FILE = "__lakecore_file"
"""The column with the path of the file that a row is from."""
FIELD = "__lakecore_field_"
_LINE_BYTES_MAX = 64 << 20
_WHOLE = r"'\s*[+-]?[0-9]+\s*'"
_LONG = "'([0-9][.]?){16}'"
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
        "THEN 'malformed record: ' || coalesce(left(json::VARCHAR, 100), 'the line is no JSON') "
        "WHEN len(json_keys(json)) > len(list_distinct(json_keys(json))) "
        "THEN 'malformed record: a key stands twice: ' || left(json::VARCHAR, 100) END"
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
        if IS_DUCKDB_1 and "DECIMAL" in kind:
            raise Unsupported(
                "DuckDB 1 reads the numbers within a JSON value as DOUBLE; install DuckDB 2",
                column=field.name,
                type=kind,
            )
        # `text` is NULL if NULL_IF or EMPTY_FIELD_AS_NULL makes the field null.
        source = f"CASE WHEN {text} IS NOT NULL THEN {raw} END" if raw else f"CAST({text} AS JSON)"
        return _of_parts(field, source, kind, record="json::VARCHAR" if raw else text)
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
    if IS_DUCKDB_1 and raw and (data.root is Root.DECIMAL or data.root in STRINGS):
        same += f" AND (json_type({raw}) <> 'DOUBLE' OR {_has_number(field.name, text)})"
    elif data.root is Root.DECIMAL and raw:
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


def _has_number(name: str, text: str) -> str:
    """The condition that a JSON record has the number `text` as its field `name`.

    DuckDB 1 reads a number as DOUBLE; if the record has more digits, it has another text.
    """
    key = rf"{re.escape(json.dumps(name, ensure_ascii=False))}\s*:\s*"
    pattern = f"{quoted_text(key)} || regexp_escape({text}) || '0*\\s*[,}}]'"
    return f"regexp_matches(json::VARCHAR, {pattern})"


def _number_of_json(field: Field, kind: str) -> str:
    """The SQL of a number in a JSON record, with all its digits."""
    shape = quoted_text(json.dumps({field.name: kind}, ensure_ascii=False))
    return f"json_transform(json, {shape})[{quoted_text(field.name)}]"


def _of_parts(field: Field, raw: str, kind: str, record: str = "") -> Column:
    """The column of a nested value; `record` is the text of JSON that it is from.

    The value is read twice, the second time with types that have more digits. If the two results
    differ, a number has lost digits.
    """
    value, exact = f"CAST({raw} AS {kind})", parts_as(kind)
    wrong = [f"TRY(CAST({raw} AS {exact}) = {value}) IS false"] if exact != kind else []
    if record:
        cut = " OR ".join(_is_cut(raw, path, record) for path in _strings_of(field.type))
        if cut:
            long = f"regexp_matches(CAST({raw} AS VARCHAR), {_LONG})"
            wrong.append(f"CASE WHEN {long} THEN {cut} ELSE false END")
    error = _error_of(field, raw, " OR ".join(wrong)) if wrong else "NULL::VARCHAR"
    return Column(name=field.name, value=value, error=error)


def _strings_of(data: DataType, path: str = "$") -> Iterator[str]:
    """The JSON paths of the strings within a value; `*` is each element or value."""
    match data:
        case Row():
            for field in data.fields:
                name = "*" if '"' in field.name else f'"{field.name}"'
                yield from _strings_of(field.type, f"{path}.{name}")
        case Array():
            yield from _strings_of(data.element, f"{path}[*]")
        case Map():
            yield from _strings_of(data.value, f"{path}.*")
        case Atomic() if data.root in STRINGS:
            yield path


def _is_cut(raw: str, path: str, record: str) -> str:
    """The condition that a number at `path`, which becomes a string, has more digits in `record`.

    DuckDB prints a number of JSON with a fraction as a DOUBLE, which has 17 digits at most.
    """
    found = f"json_extract({raw}, {quoted_text(path)})"
    found = found if "*" in path else f"[{found}]"
    text = "x::VARCHAR"
    cut = f"NOT regexp_matches({record}, regexp_escape({text}) || '0*[^0-9]')"
    long = f"json_type(x) = 'DOUBLE' AND regexp_matches({text}, {_LONG})"
    # Within a lambda, AND would evaluate both sides for all rows: one pattern compiled for each.
    return f"len(list_filter({found}, lambda x: CASE WHEN {long} THEN {cut} ELSE false END)) > 0"


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
