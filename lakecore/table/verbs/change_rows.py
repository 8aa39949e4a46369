"""DELETE and UPDATE of the rows that a condition is true for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.frames.source import reading
from lakecore.plan.row_changes import (
    UpdateShape,
    Verb,
    check_deletion,
    check_engine,
    deletion_columns,
    update_shape,
)
from lakecore.scalar.values import Sql, types_of
from lakecore.table.reads.row_values import (
    Condition,
    bound_values,
    check_expression,
    holds,
    named_values,
    names_in,
    parse_condition,
    plain_value,
    setting_of,
    values_of,
)
from lakecore.table.verbs.column_changes import changes_of, require_deletion
from lakecore.table.verbs.row_writer import (
    Changed,
    RowWriter,
    commit_changes,
    key_of,
    newest,
    require_one,
    require_values,
    tells_before,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import CommitResult
    from lakecore.options import TableOptions
    from lakecore.table.context import TableContext
    from lakecore.table.reads.source import TableSource
    from lakecore.table.writes.batch_write import Author
    from lakecore.table.writes.write_start import WriteStart


# --- delete --------------------------------------------------------------------------------------
# DELETE: removes the rows that match a condition; a table with a key gets one -D row for each.
#
# Only the columns of the condition and of the -D rows are read. For a condition on the key, these
# are the key and the NOT NULL columns.


def delete_rows(context: TableContext, where: pl.Expr | str, by: Author) -> CommitResult:
    """Delete the matching rows in one commit; see `Table.delete`."""
    source, condition = deletion(context, where)
    return commit_changes(context, Verb.DELETE, [deleted(context, source, condition)], by)


def deletion(context: TableContext, where: pl.Expr | str) -> tuple[TableSource, Condition]:
    """The state that a DELETE reads, and its checked condition.

    Raises an error if the table cannot delete rows or the condition is invalid.
    """
    check_deletion(context.options)
    require_deletion(context)
    source = newest(context, Verb.DELETE)
    condition = parse_condition(where, context.schema, setting_of(context))
    require_values(context, condition.columns)
    return source, condition


def deleted(
    context: TableContext, source: TableSource, condition: Condition, base: WriteStart | None = None
) -> Changed:
    """The uncommitted changes that delete the rows of `source` which match the condition.

    `base` holds what a writer needs to know: the snapshot, the bucket count of each partition, and
    the largest sequence number of each bucket.
    """
    if not context.schema.primary_keys:
        with changes_of(context, source, (), base) as changes:
            changes.change(condition, None)
            return changes.changed()
    columns = deletion_columns(context.schema, context.options)
    with RowWriter(context, source, base) as writer:
        for rows in matching_rows(source, condition, columns, writer):
            writer.delete(rows)
        return writer.changed()


def matching_rows(
    source: TableSource, condition: Condition | None, columns: Sequence[str], writer: RowWriter
) -> Iterator[pa.Table]:
    """The columns of the rows that match `condition` (None: all rows), in batches as read."""
    needed = list(columns)
    predicate = None
    if condition is not None:
        needed = list(dict.fromkeys((*columns, *condition.columns)))
        predicate = condition.predicate
    with reading(source.batches(needed, predicate)) as batches:
        for batch in batches:
            writer.saw(batch.num_rows)
            rows = pa.Table.from_batches([batch])
            if condition is not None:
                rows = rows.filter(holds(rows, condition.expression))
            if rows.num_rows:
                yield rows.select(list(columns))


# --- update --------------------------------------------------------------------------------------
# UPDATE: sets columns of the rows that match a condition.
#
# For a table without a primary key, files are rewritten (`column_changes.py`). For a table with a
# key, one +U row is written for each matching row.
#
# All new values are computed from the old row, so no assignment sees the result of another. The
# merge engine determines which other columns a +U row holds (`plan/row_changes.py`).


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The checked values of an UPDATE, by column, and its condition (None: all rows)."""

    values: Mapping[str, object]
    shape: UpdateShape
    condition: Condition | None


def update_rows(
    context: TableContext, values: Mapping[str, object], where: pl.Expr | str | None, by: Author
) -> CommitResult:
    """Set columns of the matching rows in one commit; see `Table.update`."""
    source, assignment = assigning(context, values, where)
    return commit_changes(context, Verb.UPDATE, [assigned(context, source, assignment)], by)


def assigning(
    context: TableContext, values: Mapping[str, object], where: pl.Expr | str | None
) -> tuple[TableSource, Assignment]:
    """The state that an UPDATE reads, and the checked assignment.

    Raises an error if the table cannot update these columns, or a value or the condition is
    invalid.
    """
    schema, options = context.schema, context.options
    check_engine(options, Verb.UPDATE)
    source = newest(context, Verb.UPDATE)
    shape = update_shape(schema, options, named_values(values))
    setting = setting_of(context)
    values = bound_values(values, types_of(schema), schema, setting)
    check_values(values, schema.arrow, schema.arrow)
    condition = None if where is None else parse_condition(where, schema, setting)
    used = chain.from_iterable(map(names_in, values.values()))
    require_values(context, (*used, *(condition.columns if condition else ())))
    return source, Assignment(values=values, shape=shape, condition=condition)


def assigned(
    context: TableContext,
    source: TableSource,
    assignment: Assignment,
    base: WriteStart | None = None,
) -> Changed:
    """Set the values in the matching rows of a source. Returns the uncommitted changes.

    `base` has the facts of the table that a writer needs (None: they are read).
    """
    schema, values, shape = context.schema, assignment.values, assignment.shape
    if not schema.primary_keys:
        with changes_of(context, source, tuple(values), base) as changes:
            changes.change(assignment.condition, values)
            return changes.changed()
    columns = columns_of_update(schema, context.options, shape, values)
    with RowWriter(context, source, base) as writer:
        for before in matching_rows(source, assignment.condition, columns, writer):
            writer.update(
                before, updated(before, values_of(before, values, schema.arrow), shape, schema)
            )
        return writer.changed()


def check_values(values: Mapping[str, object], schema: pa.Schema, target: pa.Schema) -> None:
    """Raise InvalidRequest for invalid values.

    Columns of `schema` must suffice to compute an expression, and a plain value must fit its column
    in `target`.
    """
    if not values:
        raise InvalidRequest("name the columns to set, and their values")
    for name, value in values.items():
        if isinstance(value, pl.Expr):
            check_expression(value, schema, f"the value of {name}")
        elif not isinstance(value, Sql):
            plain_value(target.field(name), value)


def columns_of_update(
    schema: TableSchema, options: TableOptions, shape: UpdateShape, values: Mapping[str, object]
) -> tuple[str, ...]:
    """The columns of the old rows that an update reads."""
    if tells_before(options):
        return schema.names
    roots = [name for value in values.values() for name in names_in(value)]
    return tuple(dict.fromkeys((*shape.carried, *roots)))


def updated(
    before: pa.Table, values: Mapping[str, pa.ChunkedArray], shape: UpdateShape, schema: TableSchema
) -> pa.Table:
    """The rows with new values, to be written. Raises InvalidRequest if a row sets nothing."""
    after = before.select(list(shape.carried))
    for name, column in values.items():
        after = after.append_column(name, column)
    for name in shape.not_null:
        column = after.column(name)
        if column.null_count:
            raise InvalidRequest(
                "a null changes nothing here: a partial-update table keeps the value before it",
                column=name,
                key=key_of(after, pc.is_null(column), schema),
            )
    for sequence in shape.sequences:
        require_one(after, sequence, schema)
    return after
