"""Checks whether a change may be committed after the latest snapshot; raises the conflict if not.

`plan/conflicts.py` has the rules; this module reads the parts of the table that they need:

- a change that deletes files, adds files above level 0, or relies on deletion vectors, is checked
  against the live files and their vectors;
- written and compacted files must follow the newest schema and options;
- a change other than an overwrite is checked against the files that others added since its writers
  read the table; or against all files, if the snapshot that they read was rolled back;
- a change that replaces whole partitions conflicts with every file that others added there;
- rows computed from other rows conflict with concurrent changes of the same keys, or of
  the same columns of rows with ids.

A plain append without concurrent commits reads nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import AlreadyExists, CommitConflict, CorruptTable, NotFound, Unsupported
from lakecore.format.layout import POSTPONE_BUCKET
from lakecore.io.files.data_files import BatchSize
from lakecore.merge.keys import order_columns, shared_codes
from lakecore.model.files import HASH_INDEX, CommitMessage, DataFile, Split
from lakecore.model.manifest import FileKind, ManifestEntry
from lakecore.model.rows import ROW_ID
from lakecore.model.snapshot import CommitKind, Snapshot
from lakecore.options import DECLARED, Effect, MergeEngine, Option, find_option, parse_options
from lakecore.plan.conflicts import (
    check_bucket_counts,
    check_files,
    check_hash_indexes,
    check_levels,
    check_newest,
    check_vectors,
)
from lakecore.plan.row_ids import BLOB, by_row_ids
from lakecore.rows.fit import show
from lakecore.table.commits.commit_change import Change, committed_since, was_rolled_back
from lakecore.table.context import TableContext, crosses_partitions, with_schema
from lakecore.table.file_reader.split_files import SplitFiles
from lakecore.table.reads.scan import key_ranks, live_in
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.time_travel import in_names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


# --- row conflicts -------------------------------------------------------------------------------
# Conflicts of DELETE, UPDATE and MERGE with concurrent commits, by key.
#
# These verbs read a row and write a new row of the same key. If another commit wrote this key after
# the read, one of the two changes would be lost without an error. Therefore each later snapshot is
# checked:
#
# 1. a compaction is no conflict: it changes no row;
# 2. an overwrite is a conflict if it removed files from a bucket that this commit writes;
# 3. files added to such a bucket are a conflict if they hold a key that this commit writes. The
#    keys are read and compared only if the key ranges overlap.
#
# New rows that would have matched the condition are not a conflict: a verb changes the rows that
# existed when it began. Paimon's own row-level commands on primary-key tables have no such check
# (https://paimon.apache.org/docs/master/concepts/concurrency-control/).

_BATCH_ROWS = 131_072


def check_rows_untouched(context: TableContext, change: Change, latest: Snapshot) -> None:
    """Raise CommitConflict if another commit wrote a key that this one writes."""
    # Postponed rows have no order among writers before a compaction gives them one.
    messages = [message for message in change.messages if message.bucket != POSTPONE_BUCKET]
    buckets = [(message.partition, message.bucket) for message in messages]
    theirs = _added_since(context, change, latest, frozenset(buckets))
    for message, bucket in zip(messages, buckets, strict=True):
        added = theirs.get(bucket, [])
        if added:
            split = Split(
                partition=message.partition,
                partition_path=context.partitions.path(message.partition),
                bucket=message.bucket,
                total_buckets=message.total_buckets,
                runs=((*message.new_files, *added),),
                raw=True,
            )
            _check_keys(context, split, message.new_files, added)


def _added_since(
    context: TableContext,
    change: Change,
    latest: Snapshot,
    buckets: frozenset[tuple[bytes, int]],
) -> dict[tuple[bytes, int], list[DataFile]]:
    """The files that other commits added to these buckets since the rows were read.

    Raises CommitConflict if another commit removed rows of these buckets, or if snapshots expired.
    """
    added: dict[tuple[bytes, int], list[DataFile]] = defaultdict(list)
    for theirs, entry in changes_since(context, change.base_snapshot_id or 0, latest):
        bucket = (entry.partition, entry.bucket)
        if bucket not in buckets:
            continue
        if entry.kind is FileKind.DELETE:
            raise CommitConflict(
                "another commit has replaced rows that this one changes; do it again",
                table=context.identifier,
                snapshot_id=theirs.id,
                bucket=entry.bucket,
            )
        added[bucket].append(entry.file)
    return added


def changes_since(
    context: TableContext, base: int, latest: Snapshot
) -> Iterator[tuple[Snapshot, ManifestEntry]]:
    """The added and removed files of the snapshots that changed rows, newest first.

    Raises CommitConflict if snapshots since `base` have expired.
    """
    try:
        for theirs, entries in committed_since(context.history, base, latest):
            if theirs.commit_kind not in (CommitKind.COMPACT, CommitKind.ANALYZE):
                yield from ((theirs, entry) for entry in entries)
    except NotFound as error:
        raise CommitConflict(
            "a snapshot committed since the rows were read has expired; do it again",
            table=context.identifier,
            **error.facts,
        ) from error


def _check_keys(
    context: TableContext, split: Split, mine: Sequence[DataFile], theirs: Sequence[DataFile]
) -> None:
    """Raise CommitConflict if a key of `mine` is in a file of `theirs`."""
    lows, highs = key_ranks([*mine, *theirs], context.schema)
    for index, file in enumerate(mine):
        at = len(mine) + np.flatnonzero(
            (lows[len(mine) :] <= highs[index]) & (highs[len(mine) :] >= lows[index])
        )
        if len(at):
            own = pa.concat_tables(_keys(context, split, file))
            for other in at.tolist():
                for rows in _keys(context, split, theirs[other - len(mine)]):
                    _check_disjoint(context, own, rows)


def _check_disjoint(context: TableContext, own: pa.Table, others: pa.Table) -> None:
    mine, theirs = shared_codes([order_columns(own.columns), order_columns(others.columns)])
    shared = np.flatnonzero(np.isin(mine, theirs))
    if len(shared):
        raise CommitConflict(
            "another commit has changed a row that this one changes; do it again",
            table=context.identifier,
            key=tuple(show(column[shared[0].item()]) for column in own.columns),
            rows=len(shared),
        )


def _keys(context: TableContext, split: Split, file: DataFile) -> Iterator[pa.Table]:
    """The keys of a file, without partition columns."""
    names = context.schema.trimmed_primary_keys
    source = TableSource(context=context, snapshot=None, table_schema=context.schema)
    plan = source.read_plan([split], names)
    fields = context.schema.key_fields
    files = SplitFiles(split, plan, context.store)
    for batch in files.rows(file, fields, BatchSize(_BATCH_ROWS)):
        yield pa.Table.from_batches([batch])


# --- schema rules --------------------------------------------------------------------------------
# Whether files written or compacted under one schema may be committed under another.
#
# If the aggregate function or the sequence field has changed, rows that a compaction merged before
# are wrong: the compaction is repeated. New rows are valid after most schema changes, except
# changes of options that are fixed from the first snapshot on.

_FIXED = tuple(name for name, known in DECLARED.items() if known.immutable)
"""The options that never change once a table has snapshots."""
_FIRST_KEYS = ("bucket", "changelog-producer")


def _lie_or_merge(option: Option) -> bool:
    """Whether the option decides where rows are stored or how they merge."""
    return option.effect in (Effect.READ, Effect.WRITE)


def _first(option: Option) -> bool:
    """Whether the option is fixed by the first snapshot, because it applies to the first rows."""
    return option.immutable or option.effect is Effect.READ or option.key in _FIRST_KEYS


def same_rules(before: TableContext, after: TableContext) -> bool:
    """Whether files compacted under the schema and options of `before` are valid for `after`.

    Columns may be added, dropped and renamed; common columns must have the same type. Options that
    affect neither reading nor writing of rows may change.
    """
    old, new = before.schema, after.schema
    if old == new:
        return True
    shared = old.by_id.keys() & new.by_id.keys()
    if any(old.by_id[at].type != new.by_id[at].type for at in shared):
        return False
    return _deciding(before.options.texts, _lie_or_merge) == _deciding(
        in_names_of(after, old), _lie_or_merge
    )


def may_follow(before: TableContext, after: TableContext, *, empty: bool) -> bool:
    """Whether rows written under the schema and options of `before` are valid for `after`.

    `empty`: the table had no snapshot when they were written, so any option could change. Later,
    the options that decide where rows are stored and how they merge are fixed.
    """
    texts = in_names_of(after, before.schema)
    if empty:
        return _deciding(before.options.texts, _first) == _deciding(texts, _first)
    options = parse_options(texts, table=after.identifier)
    return all(getattr(before.options, name) == getattr(options, name) for name in _FIXED)


def _deciding(texts: Mapping[str, str], decides: Callable[[Option], bool]) -> dict[str, str]:
    found = {key: find_option(key) for key in texts}
    return {key: texts[key] for key, known in found.items() if known is not None and decides(known)}


# --- row range checks ----------------------------------------------------------------------------
# Conflicts of commits to a table with data evolution, by row ids and columns.
#
# https://paimon.apache.org/docs/master/append-table/data-evolution/
#
# UPDATE and MERGE write files with new values of some columns, for the row ids of files that exist.
# The rules are Paimon's:
#
# 1. files with these row ids must still exist, with the same range of row ids: a compaction may
#    have joined ranges, an overwrite may have removed the rows;
# 2. no later commit may have written one of these columns for one of these rows. Other columns are
#    no conflict. A compaction changes no value;
# 3. after a compaction, the row id ranges of two files must be equal or disjoint. An overlap arises
#    if another commit wrote a column for a range that the compaction joins with others;
# 4. no global index may cover one of these columns: it would still find rows by their old values.
#    Paimon can drop such an index (`global-index.column-update-action`); lakecore refuses the
#    commit.
#
# Rows that another commit deletes are no conflict: their deletion vector stays.


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
    return frozenset(field.id for field in file.columns_of(schema))


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


# --- commit checks -------------------------------------------------------------------------------

DYNAMIC = -1


def check_change(
    context: TableContext,
    change: Change,
    latest: Snapshot | None,
    delta: Sequence[ManifestEntry],
    newest: int,
) -> None:
    """Check that a change may be committed after the latest snapshot.

    `delta`: the file changes, with the deletions of an overwrite. `newest`: the id of the newest
    schema. Raises CommitConflict, or AlreadyExists if the messages were committed before.
    """
    keys = context.schema.key_fields
    if change.kind is not CommitKind.COMPACT:
        _check_written(context, change, newest)
    if latest is None:
        check_files((), delta, keys)
        return
    if change.kind is not CommitKind.OVERWRITE:
        _check_since(context, change, latest)
    elif change.replaces_partitions:
        _check_alone(context, change, latest, delta)
    check_row_ranges(context, change, latest, delta)
    reading = _reading_vectors(change)
    if reading or any(entry.kind is FileKind.DELETE or entry.file.level > 0 for entry in delta):
        touched = {(entry.partition, entry.bucket) for entry in delta}
        touched |= {(message.partition, message.bucket) for message in change.messages}
        live = live_in(context.history, context.partitions, latest, touched)
        check_files(live, delta, keys)
        check_vectors(live, context.history.index_entries(latest), reading)
        if change.kind is CommitKind.COMPACT:
            check_levels(live, change.messages)
            check_newest(live, change.messages, keys)
            _check_rules(context, change, newest)


def _reading_vectors(change: Change) -> list[CommitMessage]:
    """The messages whose deletion vectors this snapshot relies on.

    A COMPACT snapshot relies on messages with a compaction, others on messages without one.
    """
    is_compaction = change.kind is CommitKind.COMPACT
    return [
        message
        for message in change.messages
        if message.vectors_read is not None and bool(message.compact_before) is is_compaction
    ]


def check_absent(change: Change, entries: Iterable[ManifestEntry]) -> None:
    """Raise AlreadyExists if one of these entries is a file that the change adds."""
    # Leave out files that only change their level: a concurrent move of such a file is a conflict.
    moved = {entry.file.name for entry in change.delta if entry.kind is FileKind.DELETE}
    mine = {
        entry.identity
        for entry in change.delta
        if entry.kind is FileKind.ADD and entry.file.name not in moved
    }
    jobs = {each.job for each in change.encoded}
    for entry in entries:
        if entry.identity in mine or any(job in entry.file.name for job in jobs):
            raise AlreadyExists(
                "the messages were committed before: a file that they add is in the table",
                file=entry.file.name,
                bucket=entry.bucket,
            )


def _check_written(context: TableContext, change: Change, newest: int) -> None:
    """Raise CommitConflict if rows were written under rules that the table no longer has.

    The first snapshot fixes some rules; a writer may have opened the table earlier.
    """
    written = {
        (message.base_snapshot_id is None, file.schema_id)
        for message in change.messages
        for file in message.new_files
    }
    written |= {(each.base_snapshot_id is None, each.schema_id) for each in change.encoded}
    for empty, schema_id in sorted(written):
        if schema_id == newest:
            continue
        before, after = _by_schemas(context, schema_id, newest)
        if not may_follow(before, after, empty=empty):
            raise CommitConflict(
                "the table's options have changed since its writer opened it: open it again, "
                "and write the rows again",
                table=context.identifier,
                schema_id=schema_id,
                newest_schema_id=newest,
            )


def _check_rules(context: TableContext, change: Change, newest: int) -> None:
    """Raise CommitConflict if the merge rules have changed since files were compacted.

    A file that was only moved to a higher level counts like a written file, because options decide
    which levels are read without a merge.
    """
    planned = {message.compact_schema_id for message in change.messages} - {None, newest}
    for schema_id in sorted(each for each in planned if each is not None):
        if not same_rules(*_by_schemas(context, schema_id, newest)):
            raise CommitConflict(
                "the table's options or types have changed since the files were compacted: "
                "compact again",
                table=context.identifier,
                schema_id=schema_id,
                newest_schema_id=newest,
            )


def _by_schemas(context: TableContext, *schema_ids: int) -> tuple[TableContext, TableContext]:
    before, after = (with_schema(context, context.history.schema(at)) for at in schema_ids)
    return before, after


def _check_since(context: TableContext, change: Change, latest: Snapshot) -> None:
    """Check the change against what others committed since its writers read the table."""
    base = change.base_snapshot_id
    if not change.messages:
        return
    back = any(was_rolled_back(context.history, each, latest) for each in change.bases)
    if back:
        _check_rolled_back(context, change)
    elif base == latest.id:
        return
    known: dict[bytes, int] = {}
    overwritten: set[bytes] = set()
    news = [(None, context.history.live_entries(latest))] if back else None
    for theirs, added in news or _files_added_since(context, base, latest):
        check_absent(change, added)
        _check_keys_alone(context, change, theirs, added)
        for entry in added:
            if entry.bucket != POSTPONE_BUCKET:
                known.setdefault(entry.partition, entry.total_buckets)
        if theirs is None or theirs.commit_kind is CommitKind.OVERWRITE:
            overwritten |= {message.partition for message in change.messages}
    check_bucket_counts(known, change.messages)
    if change.replaces_rows:
        check_rows_untouched(context, change, latest)
    # If others only added keys, known keys keep their buckets; after an overwrite they may not.
    dealt = {
        message.partition
        for message in change.messages
        if change.kind is CommitKind.APPEND and message.total_buckets == DYNAMIC
    }
    grown = any(entry.file.index_type == HASH_INDEX for entry in change.indexes)
    if context.schema.primary_keys and (grown or dealt & overwritten):
        _check_index_files(context, change, latest)


def _check_keys_alone(
    context: TableContext,
    change: Change,
    theirs: Snapshot | None,
    added: Sequence[ManifestEntry],
) -> None:
    """Raise CommitConflict if others changed rows, in a table whose keys may change partitions.

    With `deduplicate`, removed rows are no conflict: at worst, this change writes a -D for a row
    that no longer exists.
    """
    own = change.kind is CommitKind.APPEND and any(m.new_files for m in change.messages)
    kind = None if theirs is None else theirs.commit_kind
    removes = kind is CommitKind.OVERWRITE and (
        context.options.merge_engine is not MergeEngine.DEDUPLICATE
    )
    adds = bool(added) and kind is not CommitKind.COMPACT
    if own and (adds or removes) and crosses_partitions(context):
        raise CommitConflict(
            "another commit changed rows of a table whose primary key lacks partition keys: the "
            "writer does not know where these keys are; write again, and let one writer do it",
            table=context.identifier,
            snapshot_id=None if theirs is None else theirs.id,
        )


def _check_alone(
    context: TableContext, change: Change, latest: Snapshot, delta: Sequence[ManifestEntry]
) -> None:
    """Raise CommitConflict if others added files to a partition that the change replaces.

    Files of the postponed bucket stay, so they are no conflict.
    """
    if any(was_rolled_back(context.history, each, latest) for each in change.bases):
        _check_rolled_back(context, replace(change, replaces_rows=True))
    mine = {entry.identity for entry in delta}
    partitions = {entry.partition for entry in delta}
    for _, added in _files_added_since(context, change.base_snapshot_id, latest):
        check_absent(change, added)
        for entry in added:
            is_new = entry.partition in partitions and entry.identity not in mine
            if is_new and entry.bucket != POSTPONE_BUCKET:
                raise CommitConflict(
                    "another commit changed a partition while its rows were read and written "
                    "again; do it again when no other job writes there",
                    table=context.identifier,
                    partition=dict(context.partitions.texts(entry.partition)),
                    file=entry.file.name,
                )


def _check_rolled_back(context: TableContext, change: Change) -> None:
    """Raise CommitConflict if a change was computed from files that a rollback may have removed.

    Rows that are only added do not depend on other rows, except through the key index of dynamic
    buckets.
    """
    dynamic = bool(context.schema.primary_keys) and any(
        message.total_buckets == DYNAMIC for message in change.messages
    )
    if change.kind is CommitKind.COMPACT or change.replaces_rows or dynamic:
        raise CommitConflict(
            "the snapshot that the change was computed from was rolled back; do it again",
            table=context.identifier,
            snapshot_id=change.base_snapshot_id,
        )


def _check_index_files(context: TableContext, change: Change, latest: Snapshot) -> None:
    history, base = context.history, change.base_snapshot_id
    try:
        before = () if base is None else history.index_entries(history.snapshot(base))
    except NotFound as error:
        raise CommitConflict(
            "the snapshot that the writer started from has expired; write again", snapshot_id=base
        ) from error
    check_hash_indexes(before, history.index_entries(latest), change.messages)


def _files_added_since(
    context: TableContext, base: int | None, latest: Snapshot
) -> Iterator[tuple[Snapshot | None, Sequence[ManifestEntry]]]:
    """Each snapshot after `base` (None: from the first on), newest first, and its added files.

    Where snapshots have expired, yields None with all live files instead.
    """
    try:
        for theirs, entries in committed_since(context.history, base or 0, latest):
            yield theirs, [entry for entry in entries if entry.kind is FileKind.ADD]
    except NotFound:
        yield None, context.history.live_entries(latest)
