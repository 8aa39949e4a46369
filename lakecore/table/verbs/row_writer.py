"""The rows that a verb changes, computed from the newest snapshot and committed once.

1. `newest` is the table as the verb reads it: the latest snapshot, level 0 included.
2. `RowWriter` accepts deletions, updates and insertions, and writes them as rows of kind -D, +U and
   +I through the normal write path.
3. `commit_changes` makes one snapshot of these rows, which names the verb, and raises
   CommitConflict if one of the rows was changed since the snapshot that was read
   (`commits/commit_checks.py`).

With `changelog-producer` = `input`, an update of a deduplicate table writes a -U and a +U row, so
that readers of the changelog see both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.progress import WorkBar
from lakecore.merge.keys import sequence_codes
from lakecore.model.blob_rules import columns_to_follow
from lakecore.model.rows import ROW_KIND, RowKind
from lakecore.model.snapshot import CommitResult, Snapshot, stated_identifier
from lakecore.options import ChangelogProducer, MergeEngine, SortOrder, TableOptions
from lakecore.plan.row_changes import Verb, removing_groups
from lakecore.rows.conform import KindRule, conform
from lakecore.rows.fit import show
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.context import TableContext, require_table
from lakecore.table.reads.source import TableSource
from lakecore.table.writes import batch_write
from lakecore.table.writes.batch_write import Author, batch_writer, commit_or_clean, compact_again

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.model.files import CommitMessage, Split
    from lakecore.model.schema import TableSchema
    from lakecore.table.writes.write_start import WriteStart


# --- verb write ----------------------------------------------------------------------------------
# Writes the rows of a verb, or of a part of a verb; one commit then makes them visible.
#
# Rows use the normal write path (`table/writes/write.py`), but nulls stay nulls: default values are
# only for new rows.

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
    """Writes rows for a verb, and holds its row counts. The writer must be closed.

    The caller counts `inserted`, `updated` and `deleted`.
    """

    def __init__(self, context: TableContext, base: WriteStart | None = None) -> None:
        self._context = context
        plain = replace(context, schema=without_defaults(context.schema))
        self._writer = batch_writer(plain, base=base)
        self._bar = WorkBar()
        self._seen = 0
        self.inserted = 0
        self.updated = 0
        self.deleted = 0

    def close(self) -> None:
        self._bar.close()
        self._writer.close()

    def saw(self, row_count: int) -> None:
        """Add rows of the table that the verb has read to the progress that is shown."""
        self._seen += row_count
        self._bar.at(f"{self._seen:,} rows read", self._seen)

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
        overwrite=batch_write.nothing if replaces_files else None,
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


# --- row writer ----------------------------------------------------------------------------------


def newest(context: TableContext, verb: Verb) -> TableSource:
    """The current state of the table.

    Raises InvalidRequest if options name a past state, or if rows may have columns that were added
    since the table was opened: the verb would write these rows without them.
    """
    options, schema = context.options, context.schema
    options.require_readable()
    options.require_writable(primary_keys=schema.primary_keys, partition_keys=schema.partition_keys)
    then = (
        options.scan_version,
        options.scan_snapshot_id,
        options.scan_tag_name,
        options.scan_timestamp,
        options.scan_timestamp_millis,
        options.incremental_between,
        options.incremental_between_timestamp,
    )
    if any(each is not None for each in then):
        raise InvalidRequest(
            f"{verb} changes the newest rows, and this table is read at another time: "
            "take away its scan options",
            table=context.identifier,
        )
    snapshot = context.history.latest_snapshot()
    require_table(context)
    require_known_columns(context, snapshot)
    return as_verbs_read(context, snapshot)


def require_values(context: TableContext, columns: Iterable[str]) -> None:
    """Raise Unsupported if a condition or a value uses a BLOB column whose rows hold references.

    With `blob-as-descriptor`, the references are used, as a read returns them.
    """
    follows = columns_to_follow(context.schema, context.options)
    used = sorted(follows.intersection(columns))
    if used:
        raise Unsupported(
            "a condition or a value of a change cannot use BLOB values to which rows only refer; "
            "by blob-as-descriptor=true it uses their descriptors",
            columns=used,
            table=context.identifier,
        )


def require_known_columns(context: TableContext, snapshot: Snapshot | None) -> None:
    """Raise InvalidRequest if rows may have columns that were added since the table was opened."""
    schema = context.schema
    if snapshot is None or snapshot.schema_id <= schema.id:
        return
    newer = context.history.schema(snapshot.schema_id)
    if newer.highest_field_id > schema.highest_field_id:
        known = set(schema.names)
        raise InvalidRequest(
            "columns were added after this table was opened, and their values would be lost; open "
            "the table again, or refresh it",
            columns=[name for name in newer.names if name not in known],
            new_schema=newer.id,
            table=context.identifier,
        )


def as_verbs_read(
    context: TableContext, snapshot: Snapshot | None, own: tuple[Split, ...] | None = None
) -> TableSource:
    """A snapshot as a verb reads it: level 0 is included, although batch reads may skip it.

    References to BLOB values are not followed, because rows that stay are written with them.

    `own` are the splits that a part of the verb reads (None: all).
    """
    options = replace(context.options, deletion_vectors_merge_on_read=True)
    seen = replace(context, options=options)
    return TableSource(
        context=seen, snapshot=snapshot, table_schema=context.schema, own=own, as_stored=True
    )


def tells_before(options: TableOptions) -> bool:
    """Whether an update also writes the old row, as -U."""
    return (
        options.changelog_producer is ChangelogProducer.INPUT
        and options.merge_engine is MergeEngine.DEDUPLICATE
    )


class RowWriter:
    """Writes the rows that a verb deletes, updates and inserts; a context manager."""

    def __init__(
        self, context: TableContext, source: TableSource, base: WriteStart | None = None
    ) -> None:
        self._context = context
        self._base = source.snapshot
        self._kind_column = context.options.rowkind_field or ROW_KIND
        self._write = VerbWrite(context, base)
        self._tells_before = tells_before(context.options)
        self._removing = tuple(chain.from_iterable(removing_groups(context.options)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write.close()

    def saw(self, row_count: int) -> None:
        self._write.saw(row_count)

    def delete(self, rows: pa.Table) -> None:
        """Delete rows; `rows` has the columns that `deletion_columns` names."""
        if self._removing:
            require_one(rows, self._removing, self._context.schema)
        self._put(rows, RowKind.DELETE)
        self._write.deleted += rows.num_rows

    def update(self, before: pa.Table, after: pa.Table) -> None:
        """Replace the rows `before` by the rows `after`, which have the same keys."""
        self._write.updated += after.num_rows
        if self._tells_before:
            before, after = self._newer_alone(before, after)
            self._put(before, RowKind.UPDATE_BEFORE)
        self._put(after, RowKind.UPDATE_AFTER)

    def insert(self, rows: pa.Table) -> None:
        """Add rows; null and missing columns get their default values."""
        kinds = pa.repeat(RowKind.INSERT.text, rows.num_rows)
        field = self._context.options.rowkind_field
        if field is not None:
            rows = _with_column(rows, field, kinds)
        self._put(self._write.new_rows(rows), RowKind.INSERT)
        self._write.inserted += rows.num_rows

    def changed(self) -> Changed:
        """What was written, for `commit_changes`; ends the writer."""
        return self._write.changed(self._base)

    def _newer_alone(self, before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The pairs whose new row is not older than the old row, by the sequence fields.

        In other pairs the old row wins the merge, and a -U of the old row would delete it.
        """
        options = self._context.options
        if not options.sequence_field:
            return before, after
        names = list(options.sequence_field)
        # A new value may still have another type than its column.
        both = pa.concat_tables(
            [before.select(names), after.select(names)], promote_options="permissive"
        ).columns
        descending = options.sequence_field_sort_order is SortOrder.DESCENDING
        codes = sequence_codes(both, descending=descending)
        newer = pa.array(codes[before.num_rows :] >= codes[: before.num_rows])
        return before.filter(newer), after.filter(newer)

    def _put(self, rows: pa.Table, kind: RowKind) -> None:
        kinds = pa.repeat(kind.text, rows.num_rows)
        self._write.write(_with_column(rows, self._kind_column, kinds))


def require_one(rows: pa.Table, sequence: Sequence[str], schema: TableSchema) -> None:
    """Raise InvalidRequest if a row is null in all `sequence` columns.

    The merge would ignore that row.
    """
    absent = pc.is_null(rows.column(sequence[0]))
    for name in sequence[1:]:
        absent = pc.and_(absent, pc.is_null(rows.column(name)))
    if pc.any(absent).as_py():
        raise InvalidRequest(
            "the row would change nothing: all sequence columns of its group are null",
            sequence_columns=tuple(sequence),
            key=key_of(rows, absent, schema),
        )


def key_of(rows: pa.Table, chosen: pa.ChunkedArray, schema: TableSchema) -> tuple[str, ...]:
    """The key of the first chosen row, for an error message.

    Without a key, all values of that row.
    """
    index = pc.index(chosen, pa.scalar(True)).as_py()
    return tuple(
        show(rows.column(name)[index]) for name in schema.primary_keys or rows.schema.names
    )


def _with_column(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    index = rows.schema.get_field_index(name)
    if index < 0:
        return rows.append_column(name, values)
    return rows.set_column(index, name, values)
