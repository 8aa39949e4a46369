"""REPLACE TABLE: an existing table gets another schema and no rows, and keeps its snapshots.

1. Check the new schema by the rules of creation, before anything changes.
2. TRUNCATE in one commit.
3. Publish the new schema as the next one.

As in Paimon, this is not atomic: after a failure between 2 and 3, the table is empty and has its
old schema. Time travel reads old snapshots with the schema of their time. A column that keeps name
and type keeps its id; all others get new ids, so that no old value appears in a new column
(https://paimon.apache.org/docs/master/spark/sql-ddl/#replace-table).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.catalog.new_table import new_schema
from lakecore.errors import CommitConflict, Unsupported
from lakecore.model.schema import number_fields
from lakecore.table.publication import ExclusiveCreate, SchemaProposal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.catalog.new_table import SchemaLike
    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field
    from lakecore.table.handle import Table

__all__ = ["replace_table"]


def replace_table(
    table: Table,
    columns: SchemaLike,
    *,
    primary_keys: Sequence[str],
    partition_keys: Sequence[str],
    options: Mapping[str, str],
    comment: str | None,
) -> None:
    """Replace the schema of a table and remove its rows.

    Raises Unsupported if the partition keys change, as in Paimon.
    """
    context = table.context
    if not isinstance(context.publication, ExclusiveCreate):
        raise Unsupported("a table of this catalog cannot be replaced", table=table.identifier)
    wanted = new_schema(
        columns,
        primary_keys=primary_keys,
        partition_keys=partition_keys,
        options=options,
        comment=comment,
        now_ms=context.ambient.now_ms(),
        table=table.identifier,
    )
    if wanted.partition_keys != context.schema.partition_keys:
        raise Unsupported(
            "the partition keys of a table cannot be replaced; drop the table and create it",
            table=table.identifier,
            before=context.schema.partition_keys,
            after=wanted.partition_keys,
        )
    table.truncate()
    emptied = context.history.latest_snapshot_id()
    latest = context.history.latest_schema()
    if latest is None or latest.id != context.schema.id:
        raise CommitConflict(
            "another process changed the schema; the table is empty and has that schema",
            table=table.identifier,
        )
    proposal = SchemaProposal(schema=_next(context.schema, wanted), changes=())
    if context.history.latest_snapshot_id() != emptied or not context.publication.publish_schema(
        context.store, context.layout, proposal
    ):
        raise CommitConflict(
            "another process wrote to the table while it was replaced; it has its old schema",
            table=table.identifier,
        )


def _next(old: TableSchema, wanted: TableSchema) -> TableSchema:
    """The wanted schema as the next one after `old`; new columns get ids that were never used."""
    known = {(field.name, str(field.type)): field for field in old.fields}
    new = [field for field in wanted.fields if (field.name, str(field.type)) not in known]
    numbered, next_id = number_fields(new, old.highest_field_id + 1)
    fresh = {field.name: field for field in numbered}

    def with_id(field: Field) -> Field:
        kept = known.get((field.name, str(field.type)))
        if kept is None:
            return fresh[field.name]
        return replace(field, id=kept.id, type=kept.type)

    return replace(
        wanted,
        id=old.id + 1,
        fields=tuple(map(with_id, wanted.fields)),
        highest_field_id=next_id - 1,
    )
