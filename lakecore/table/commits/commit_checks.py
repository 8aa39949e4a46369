"""Checks whether a change may be committed after the latest snapshot; raises the conflict if not.

`plan/conflicts.py` has the rules; this module reads the parts of the table that they need:

- a change that deletes files, adds files above level 0, or relies on deletion vectors, is checked
  against the live files and their vectors;
- written and compacted files must follow the newest schema and options (`schema_rules.py`);
- a change other than an overwrite is checked against the files that others added since its writers
  read the table; against all files, if the snapshot they read has been rolled back;
- a change that replaces whole partitions conflicts with every file that others added there;
- rows computed from other rows conflict with concurrent changes of the same keys
  (`row_conflicts.py`), or of the same columns of rows with ids (`row_range_checks.py`).
  A plain append without concurrent commits reads nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.errors import AlreadyExists, CommitConflict, NotFound
from lakecore.format.layout import POSTPONE_BUCKET
from lakecore.model.files import HASH_INDEX
from lakecore.model.manifest import FileKind
from lakecore.model.snapshot import CommitKind
from lakecore.options import MergeEngine
from lakecore.plan.conflicts import (
    check_bucket_counts,
    check_files,
    check_hash_indexes,
    check_levels,
    check_newest,
    check_vectors,
)
from lakecore.table.commits.base_snapshot import committed_since, was_rolled_back
from lakecore.table.commits.row_conflicts import check_rows_untouched
from lakecore.table.commits.row_range_checks import check_row_ranges
from lakecore.table.commits.schema_rules import may_follow, same_rules
from lakecore.table.context import crosses_partitions, with_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakecore.model.files import CommitMessage
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.commits.commit_change import Change
    from lakecore.table.context import TableContext

DYNAMIC = -1


def check_change(
    context: TableContext,
    change: Change,
    latest: Snapshot | None,
    delta: Sequence[ManifestEntry],
    newest: int,
) -> None:
    """Check that a change may be committed after the latest snapshot.

    `delta` are its file changes, with the deletions of an overwrite. `newest` is the id of the
    newest schema. Raises CommitConflict, or AlreadyExists if the messages were committed before.
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
        touched = {entry.partition for entry in delta} | {each.partition for each in reading}
        live = [e for e in context.history.live_entries(latest) if e.partition in touched]
        check_files(live, delta, keys)
        check_vectors(live, context.history.index_entries(latest), reading)
        if change.kind is CommitKind.COMPACT:
            check_levels(live, change.messages)
            check_newest(live, change.messages, keys)
            _check_rules(context, change, newest)


def _reading_vectors(change: Change) -> list[CommitMessage]:
    """The messages whose deletion vectors this snapshot relies on.

    For a COMPACT snapshot these are messages with a compaction, for others those without.
    """
    is_compaction = change.kind is CommitKind.COMPACT
    return [
        message
        for message in change.messages
        if message.vectors_read is not None and bool(message.compact_before) is is_compaction
    ]


def check_absent(change: Change, entries: Iterable[ManifestEntry]) -> None:
    """Raise AlreadyExists if one of these entries is a file that the change adds."""
    # Leave out files that only change their level: if another compaction moved such a file, that is
    # a conflict.
    moved = {entry.file.name for entry in change.delta if entry.kind is FileKind.DELETE}
    mine = {
        entry.identity
        for entry in change.delta
        if entry.kind is FileKind.ADD and entry.file.name not in moved
    }
    for entry in entries:
        if entry.identity in mine:
            raise AlreadyExists(
                "the messages were committed before: a file they bring is in the table",
                file=entry.file.name,
                bucket=entry.bucket,
            )


def _check_written(context: TableContext, change: Change, newest: int) -> None:
    """Raise CommitConflict if rows were written under rules that the table no longer has.

    The first snapshot fixes some rules; the writer may have opened the table before it.
    """
    for message in change.messages:
        empty = message.base_snapshot_id is None
        for schema_id in sorted({file.schema_id for file in message.new_files} - {newest}):
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
    for theirs, added in news or _added_since(context, base, latest):
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
        _check_indexes(context, change, latest)


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
    for _, added in _added_since(context, change.base_snapshot_id, latest):
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
            "the snapshot that this was made from was rolled back; do it again",
            table=context.identifier,
            snapshot_id=change.base_snapshot_id,
        )


def _check_indexes(context: TableContext, change: Change, latest: Snapshot) -> None:
    history, base = context.history, change.base_snapshot_id
    try:
        before = () if base is None else history.index_entries(history.snapshot(base))
    except NotFound as error:
        raise CommitConflict(
            "the snapshot that the writer started from has expired; write again", snapshot_id=base
        ) from error
    check_hash_indexes(before, history.index_entries(latest), change.messages)


def _added_since(
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
