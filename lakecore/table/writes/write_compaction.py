"""The compactions that a write runs in the buckets it touched.

After the new files are written and the buffers released, unless the table is `write-only`:

1. The files of a bucket are the live files of the latest snapshot and the new files. (An overwrite
   considers only the new files, because it removes the others.)
2. Universal compaction picks once, as Java Paimon does when a waiting writer prepares a commit. One
   pick is enough: it leaves at most `num-sorted-run.compaction-trigger` runs, fewer than
   `num-sorted-run.stop-trigger`. With `full-compaction.delta-commits` = N, a bucket is compacted in
   full if none of the last N commits, including this one, did so.
   In a table without a key, neighbouring files of a bucket are picked once (`lsm/packing.py`);
   in an unaware-bucket table, and with incremental clustering, writers do not compact.
3. The picked files are compacted, several buckets concurrently if the memory budget allows.
4. The messages contain the new files and the compactions. The commit makes two snapshots: APPEND
   adds the new files, COMPACT replaces files, including new ones.

A concurrent compaction may replace the same files. Before the files are read, the bucket is then
planned again from the newer snapshot, a limited number of times. Later, the commit leaves out the
compaction of the bucket (`commit.py`), and the bucket is compacted again if still due
(`batch_write.py`).

If the rows of a key cannot be merged (for example a sum overflows), a write with rows of that key
fails. In any other write, the compaction of the bucket is skipped, and a warning is logged.

INVARIANT: the rows of a write never depend on its compaction. The exception is a damaged data file:
it raises CorruptTable before anything is visible.
"""

from __future__ import annotations

import logging
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable, NotFound, Uncomputable, Unsupported
from lakecore.io.files.data_files import read_file
from lakecore.lsm.universal import Reason
from lakecore.model.files import CommitMessage
from lakecore.model.manifest import FileKind, ManifestEntry
from lakecore.model.snapshot import CommitKind, Snapshot
from lakecore.options import POSTPONE_BUCKET
from lakecore.table.commits.commit_change import Seen, delete_compaction_files
from lakecore.table.compactions.compact_plan import BucketFiles, files_by_bucket, plan_bucket
from lakecore.table.compactions.compact_work import Work, do_work, without_vectors, worker_count
from lakecore.table.compactions.pack_files import plan_after_write
from lakecore.table.context import TableContext, reload_context
from lakecore.table.reads.scan import VectorsOfBuckets, live_in
from lakecore.table.reads.told import told_by

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from lakecore.table.writes.bucket_buffer import BucketKey


# --- full compaction -----------------------------------------------------------------------------
# Which buckets are due for a full compaction, by `full-compaction.delta-commits`.
#
# If the option is N, a written bucket is compacted in full unless one of the last N commits,
# including the current one, did so. A stream also compacts buckets that it wrote before and that
# get no rows now: otherwise `changelog-producer` = `full-compaction` would never report their last
# rows.


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

    Empty without `full-compaction.delta-commits`. After a restart, the buckets are read from the
    snapshots of the same commit user.
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


# --- write compaction ----------------------------------------------------------------------------

PLANS_MAX = 3

log = logging.getLogger("lakecore.compaction")


