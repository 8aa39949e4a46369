"""Finds the commits of a user by searching the snapshots, newest first.

A job that numbers its commits keeps its commit user over restarts. If a snapshot of that user
has the number of a commit or a larger one, that commit was made
(https://paimon.apache.org/docs/master/concepts/snapshot/).

If the process died between the two snapshots of a commit, the second is missing. It can still be
made from the same messages.
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
    """The newest snapshot that a user committed under an identifier; None if there is none.

    Batch commits have no identifier of their own and are ignored: otherwise a job that makes both
    kinds of commits would take each of its later numbered commits for done.
    """
    return _last_numbered(context, user, context.history.latest_snapshot())


def committed(
    context: TableContext, request: CommitRequest, latest: Snapshot | None
) -> CommitResult | None:
    """The result of an earlier commit under the same user and identifier, if there was one.

    Snapshots after `latest` are ignored.
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
        # If a commit has two snapshots, the first one is not of kind COMPACT.
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
    """Whether these messages can still make the missing COMPACT snapshot of an earlier commit.

    They can if that commit added exactly their files, and the files that compaction wrote exist.
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
    """The live snapshots up to `newest`, newest first."""
    while newest is not None:
        yield newest
        newest = context.history.snapshot_if_there(newest.id - 1) if newest.id > 1 else None
