"""Creation of tables together with their first rows.

The rows are converted before the table is created: if a row does not fit, no table is created. If
the commit fails, the table exists without rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.catalog.new_table import new_schema
from lakecore.errors import AlreadyExists, InvalidRequest
from lakecore.format.layout import Layout
from lakecore.memory import process_budget
from lakecore.table.context import bind_context
from lakecore.table.writes.batch_write import author, write_rows
from lakecore.table.writes.evolving import columns_of_rows
from lakecore.table.writes.write_start import Unstored, WriteStart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.catalog.new_table import SchemaLike
    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.table.publication import Publication

__all__ = ["create_filled", "first_schema"]


def create_filled(  # noqa: PLR0913  the parts of a table definition
    store: Store,
    path: str,
    schema: SchemaLike | None,
    data: object,
    create: Callable[[Store, str, TableSchema], bool],
    *,
    primary_keys: Sequence[str] | None,
    partition_keys: Sequence[str] | None,
    options: Mapping[str, str],
    comment: str | None,
    ambient: Ambient,
    publication: Publication,
    table: str,
) -> bool:
    """Create a table with `create` and write its rows. Of concurrent callers, one gets True.

    Without `schema`, the table has the schema of the rows. Without `data`, it has no rows.
    """
    first, rows = first_schema(
        schema,
        data,
        primary_keys=primary_keys,
        partition_keys=partition_keys,
        options=options,
        comment=comment,
        now_ms=ambient.now_ms(),
        table=table,
    )
    if data is None:
        return create(store, path, first)
    context = bind_context(
        publication.history(store, Layout(root=path)),
        first,
        identifier=table,
        dynamic_options={},
        ambient=ambient,
        budget=process_budget(),
        publication=publication,
    )
    empty = WriteStart(snapshot=None, bucket_counts={}, sequences={})

    def publish() -> None:
        if not create(store, path, first):
            raise AlreadyExists(
                "another process created the table at the same time", table=table, path=path
            )

    try:
        unstored = Unstored(publish=publish, base=empty)
        write_rows(context, rows, author(context), unstored=unstored)
    except AlreadyExists:
        return False
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
    """The schema of a new table, and its first rows. Without `schema`, it has the rows' columns."""
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
