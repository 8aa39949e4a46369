"""`--computed_column name=function(arguments)`: the definitions, in the order they are computed.

The first argument of a definition may name another computed column. Commas separate the arguments;
blanks around them are ignored. Every function that takes a column maps null to null.

Paimon's page: https://paimon.apache.org/docs/master/cdc-ingestion/overview/#computed-functions
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.cdc.columns.functions import FUNCTIONS, Call, call_of
from lakecore.cdc.types.mapping import STRING
from lakecore.errors import InvalidRequest
from lakecore.model.types import Field, arrow_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.types import DataType

__all__ = ["ComputedColumn", "append_computed", "computed_fields", "parse_computed_columns"]


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """One definition. The name of its function is in lower case."""

    name: str
    function: str
    arguments: tuple[str, ...]

    @property
    def reference(self) -> str | None:
        """The column that the definition refers to; None for `cast` and `now`."""
        return None if self.function in {"cast", "now"} else self.arguments[0].strip()


def parse_computed_columns(texts: Sequence[str]) -> tuple[ComputedColumn, ...]:
    """The definitions, ordered so that each comes after the definitions that it refers to.

    Raises InvalidRequest for text that is not a definition, an unknown function, two definitions of
    one name, and cyclic references.
    """
    columns = [_parsed(text) for text in texts]
    by_name = {column.name: column for column in columns}
    if len(by_name) < len(columns):
        raise InvalidRequest(
            "a computed column is defined twice", columns=[each.name for each in columns]
        )
    order: TopologicalSorter[str] = TopologicalSorter()
    for each in columns:
        order.add(each.name, *({each.reference or ""} & by_name.keys()))
    try:
        return tuple(by_name[name] for name in order.static_order())
    except CycleError as error:
        raise InvalidRequest(
            "computed columns refer to each other in a circle", columns=error.args[1]
        ) from error


def computed_fields(
    columns: Sequence[ComputedColumn], fields: Sequence[Field], *, lenient: bool = False
) -> tuple[Field, ...]:
    """The fields of the computed columns, for a table with these fields.

    If the table lacks the column that a definition refers to: with `lenient`, the computed column
    is a STRING that is always null; otherwise raises InvalidRequest.
    """
    types: dict[str, DataType] = {field.name: field.type for field in fields}
    added: list[Field] = []
    for column in columns:
        call = _call(column, types, lenient=lenient)
        types[column.name] = STRING if call is None else call.type
        added.append(Field(id=len(fields) + len(added), name=column.name, type=types[column.name]))
    return tuple(added)


def append_computed(
    rows: pa.Table,
    columns: Sequence[ComputedColumn],
    fields: Sequence[Field],
    *,
    now_ms: int,
    lenient: bool = False,
) -> pa.Table:
    """The rows, with the computed columns after their own columns. `fields` describes the rows.

    `now_ms` is the local time as if it were UTC, for `now()`. Raises InvalidRequest for a value
    that a function does not accept.
    """
    types: dict[str, DataType] = {field.name: field.type for field in fields}
    for column in columns:
        call = _call(column, types, lenient=lenient)
        types[column.name] = STRING if call is None else call.type
        values: pa.Array | pa.ChunkedArray
        if call is None:
            values = _nulls(rows.num_rows)
        else:
            given = None if column.reference is None else rows.column(column.reference)
            values = call.evaluate(given, rows.num_rows, now_ms)
        rows = rows.append_column(column.name, values.cast(arrow_type(types[column.name])))
    return rows


def _nulls(count: int) -> pa.Array:
    return pa.nulls(count, arrow_type(STRING))


def _call(column: ComputedColumn, types: dict[str, DataType], *, lenient: bool) -> Call | None:
    reference = column.reference
    if reference is None:
        return call_of(column.function, None, column.arguments, column.name)
    if reference not in types:
        if lenient:
            return None
        raise InvalidRequest(
            "a computed column refers to a column that the source does not have",
            column=column.name,
            reference=reference,
            columns=list(types),
        )
    literals = tuple(each.strip() for each in column.arguments[1:])
    return call_of(column.function, types[reference], literals, column.name)


def _parsed(text: str) -> ComputedColumn:
    name, _, expression = text.partition("=")
    function, opening, rest = expression.strip().partition("(")
    inside, closing, more = rest.partition(")")
    function = function.strip().lower()
    well_formed = name.strip() and function and opening and closing and not more.strip()
    if not well_formed or "=" in expression:
        raise InvalidRequest(
            "not a computed column: write name=function(arguments, ...)", computed_column=text
        )
    if function not in FUNCTIONS:
        raise InvalidRequest(
            "unknown function of a computed column", function=function, known=sorted(FUNCTIONS)
        )
    return ComputedColumn(name.strip(), function, tuple(inside.split(",")))
