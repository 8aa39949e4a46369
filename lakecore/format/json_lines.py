"""Converts columns of strings to lines of Paimon's JSON files, and back: one object for each row.

Every value is written as a JSON string: also numbers, booleans, and values in lists and objects (a
MAP is an object). A null is `null`. A reader also accepts JSON numbers and booleans, and returns
their text in the file.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lakecore.errors import CorruptTable, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
