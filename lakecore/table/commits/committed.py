"""What a user has committed already, found by looking back through the snapshots.

A job that numbers its commits keeps its commit user over restarts: what is on record under a number
as large, or larger, was committed before (https://paimon.apache.org/docs/master/concepts/snapshot/).

Of the two snapshots of a commit the second may be missing: the process died between them. It can
still be made, from the same messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import NotFound
from lakecore.model.snapshot import (
    CommitKind,
    CommitResult,
    stated_identifier,
)
from lakecore.table.commits.message_files import compaction_is_there

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.model.snapshot import Snapshot
    from lakecore.table.commits.commit_change import CommitRequest
    from lakecore.table.context import TableContext


def last_committed(context: TableContext, user: str) -> Snapshot | None:
    """The newest snapshot that a user committed under an identifier; None if it has none.

    A commit without one says nothing of the numbered ones: a job that writes in both ways would
    take each of its later commits for one that is done.
    """
    return _last_numbered(context, user, context.history.latest_snapshot())


def committed(
    context: TableContext, request: CommitRequest, latest: Snapshot | None
) -> CommitResult | None:
    """The result of an earlier commit under the same user and identifier, if there was one.

    Snapshots after `latest` are not looked at.
    """
    last = _last_numbered(context, request.user, latest)
    if last is None or last.commit_identifier < request.identifier:
        return None
    found: list[int] = []
    for snapshot in _newest_first(context, last):
        if snapshot.commit_user != request.user:
            continue
        if snapshot.commit_identifier == request.identifier:
            found.append(snapshot.id)
        # The first snapshot of a commit is of another kind than COMPACT, if it has two.
        if snapshot.commit_identifier < request.identifier or (
            found and snapshot.commit_kind is not CommitKind.COMPACT
        ):
            break
    return CommitResult(
        snapshot_ids=tuple(sorted(found)),
        commit_user=request.user,
        identifier=stated_identifier(request.identifier),
        facts={"already_committed": 1},
    )


def may_go_on(context: TableContext, request: CommitRequest, done: CommitResult) -> bool:
    """Whether only the compaction of an earlier commit is missing, and these messages hold it.

    They do if that commit added their very files, and what compaction made of them is there still.
    """
    messages = [message for message in request.messages if message.compact_before]
    if not messages or len(done.snapshot_ids) != 1:
        return False
    history = context.history
    try:
        snapshot = history.snapshot(done.snapshot_ids[0])
    except NotFound:
        return False
    if snapshot.commit_kind is CommitKind.COMPACT:
        return False
    added = {entry.file.name for entry in history.entries(history.delta_manifests(snapshot))}
    mine = {file.name for message in request.messages for file in message.new_files}
    return bool(mine) and mine <= added and compaction_is_there(context, messages)


def _last_numbered(context: TableContext, user: str, latest: Snapshot | None) -> Snapshot | None:
    return context.history.commits.last_numbered(user, latest)


def _newest_first(context: TableContext, newest: Snapshot | None) -> Iterator[Snapshot]:
    """The live snapshots from this one down."""
    while newest is not None:
        yield newest
        newest = context.history.snapshot_if_there(newest.id - 1) if newest.id > 1 else None
