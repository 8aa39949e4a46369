"""The commit that all writing verbs use: commit, then do the housekeeping of the table.

Verbs above this package commit only through this module. After the commit, in this order:

0. bring the Iceberg metadata up to date, also with `write-only`, and again after the last step;
1. create automatic tags;
2. drop expired partitions;
3. delete unused consumers, so that they do not hold back expiry;
4. expire snapshots and long-lived changelogs;
5. delete tags past their time to live: an expiry that has just seen that there are none did it.

With `write-only`, steps 1 to 5 are skipped. With `snapshot.expire.execution-mode=async`, a
background thread runs them, one run at a time. The process waits for that thread before it exits.

INVARIANT: a visible commit is never reported as failed. If a step fails, the later steps are
skipped, because a snapshot that still needs its tag must not expire. A warning is logged, the
result has `housekeeping_failed` in its `facts`, and the next commit tries again. A failure in the
background is reported in the result of the next commit.
"""

from __future__ import annotations

import logging
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lakecore.errors import LakecoreError
from lakecore.model.retention import ExpiredSnapshots
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitResult
from lakecore.options import ExpireMode
from lakecore.table.commits.commit import CommitRequest, commit
from lakecore.table.maintenance.consumers import expire_consumers
from lakecore.table.maintenance.deletion import is_alone
from lakecore.table.maintenance.expire_partitions import expire_partitions_if_due
from lakecore.table.maintenance.expire_snapshots import (
    expire_changelogs,
    expire_snapshots,
    keeps_changelogs,
)
from lakecore.table.maintenance.iceberg_hooks import publish_if_asked, require_publishable
from lakecore.table.maintenance.tags import create_automatic_tags, expire_due_tags
from lakecore.table.reads.told import told_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.io.history import History
    from lakecore.table.context import TableContext


log = logging.getLogger("lakecore.expire")


def commit_and_maintain(
    context: TableContext,
    request: CommitRequest,
    *,
    on_failure: Callable[[], None] | None = None,
) -> CommitResult:
    """Commit, as `commits.commit` does, and then do the housekeeping of the table."""
    try:
        require_publishable(context)
    except LakecoreError:
        if on_failure is not None:
            on_failure()
        raise
    result = commit(context, request, on_failure=on_failure)
    failed: dict[str, int] = {}
    if result.snapshot_ids and not publish_if_asked(context, "the commit"):
        failed["iceberg_failed"] = 1
    is_due = not (context.options.write_only or result.facts.get("already_committed"))
    if is_due and (count := maintain(context, request, result.snapshot_id, publishes=not failed)):
        failed["housekeeping_failed"] = count
    return replace(result, facts={**result.facts, **failed}) if failed else result


def maintain(
    context: TableContext, request: CommitRequest, latest_id: int | None, *, publishes: bool
) -> int:
    """Do the housekeeping after a commit; with `publishes`, then bring Iceberg metadata up to date.

    Returns 1 if this run failed, or an earlier one whose failure was not reported yet; else 0.
    """

    def work() -> bool:
        done = _run(context, request, latest_id)
        if done and publishes:
            publish_if_asked(context, "the expiry after the commit")
        return done

    if context.options.snapshot_expire_execution_mode is not ExpireMode.ASYNC:
        return int(not work())
    return _background_of(context.history).start(work)


def _run(context: TableContext, request: CommitRequest, latest_id: int | None) -> bool:
    """Do all steps. Returns whether all succeeded."""
    try:
        create_automatic_tags(context, batch=request.identifier == BATCH_COMMIT_IDENTIFIER)
        dropped = expire_partitions_if_due(context, request.identifier)
        expire_consumers(context)
        done = _expire(context, dropped[-1] if dropped else latest_id)
        if not (done.snapshots_expired and is_alone(context)):
            expire_due_tags(context)
        return done.is_complete
    except (LakecoreError, OSError) as error:
        log.warning(
            "the commit succeeded, but the housekeeping after it failed; the next commit tries "
            "again: table=%s snapshot=%s reason=%s",
            context.identifier,
            latest_id,
            told_by(error, context),
        )
        return False


def _expire(context: TableContext, latest_id: int | None) -> ExpiredSnapshots:
    """Expire snapshots and changelogs."""
    # Up to `snapshot.num-retained.min` snapshots never expire: then nothing needs to be read.
    if latest_id is None or latest_id > context.options.snapshot_num_retained_min:
        done = expire_snapshots(context, latest_id=latest_id)
        if keeps_changelogs(context.options):
            expire_changelogs(context)
        return done
    return ExpiredSnapshots()


class _Background:
    """The housekeeping of one table in a thread: one run at a time.

    Of the requests that arrive during a run, only the newest is carried out.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: Callable[[], bool] | None = None
        self._runs = False
        self._failed = False

    def start(self, work: Callable[[], bool]) -> int:
        """Run `work` in the background soon. Returns 1 if earlier work failed, else 0.

        Each failure is returned once.
        """
        with self._lock:
            failed, self._failed = self._failed, False
            self._next = work
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._work, name="lakecore-housekeeping").start()
        return int(failed)

    def _work(self) -> None:
        while True:
            with self._lock:
                work, self._next = self._next, None
                if work is None:
                    self._runs = False
                    return
            done = False
            try:
                done = work()
            finally:
                with self._lock:
                    self._failed |= not done
                    if sys.exc_info()[0] is not None:  # a bug: the thread ends
                        self._runs = False


_BACKGROUNDS: WeakKeyDictionary[History, _Background] = WeakKeyDictionary()
_BACKGROUNDS_LOCK = threading.Lock()


def _background_of(history: History) -> _Background:
    with _BACKGROUNDS_LOCK:
        return _BACKGROUNDS.setdefault(history, _Background())
