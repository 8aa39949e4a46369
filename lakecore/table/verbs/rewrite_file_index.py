"""Gives existing data files the file indexes that the options ask for, without rewriting rows.

1. From each live file of the chosen partitions, read the columns to index, with the schema of the
   file. A column is found by its id, so renames do not matter; the index contains its old name.
2. Write the index into the manifest, or into a file with a new name. The data file stays.
3. One COMPACT snapshot replaces the manifest entries. A file for which the options ask no index
   loses its indexes. Two kinds of entries are not replaced: those whose embedded index stays the
   same, and those that must stay before another file (`_replaced`).

As in Paimon, an index file that was replaced stays until orphan files are removed: expiry only
deletes the index file that the deleted data file names.

If another commit has removed one of these files, everything is planned again from the new snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lakecore.errors import CommitConflict, CommitUnknown, LakecoreError
from lakecore.format.layout import FILE_INDEX_SUFFIX
from lakecore.io.files.data_files import BatchSize
from lakecore.model.file_indexes import IndexesRewritten, indexed_columns, takes
from lakecore.model.files import CommitMessage, Split
from lakecore.plan.conflicts import may_tie
from lakecore.plan.row_ids import columns_of_file
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.context import reload_context, require_table
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.reads.indexed_files import has_index
from lakecore.table.reads.source import TableSource
from lakecore.table.run_writer.file_indexes import FileIndexes
from lakecore.table.stored_rows.split_files import SplitFiles
from lakecore.table.verbs.compact_choice import chosen_entries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from lakecore.model.file_indexes import IndexedColumn
    from lakecore.model.files import DataFile
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

_Pair: TypeAlias = "tuple[DataFile, DataFile]"
"""A file as the manifest lists it now, and the same file with the wanted indexes."""

_PLANS_MAX = 5
_SIZE = BatchSize(65_536)


def rewrite_file_index(
    context: TableContext,
    partitions: Sequence[Mapping[str, object]] | None,
    where: pl.Expr | str | None,
) -> IndexesRewritten:
    """Index the files of these partitions as the options say; see `Table.rewrite_file_index`."""
    for _ in range(_PLANS_MAX):
        require_table(context)
        context = reload_context(context)
        context.options.require_writable(
            primary_keys=context.schema.primary_keys, partition_keys=context.schema.partition_keys
        )
        snapshot = context.history.latest_snapshot()
        if snapshot is None:
            return IndexesRewritten()
        entries = chosen_entries(
            context,
            context.history.live_entries(snapshot),
            partitions=partitions,
            where=where,
            buckets=None,
        )
        try:
            return _rewrite(context, snapshot, entries)
        except CommitConflict:
            continue
    raise CommitConflict(
        "other commits replaced files of every plan; rewrite the indexes when they are done",
        table=context.identifier,
        attempts=_PLANS_MAX,
    )


def _rewrite(
    context: TableContext, snapshot: Snapshot, entries: Sequence[ManifestEntry]
) -> IndexesRewritten:
    paths: list[str] = []
    buckets: dict[tuple[bytes, int, int], list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        buckets[entry.partition, entry.bucket, entry.total_buckets].append(entry)
    try:
        files = {
            bucket: replaced
            for bucket, own in buckets.items()
            if (replaced := _replaced(context, snapshot, own, paths))
        }
        messages = [
            CommitMessage(
                partition=partition,
                bucket=bucket,
                total_buckets=total,
                compact_before=tuple(before for before, _ in pairs),
                compact_after=tuple(after for _, after in pairs),
                compact_schema_id=context.schema.id,
                base_snapshot_id=snapshot.id,
                base_snapshot_uuid=snapshot.uuid,
            )
            for (partition, bucket, total), pairs in files.items()
        ]
        if not messages:
            return IndexesRewritten()
        request = CommitRequest(messages=messages, user=context.ambient.new_uuid())
        done = commit_and_maintain(context, request)
    except CommitUnknown:
        # The index files may be part of the table.
        raise
    except (LakecoreError, OSError):
        # A file that cannot be deleted is an orphan; the first failure is raised.
        for path in paths:
            with suppress(LakecoreError, OSError):
                context.store.delete(path)
        raise
    return IndexesRewritten(
        snapshot_id=done.snapshot_id,
        partitions=len({message.partition for message in messages}),
        files=sum(map(len, files.values())),
    )


def _replaced(
    context: TableContext, snapshot: Snapshot, entries: Sequence[ManifestEntry], paths: list[str]
) -> list[_Pair]:
    """The files of a bucket that get a new manifest entry, which is listed after all other entries.

    For rows with equal sequence numbers, the order of the entries decides which row is newer. Thus
    a file keeps its entry if a later file keeps its own and may have equal numbers. The commit
    raises CommitConflict if another commit added such a file meanwhile.
    """
    keyed = bool(context.schema.key_fields)
    replaced: list[_Pair] = []
    staying: list[DataFile] = []
    for entry in reversed(entries):
        file = entry.file
        tied = file.level == 0 and any(may_tie(file, other) for other in staying)
        made = file if tied else _indexed(context, snapshot, entry, paths)
        # An equal entry would be deleted with the old one: readers identify entries by content.
        if made != file:
            replaced.append((file, made))
        elif keyed and file.level == 0:
            staying.append(file)
    return replaced[::-1]


def _indexed(
    context: TableContext, snapshot: Snapshot, entry: ManifestEntry, paths: list[str]
) -> DataFile:
    """The entry of the file with its new indexes; the same entry if it has none and needs none."""
    file = entry.file
    schema = context.history.schema(file.schema_id)
    columns = _columns_to_index(context, file, schema)
    kept = tuple(name for name in file.extra_files if not name.endswith(FILE_INDEX_SUFFIX))
    if not columns:
        return replace(file, extra_files=kept, embedded_index=None) if has_index(file) else file
    container = _container(context, snapshot, entry, schema, columns)
    if len(container) <= context.options.file_index_in_manifest_threshold_bytes:
        return replace(file, extra_files=kept, embedded_index=container)
    name = f"{file.name}-{context.ambient.new_uuid()}{FILE_INDEX_SUFFIX}"
    path = context.layout.extra_file(
        context.partitions.path(entry.partition), entry.bucket, file, name
    )
    paths.append(path)
    context.store.put(path, container)
    return replace(file, extra_files=(*kept, name), embedded_index=None)


def _columns_to_index(
    context: TableContext, file: DataFile, schema: TableSchema
) -> list[IndexedColumn]:
    """The wanted indexes of a file with this schema; a column that it lacks gets none."""
    held = {field.id: field for field in columns_of_file(file, schema)}
    found = []
    for column in indexed_columns(context.schema, context.options):
        twin = held.get(column.field.id)
        own = None if twin is None else replace(column, field=twin)
        if own is not None and takes(own.index_type, own.value_type):
            found.append(own)
    return found


def _container(
    context: TableContext,
    snapshot: Snapshot,
    entry: ManifestEntry,
    schema: TableSchema,
    columns: Sequence[IndexedColumn],
) -> bytes:
    split = Split(
        partition=entry.partition,
        partition_path=context.partitions.path(entry.partition),
        bucket=entry.bucket,
        total_buckets=entry.total_buckets,
        runs=((entry.file,),),
        raw=True,
    )
    fields = list(dict.fromkeys(column.field for column in columns))
    source = TableSource(context=context, snapshot=snapshot, table_schema=context.schema)
    plan = replace(source.read_plan([split], []), schema=schema)
    indexes = FileIndexes(columns)
    files = SplitFiles(split, plan, context.store)
    for _, batch in files.stored_rows(entry.file, fields, _SIZE):
        indexes.add(pa.Table.from_batches([batch]))
    return indexes.finish()
