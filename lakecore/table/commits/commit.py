"""Turns commit messages into snapshots. Every change of a table's rows is made here.

https://paimon.apache.org/docs/master/concepts/spec/snapshot/

A commit writes up to two snapshots under one user and identifier: APPEND (or OVERWRITE) with the
new files, then COMPACT with what compaction replaced. Each snapshot takes one loop:

1. read the latest snapshot, unless the verb has just read it;
2. check whether a snapshot since the last check is already this commit: its reply was lost, or an
   earlier process sent the same request and crashed;
3. check conflicts with what others committed since the messages were made (`commit_checks.py`). If
   there were many commits, repeat from step 1: more may have arrived during the check;
4. write manifests and manifest lists under fresh names, merging small ones;
5. publish snapshot N+1 (`publication.py`). This call is the commit. If the race is lost, if N+1 has
   expired, or if N was rolled back since step 1, remove what step 4 wrote, except the manifests of
   the change itself and merged manifests, wait, and repeat from step 1;
6. write the hints, which only save readers a listing.

A crash at any point leaves snapshot N or N+1. A certain failure removes the metadata that this
commit wrote; an unknown outcome removes nothing and raises CommitUnknown.

After the first snapshot is visible, the commit raises no error. If the COMPACT snapshot fails, its
files are removed, and the next compaction repeats the work. If a process dies between the two
snapshots, committing the same messages under the same identifier makes the second one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    CommitUnknown,
    CorruptTable,
    LakecoreError,
    NotFound,
)
from lakecore.format import metadata
from lakecore.model.files import FileSource
from lakecore.model.manifest import FileKind, ManifestEntry
from lakecore.model.snapshot import (
    BATCH_COMMIT_IDENTIFIER,
    CommitKind,
    CommitResult,
    Snapshot,
    stated_identifier,
)
from lakecore.plan.row_ids import with_row_ids
from lakecore.table.commits.commit_change import (
    AllEntries,
    Change,
    CommitRequest,
    Inherited,
    PartitionFilter,
    changes,
    check_files_are_there,
    committed,
    delete_compaction_files,
    last_committed,
    may_go_on,
    without_deleted_stats,
)
from lakecore.table.commits.commit_checks import check_absent, check_change
from lakecore.table.commits.commit_manifests import ManifestWriter
from lakecore.table.context import TableContext, newest_schema_id, require_table_of
from lakecore.table.publication import LostRace, Published, Refused, SnapshotProposal, Unknown
from lakecore.table.reads.scan import live_in, live_in_partitions
from lakecore.table.reads.told import told_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from lakecore.io.ambient import Ambient
    from lakecore.options import TableOptions

__all__ = ["CommitRequest", "PartitionFilter", "commit", "commit_compaction", "last_committed"]


# --- commit attempts -----------------------------------------------------------------------------
# How often a commit is tried, and how long it waits between two attempts.
#
# `commit.max-retries`, `commit.timeout`, `commit.min-retry-wait`, `commit.max-retry-wait`
# (https://paimon.apache.org/docs/master/maintenance/configurations/).

log = logging.getLogger("lakecore.commit")
_DOUBLINGS_MAX = 30


def attempts(options: TableOptions, ambient: Ambient) -> Iterator[int]:
    """The number of each attempt, from 0 up to the limit; waits between the attempts."""
    deadline = None
    if options.commit_timeout_ms is not None:
        deadline = ambient.now_ms() + options.commit_timeout_ms
    for attempt in range(options.commit_max_retries + 1):
        began_ms = ambient.now_ms()
        yield attempt
        now_ms = ambient.now_ms()
        if deadline is not None and now_ms >= deadline:
            return
        first_ms = max(options.commit_min_retry_wait_ms, now_ms - began_ms)
        wait_ms = min(first_ms << min(attempt, _DOUBLINGS_MAX), options.commit_max_retry_wait_ms)
        # Add jitter: writers that lost the same race must not retry at the same time.
        ambient.sleep(wait_ms * (0.5 + ambient.random()) / 1000)


def log_lost_compaction(context: TableContext, error: Exception) -> None:
    """Log that a compaction was not committed: at level DEBUG if another commit was first."""
    level = logging.DEBUG if isinstance(error, CommitConflict | AlreadyExists) else logging.WARNING
    log.log(
        level,
        "rows are committed, their compaction is left to a later one: table=%s reason=%s",
        context.identifier,
        told_by(error, context),
    )


# --- next snapshot -------------------------------------------------------------------------------
# Builds the next snapshot from a checked change, and first writes all files that it names.
#
# The snapshot is not visible before it is published (`commit.py`).
#
# INVARIANT: a snapshot keeps everything that it does not change, in particular the index manifest.


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Step:
    """A change that passed the checks against the latest snapshot, and its effect.

    `stamped`: whether entries contain the snapshot's id, so that another attempt needs new
    manifests. `delta`: the entries, with deletions of all files in the `cleared` partitions, and
    with ids of new rows if rows are tracked. `schema_id`: the id of the newest schema.
    """

    change: Change
    latest: Snapshot | None
    schema_id: int
    delta: Sequence[ManifestEntry]
    cleared: AbstractSet[bytes]
    tracked: bool = False
    stamped: bool = False
    next_row_id: int = 0

    @property
    def snapshot_id(self) -> int:
        return 1 if self.latest is None else self.latest.id + 1

    def numbered(self, options: TableOptions) -> Step:
        """The step, completed with what depends on the snapshot id and the previous snapshot.

        With row tracking, new rows have ids. With `sequence.snapshot-ordering`, they have the
        snapshot id as their sequence numbers; compacted rows keep their numbers.
        """
        if options.sequence_snapshot_ordering:
            delta = _with_snapshot_id(self.delta, self.snapshot_id)
            return replace(self, delta=delta, stamped=True)
        if not options.row_tracking_enabled:
            return self
        first = Inherited.of(self.latest).next_row_id
        delta, next_row_id = with_row_ids(self.delta, first, self.snapshot_id)
        return replace(self, delta=delta, next_row_id=next_row_id, tracked=True, stamped=True)


def _with_snapshot_id(entries: Sequence[ManifestEntry], snapshot_id: int) -> list[ManifestEntry]:
    """The entries of a commit; files that writers added get the snapshot id as sequence numbers.

    A file that changes its level, or that a compaction wrote, keeps its numbers.
    """
    kept = {entry.file.name for entry in entries if entry.kind is FileKind.DELETE}
    return [
        replace(entry, file=replace(entry.file, sequence_min=snapshot_id, sequence_max=snapshot_id))
        if entry.kind is FileKind.ADD
        and entry.file.file_source is not FileSource.COMPACT
        and entry.file.name not in kept
        else entry
        for entry in entries
    ]


def next_snapshot(
    context: TableContext, request: CommitRequest, manifests: ManifestWriter, step: Step
) -> Snapshot:
    """The snapshot after the latest one; writes its manifests and manifest lists.

    Raises CorruptTable if a manifest to merge is missing: another commit replaced it, or it was
    lost.
    """
    change, latest, delta = step.change, step.latest, step.delta
    before = Inherited.of(latest)
    base_list, base_size = manifests.write_base(latest)
    delta_list, delta_size = manifests.write_delta(delta, [each.new for each in change.encoded])
    told = [each.changelog for each in change.encoded if each.changelog is not None]
    changelog_list, changelog_size = (
        manifests.write_delta(change.changelog, told) if change.changelog or told else (None, None)
    )
    index_manifest = manifests.write_indexes(
        latest, change.indexes, change.deleted_indexes, step.cleared
    )
    delta_rows = sum(
        entry.file.row_count if entry.kind is FileKind.ADD else -entry.file.row_count
        for entry in delta
    ) + sum(each.new.row_count for each in change.encoded)
    changelog_rows = sum(entry.file.row_count for entry in change.changelog)
    records_before = before.total_record_count
    if records_before is None:
        live = None if latest is None else context.history.live_facts(latest)[1]
        records_before = 0 if live is None else int(live["row_count"].sum())
    return Snapshot(
        id=step.snapshot_id,
        schema_id=max(step.schema_id, before.schema_id),
        uuid=context.ambient.new_uuid(),
        base_manifest_list=base_list,
        base_manifest_list_size=base_size,
        delta_manifest_list=delta_list,
        delta_manifest_list_size=delta_size,
        changelog_manifest_list=changelog_list,
        changelog_manifest_list_size=changelog_size,
        index_manifest=index_manifest,
        commit_user=request.user,
        commit_identifier=request.identifier,
        commit_kind=change.kind,
        time_ms=context.ambient.now_ms(),
        total_record_count=records_before + delta_rows,
        delta_record_count=delta_rows,
        changelog_record_count=changelog_rows + sum(each.row_count for each in told) or None,
        watermark=_later(before.watermark, request.watermark),
        statistics=request.statistics or _kept_statistics(context, latest, step.schema_id),
        properties=request.properties,
        next_row_id=step.next_row_id if step.tracked else before.next_row_id,
        operation=request.operation,
    )


def _kept_statistics(context: TableContext, latest: Snapshot | None, schema_id: int) -> str | None:
    """The name of the latest snapshot's statistics file, for the next snapshot to keep.

    None if the file cannot be read, or if it was made for another schema.
    """
    if latest is None or latest.statistics is None:
        return None
    try:
        statistics = context.history.statistics(latest)
    except (NotFound, CorruptTable):
        return None
    return latest.statistics if statistics and statistics.schema_id == schema_id else None


def _later(before: int | None, given: int | None) -> int | None:
    known = [mark for mark in (before, given) if mark is not None]
    return max(known, default=None)


# --- commit --------------------------------------------------------------------------------------

_FEW = 2
"""Up to this many snapshots are checked faster than new ones arrive."""


def commit(
    context: TableContext,
    request: CommitRequest,
    *,
    on_failure: Callable[[], None] | None = None,
) -> CommitResult:
    """Make the changes visible. Returns the snapshots that were committed.

    Idempotent: if this user committed under this identifier before, nothing is committed, and the
    result names the earlier snapshots. If the rows are committed but their compaction conflicts,
    the compaction's files are removed and `facts` of the result has `compaction_lost`; the next
    compaction repeats the work. If the outcome of the compaction is unknown, `facts` has
    `compaction_unknown`.

    Raises CommitConflict or InvalidRequest, with nothing changed; CommitUnknown; AlreadyExists if
    the messages were committed before, because their files are in use. If an error proves that
    nothing of this commit is visible, `on_failure` is called before the error is raised.
    """
    committer = _Committer(context, request)
    try:
        return _commit(committer, context, request)
    except BaseException as error:
        proves = not isinstance(error, CommitUnknown | AlreadyExists)
        if on_failure is not None and proves and committer.changed_nothing:
            on_failure()
        raise


def _commit(committer: _Committer, context: TableContext, request: CommitRequest) -> CommitResult:
    seen: int | None = None
    latest = committer.given
    first, compact = changes(request)
    if request.identifier != BATCH_COMMIT_IDENTIFIER:
        latest = latest or context.history.latest_snapshot()
        done = committed(context, request, latest)
        if done is not None:
            if not may_go_on(context, request, done):
                return done
            committer.follow(done.snapshot_ids[-1])
            committer.publish_compaction(compact)
            return committer.result(done)
        seen = 0 if latest is None else latest.id
    if request.from_elsewhere:
        check_files_are_there(context, request.messages)
    committer.follow(seen, latest, is_new=True)
    if first.is_empty and not (request.force or request.overwrite):
        if request.merges_manifests or not compact.is_empty:
            committer.publish(compact)
        return committer.result()
    committer.publish(first, with_hints=compact.is_empty)
    # If another process committed this request, its files may differ from the messages' files.
    if not compact.is_empty and not committer.facts:
        committer.publish_compaction(compact)
    committer.write_hints()
    return committer.result()


def commit_compaction(context: TableContext, request: CommitRequest) -> CommitResult:
    """Make only the COMPACT snapshot; a failure is reported in `facts`, as in `commit`."""
    committer = _Committer(context, request)
    committer.publish_compaction(changes(request)[1])
    return committer.result()


class _Committer:
    """Makes the snapshots of one commit: at most two."""

    def __init__(self, context: TableContext, request: CommitRequest) -> None:
        self._context = context
        self._request = request
        self._seen: int | None = None
        self._latest: Snapshot | None = None
        self._schema_id: int | None = None
        self._unhinted: Snapshot | None = None
        self._is_new = True
        self._manifests = ManifestWriter(context)
        self._attempts = 0
        self._in_doubt = False  # whether a visible snapshot may use the manifests
        self._uuids: set[str] = set()
        self._snapshots: list[tuple[Snapshot, Sequence[ManifestEntry]]] = []
        self.facts: dict[str, int] = {}
        self.given: Snapshot | None = None
        if request.seen is not None and request.seen.is_recent(context):
            self.given, self._schema_id = request.seen.snapshot, request.seen.schema_id

    def follow(
        self, seen: int | None, latest: Snapshot | None = None, *, is_new: bool = False
    ) -> None:
        """Note that no snapshot up to id `seen` belongs to this commit (None: not checked).

        `latest`: the newest snapshot, if it was just read. `is_new`: False if a part of the commit
        may have been made earlier.
        """
        self._seen, self._latest, self._is_new = seen, latest, is_new

    @property
    def changed_nothing(self) -> bool:
        """Whether it is certain that no snapshot of this commit exists or will exist."""
        return self._is_new and not (self._snapshots or self._in_doubt)

    def result(self, before: CommitResult | None = None) -> CommitResult:
        """The result; `before` is the result of an earlier commit of the same messages."""
        entries = [entry for _, delta in self._snapshots for entry in delta]
        encoded = [each.new for each in self._request.encoded if self._snapshots]
        added = [entry.file for entry in entries if entry.kind is FileKind.ADD]
        deleted = [entry.file for entry in entries if entry.kind is FileKind.DELETE]
        snapshot_ids = tuple(snapshot.id for snapshot, _ in self._snapshots)
        messages = self._request.messages
        if before is not None:
            return replace(
                before,
                snapshot_ids=(*before.snapshot_ids, *snapshot_ids),
                facts={**before.facts, **self.facts},
            )
        return CommitResult(
            snapshot_ids=snapshot_ids,
            rows=sum(f.row_count for m in messages for f in m.new_files)
            + sum(each.new.row_count for each in self._request.encoded),
            files_added=len(added) + sum(each.file_count for each in encoded),
            files_deleted=len(deleted),
            bytes_added=sum(file.size_bytes for file in added)
            + sum(each.size_bytes for each in encoded),
            bytes_deleted=sum(file.size_bytes for file in deleted),
            attempts=self._attempts,
            commit_user=self._request.user,
            identifier=stated_identifier(self._request.identifier),
            facts=self.facts,
        )

    def publish_compaction(self, change: Change) -> None:
        """Make the second snapshot of a commit after the first; report a failure in `facts`."""
        context, messages = self._context, self._request.messages
        try:
            self.publish(change)
        except CommitUnknown as error:
            reason = told_by(error, context)
            log.warning("compaction unknown table=%s reason=%s", context.identifier, reason)
            self.facts["compaction_unknown"] = 1
        except (LakecoreError, OSError) as error:
            # All these errors mean that the snapshot was not made, except AlreadyExists.
            log_lost_compaction(context, error)
            if not isinstance(error, AlreadyExists):
                delete_compaction_files(context, messages)
            self.facts["compaction_lost"] = 1
        else:
            compacted = [message for message in messages if message.compact_before]
            files = [file for message in compacted for file in message.compact_before]
            self.facts["buckets_compacted"] = len(compacted)
            self.facts["files_compacted"] = len(files)
            self.facts["rows_compacted"] = sum(file.row_count for file in files)

    def publish(self, change: Change, *, with_hints: bool = True) -> None:
        """Publish a change as one snapshot.

        `with_hints`: False if another snapshot follows at once; `write_hints` then writes the
        hints.
        """
        self._manifests.begin()
        self._in_doubt = False
        try:
            self._race(change)
            if with_hints:
                self.write_hints()
        except BaseException:
            if not self._in_doubt:
                self._manifests.remove()
            raise

    def write_hints(self) -> None:
        """Write the hints of the last published snapshot, unless they are already written."""
        if self._unhinted is not None:
            self._context.publication.write_hints(self._context.history, self._unhinted)
            self._unhinted = None

    def _race(self, change: Change) -> None:
        context = self._context
        for attempt in attempts(context.options, context.ambient):
            self._attempts += 1
            # Do slow calls before reading the latest snapshot, or it is outdated at publication.
            if attempt or self._schema_id is None:
                self._schema_id = newest_schema_id(context)
            if attempt or self._latest is None:
                self._latest = context.history.latest_after(self._latest)
            require_table_of(context, self._latest)
            left = self._attempt(change, self._schema_id)
            if left is None:
                return
            context.history.lost_race_ms = context.ambient.now_ms()
            change = left
        raise CommitConflict(
            "lost every race for the next snapshot; commit the same messages again, or raise "
            "commit.max-retries",
            table=context.identifier,
            attempts=self._attempts,
        )

    def _attempt(self, change: Change, schema_id: int) -> Change | None:
        """Try once to publish the change. Returns None if it is committed.

        Otherwise returns the change for the next attempt, which has fewer snapshots left to check.
        """
        context = self._context
        behind: int | None = None
        try:
            while True:
                latest = self._latest
                if self._is_made(change, latest):
                    return None
                step = self._checked(change, latest, schema_id)
                came = 0 if latest is None else latest.id - (change.base_snapshot_id or 0)
                change = _passed(change, latest)
                self._seen = 0 if latest is None else latest.id
                # While many snapshots are checked, new ones arrive, but fewer each time.
                if came <= _FEW or (behind is not None and came >= behind):
                    break
                behind = came
                self._latest = context.history.latest_after(latest)
            snapshot = next_snapshot(context, self._request, self._manifests, step)
        except CorruptTable:
            # A manifest may be missing because another commit replaced it: the race is lost.
            if context.history.latest_snapshot() != latest:
                self._manifests.remove()
                return change
            raise
        entries = AllEntries(step.delta, change.encoded) if change.encoded else step.delta
        if not self._publish(snapshot, latest, entries):
            # The deletions of an overwrite, and row ids, depend on the previous snapshot.
            is_kept = not step.stamped and change.kind is not CommitKind.OVERWRITE
            self._manifests.lose(deltas=is_kept)
            return change
        self._unhinted = snapshot
        context.history.commits.note(latest, snapshot)
        context.history.confirm(snapshot)
        if not change.encoded:
            context.history.learn(latest, snapshot, step.delta)
        self._made(snapshot, step.delta)
        self._latest = snapshot  # a second snapshot needs no look-up
        log.info(
            "committed table=%s snapshot=%d kind=%s files_added=%d files_deleted=%d attempts=%d",
            context.identifier,
            snapshot.id,
            snapshot.commit_kind,
            sum(entry.kind is FileKind.ADD for entry in step.delta)
            + sum(each.new.file_count for each in change.encoded),
            sum(entry.kind is FileKind.DELETE for entry in step.delta),
            self._attempts,
        )
        return None

    def _is_made(self, change: Change, latest: Snapshot | None) -> bool:
        """Whether an earlier attempt or another process already committed this snapshot."""
        mine = self._mine_since(self._seen, latest, change.kind)
        if mine is None:
            return False
        if mine.uuid not in self._uuids:
            self._manifests.remove()
            self.facts |= {} if self._snapshots else {"already_committed": 1}
        self._made(mine, change.delta)
        return True

    def _made(self, snapshot: Snapshot, delta: Sequence[ManifestEntry]) -> None:
        self._snapshots.append((snapshot, delta))
        self._seen, self._latest = snapshot.id, None

    def _mine_since(
        self, seen: int | None, latest: Snapshot | None, kind: CommitKind
    ) -> Snapshot | None:
        if seen is None or latest is None:
            return None
        request = self._request
        wanted = (request.user, request.identifier, kind)
        for theirs in self._context.history.commits.after(seen, latest):
            if theirs.uuid in self._uuids:
                return theirs
            # Batch writers all use one identifier, so an equal identifier proves nothing.
            same = (theirs.commit_user, theirs.commit_identifier, theirs.commit_kind) == wanted
            if same and request.identifier != BATCH_COMMIT_IDENTIFIER:
                return theirs
        return None

    def _checked(self, change: Change, latest: Snapshot | None, schema_id: int) -> Step:
        """The change as a step after the latest snapshot, once all checks have passed."""
        delta: Sequence[ManifestEntry] = change.delta
        cleared: set[bytes] = set()
        if change.kind is CommitKind.OVERWRITE:
            removed, cleared = self._removed(change, latest)
            delta = [*removed, *delta]
        check_change(self._context, change, latest, delta, schema_id)
        if self._context.options.manifest_delete_file_drop_stats:
            delta = without_deleted_stats(delta)
        step = Step(change=change, latest=latest, schema_id=schema_id, delta=delta, cleared=cleared)
        return step.numbered(self._context.options)

    def _publish(
        self, snapshot: Snapshot, base: Snapshot | None, delta: Iterable[ManifestEntry]
    ) -> bool:
        """Publish the snapshot. Returns False if another snapshot has or had its number."""
        assert snapshot.uuid is not None
        context = self._context
        self._uuids.add(snapshot.uuid)
        data = metadata.encode_snapshot(snapshot)
        proposal = SnapshotProposal(snapshot=snapshot, data=data, base=base, delta=delta)
        # From here on, an exception does not prove failure, so no file may be removed.
        self._in_doubt = True
        outcome = context.publication.publish_snapshot(context.store, context.layout, proposal)
        match outcome:
            case Published():
                return True
            case LostRace(was_stored):
                self._in_doubt = False
                if was_stored:
                    self._manifests.remove()
                return False
            case Refused(error):
                self._in_doubt = False
                raise error
            case Unknown(error):
                raise CommitUnknown(
                    "the reply to the commit was lost: look for the snapshot before a retry",
                    table=context.identifier,
                    snapshot_id=snapshot.id,
                    commit_user=snapshot.commit_user,
                    identifier=snapshot.commit_identifier,
                ) from error

    def _removed(
        self, change: Change, latest: Snapshot | None
    ) -> tuple[list[ManifestEntry], set[bytes]]:
        """Deletions of the live files in the partitions to clear, and these partitions."""
        if latest is None:
            return [], set()
        history, specs = self._context.history, self._context.partitions
        mine = {(entry.partition, entry.bucket) for entry in change.delta}
        check_absent(change, live_in(history, specs, latest, mine))
        there = history.live_partitions(latest)
        indexes = history.index_entries(latest)
        partitions = list(dict.fromkeys([*there, *(entry.partition for entry in indexes)]))
        assert self._request.overwrite is not None
        chosen = self._request.overwrite(partitions) if partitions else ()
        cleared = {p for p, choose in zip(partitions, chosen, strict=True) if choose}
        live = live_in_partitions(history, specs, latest, cleared)
        return [replace(entry, kind=FileKind.DELETE) for entry in live], cleared


def _passed(change: Change, latest: Snapshot | None) -> Change:
    """The change, noted as checked against `latest`: only later snapshots remain to be checked."""
    if latest is None:
        return change
    bases = frozenset({(latest.id, latest.uuid)})
    return replace(change, base_snapshot_id=latest.id, bases=bases)
