"""Writes under a schema that is stored only when all of their rows are known to fit it.

1. The first batch of rows defines the columns of a new table, or the columns that an existing table
   lacks (`model/evolution.py`).
2. All rows are read and checked against that schema.
3. The schema is stored; then the rows are written and committed.

If a row does not fit, nothing is stored. If the commit fails later, the schema stays: a table with
more nullable columns or wider types, or a new table without rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import CommitConflict, InvalidRequest, check_flags
from lakecore.frames.incoming import incoming_batches
from lakecore.model.evolution import TypeChanges, evolve, merge_changes
from lakecore.model.rows import ROW_KIND
from lakecore.model.types import plain_type
from lakecore.plan.partitions import bucket_key_fields
from lakecore.table.context import TableContext, reload_context, with_schema
from lakecore.table.publication import SchemaProposal
from lakecore.table.writes.bucket_buffer import batch_limit
from lakecore.table.writes.write_start import Unstored, WriteStart, read_base

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.options import TableOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolved:
    """The rows of a write, and a table that has all of their columns.

    `unstored` is the schema of that table, if it is not stored yet.
    """

    context: TableContext
    rows: Iterator[pa.RecordBatch]
    unstored: Unstored | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """A new schema that the columns of a write require. Picklable.

    `base` has the facts about the table under the old schema.
    """

    proposal: SchemaProposal
    base: WriteStart

    def publish(self, context: TableContext) -> None:
        """Store the schema. Raises CommitConflict if another schema already has its id."""
        if not context.publication.publish_schema(context.store, context.layout, self.proposal):
            raise CommitConflict(
                "another process changed the schema at the same time: write again",
                table=context.identifier,
                schema=self.proposal.schema.id,
            )


def type_changes_of(options: TableOptions, *, evolve_schema: bool | None) -> TypeChanges | None:
    """The changes of types that a write may make; None if it must not change the schema.

    `evolve_schema`: the argument of the verb; with None, the options decide.
    """
    if evolve_schema is not None:
        check_flags(evolve_schema=evolve_schema)
    wanted = options.write_merge_schema if evolve_schema is None else evolve_schema
    if not wanted:
        return None
    if not (evolve_schema or options.write_merge_schema_type_widening):
        return TypeChanges.NONE
    casts = options.write_merge_schema_explicit_cast
    return TypeChanges.CASTS if casts else TypeChanges.WIDENING


def evolution_for(
    newest: TableContext, given: pa.Schema, types: TypeChanges
) -> tuple[TableContext, Evolution] | None:
    """The table with the given columns, and the schema to store; None if the table has the columns.

    Raises InvalidRequest for a column that cannot be added.
    """
    fixed = {
        *newest.schema.primary_keys,
        *newest.schema.partition_keys,
        *(field.name for field in bucket_key_fields(newest.schema, newest.options)),
        *newest.options.sequence_field,
    }
    changes = merge_changes(newest.schema.fields, given, types=types, fixed=fixed)
    if not changes:
        return None
    base = read_base(newest)
    changed = evolve(
        newest.schema,
        changes,
        now_ms=newest.ambient.now_ms(),
        has_snapshots=base.snapshot is not None,
        table=newest.identifier,
    )
    proposal = SchemaProposal(schema=changed, changes=changes)
    return with_schema(newest, changed), Evolution(proposal=proposal, base=base)


def evolve_for(context: TableContext, data: object, types: TypeChanges) -> Evolved:
    """The table with its newest schema and the columns that the first batch of data adds.

    Raises InvalidRequest for a column that cannot be added. `Unstored.publish` of the result raises
    CommitConflict if the schema was changed concurrently.
    """
    newest = reload_context(context)
    limit = batch_limit(context.budget.size_bytes)
    batches = incoming_batches(data, newest.schema.fields, bytes_max=limit, settles=True)
    first = next(batches, None)
    if first is None:
        return Evolved(context=newest, rows=iter(()))
    rows = chain((first,), batches)
    found = evolution_for(newest, first.schema, types)
    if found is None:
        return Evolved(context=newest, rows=rows)
    evolved, evolution = found
    unstored = Unstored(publish=partial(evolution.publish, newest), base=evolution.base)
    return Evolved(context=evolved, rows=rows, unstored=unstored)


def columns_of_rows(data: object) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a new table for these rows, and the rows themselves.

    The columns are those of the first batch, without `_row_kind`. Raises InvalidRequest if there
    are no columns, or if the type of a column is not known.
    """
    batches = incoming_batches(data)
    first = next(batches, None)
    given = pa.schema([]) if first is None else first.schema
    fields = [field.with_type(plain_type(field.type)) for field in given if field.name != ROW_KIND]
    if not fields:
        raise InvalidRequest("the data has no columns to make a table of: give a schema")
    for field in fields:
        if pa.types.is_null(field.type):
            raise InvalidRequest(
                "a column has only nulls, and no type is known: cast it, or give a schema",
                column=field.name,
            )
    return pa.schema(fields), iter(()) if first is None else chain((first,), batches)
