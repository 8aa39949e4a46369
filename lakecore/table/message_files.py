"""The files that commit messages name, and their removal when the messages will not be committed.

What cannot be removed is an orphan, not a fault: `remove_orphan_files` finds it later.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakecore.errors import LakecoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import CommitMessage, DataFile, IndexFile
    from lakecore.table.context import TableContext


def delete_files(context: TableContext, messages: Sequence[CommitMessage]) -> None:
    """Remove all new files of messages that will never be committed."""
    for message in messages:
        _delete(
            context,
            message,
            (*message.new_files, *message.changelog_files, *_made_by_compaction(message)),
            (*message.new_index_files, *message.compact_index_files),
        )


def delete_compaction_files(context: TableContext, messages: Sequence[CommitMessage]) -> None:
    """Remove what the compactions of messages made, whose other parts were committed."""
    for message in messages:
        _delete(context, message, _made_by_compaction(message), message.compact_index_files)


def compaction_is_there(context: TableContext, messages: Sequence[CommitMessage]) -> bool:
    """Whether all files are still stored that the compactions of messages made."""
    return all(
        context.store.exists(path)
        for message in messages
        for path in _paths(
            context, message, _made_by_compaction(message), message.compact_index_files
        )
    )


def _made_by_compaction(message: CommitMessage) -> tuple[DataFile, ...]:
    # INVARIANT: a file that only changed its level is in the table under the same name.
    there = {file.name for file in (*message.new_files, *message.compact_before)}
    made = (*message.compact_after, *message.compact_changelog_files)
    return tuple(file for file in made if file.name not in there)


def _delete(
    context: TableContext,
    message: CommitMessage,
    files: Sequence[DataFile],
    indexes: Sequence[IndexFile],
) -> None:
    for path in _paths(context, message, files, indexes):
        with suppress(LakecoreError, OSError):
            context.store.delete(path)


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