class WriteCompaction:
    """Runs the compactions of one writer.

    Counts for each bucket how often a pick found nothing. With `lookup-compact` = `gentle`, level 0
    is picked after a number of such picks (`compactions/compact_plan.py`). A new writer begins with
    0, as in Java Paimon.
    """

    def __init__(self, context: TableContext, *, overwrite: bool) -> None:
        self._context = context
        self._overwrite = overwrite
        self._idle_picks: dict[BucketKey, int] = {}
        self._in_flight: Sequence[Sequence[CommitMessage]] = ()
        self._waiting: frozenset[BucketKey] = frozenset()
        self.seen: Seen | None = None
        """What the last `compact` has read of the table, or was given."""

    def compact(
        self,
        messages: Sequence[CommitMessage],
        in_flight: Sequence[Sequence[CommitMessage]] = (),
        waiting: Iterable[BucketKey] = (),
        *,
        seen: Seen | None = None,
    ) -> list[CommitMessage]:
        """The messages of new files, each with the compaction of its bucket if one is due.

        `in_flight` are the messages of earlier commits of this writer that are not yet made: their
        files count as files of the table. The `waiting` buckets get a message of their own if a
        full compaction of them is due. `seen` is what the caller has read of the table; if it is
        recent, the newest snapshot is not read again. On failure, the files that compaction wrote
        are removed; the caller removes the new files.
        """
        self.seen = seen
        if not _compacts(self._context):
            return list(messages)
        touched = {(message.partition, message.bucket) for message in messages}
        self._in_flight, self._waiting = in_flight, frozenset(waiting) - touched
        given, messages = len(messages), [*messages, *self._for_waiting()]
        if not messages:
            return []
        state = self._state(messages, seen)
        if state is None:
            return messages[:given]
        self.seen = state.seen
        done: list[CommitMessage] = []
        try:
            self._compact_all(messages, state, done)
        except BaseException:
            delete_compaction_files(self._context, done)
            raise
        return [each for at, each in enumerate(done) if at < given or each.compact_before]

    def compact_again(self, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
        """Compact what is now due in the buckets of committed messages. Returns new messages."""
        latest = self._context.history.latest_snapshot()
        if latest is None:
            return []
        buckets = [
            CommitMessage(
                partition=message.partition,
                bucket=message.bucket,
                total_buckets=message.total_buckets,
                base_snapshot_id=latest.id,
                base_snapshot_uuid=latest.uuid,
            )
            for message in messages
        ]
        return [message for message in self.compact(buckets) if message.compact_before]

    def _for_waiting(self) -> list[CommitMessage]:
        latest = self._context.history.latest_snapshot() if self._waiting else None
        return [
            CommitMessage(
                partition=partition,
                bucket=bucket,
                total_buckets=self._context.options.bucket,
                base_snapshot_id=None if latest is None else latest.id,
                base_snapshot_uuid=None if latest is None else latest.uuid,
            )
            for partition, bucket in sorted(self._waiting)
        ]

    def _compact_all(
        self, messages: Sequence[CommitMessage], state: _State, done: list[CommitMessage]
    ) -> None:
        """Compact the bucket of each message, and append the message to `done`.

        If a bucket fails, the messages of the buckets that were compacted are still appended.
        """
        count = worker_count(self._context.budget, len(messages))
        if count == 1:
            # A generator: if a bucket fails, `done` already has the messages of earlier buckets.
            done.extend(self._bucket(message, state) for message in messages)
            return
        with ThreadPoolExecutor(count) as pool:
            tasks = [pool.submit(self._bucket, message, state) for message in messages]
            try:
                wait(tasks, return_when=FIRST_EXCEPTION)
            finally:
                for task in tasks:
                    task.cancel()
        failures = [None if task.cancelled() else task.exception() for task in tasks]
        ended = zip(tasks, failures, strict=True)
        done += [task.result() for task, failure in ended if not (task.cancelled() or failure)]
        for failure in failures:
            if failure is not None:
                raise failure

    def _bucket(self, message: CommitMessage, state: _State | None) -> CommitMessage:
        """The message with the compaction of its bucket.

        The message is unchanged if nothing is due, or if other compactions win every retry.
        """
        for _ in range(PLANS_MAX):
            if state is None:
                return message
            plan = self._plan(message, state)
            if plan is None:
                return message
            try:
                done = do_work(state.context, plan, _no_report)
                (done,) = without_vectors(state.context, state.snapshot, [done])
            except (CorruptTable, NotFound):
                state = self._state([message])
                if state is not None and _all_there(plan, message, state):
                    raise
                continue
            except Uncomputable as error:
                if self._brings(message, error):
                    raise
                reason = told_by(error, self._context)
                log.warning("compaction left, as a key cannot be merged: %s", reason)
                return message
            return replace(
                message,
                compact_before=done.compact_before,
                compact_after=done.compact_after,
                compact_changelog_files=done.compact_changelog_files,
                compact_index_files=done.compact_index_files,
                compact_deleted_index_files=done.compact_deleted_index_files,
                vectors_read=done.vectors_read,
                compact_unchanged=done.compact_unchanged,
                compact_schema_id=done.compact_schema_id,
            )
        log.info("compaction left table=%s bucket=%d", self._context.identifier, message.bucket)
        return message

    def _brings(self, message: CommitMessage, error: Uncomputable) -> bool:
        """Whether the new files hold rows of the unmergeable key, so that the write must fail."""
        context, key = self._context, error.facts["key"]
        assert isinstance(key, dict)
        fields = context.schema.key_fields
        folder = context.partitions.path(message.partition)
        for file in message.new_files:
            path = context.layout.data_file(folder, message.bucket, file)
            for rows in read_file(context.store, path, fields=fields):
                hits = [
                    pc.equal(column, pa.scalar(value, column.type))
                    for column, value in zip(rows.columns, key.values(), strict=True)
                ]
                if pc.any(reduce(pc.and_, hits)).as_py():
                    return True
        return False

    def _plan(self, message: CommitMessage, state: _State) -> Work | None:
        key = (message.partition, message.bucket)
        full = key in state.due_in_full
        if key in state.left_alone or (key in self._waiting and not full):
            return None
        if message.bucket == POSTPONE_BUCKET:
            return None
        live = state.live.get(key)
        bucket = BucketFiles(
            partition=message.partition,
            bucket=message.bucket,
            total_buckets=message.total_buckets,
            base_snapshot_id=message.base_snapshot_id,
            files=(*(() if live is None else live.files), *message.new_files),
        )
        vectors = state.vectors.of(*key)
        if not state.context.schema.primary_keys:
            return plan_after_write(state.context, bucket, vectors)
        idle = self._idle_picks.get(key, 0)
        plan = plan_bucket(state.context, bucket, vectors, full=full, idle_picks=idle)
        if plan is None:
            self._idle_picks[key] = idle + 1
            return None
        if plan.reason is Reason.LEVEL_0:
            self._idle_picks[key] = 0
        return replace(plan, keeps_changelog=not self._overwrite)

    def _state(self, messages: Sequence[CommitMessage], seen: Seen | None = None) -> _State | None:
        """The current state of the table; None if it cannot be compacted now."""
        context = self._context
        if seen is None or not seen.is_recent(context):
            at_ms = context.ambient.now_ms()
            seen = Seen(snapshot=context.history.latest_snapshot(), at_ms=at_ms)
        snapshot = seen.snapshot
        touched = {(message.partition, message.bucket): message for message in messages}
        entries: Sequence[ManifestEntry] = ()
        if snapshot is not None and not self._overwrite:
            entries = live_in(context.history, context.partitions, snapshot, touched)
        newest = context.history.newest_schema_id(context.schema.id)
        if newest is not None and newest > context.schema.id:
            # Use the newest schema: with the writer's own, columns added since would be lost.
            context = replace(reload_context(context), history=context.history)
            if not _compacts(context) or not _is_writable(context):
                return None
        live = {(each.partition, each.bucket): each for each in files_by_bucket(entries, None)}
        in_compaction = self._add_in_flight(live, touched)
        # Another commit changed the bucket count of the partition; the commit will report it.
        left_alone = {
            (entry.partition, entry.bucket)
            for entry in entries
            if entry.total_buckets != touched[entry.partition, entry.bucket].total_buckets
        }
        return _State(
            context=context,
            seen=replace(seen, schema_id=newest),
            snapshot=snapshot,
            vectors=VectorsOfBuckets(context.history, None if self._overwrite else snapshot),
            live=live,
            left_alone=frozenset(left_alone | in_compaction),
            due_in_full=due_in_full(
                context, snapshot, last_levels(context, touched, live), self._in_flight
            ),
        )

    def _add_in_flight(
        self, live: dict[BucketKey, BucketFiles], touched: Container[BucketKey]
    ) -> set[BucketKey]:
        """Add the new files in flight to the live files of their buckets.

        Returns the buckets with a compaction in flight. Such a bucket cannot be planned before the
        outcome is known: if the commit is lost, the files that the compaction replaces stay.
        """
        in_compaction: set[BucketKey] = set()
        for message in chain.from_iterable(self._in_flight):
            key = message.partition, message.bucket
            if key not in touched:
                continue
            if message.compact_before:
                in_compaction.add(key)
            bucket = live.get(key)
            files = {} if bucket is None else {file.name: file for file in bucket.files}
            live[key] = BucketFiles(
                partition=message.partition,
                bucket=message.bucket,
                total_buckets=message.total_buckets,
                base_snapshot_id=None,
                files=(*files.values(), *(f for f in message.new_files if f.name not in files)),
            )
        return in_compaction


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """The live files of the touched buckets, and which buckets are due for a full compaction."""

    context: TableContext
    seen: Seen
    snapshot: Snapshot | None
    vectors: VectorsOfBuckets
    live: dict[BucketKey, BucketFiles]
    left_alone: frozenset[BucketKey]
    due_in_full: frozenset[BucketKey]


def _all_there(plan: Work, message: CommitMessage, state: _State) -> bool:
    """Whether all files of the plan are live or new. If so, a missing file is an error."""
    live = state.live.get((message.partition, message.bucket))
    there = {file.name for file in (*(() if live is None else live.files), *message.new_files)}
    return {file.name for file in plan.files} <= there


def _compacts(context: TableContext) -> bool:
    options = context.options
    # Packing files would undo what clustering has sorted.
    in_buckets = bool(context.schema.primary_keys) or options.bucket > 0
    return in_buckets and not options.write_only and not options.clustering_incremental


def _is_writable(context: TableContext) -> bool:
    schema = context.schema
    try:
        context.options.require_writable(
            primary_keys=schema.primary_keys, partition_keys=schema.partition_keys
        )
    except Unsupported:
        return False
    return True


def _no_report(rows: int) -> None:
    """Ignores the progress of a compaction that is part of a write."""
    del rows
