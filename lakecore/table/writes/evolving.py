"""Writes under a schema that is stored only when all of their rows are known to fit it.

1. The first batch of rows defines the columns of a new table, or the columns that an existing table
   lacks (`model/schema_merge.py`).
2. All rows are read and checked against that schema.
3. The schema is stored; then the rows are written and committed.

If a row does not fit, nothing is stored. If the commit fails later, the schema stays: a table with
more nullable columns or wider types, or a new table without rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import CommitConflict, InvalidRequest
from lakecore.frames.incoming import incoming_batches
from lakecore.model.evolution import evolve
from lakecore.model.rows import ROW_KIND
from lakecore.model.schema_merge import merge_changes
from lakecore.model.types import plain_type
from lakecore.plan.partitions import bucket_key_fields
from lakecore.table.context import reload_context, with_schema
from lakecore.table.publication import SchemaProposal
from lakecore.table.writes.buffer_limits import batch_limit
from lakecore.table.writes.write_start import Unstored, read_base

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.table.context import TableContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolved:
    """The rows of a write, and a table that has all of their columns.

    `unstored` is the schema of that table, if it is not stored yet.
    """

    context: TableContext
    rows: Iterator[pa.RecordBatch]
    unstored: Unstored | None = None


def evolve_for(context: TableContext, data: object, *, widen: bool) -> Evolved:
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
    fixed = {
        *newest.schema.primary_keys,
        *newest.schema.partition_keys,
        *(field.name for field in bucket_key_fields(newest.schema, newest.options)),
        *newest.options.sequence_field,
    }
    changes = merge_changes(newest.schema.fields, first.schema, widen=widen, fixed=fixed)
    if not changes:
        return Evolved(context=newest, rows=rows)
    base = read_base(newest)
    changed = evolve(
        newest.schema,
        changes,
        now_ms=newest.ambient.now_ms(),
        has_snapshots=base.snapshot is not None,
        table=newest.identifier,
    )

    def publish() -> None:
        proposal = SchemaProposal(schema=changed, changes=changes)
        if not newest.publication.publish_schema(newest.store, newest.layout, proposal):
            raise CommitConflict(
                "another process changed the schema at the same time: write again",
                table=newest.identifier,
                schema=changed.id,
            )

    evolved = with_schema(newest, changed)
    return Evolved(context=evolved, rows=rows, unstored=Unstored(publish=publish, base=base))


def columns_of_rows(data: object) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns of a new table for these rows, and the rows themselves.

    The columns are those of the first batch, without `_row_kind`. Raises InvalidRequest if there
    are none, or if the type of one is not known.
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
