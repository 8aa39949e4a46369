"""The first schema of a new table, from any of the accepted kinds of schema.

A schema is a pyarrow.Schema, a Polars schema, or a mapping of column names to types. A type is a
string in Paimon's syntax (`"DECIMAL(10, 2) NOT NULL"`), a Polars data type or class, a pyarrow data
type, a type of lakecore, or a lakecore `Field`, which also has a comment and a default value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import polars as pl
import pyarrow as pa

from lakecore.errors import AlreadyExists, CommitUnknown, InvalidRequest, LakecoreError
from lakecore.format.layout import Layout
from lakecore.memory import process_budget
from lakecore.model.types import (
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Row,
    fields_from_arrow,
    fields_from_polars,
    from_arrow,
    parse_type,
)
from lakecore.model.validation import create_schema
from lakecore.table.context import bind_context
from lakecore.table.writes.batch_write import author, columns_of_rows, write_rows
from lakecore.table.writes.write_start import Unstored, WriteStart

if TYPE_CHECKING:
    from polars.datatypes import DataTypeClass

    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.table.publication import Publication

ColumnType: TypeAlias = "str | Field | DataType | pa.DataType | pl.DataType | DataTypeClass"
SchemaLike: TypeAlias = "pa.Schema | Mapping[str, ColumnType]"
"""What `create_table` accepts as a schema. A Polars schema is such a mapping."""


def new_schema(  # noqa: PLR0913  the parts of a table definition
    schema: SchemaLike,
    *,
    primary_keys: Sequence[str] | None,
    partition_keys: Sequence[str] | None,
    options: Mapping[str, str],
    comment: str | None,
    now_ms: int,
    table: str,
) -> TableSchema:
    """The first schema of a new table, checked by all rules of creation."""
    primary_keys = () if primary_keys is None else primary_keys
    partition_keys = () if partition_keys is None else partition_keys
    for what, names in (("primary_keys", primary_keys), ("partition_keys", partition_keys)):
        if isinstance(names, str | bytes) or not isinstance(names, Iterable):
            raise InvalidRequest(f"{what} is a list of columns", given=names, table=table)
    return create_schema(
        columns_of(schema),
        primary_keys=tuple(primary_keys),
        partition_keys=tuple(partition_keys),
        options=dict(options),
        comment=comment,
        now_ms=now_ms,
        table=table,
    )


def columns_of(schema: SchemaLike) -> tuple[Field, ...]:
    """The columns of a schema, with the ids 0, 1, ...; creation assigns new ids."""
    if isinstance(schema, pa.Schema):
        fields = fields_from_arrow(list(schema))
    elif isinstance(schema, Mapping):
        fields = tuple(
            replace(source, id=index, name=_name(name))
            if isinstance(source, Field)
            else Field(id=index, name=_name(name), type=_type(source, name))
            for index, (name, source) in enumerate(schema.items())
        )
    else:
        hint = "; give the schema of the data: data.schema" if hasattr(schema, "schema") else ""
        raise InvalidRequest(
            "a schema is a pyarrow.Schema, a Polars schema or a mapping of column to type" + hint,
            schema=type(schema).__name__,
        )
    if not fields:
        raise InvalidRequest("a table needs at least one column")
    return fields


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidRequest("the name of a column must be a string", column=name)
    return name


def _type(source: object, column: str) -> DataType:
    if isinstance(source, str):
        return parse_type(source, context=column)
    if isinstance(source, Atomic | Array | Multiset | Map | Row):
        return source
    if isinstance(source, pa.DataType):
        return from_arrow(source, context=column)
    if isinstance(source, pl.DataType) or (
        isinstance(source, type) and issubclass(source, pl.DataType)
    ):
        (field,) = fields_from_polars({column: source})
        return field.type
    raise InvalidRequest(
        "the type of a column is a string, a Polars data type or a pyarrow data type",
        column=column,
        type=type(source).__name__,
    )


# --- filled table --------------------------------------------------------------------------------
# Creation of tables together with their first rows.
#
# The rows are converted before the table is created: if a row does not fit, no table is created. If
# the commit fails, the table exists without rows.


def create_filled(  # noqa: PLR0913  where the table is, and what it is made of
    store: Store,
    path: str,
    schema: TableSchema,
    rows: object,
    create: Callable[[Store, str, TableSchema], bool],
    *,
    ambient: Ambient,
    publication: Publication,
    table: str,
) -> bool:
    """Create a table with `create` and write its rows. One of several callers gets True.

    `rows`: None for a table without rows.
    """
    if rows is None:
        return create(store, path, schema)
    context = bind_context(
        publication.history(store, Layout(root=path)),
        schema,
        identifier=table,
        dynamic_options={},
        ambient=ambient,
        budget=process_budget(),
        publication=publication,
    )
    empty = WriteStart(snapshot=None, bucket_counts={}, sequences={})
    exists = False

    def publish() -> None:
        nonlocal exists
        exists = create(store, path, schema)
        if not exists:
            raise AlreadyExists(
                "another process created the table at the same time", table=table, path=path
            )

    try:
        unstored = Unstored(publish=publish, base=empty)
        write_rows(context, rows, author(context), unstored=unstored)
    except AlreadyExists:
        return False
    except LakecoreError as error:
        if not exists or isinstance(error, CommitUnknown):
            raise
        # Another process may have written to the table already, so it is not dropped.
        said = f"{error.message}; the table was created, and none of these rows is in it"
        raise type(error)(said, **error.facts) from error
    return True


def first_schema(  # noqa: PLR0913  the parts of a table definition
    schema: SchemaLike | None,
    data: object,
    *,
    primary_keys: Sequence[str] | None,
    partition_keys: Sequence[str] | None,
    options: Mapping[str, str],
    comment: str | None,
    now_ms: int,
    table: str,
) -> tuple[TableSchema, object]:
    """The schema of a new table, and its first rows. Default of `schema`: the rows' columns."""
    if schema is None:
        if data is None:
            raise InvalidRequest(
                "a table needs a schema: give schema=..., or data=... with the columns",
                table=table,
            )
        schema, data = columns_of_rows(data)
    first = new_schema(
        schema,
        primary_keys=primary_keys,
        partition_keys=partition_keys,
        options=options,
        comment=comment,
        now_ms=now_ms,
        table=table,
    )
    return first, data
