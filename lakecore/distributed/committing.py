"""For the driver of a write: commits the messages of its tasks, or cleans up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.commits.commit_change import committed, delete_files, last_committed
from lakecore.table.writes.batch_write import (
    Author,
    author,
    commit_or_clean,
    commit_overwrite,
    records_nothing,
    spec_values,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import CommitMessage
    from lakecore.model.snapshot import CommitResult
    from lakecore.table.context import TableContext

__all__ = [
    "Author",
    "author",
    "commit_append",
    "commit_overwrite",
    "committed_before",
    "delete_files",
    "last_committed",
    "spec_values",
]


def commit_append(
    context: TableContext,
    messages: Sequence[CommitMessage],
    by: Author,
    *,
    skip_empty: bool = False,
) -> CommitResult:
    """Add the files of the messages in one commit. If it certainly failed, remove them.

    With `skip_empty`, a commit without messages makes no snapshot, whatever its identifier.
    """
    force = not skip_empty and records_nothing(context, by.identifier)
    return commit_or_clean(context, _request(messages, by, force=force))


def committed_before(context: TableContext, by: Author) -> CommitResult | None:
    """The earlier commit with this user and identifier; None if there is none, or no identifier."""
    if by.identifier == BATCH_COMMIT_IDENTIFIER:
        return None
    return committed(context, _request((), by), context.history.latest_snapshot())


def _request(
    messages: Sequence[CommitMessage], by: Author, *, force: bool = False
) -> CommitRequest:
    return CommitRequest(messages=messages, user=by.user, identifier=by.identifier, force=force)
