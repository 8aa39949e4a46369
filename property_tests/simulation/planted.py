"""Faults of lakecore that are planted on purpose: the simulation has to find each.

Each is one rule of a commit, a compaction, an expiry or a stream that is not followed any more.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from lakecore.errors import CommitUnknown, LakecoreError
from lakecore.io.history import History
from lakecore.lsm.universal import CompactionUnit
from lakecore.table.changes.follow import Follower, Found, Nothing
from lakecore.table.commits import commit as commits
from lakecore.table.commits.commit_change import delete_files
from lakecore.table.maintenance import branches, expire_snapshots, rollback, tags
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.publication import ExclusiveCreate, LostRace, Published
from lakecore.table.writes import batch_write
from property_tests.simulation.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.format.layout import Layout
    from lakecore.io.stores.store import Store
    from lakecore.table.publication import Outcome, SnapshotProposal


@contextmanager
def conflicts_are_not_checked() -> Iterator[None]:
    """A commit follows the latest snapshot whatever that did to the files it replaces."""
    with patch.object(commits, "check_change", _nothing):
        yield


@contextmanager
def changed_rows_are_not_checked() -> Iterator[None]:
    """An UPDATE replaces what somebody else wrote since it read the row."""
    with patch("lakecore.table.commits.commit_checks.check_rows_untouched", _nothing):
        yield


@contextmanager
def snapshots_are_not_created_at_once() -> Iterator[None]:
    """The store looks whether the name is free, and then writes: two steps, not one."""

    def put_if_absent(session: Session, path: str, data: bytes) -> bool:
        if session.exists(path):
            return False
        session.put(path, data)
        return True

    with patch.object(Session, "put_if_absent", put_if_absent):
        yield


@contextmanager
def lost_replies_are_lost_races() -> Iterator[None]:
    """Where the reply is lost the commit is tried again, and nobody looks whether it is there."""

    def publish(_: object, store: Store, layout: Layout, proposal: SnapshotProposal) -> Outcome:
        try:
            made = store.put_if_absent(layout.snapshot(proposal.snapshot.id), proposal.data)
        except CommitUnknown:
            made = False
        return Published() if made else LostRace()

    with (
        patch.object(ExclusiveCreate, "publish_snapshot", publish),
        patch.object(commits._Committer, "_mine_since", _nothing),  # noqa: SLF001
    ):
        yield


@contextmanager
def files_in_doubt_are_removed() -> Iterator[None]:
    """A commit whose outcome is not known is cleaned up after as if it had failed."""
    commit = commit_and_maintain

    def cleans(context: Any, request: Any, **more: Any) -> Any:
        try:
            return commit(context, request, **more)
        except LakecoreError:
            delete_files(context, request.messages)
            raise

    with patch.object(batch_write, "commit_and_maintain", cleans):
        yield


@contextmanager
def numbers_are_not_looked_up() -> Iterator[None]:
    """A job that starts again commits the same number again."""
    with (
        patch.object(commits, "committed", _nothing),
        patch.object(commits._Committer, "_mine_since", _nothing),  # noqa: SLF001
    ):
        yield


@contextmanager
def deletions_are_dropped_too_early() -> Iterator[None]:
    """A compaction forgets deletions though older rows of lower levels are left."""
    always = property(lambda _: True, lambda *_: None)
    with patch.object(CompactionUnit, "drops_deletions", always):
        yield


@contextmanager
def tags_do_not_keep_files() -> Iterator[None]:
    """An expiry deletes files that a tag needs."""
    with patch.object(expire_snapshots, "tags_near", _none):
        yield


@contextmanager
def rollbacks_go_step_by_step() -> Iterator[None]:
    """A rollback deletes the snapshots from the newest down, so each is shown for a moment."""

    def carry_out(context: Any, record: Any) -> Any:
        store, layout = context.store, context.layout
        rollback._restore(context, record.target)  # noqa: SLF001
        store.put(layout.latest_hint, str(record.target.id).encode())
        for snapshot in reversed(record.removed):
            store.delete(layout.snapshot(snapshot.id))
        rollback._remove_tags(context, record)  # noqa: SLF001
        return rollback._clean_up(context, record)  # noqa: SLF001

    with patch.object(rollback, "_carry_out", carry_out):
        yield


@contextmanager
def fast_forwards_delete_first() -> Iterator[None]:
    """A fast-forward deletes the snapshots of the table before it writes those of the branch."""

    def carry_out(context: Any, source: Any, target: Any, steps: Any) -> None:
        store, layout = context.store, target.layout
        store.delete(layout.latest_hint)
        for number in steps.snapshots_out:
            store.delete(layout.snapshot(number))
        for number in steps.snapshots_in:
            store.put(layout.snapshot(number), store.read(source.snapshot(number)))
        branches._finish(context, source, target, steps)  # noqa: SLF001

    with patch.object(branches, "_carry_out", carry_out):
        yield


@contextmanager
def expiries_mark_last() -> Iterator[None]:
    """An expiry deletes files before it moves EARLIEST."""
    delete = expire_snapshots._Expiry._delete_snapshots  # noqa: SLF001
    mark = expire_snapshots._Expiry._mark  # noqa: SLF001

    def delete_and_mark(expiry: Any) -> None:
        delete(expiry)
        mark(expiry)

    with patch.multiple(
        expire_snapshots._Expiry,  # noqa: SLF001
        _mark=_nothing,
        _delete_snapshots=delete_and_mark,
    ):
        yield


@contextmanager
def targets_are_not_proved() -> Iterator[None]:
    """A rollback or a tag leads to a snapshot whose files an expiry has begun to delete."""
    with (
        patch.object(rollback, "require_whole", _nothing),
        patch.object(tags, "require_whole", _nothing),
        patch.object(History, "listed_snapshot", History.snapshot_if_there),
        expiries_mark_last(),
    ):
        yield


@contextmanager
def streams_pass_over_snapshots() -> Iterator[None]:
    """A stream leaves out what it finds at every third snapshot."""
    step = Follower.step

    def passes_over(follower: Follower) -> Found | Nothing:
        found = step(follower)
        if isinstance(found, Found) and found.snapshot_id % 3 == 0:
            return step(follower)
        return found

    with patch.object(Follower, "step", passes_over):
        yield


def _none(*_given: object) -> list[Any]:
    """No tags."""
    return []


def _nothing(*_given: object) -> None:
    """What a check finds that is not made."""


PLANTED = {
    each.__name__: each
    for each in (
        conflicts_are_not_checked,
        changed_rows_are_not_checked,
        snapshots_are_not_created_at_once,
        lost_replies_are_lost_races,
        files_in_doubt_are_removed,
        numbers_are_not_looked_up,
        deletions_are_dropped_too_early,
        tags_do_not_keep_files,
        streams_pass_over_snapshots,
        rollbacks_go_step_by_step,
        fast_forwards_delete_first,
        expiries_mark_last,
        targets_are_not_proved,
    )
}
