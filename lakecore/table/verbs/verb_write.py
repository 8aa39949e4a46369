"""Writes the rows of a verb, until one commit makes them visible.

Rows use the normal write path (`table/writes/write.py`), but nulls stay nulls: default values apply
only to new rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.model.snapshot import CommitResult, stated_identifier
from lakecore.rows.conform import KindRule, conform
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.writes.batch_write import commit_or_clean, compact_again
from lakecore.table.writes.write import TableWrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import CommitMessage
    from lakecore.model.schema import TableSchema
    from lakecore.plan.row_changes import Verb
    from lakecore.table.commits.commit import PartitionFilter
    from lakecore.table.context import TableContext
    from lakecore.table.writes.batch_write import Author

_AS_GIVEN = KindRule(
    rowkind_field=None, keyed=True, ignore_delete=False, ignore_update_before=False
)


class VerbWrite:
    """Writes rows for a verb and holds its counts; must be closed.

    The caller counts `inserted`, `updated` and `deleted`.
    """

    def __init__(self, context: TableContext, verb: Verb) -> None:
        self._context = context
        self._verb = verb
        self._writer = TableWrite(replace(context, schema=_without_defaults(context.schema)))
        self.inserted = 0
        self.updated = 0
        self.deleted = 0

    def close(self) -> None:
        """Release the buffers."""
        self._writer.close()

    def write(self, rows: pa.Table) -> None:
        """Write rows; an empty table is ignored."""
        if rows.num_rows:
            self._writer.write(rows)

    def new_rows(self, rows: pa.Table) -> pa.Table:
        """The rows with all columns of the table; default values replace nulls."""
        schema = self._context.schema
        batches = rows.combine_chunks().to_batches()
        fitted = [conform(each, schema, first_row=0, kinds=_AS_GIVEN).rows for each in batches]
        return pa.Table.from_batches(fitted, schema=schema.arrow)

    def prepare_commit(self) -> tuple[CommitMessage, ...]:
        """The commit messages of the written rows."""
        return tuple(self._writer.prepare_commit())

    def commit(
        self,
        messages: Sequence[CommitMessage],
        by: Author,
        *,
        overwrite: PartitionFilter | None = None,
        replaces_rows: bool = False,
    ) -> CommitResult:
        """Commit the messages in one snapshot; commits nothing if there are none."""
        if not messages:
            return self._counted(
                CommitResult(commit_user=by.user, identifier=stated_identifier(by.identifier))
            )
        request = CommitRequest(
            messages=messages,
            user=by.user,
            identifier=by.identifier,
            overwrite=overwrite,
            operation=self._verb,
            replaces_rows=replaces_rows,
        )
        result = commit_or_clean(self._context, request)
        if result.facts.get("already_committed"):
            return result
        if overwrite is None:
            result = compact_again(self._context, request, result)
        return self._counted(result)

    def _counted(self, result: CommitResult) -> CommitResult:
        return replace(
            result,
            rows_inserted=self.inserted,
            rows_updated=self.updated,
            rows_deleted=self.deleted,
        )


def _without_defaults(schema: TableSchema) -> TableSchema:
    return replace(
        schema, fields=tuple(replace(field, default_value=None) for field in schema.fields)
    )
