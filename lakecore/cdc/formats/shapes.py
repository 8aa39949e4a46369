"""Shapes: conversions of JSON rows to columns, as strings or with types that a schema states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from lakecore.cdc.events import SourceSchema
from lakecore.cdc.formats.json_values import JsonError
from lakecore.cdc.formats.rows_json import RowReader
from lakecore.cdc.types.mapping import STRING
from lakecore.errors import InvalidRequest
from lakecore.model.types import Field, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.model.types import DataType

__all__ = ["TextShape", "TypedShape", "converted"]

_WRONG_VALUES = (
    pa.ArrowException,
    ArithmeticError,
    AttributeError,
    RecursionError,
    TypeError,
    ValueError,
)


class Column(Protocol):
    """A typed column, and the function that converts its values."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> DataType: ...
    @property
    def convert(self) -> Callable[[pa.Array, str], pa.Array]: ...
    @property
    def hint(self) -> pa.DataType | None: ...
    @property
    def quoted(self) -> bool: ...
    @property
    def comment(self) -> str | None: ...


class TextShape:
    """Converts rows without types: each member becomes a STRING column, in order of appearance."""

    def __init__(self) -> None:
        self._reader = RowReader()

    def read(
        self, raws: Sequence[bytes], primary_key: tuple[str, ...]
    ) -> tuple[SourceSchema, pa.Table]:
        """The schema of the rows, and the rows."""
        table = self._reader.read(raws)
        if raws and not table.num_columns:
            raise JsonError(0, "the row has no members")
        fields = tuple(
            Field(id=at, name=name, type=STRING) for at, name in enumerate(table.schema.names)
        )
        columns = [column.cast(pa.string()) for column in table.columns]
        schema = SourceSchema(fields=fields, primary_key=primary_key)
        return schema, pa.Table.from_arrays(columns, schema=_nullable(fields))


class TypedShape:
    """Converts rows with known columns. Members that are not columns are ignored."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self._fields = tuple(
            Field(id=at, name=each.name, type=each.type, description=each.comment)
            for at, each in enumerate(columns)
        )
        self._reader = RowReader(
            {each.name: each.hint for each in columns if each.hint is not None},
            frozenset(each.name for each in columns if each.quoted),
        )

    def read(
        self, raws: Sequence[bytes], primary_key: tuple[str, ...]
    ) -> tuple[SourceSchema, pa.Table]:
        """The schema of the rows, and the rows."""
        given = self._reader.read(raws)
        names = set(given.schema.names)
        columns = []
        for column in self._columns:
            if column.name in names:
                values = given.column(column.name).combine_chunks()
            else:
                values = pa.nulls(len(raws), pa.string())
            columns.append(converted(column.convert, values, column.name))
        schema = SourceSchema(fields=self._fields, primary_key=primary_key)
        return schema, pa.Table.from_arrays(columns, schema=_nullable(self._fields))


def converted(convert: Callable[[Any, str], pa.Array], values: Any, column: str) -> pa.Array:
    """The values of a column in its type. Raises InvalidRequest if one does not fit."""
    try:
        return convert(values, column)
    except InvalidRequest:
        raise
    except _WRONG_VALUES as error:
        raise InvalidRequest(
            "a value does not fit the column's type", column=column, cause=error
        ) from error


def _nullable(fields: Sequence[Field]) -> pa.Schema:
    return pa.schema([each.with_nullable(True) for each in arrow_schema(fields)])
