"""Conflicts of commits to a table with data evolution, by row ids and columns.

https://paimon.apache.org/docs/master/append-table/data-evolution/

UPDATE and MERGE write files with new values of some columns, for the row ids of files that exist.
The rules are Paimon's:

1. files with these row ids must still exist, with the same range of row ids: a compaction may have
   joined ranges, an overwrite may have removed the rows;
2. no later commit may have written one of these columns for one of these rows. Other columns are no
   conflict. A compaction changes no value;
3. after a compaction, the row id ranges of two files must be equal or disjoint. They may overlap if
   another commit wrote a column for a range that the compaction joins with others;
4. no global index may cover one of these columns: it would still find rows by their old values.
   Paimon can drop such an index (`global-index.column-update-action`); lakecore refuses the commit.

Rows that another commit deletes are no conflict: their deletion vector stays.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from lakecore.errors import CommitConflict, CorruptTable, Unsupported
from lakecore.model.manifest import FileKind
from lakecore.model.rows import ROW_ID
from lakecore.model.snapshot import CommitKind
from lakecore.plan.row_ids import BLOB, by_row_ids, columns_of_file
from lakecore.table.commits.base_snapshot import was_rolled_back
from lakecore.table.commits.row_conflicts import changes_since

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import DataFile
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.commits.commit_change import Change
    from lakecore.table.context import TableContext


def check_row_ranges(
    context: TableContext, change: Change, latest: Snapshot, delta: Sequence[ManifestEntry]
) -> None:
    """Raise CommitConflict if the change does not fit the rows of the latest snapshot."""
    if not context.options.data_evolution_enabled:
        return
    if change.kind is CommitKind.COMPACT:
        check_compacted(context, context.history.live_entries(latest), delta)
        return
    mine = [entry for entry in delta if _writes_columns(entry)]
    if not mine:
        return
    if any(was_rolled_back(context.history, each, latest) for each in change.bases):
        raise _conflict(context, "the snapshot that the rows were read from was rolled back", mine)
    _check_indexes(context, latest, mine)
    _check_rows_exist(context, latest, mine)
    if change.base_snapshot_id != latest.id:
        _check_columns(context, change, latest, mine)


def _writes_columns(entry: ManifestEntry) -> bool:
    file = entry.file
    stored = ROW_ID in (file.write_columns or ())
    return entry.kind is FileKind.ADD and file.first_row_id is not None and not stored


def check_compacted(
    context: TableContext, live: Sequence[ManifestEntry], delta: Sequence[ManifestEntry]
) -> None:
    """Check rule 3: after this compaction, row id ranges of files are still equal or disjoint."""
    if not context.options.data_evolution_enabled:
        return
    gone = {entry.identity for entry in delta if entry.kind is FileKind.DELETE}
    files: dict[bytes, list[DataFile]] = {entry.partition: [] for entry in delta}
    kept = (entry for entry in live if entry.identity not in gone)
    for entry in (*kept, *(entry for entry in delta if entry.kind is FileKind.ADD)):
        if entry.partition in files:
            files[entry.partition].append(entry.file)
    for own in files.values():
        try:
            by_row_ids(own)
        except CorruptTable as error:
            raise CommitConflict(
                "another commit wrote columns of rows that were compacted; compact again",
                table=context.identifier,
                **error.facts,
            ) from error


def _check_indexes(context: TableContext, latest: Snapshot, mine: Sequence[ManifestEntry]) -> None:
    """Check rule 4: no global index covers a column that the change writes."""
    written: dict[bytes, set[int]] = defaultdict(set)
    for entry in mine:
        written[entry.partition] |= _column_ids(context, entry.file)
    for index in context.history.index_entries(latest):
        covered = index.file.global_index
        if covered is None or index.partition not in written:
            continue
        ids = {covered.index_field_id, *(covered.extra_field_ids or ())}
        if not ids.isdisjoint(written[index.partition]):
            raise Unsupported(
                "changes of a column with a global index are not supported; drop the index first",
                option="global-index.column-update-action",
                index=index.file.name,
                columns=[f.name for f in context.schema.fields if f.id in ids],
                table=context.identifier,
            )


def _check_rows_exist(
    context: TableContext, latest: Snapshot, mine: Sequence[ManifestEntry]
) -> None:
    """Check rule 1: the files with these row ids still exist, with the same ranges."""
    ranges: dict[tuple[bytes, int], set[tuple[int, int]]] = defaultdict(set)
    for entry in context.history.live_entries(latest):
        file = entry.file
        if file.first_row_id is not None and file.format != BLOB:
            ranges[entry.partition, entry.bucket].add((file.first_row_id, file.row_count))
    for entry in mine:
        file, there = entry.file, ranges[entry.partition, entry.bucket]
        if file.format == BLOB:
            is_there = any(_inside(file, first, count) for first, count in there)
        else:
            is_there = (file.first_row_id, file.row_count) in there
        if not is_there:
            raise _conflict(context, "another commit compacted or overwrote these rows", [entry])


def _inside(file: DataFile, first: int, count: int) -> bool:
    own = file.first_row_id or 0
    return first <= own and own + file.row_count <= first + count


def _check_columns(
    context: TableContext, change: Change, latest: Snapshot, mine: Sequence[ManifestEntry]
) -> None:
    """Check rule 2: no commit since has written one of these columns for one of these rows."""
    partitions = {entry.partition for entry in mine}
    own = [(entry.file, _column_ids(context, entry.file)) for entry in mine]
    for theirs, entry in changes_since(context, change.base_snapshot_id or 0, latest):
        if entry.partition not in partitions or entry.file.first_row_id is None:
            continue
        their_ids = _column_ids(context, entry.file)
        for file, ids in own:
            if _overlap(file, entry.file) and not ids.isdisjoint(their_ids):
                raise _conflict(
                    context,
                    "another commit wrote the same columns of these rows",
                    [entry],
                    snapshot_id=theirs.id,
                )


def _column_ids(context: TableContext, file: DataFile) -> frozenset[int]:
    schema = context.history.schema(file.schema_id)
    return frozenset(field.id for field in columns_of_file(file, schema))


def _overlap(one: DataFile, other: DataFile) -> bool:
    first, second = one.first_row_id or 0, other.first_row_id or 0
    return first < second + other.row_count and second < first + one.row_count


def _conflict(
    context: TableContext, reason: str, entries: Sequence[ManifestEntry], **facts: object
) -> CommitConflict:
    file = entries[0].file
    return CommitConflict(
        f"{reason}; read the table again and redo",
        table=context.identifier,
        first_row_id=file.first_row_id,
        rows=file.row_count,
        columns=file.write_columns,
        **facts,
    )
