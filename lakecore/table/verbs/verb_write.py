"""What a verb that changes rows writes, until one commit shows it.

Rows go the way of every write (`table/writes/write.py`), but a null that the verb leaves or sets is
one: default values are for rows that are new.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.model.snapshot import CommitResult, stated_identifier
from lakecore.plan.conform import KindRule, conform
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
    """Writes rows for a verb, and counts what it did; to be closed.

    `inserted`, `updated` and `deleted` are counted by whoever writes.
    """

    def __init__(self, context: TableContext, verb: Verb) -> None:
        self._context = context
        self._verb = verb
        self._writer = TableWrite(replace(context, schema=_without_defaults(context.schema)))
        self.inserted = 0
        self.updated = 0
        self.deleted = 0

    def close(self) -> None:
        """Give back what was buffered."""
        self._writer.close()

    def write(self, rows: pa.Table) -> None:
        """Write rows; none are nothing."""
        if rows.num_rows:
            self._writer.write(rows)

    def new_rows(self, rows: pa.Table) -> pa.Table:
        """Rows of any columns as rows of the table, with default values where one is null."""
        schema = self._context.schema
        batches = rows.combine_chunks().to_batches()
        fitted = [conform(each, schema, first_row=0, kinds=_AS_GIVEN).rows for each in batches]
        return pa.Table.from_batches(fitted, schema=schema.arrow)

    def prepare_commit(self) -> tuple[CommitMessage, ...]:
        """What was written, as messages."""
        return tuple(self._writer.prepare_commit())

    def commit(
        self,
        messages: Sequence[CommitMessage],
        by: Author,
        *,
        overwrite: PartitionFilter | None = None,
        replaces_rows: bool = False,
    ) -> CommitResult:
        """Make messages visible in one snapshot; none if there are none."""
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
