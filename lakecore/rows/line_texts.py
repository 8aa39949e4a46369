"""Converts values to the strings in CSV, JSON and text files, as Java does, and back.

CSV and JSON hold every value as a string, also numbers and values inside lists, maps and rows;
binary values are Base64. INVARIANT: a value that would be read back differently is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.model.arrow_arrays import inner_of, nested_like
from lakecore.model.types import (
    BINARIES,
    INTEGERS,
    LENGTH_MAX,
    STRINGS,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Root,
    Row,
    arrow_schema,
    arrow_type,
    inner_types,
    with_nullable,
)
from lakecore.rows.casts import cast

if TYPE_CHECKING:
    from collections.abc import Sequence


_TEXT = Atomic(root=Root.VARCHAR, length=LENGTH_MAX)
_KEY_ROOTS = frozenset({*STRINGS, *INTEGERS, Root.BOOLEAN})


def text_fields(fields: Sequence[Field], kind: str) -> tuple[Field, ...]:
    """The columns with string types. Raises Unsupported for a type that such files cannot hold."""
    if kind == "text" and [with_nullable(f.type, nullable=True) for f in fields] != [_TEXT]:
        raise Unsupported(
            "text files hold one STRING column", columns=[field.name for field in fields]
        )
    return tuple(
        Field(id=field.id, name=field.name, type=_text_type(field.type, field.name, kind))
        for field in fields
    )


def to_texts(rows: pa.Table, fields: Sequence[Field], kind: str) -> pa.Table:
    """The rows as strings.

    Raises InvalidRequest for a value that would be read back differently.
    """
    texts = text_fields(fields, kind)
    columns: list[pa.Array] = []
    for field in fields:
        column = rows.column(field.name).combine_chunks()
        found = _texts(column, field.type)
        value = None
        try:
            is_same = _same(_values(found, field.type, field.name), column)
        except InvalidRequest as error:
            is_same, value = False, error.facts.get("value")
        if not is_same:
            raise InvalidRequest(
                "files of lines cannot hold a value of this column",
                column=field.name, type=field.type, format=kind, value=value,
            )  # fmt: skip
        columns.append(found)
    return pa.Table.from_arrays(columns, schema=arrow_schema(texts))


def from_texts(batch: pa.RecordBatch, fields: Sequence[Field], path: str) -> pa.RecordBatch:
    """The values of a batch of strings. Raises CorruptTable for a string that cannot be parsed."""
    columns: list[pa.Array] = []
    for field in fields:
        try:
            columns.append(_values(batch.column(field.name), field.type, field.name))
        except (InvalidRequest, pl.exceptions.PolarsError) as error:
            raise CorruptTable(
                "a value of the data file is not of the type of its column",
                path=path, column=field.name, type=field.type, cause=error,
            ) from error  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(fields))


def _text_type(data_type: DataType, column: str, kind: str) -> DataType:
    match data_type:
        case Atomic(root=Root.TIMESTAMP_LTZ | Root.BLOB):
            # Java prints times in the zone of its machine, which the file does not name.
            pass
        case Atomic():
            return Atomic(root=Root.VARCHAR, length=LENGTH_MAX, nullable=data_type.nullable)
        case Array(element=element) if kind == "json":
            return Array(element=_text_type(element, column, kind), nullable=data_type.nullable)
        case Map(key=Atomic(root=root), value=value) if kind == "json" and root in _KEY_ROOTS:
            key = Atomic(root=Root.VARCHAR, length=LENGTH_MAX, nullable=False)
            text = _text_type(value, column, kind)
            return Map(key=key, value=text, nullable=data_type.nullable)
        case Row(fields=fields) if kind == "json":
            return Row(fields=text_fields(fields, kind), nullable=data_type.nullable)
        case _:
            pass
    raise Unsupported(
        f"data files in {kind} do not hold this type; use parquet", column=column, type=data_type
    )


def _texts(array: pa.Array, data_type: DataType) -> pa.Array:
    match data_type:
        case Atomic(root=root) if root in BINARIES:
            return (
                pl.Series(array.cast(pa.large_binary()))
                .bin.encode("base64")
                .to_arrow()
                .cast(pa.string())
            )
        case Atomic(root=root) if root in STRINGS:
            return array.cast(pa.string())
        case Atomic():
            return cast(array, data_type, _TEXT)
        case _:
            parts = [
                _texts(part, inner)
                for part, inner in zip(_parts(array), inner_types(data_type), strict=True)
            ]
            return nested_like(array, arrow_type(_text_type(data_type, "", "json")), parts)


def _values(array: pa.Array, data_type: DataType, column: str) -> pa.Array:
    match data_type:
        case Atomic(root=root) if root in BINARIES:
            found = pl.Series(array.cast(pa.large_string())).str.decode("base64", strict=True)
            return found.to_arrow().cast(arrow_type(data_type))
        case Atomic(root=root) if root in STRINGS:
            return array.cast(arrow_type(data_type))
        case Atomic():
            return cast(array, _TEXT, data_type, column)
        case _:
            parts = [
                _values(part, inner, column)
                for part, inner in zip(_parts(array), inner_types(data_type), strict=True)
            ]
            return nested_like(array, arrow_type(data_type), parts)


def _parts(array: pa.Array) -> list[pa.Array]:
    """The children of an array, null below null structs, where values are arbitrary."""
    return list(array.flatten()) if pa.types.is_struct(array.type) else inner_of(array)


def _same(found: pa.Array, given: pa.Array) -> bool:
    """Whether the values are equal; NaN equals NaN."""
    if found.equals(given):
        return True
    # Floats, and the places under nulls, are compared one by one.
    return bool(pl.Series(found).equals(pl.Series(given), null_equal=True))
