"""Writes the rows of a verb, or of a part of a verb; one commit then makes them visible.

Rows use the normal write path (`table/writes/write.py`), but nulls stay nulls: default values are
only for new rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.model.snapshot import CommitResult, stated_identifier
from lakecore.rows.conform import KindRule, conform
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.writes import overwrite
from lakecore.table.writes.batch_write import commit_or_clean, compact_again
from lakecore.table.writes.staged_write import batch_writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import CommitMessage
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.plan.row_changes import Verb
    from lakecore.table.context import TableContext
    from lakecore.table.writes.batch_write import Author
    from lakecore.table.writes.write_start import WriteStart

_AS_GIVEN = KindRule(
    rowkind_field=None, keyed=True, ignore_delete=False, ignore_update_before=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The files that a verb or a part of it wrote and replaced, and how many rows it changed.

    Nothing is visible before `commit_changes`. Picklable.
    """

    messages: tuple[CommitMessage, ...] = ()
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class VerbWrite:
    """Writes rows for a verb, and holds its row counts. It must be closed.

    The caller counts `inserted`, `updated` and `deleted`.
    """

    def __init__(self, context: TableContext, base: WriteStart | None = None) -> None:
        self._context = context
        plain = replace(context, schema=without_defaults(context.schema))
        self._writer = batch_writer(plain, base=base)
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
        return fitted(rows, self._context.schema)

    def changed(self, base: Snapshot | None, replaced: Sequence[CommitMessage] = ()) -> Changed:
        """The written files and the messages `replaced`; all messages name the snapshot `base`.

        The changed rows were read from that snapshot; the writer may have read a later one.
        """
        written = [*replaced, *self._writer.prepare_commit()]
        return Changed(
            messages=tuple(
                replace(
                    message,
                    base_snapshot_id=None if base is None else base.id,
                    base_snapshot_uuid=None if base is None else base.uuid,
                )
                for message in written
            ),
            inserted=self.inserted,
            updated=self.updated,
            deleted=self.deleted,
        )


def fitted(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """The rows as rows of a schema. Raises InvalidRequest if a value does not fit."""
    batches = rows.combine_chunks().to_batches()
    done = [conform(each, schema, first_row=0, kinds=_AS_GIVEN).rows for each in batches]
    return pa.Table.from_batches(done, schema=schema.arrow)


def commit_changes(
    context: TableContext, verb: Verb, changes: Sequence[Changed], by: Author
) -> CommitResult:
    """Commit the parts of a verb in one snapshot, which counts their rows.

    Commits nothing if there is no change. Raises CommitConflict if another commit has changed one
    of the rows since the snapshot from which they were read.
    """
    messages = [message for each in changes for message in each.messages]
    if not messages:
        identifier = stated_identifier(by.identifier)
        nothing = CommitResult(commit_user=by.user, identifier=identifier)
        return _counted(nothing, changes)
    keyed = bool(context.schema.primary_keys)
    replaces_files = not keyed and any(
        message.deleted_files or message.new_index_files or message.deleted_index_files
        for message in messages
    )
    request = CommitRequest(
        messages=messages,
        user=by.user,
        identifier=by.identifier,
        overwrite=overwrite.nothing if replaces_files else None,
        operation=verb,
        replaces_rows=keyed,
    )
    result = commit_or_clean(context, request)
    if result.facts.get("already_committed"):
        return result
    if not replaces_files:
        result = compact_again(context, request, result)
    return _counted(result, changes)


def _counted(result: CommitResult, changes: Sequence[Changed]) -> CommitResult:
    return replace(
        result,
        rows_inserted=sum(each.inserted for each in changes),
        rows_updated=sum(each.updated for each in changes),
        rows_deleted=sum(each.deleted for each in changes),
    )


def without_defaults(schema: TableSchema) -> TableSchema:
    """The schema without default values, so that a stored null stays null."""
    return replace(
        schema, fields=tuple(replace(field, default_value=None) for field in schema.fields)
    )
