"""Whether files are read without loss: the same columns in each, and values that fit their types.

DuckDB rounds `1.5` to an INT, cuts a time off a DATE, and ignores the zone of a local time. Values
of CSV and JSON files are therefore checked as texts before they are read in a stated type, by the
rules of COPY INTO (`copy_columns.py`), except that `5.0` is an integer: other programs write whole
numbers so if the column has nulls. A Parquet file states its types, and the write checks them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import BINARIES, Atomic, Vector, arrow_schema, fields_from_arrow, leaves
from lakecore.sql.copy_columns import FIELD, WHOLE_TYPES, columns_of
from lakecore.sql.copy_format import ImportFormat
from lakecore.sql.tokens import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

    from lakecore.model.types import Field

__all__ = ["check_columns", "check_values", "fields_to_check"]


def fields_to_check(types: Mapping[str, pa.DataType]) -> tuple[Field, ...]:
    """The columns of stated types whose values could lose something when they are read.

    Bytes are hexadecimal in files, and their reader accepts nothing else. Raises Unsupported for
    bytes within a nested column, which have no such reader.
    """
    checked = []
    for wanted in fields_from_arrow([pa.field(name, kind) for name, kind in types.items()]):
        has_bytes = any(leaf.root in BINARIES for leaf in leaves(wanted.type))
        if has_bytes and not isinstance(wanted.type, Atomic):
            raise Unsupported(
                "bytes within a nested column are not read from CSV and JSON files; import them "
                "from Parquet",
                column=wanted.name,
                type=wanted.type,
            )
        if not has_bytes and not isinstance(wanted.type, Vector):
            checked.append(wanted)
    return tuple(checked)


def check_values(
    connection: duckdb.DuckDBPyConnection,
    whole: str,
    sources: Sequence[tuple[str, str]],
    kind: str,
    fields: Sequence[Field],
) -> None:
    """Raise InvalidRequest for the first value of a file that does not fit the type of its column.

    `whole` is the source with the rows of all files, and `sources` has each file with its own. A
    source has the columns of CSV files as texts, or the records of JSON files as `json`.
    """
    if not fields:
        return
    empty = arrow_schema(fields).empty_table()
    types = [str(each) for each in connection.from_arrow(empty).types]
    columns = columns_of(
        fields, types, ImportFormat(kind=kind.upper()), {}, by_row=False, zeros=True
    )
    wrong = ", ".join(f"coalesce(bool_or(({each.error}) IS NOT NULL), false)" for each in columns)
    named = ", ".join(f"{quoted(each.name)} AS {FIELD}{n}" for n, each in enumerate(fields))

    def texts(source: str) -> str:
        return f"(FROM {source} SELECT {named})" if kind == "csv" else source

    def checked(source: str) -> tuple[bool, ...]:
        """For each column, whether a value of the source is wrong."""
        (found,) = connection.sql(f"FROM {texts(source)} SELECT {wrong}").fetchall()
        return tuple(found)

    if not any(checked(whole)):  # the usual case: one query for all files
        return
    for file, source in sources:
        for wanted, column, is_wrong in zip(fields, columns, checked(source), strict=True):
            if is_wrong:
                raise _misfit(connection, texts(source), wanted, column.error, file)


def check_columns(files: Mapping[str, Mapping[str, str]], kind: str) -> None:
    """Raise InvalidRequest if files differ in their columns, or Parquet files in a type.

    `files` maps each file to its columns and their types. Types of integers may differ: a value
    that is too large is an error.
    """
    first, *others = files
    for file in others:
        expected, found = files[first], files[file]
        if expected.keys() != found.keys():
            raise InvalidRequest(
                "the files do not have the same columns; import them one by one",
                files=[first, file],
                missing=sorted(expected.keys() - found.keys()),
                more=sorted(found.keys() - expected.keys()),
            )
        for name in expected if kind == "parquet" else ():
            types = {expected[name], found[name]}
            if len(types) > 1 and not types <= WHOLE_TYPES:
                raise InvalidRequest(
                    "a column has different types in the files; import them one by one",
                    column=name,
                    files=[first, file],
                    types=[expected[name], found[name]],
                )


def _misfit(
    connection: duckdb.DuckDBPyConnection, texts: str, wanted: Field, error: str, file: str
) -> InvalidRequest:
    """The error that names the first row whose value does not fit."""
    numbered = f"FROM {texts} SELECT row_number() OVER () - 1 AS place, {error} AS error"
    ((place, text),) = connection.sql(
        f"FROM ({numbered}) SELECT place, error WHERE error IS NOT NULL ORDER BY place LIMIT 1"
    ).fetchall()
    return InvalidRequest(
        "the value does not fit the type of its column",
        column=wanted.name,
        value=text.partition(f" type={wanted.type} value=")[2],
        row=place,
        type=wanted.type,
        files=[file],
    )
