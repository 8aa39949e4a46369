"""The files that commit messages name, and their removal when the messages will not be committed.

A file that cannot be removed is an orphan, not an error.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.io.parallel import read_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import CommitMessage, DataFile, IndexFile
    from lakecore.table.context import TableContext

_SHOWN_MAX = 3


def delete_files(context: TableContext, messages: Sequence[CommitMessage]) -> None:
    """Remove all new files of messages that will never be committed."""
    for message in messages:
        _delete(context, _brought(context, message))


def delete_compaction_files(context: TableContext, messages: Sequence[CommitMessage]) -> None:
    """Remove the files that the compactions of messages wrote; the other files are committed."""
    for message in messages:
        made = _made_by_compaction(message)
        _delete(context, _paths(context, message, made, message.compact_index_files))


def delete_left_out(
    context: TableContext, messages: Sequence[CommitMessage], kept: Sequence[CommitMessage]
) -> None:
    """Remove the new files of each message that its counterpart in `kept` does not name."""
    for before, after in zip(messages, kept, strict=True):
        named = {file.name for file in after.new_files}
        gone = tuple(file for file in before.new_files if file.name not in named)
        _delete(context, _paths(context, before, gone, ()))


def delete_other_indexes(
    context: TableContext, messages: Sequence[CommitMessage], later: Sequence[CommitMessage]
) -> None:
    """Remove the index files that each replacement message in `later` added to its original."""
    for before, after in zip(messages, later, strict=False):
        if after is not before:
            _delete(context, _paths(context, after, (), after.compact_index_files))


def check_files_are_there(context: TableContext, messages: Sequence[CommitMessage]) -> None:
    """Raise InvalidRequest if a data file of the messages does not exist."""
    paths = [
        path for message in messages for path in _paths(context, message, _data_files(message), ())
    ]
    there = read_all(context.store.exists, paths)
    missing = [path for path, is_there in zip(paths, there, strict=True) if not is_there]
    if missing:
        raise InvalidRequest(
            "files of the messages are not there: they are another table's, or were aborted or "
            "rolled back",
            table=context.identifier,
            files=missing[:_SHOWN_MAX],
        )


def check_not_committed(context: TableContext, messages: Sequence[CommitMessage]) -> None:
    """Raise InvalidRequest if messages were committed: their files belong to the table."""
    mine = {file.name for message in messages for file in _data_files(message)}
    snapshot = context.history.latest_snapshot() if mine else None
    bases = {message.base_snapshot_id for message in messages}
    oldest = 0 if None in bases else min((base for base in bases if base is not None), default=0)
    if snapshot is not None and snapshot.id < oldest:
        oldest = 0
    while snapshot is not None and snapshot.id > oldest:
        entries = context.history.entries(context.history.delta_manifests(snapshot))
        used = next((entry.file.name for entry in entries if entry.file.name in mine), None)
        if used is not None:
            raise InvalidRequest(
                "the messages were committed: their files are the table's, and stay",
                table=context.identifier,
                file=used,
                snapshot_id=snapshot.id,
            )
        snapshot = context.history.snapshot_if_there(snapshot.id - 1) if snapshot.id > 1 else None


def compaction_is_there(context: TableContext, messages: Sequence[CommitMessage]) -> bool:
    """Whether all files that the compactions of messages wrote still exist."""
    return all(
        context.store.exists(path)
        for message in messages
        for path in _paths(
            context, message, _made_by_compaction(message), message.compact_index_files
        )
    )


def _made_by_compaction(message: CommitMessage) -> tuple[DataFile, ...]:
    # INVARIANT: a file that only changed its level is still in the table, under the same name.
    there = {file.name for file in (*message.new_files, *message.compact_before)}
    made = (*message.compact_after, *message.compact_changelog_files)
    return tuple(file for file in made if file.name not in there)


def _delete(context: TableContext, paths: Sequence[str]) -> None:
    for path in paths:
        with suppress(LakecoreError, OSError):
            context.store.delete(path)


def _brought(context: TableContext, message: CommitMessage) -> list[str]:
    """The paths of all files that a message adds."""
    indexes = (*message.new_index_files, *message.compact_index_files)
    return _paths(context, message, _data_files(message), indexes)


def _data_files(message: CommitMessage) -> tuple[DataFile, ...]:
    """The data and changelog files that the message adds."""
    return (*message.new_files, *message.changelog_files, *_made_by_compaction(message))


def _paths(
    context: TableContext,
    message: CommitMessage,
    files: Sequence[DataFile],
    indexes: Sequence[IndexFile],
) -> list[str]:
    layout, partition = context.layout, context.partitions.path(message.partition)
    paths = [layout.data_file(partition, message.bucket, file) for file in files]
    paths += [
        layout.extra_file(partition, message.bucket, file, name)
        for file in files
        for name in file.extra_files
    ]
    paths += [layout.live_index_file(partition, message.bucket, index) for index in indexes]
    return paths
