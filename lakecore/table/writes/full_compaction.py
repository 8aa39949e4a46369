"""Which buckets are due for a full compaction, by `full-compaction.delta-commits`.

If the option is N, a written bucket is compacted in full unless one of the last N commits,
including the current one, did so. A stream also compacts buckets that it wrote before and that get
no rows now: otherwise `changelog-producer` = `full-compaction` would never report their last rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import NotFound
from lakecore.model.manifest import FileKind
from lakecore.model.snapshot import CommitKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakecore.model.files import CommitMessage
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.compactions.compact_plan import BucketFiles
    from lakecore.table.context import TableContext
    from lakecore.table.writes.bucket_buffer import BucketKey


def last_levels(
    context: TableContext, buckets: Iterable[BucketKey], live: Mapping[BucketKey, BucketFiles]
) -> Mapping[BucketKey, int]:
    """The last level of each bucket.

    If the table formerly had more levels, this may be the level of the bucket's deepest file.
    """
    last = context.options.level_count - 1
    return {
        key: max([last, *(file.level for file in live[key].files)]) if key in live else last
        for key in buckets
    }


def due_in_full(
    context: TableContext,
    snapshot: Snapshot | None,
    last_levels: Mapping[BucketKey, int],
    in_flight: Sequence[Sequence[CommitMessage]],
) -> frozenset[BucketKey]:
    """The buckets due for a full compaction: none of the last N commits compacted them in full.

    N includes the commit that is being prepared. The commits in flight are searched, then the
    snapshots: compactions of any process count, and every snapshot other than a compaction counts
    as a commit. If snapshots to search have expired, a bucket is due.
    """
    every = context.options.full_compaction_delta_commits
    if every is None:
        return frozenset()
    history, waiting = context.history, set(last_levels)
    commits = 1
    for messages in reversed(in_flight[max(0, len(in_flight) - every + 1) :]):
        for message in messages:
            key = message.partition, message.bucket
            if is_full(message, last_levels.get(key, 0)):
                waiting.discard(key)
        commits += 1
    while waiting and commits < every:
        if snapshot is None:
            return frozenset()
        if snapshot.commit_kind is CommitKind.COMPACT:
            for entry in history.entries(history.delta_manifests(snapshot)):
                key = entry.partition, entry.bucket
                if entry.kind is FileKind.ADD and entry.file.level >= last_levels.get(key, 0):
                    waiting.discard(key)
        elif snapshot.commit_kind is not CommitKind.ANALYZE:
            commits += 1
        try:
            snapshot = history.snapshot(snapshot.id - 1) if snapshot.id > 1 else None
        except NotFound:
            break
    return frozenset(waiting)


def is_full(message: CommitMessage, last_level: int) -> bool:
    """Whether a message compacts its bucket into the last level."""
    after = message.compact_after
    return bool(message.compact_before) and (
        not after or max(file.level for file in after) >= last_level
    )


class WaitingBuckets:
    """The buckets that a stream wrote since their last full compaction.

    Empty without `full-compaction.delta-commits`. After a restart, they are read from the snapshots
    of the same commit user.
    """

    def __init__(self, context: TableContext, user: str) -> None:
        self._context = context
        self._every = context.options.full_compaction_delta_commits
        self._user = user
        self._keys: set[BucketKey] | None = None

    def keys(self) -> frozenset[BucketKey]:
        """The buckets that wait for a full compaction."""
        if self._every is None:
            return frozenset()
        if self._keys is None:
            self._keys = self._before_start(self._every)
        return frozenset(self._keys)

    def note(self, messages: Sequence[CommitMessage]) -> None:
        """Update the waiting buckets after these messages were prepared."""
        if self._keys is None:
            return
        last = self._context.options.level_count - 1
        for message in messages:
            key = message.partition, message.bucket
            if is_full(message, last):
                self._keys.discard(key)
            elif message.new_files:
                self._keys.add(key)

    def _before_start(self, every: int) -> set[BucketKey]:
        """The buckets that this user's latest commits wrote without compacting them in full."""
        history, last = self._context.history, self._context.options.level_count - 1
        snapshot, commits = history.latest_snapshot(), 0
        found: set[BucketKey] = set()
        compacted: set[BucketKey] = set()
        while snapshot is not None and commits < every:
            is_compaction = snapshot.commit_kind is CommitKind.COMPACT
            is_own = snapshot.commit_user == self._user
            if is_compaction or is_own:
                for entry in history.entries(history.delta_manifests(snapshot)):
                    key = entry.partition, entry.bucket
                    if entry.kind is FileKind.ADD and entry.file.level >= last:
                        compacted.add(key)
                    elif entry.kind is FileKind.ADD and not is_compaction:
                        found |= {key} - compacted
            commits += is_own and not is_compaction
            if snapshot.id == 1:
                break
            snapshot = history.snapshot_if_there(snapshot.id - 1)
        return found
