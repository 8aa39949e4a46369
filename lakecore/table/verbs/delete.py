"""DELETE: removes the rows that match a condition; a table with a key gets one -D row for each.

Only the columns of the condition and of the -D rows are read. For a condition on the key, these are
the key and the NOT NULL columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.frames.source import reading
from lakecore.plan.row_changes import Verb, check_deletion, deletion_columns
from lakecore.table.reads.row_values import holds, parse_condition, setting_of
from lakecore.table.verbs.column_changes import changes_of, require_deletion
from lakecore.table.verbs.row_writer import RowWriter, newest, require_values
from lakecore.table.verbs.verb_write import commit_changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from lakecore.model.snapshot import CommitResult
    from lakecore.table.context import TableContext
    from lakecore.table.reads.row_values import Condition
    from lakecore.table.reads.source import TableSource
    from lakecore.table.verbs.verb_write import Changed
    from lakecore.table.writes.batch_write import Author
    from lakecore.table.writes.write_start import WriteStart


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
    context: TableContext,
    source: TableSource,
    condition: Condition,
    base: WriteStart | None = None,
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
        for rows in matching_rows(source, condition, columns):
            writer.delete(rows)
        return writer.changed()


def matching_rows(
    source: TableSource, condition: Condition | None, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """The columns of the rows that match `condition` (None: all rows), in batches as read."""
    needed = list(columns)
    predicate = None
    if condition is not None:
        needed = list(dict.fromkeys((*columns, *condition.columns)))
        predicate = condition.predicate
    with reading(source.batches(needed, predicate)) as batches:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            if condition is not None:
                rows = rows.filter(holds(rows, condition.expression))
            if rows.num_rows:
                yield rows.select(list(columns))
