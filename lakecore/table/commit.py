"""Commit messages -> snapshots: the one place where a table changes.

https://paimon.apache.org/docs/master/concepts/spec/snapshot/

A commit writes up to two snapshots under one user and identifier: APPEND (or OVERWRITE) with the
new files, then COMPACT with what compaction replaced. Each is one loop:

1. read the latest snapshot;
2. after a lost race, look at the snapshots since: is one of them ours already?
3. check conflicts with what others committed since the messages were made (`plan/conflicts.py`);
4. write manifests and manifest lists under fresh names, merging small ones (`plan/manifests.py`);
5. `put_if_absent(snapshot-N+1)`. This call is the commit. Lost: remove what step 4 wrote, wait,
   begin again, at most `commit.max-retries` times and `commit.timeout` long;
6. write the hints, which only save readers a listing.

A crash at any point leaves snapshot N or N+1. Certain failure removes what this commit wrote to
the metadata; an unknown outcome removes nothing and raises CommitUnknown.

INVARIANT: every snapshot carries the complete index manifest. Leaving it out would bring rows back
that deletion vectors hide.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    CommitUnknown,
    InvalidRequest,
    LakecoreError,
    NotFound,
)
from lakecore.format import metadata
from lakecore.format.layout import index_manifest_name, manifest_list_name, manifest_name
from lakecore.format.statistics import StatsCollector, StatsKind, StatsMode
from lakecore.model.files import HASH_INDEX, CommitMessage, DataFile, IndexFile
from lakecore.model.manifest import FileKind, IndexEntry, ManifestEntry, ManifestFile, fold
from lakecore.model.snapshot import (
    BATCH_COMMIT_IDENTIFIER,
    CommitKind,
    CommitResult,
    Snapshot,
)
from lakecore.plan.conflicts import check_bucket_counts, check_files, check_hash_indexes
from lakecore.plan.manifests import cancel, full_merge_is_due, neighbours_to_merge
from lakecore.table.message_files import delete_compaction_files

if TYPE_CHECKING:
    from lakecore.table.context import TableContext

log = logging.getLogger("lakecore.commit")

PartitionFilter = Callable[[Sequence[bytes]], Sequence[bool]]
"""Serialized partitions -> which of them an overwrite clears."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """What to commit, and as whom.

    `overwrite` clears the partitions it chooses (None: nothing is cleared). `force` commits even
    if there is nothing to change, so that the identifier is on record.
    """

    messages: Sequence[CommitMessage]
    user: str
    identifier: int = BATCH_COMMIT_IDENTIFIER
    overwrite: PartitionFilter | None = None
    force: bool = False
    watermark: int | None = None
    properties: Mapping[str, str] | None = None
    operation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One snapshot's worth of changes."""

    kind: CommitKind
    delta: Sequence[ManifestEntry]
    changelog: Sequence[ManifestEntry]
    indexes: Sequence[IndexEntry]
    base_snapshot_id: int | None


@dataclass(slots=True)
class _Written:
    """What an attempt wrote, to be removed if it certainly failed."""

    paths: list[str] = field(default_factory=list)


def commit(context: TableContext, request: CommitRequest) -> CommitResult:
    """Make the changes visible; the snapshots that did it.

    Messages that this user committed under this identifier before are not committed again; the
    result then names the snapshots of that time. If the rows are in and only the compaction that
    came with them clashes, its files are removed and the result says `compaction_lost`: the next
    compaction does it again.

    Raises CommitConflict or InvalidRequest, having changed nothing; CommitUnknown; AlreadyExists if
    the messages were committed before, so that their files are in use.
    """
    if request.identifier != BATCH_COMMIT_IDENTIFIER:
        done = _committed(context, request)
        if done is not None:
            return done
    committer = _Committer(context, request)
    append = _append_change(request)
    compact = _compact_change(request)
    _check_once([*append.delta, *compact.delta])
    if append.delta or append.changelog or append.indexes or request.force or request.overwrite:
        committer.publish(append)
    if compact.delta or compact.changelog or compact.indexes:
        try:
            committer.publish(compact)
        except CommitConflict as conflict:
            if not committer.made_snapshots:
                raise
            log.warning("compaction lost table=%s reason=%s", context.identifier, conflict)
            delete_compaction_files(context, request.messages)
            committer.facts["compaction_lost"] = 1
    return committer.result()


def last_committed(context: TableContext, user: str) -> Snapshot | None:
    """The newest snapshot that a user committed under an identifier; None if it has none.

    A commit without one says nothing of the numbered ones: a job that writes in both ways would
    take each of its later commits for one that is done.
    """
    for snapshot in _newest_first(context):
        if snapshot.commit_user == user and snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER:
            return snapshot
    return None


def _committed(context: TableContext, request: CommitRequest) -> CommitResult | None:
    """The result of an earlier commit under the same user and identifier, if there was one."""
    last = last_committed(context, request.user)
    if last is None or last.commit_identifier < request.identifier:
        return None
    found: list[int] = []
    for snapshot in _newest_first(context, last.id):
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
        identifier=request.identifier,
        facts={"already_committed": 1},
    )


def _newest_first(context: TableContext, newest: int | None = None) -> Iterator[Snapshot]:
    """The live snapshots, from the latest (or the one named) down."""
    history = context.history
    newest = history.latest_snapshot_id() if newest is None else newest
    for snapshot_id in range(newest or 0, 0, -1):
        try:
            yield history.snapshot(snapshot_id)
        except NotFound:
            return


class _Committer:
    """The snapshots of one commit; file names count on from one to the next."""

    def __init__(self, context: TableContext, request: CommitRequest) -> None:
        self._context = context
        self._request = request
        self._name = context.ambient.new_uuid()
        self._manifest_count = 0
        self._list_count = 0
        self._index_count = 0
        self._attempts = 0
        self._uuids: set[str] = set()
        self._snapshots: list[tuple[Snapshot, Sequence[ManifestEntry]]] = []
        self.facts: dict[str, int] = {}

    @property
    def made_snapshots(self) -> bool:
        """Whether anything is visible already."""
        return bool(self._snapshots)

    def result(self) -> CommitResult:
        """What was done."""
        entries = [entry for _, delta in self._snapshots for entry in delta]
        added = [entry.file for entry in entries if entry.kind is FileKind.ADD]
        deleted = [entry.file for entry in entries if entry.kind is FileKind.DELETE]
        return CommitResult(
            snapshot_ids=tuple(snapshot.id for snapshot, _ in self._snapshots),
            rows=sum(f.row_count for m in self._request.messages for f in m.new_files),
            files_added=len(added),
            files_deleted=len(deleted),
            bytes_added=sum(file.size_bytes for file in added),
            bytes_deleted=sum(file.size_bytes for file in deleted),
            attempts=self._attempts,
            commit_user=self._request.user,
            identifier=self._request.identifier,
            facts=self.facts,
        )

    def publish(self, change: _Change) -> None:
        """Make one snapshot of a change."""
        options, ambient = self._context.options, self._context.ambient
        deadline = None
        if options.commit_timeout_ms is not None:
            deadline = ambient.now_ms() + options.commit_timeout_ms
        seen: int | None = None
        for attempt in range(options.commit_max_retries + 1):
            self._attempts += 1
            latest = self._context.history.latest_snapshot()
            mine = self._mine_since(seen, latest, change.kind)
            if mine is not None:
                self._snapshots.append((mine, change.delta))
                return
            if self._attempt(change, latest):
                return
            seen = 0 if latest is None else latest.id
            if deadline is not None and ambient.now_ms() >= deadline:
                break
            wait_ms = min(
                options.commit_min_retry_wait_ms << min(attempt, 30),
                options.commit_max_retry_wait_ms,
            )
            # Writers that lost together must not come back together.
            ambient.sleep(wait_ms * (0.5 + ambient.random()) / 1000)
        raise CommitConflict(
            "lost every race for the next snapshot; commit the same messages again, or raise "
            "commit.max-retries",
            table=self._context.identifier,
            attempts=self._attempts,
        )

    def _mine_since(
        self, seen: int | None, latest: Snapshot | None, kind: CommitKind
    ) -> Snapshot | None:
        """Our own snapshot, if an attempt that seemed to fail had made it."""
        if seen is None or latest is None:
            return None
        request = self._request
        wanted = (request.user, request.identifier, kind)
        for snapshot_id in range(seen + 1, latest.id + 1):
            try:
                theirs = self._context.history.snapshot(snapshot_id)
            except NotFound:
                continue
            if theirs.uuid in self._uuids:
                return theirs
            # Batch writers do not number their commits, so for them equal names prove nothing.
            same = (theirs.commit_user, theirs.commit_identifier, theirs.commit_kind) == wanted
            if same and request.identifier != BATCH_COMMIT_IDENTIFIER:
                return theirs
        return None

    def _attempt(self, change: _Change, latest: Snapshot | None) -> bool:
        """Whether the change became the snapshot after `latest`."""
        context = self._context
        written = _Written()
        try:
            snapshot, delta = self._prepare(change, latest, written)
        except BaseException:
            _remove(context, written)
            raise
        # From here on an exception proves nothing: whatever was written stays.
        if not self._put(context.layout.snapshot(snapshot.id), snapshot):
            _remove(context, written)
            return False
        self._write_hints(snapshot)
        self._snapshots.append((snapshot, delta))
        log.info(
            "committed table=%s snapshot=%d kind=%s files_added=%d files_deleted=%d attempts=%d",
            context.identifier,
            snapshot.id,
            snapshot.commit_kind,
            sum(entry.kind is FileKind.ADD for entry in delta),
            sum(entry.kind is FileKind.DELETE for entry in delta),
            self._attempts,
        )
        return True

    def _put(self, path: str, snapshot: Snapshot) -> bool:
        store = self._context.store
        assert snapshot.uuid is not None
        self._uuids.add(snapshot.uuid)
        try:
            return store.put_if_absent(path, metadata.encode_snapshot(snapshot))
        except (LakecoreError, OSError) as error:
            # The reply was lost, or said no. What lies there now tells, if it can be read at all.
            try:
                there = metadata.decode_snapshot(store.read(path), path)
            except (LakecoreError, OSError):
                certain = isinstance(error, LakecoreError) and not isinstance(error, CommitUnknown)
                if certain:
                    raise error from None
            else:
                return there.uuid == snapshot.uuid
            raise CommitUnknown(
                "the reply to the commit was lost: look for the snapshot before a retry",
                table=self._context.identifier,
                snapshot_id=snapshot.id,
                commit_user=snapshot.commit_user,
                identifier=snapshot.commit_identifier,
            ) from error

    def _write_hints(self, snapshot: Snapshot) -> None:
        # A hint that cannot be written must not fail a commit that everybody can see.
        store, layout = self._context.store, self._context.layout
        with suppress(LakecoreError, OSError):
            store.put(layout.latest_hint, str(snapshot.id).encode())
            if not store.exists(layout.earliest_hint):
                first = self._context.history.snapshot_ids()[0]
                store.put(layout.earliest_hint, str(first).encode())

    # --- one attempt -----------------------------------------------------------------------------

    def _prepare(
        self, change: _Change, latest: Snapshot | None, written: _Written
    ) -> tuple[Snapshot, Sequence[ManifestEntry]]:
        """The next snapshot, its manifests written."""
        context, request = self._context, self._request
        history = context.history
        delta = list(change.delta)
        cleared: set[bytes] = set()
        if change.kind is CommitKind.OVERWRITE:
            removed, cleared = self._removed(change, latest)
            delta = [*removed, *delta]
        self._check(change, latest, delta)
        base = self._base_manifests(latest, written)
        base_list, base_size = self._write_list(base, written)
        delta_list, delta_size = self._write_list(self._write_manifests(delta, written), written)
        changelog_list, changelog_size = (
            self._write_list(self._write_manifests(change.changelog, written), written)
            if change.changelog
            else (None, None)
        )
        index_manifest = self._index_manifest(change, latest, cleared, written)
        delta_rows = sum(
            entry.file.row_count if entry.kind is FileKind.ADD else -entry.file.row_count
            for entry in delta
        )
        schema_id = max(history.schema_ids(), default=context.schema.id)
        before = _Inherited.of(latest)
        records_before = before.total_record_count
        if records_before is None:
            live = () if latest is None else history.live_entries(latest)
            records_before = sum(entry.file.row_count for entry in live)
        snapshot = Snapshot(
            id=1 if latest is None else latest.id + 1,
            schema_id=schema_id,
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
            changelog_record_count=sum(entry.file.row_count for entry in change.changelog) or None,
            watermark=_later(before.watermark, request.watermark),
            statistics=before.statistics if before.schema_id == schema_id else None,
            properties=request.properties,
            next_row_id=before.next_row_id,
            operation=request.operation,
        )
        return snapshot, delta

    def _removed(
        self, change: _Change, latest: Snapshot | None
    ) -> tuple[list[ManifestEntry], set[bytes]]:
        """Deletions of all live files of the partitions that the overwrite clears."""
        if latest is None:
            return [], set()
        live = self._context.history.live_entries(latest)
        mine = {entry.identity for entry in change.delta}
        for entry in live:
            if entry.identity in mine:
                raise _already_there(entry)
        indexes = self._context.history.index_entries(latest)
        partitions = list(
            dict.fromkeys([*(e.partition for e in live), *(e.partition for e in indexes)])
        )
        assert self._request.overwrite is not None
        chosen = self._request.overwrite(partitions) if partitions else ()
        cleared = {p for p, choose in zip(partitions, chosen, strict=True) if choose}
        removed = [replace(e, kind=FileKind.DELETE) for e in live if e.partition in cleared]
        return removed, cleared

    def _check(
        self, change: _Change, latest: Snapshot | None, delta: Sequence[ManifestEntry]
    ) -> None:
        history = self._context.history
        if latest is None:
            check_files((), delta, self._context.schema.key_fields)
            return
        if change.kind is not CommitKind.OVERWRITE:
            self._check_since(change, latest)
        if any(entry.kind is FileKind.DELETE or entry.file.level > 0 for entry in delta):
            touched = {entry.partition for entry in delta}
            live = [e for e in history.live_entries(latest) if e.partition in touched]
            check_files(live, delta, self._context.schema.key_fields)

    def _check_since(self, change: _Change, latest: Snapshot) -> None:
        """Conflicts with what others committed since the writers of the messages looked."""
        base = change.base_snapshot_id
        if not self._request.messages or base == latest.id:
            return
        mine = {entry.identity for entry in change.delta if entry.kind is FileKind.ADD}
        known: dict[bytes, int] = {}
        for entry in self._added_since(base, latest):
            if entry.identity in mine:
                raise _already_there(entry)
            known.setdefault(entry.partition, entry.total_buckets)
        check_bucket_counts(known, self._request.messages)
        if any(entry.file.index_type == HASH_INDEX for entry in change.indexes):
            history = self._context.history
            try:
                before = () if base is None else history.index_entries(history.snapshot(base))
            except NotFound as error:
                raise CommitConflict(
                    "the snapshot that the writer looked at is gone; write again", snapshot_id=base
                ) from error
            check_hash_indexes(before, history.index_entries(latest), self._request.messages)

    def _added_since(self, base: int | None, latest: Snapshot) -> Iterator[ManifestEntry]:
        """The files that were added after a snapshot (None: ever), those of newer ones first."""
        history = self._context.history
        for snapshot_id in range(latest.id, base or 0, -1):
            try:
                theirs = latest if snapshot_id == latest.id else history.snapshot(snapshot_id)
            except NotFound:
                yield from history.live_entries(latest)
                return
            for entry in history.entries(history.delta_manifests(theirs)):
                if entry.kind is FileKind.ADD:
                    yield entry

    # --- manifests -------------------------------------------------------------------------------

    def _base_manifests(self, latest: Snapshot | None, written: _Written) -> list[ManifestFile]:
        """The manifests of the table so far, small ones merged when it is time."""
        if latest is None:
            return []
        history, options = self._context.history, self._context.options
        manifests = list(history.manifests(latest))
        target = options.manifest_target_file_size_bytes
        if full_merge_is_due(
            manifests,
            target_bytes=target,
            threshold_bytes=options.manifest_full_compaction_threshold_size_bytes,
        ):
            live = fold(history.entries(manifests))
            return self._write_manifests(live, written)
        merged: list[ManifestFile] = []
        for group in neighbours_to_merge(
            manifests, target_bytes=target, count_min=options.manifest_merge_min_count
        ):
            if len(group) == 1:
                merged += group
            else:
                merged += self._write_manifests(cancel(history.entries(group)), written)
        return merged

    def _write_manifests(
        self, entries: Sequence[ManifestEntry], written: _Written
    ) -> list[ManifestFile]:
        """New manifests with these entries, in order, each of about the target size."""
        if not entries:
            return []
        options = self._context.options
        data = metadata.encode_manifest(entries, options.manifest_compression)
        # NOTE: parts are larger than the target. Smaller ones would count as small, and be merged
        # and written anew by each commit.
        parts = min(len(data) // (2 * options.manifest_target_file_size_bytes), len(entries))
        if parts > 1:
            step = -(-len(entries) // parts)
            runs = [entries[at : at + step] for at in range(0, len(entries), step)]
            return [file for run in runs for file in self._write_manifests(run, written)]
        name = manifest_name(self._name, self._manifest_count)
        self._manifest_count += 1
        self._put_fresh(name, data, written)
        return [self._manifest_file(name, len(data), entries)]

    def _manifest_file(
        self, name: str, size_bytes: int, entries: Sequence[ManifestEntry]
    ) -> ManifestFile:
        fields = self._context.schema.partition_fields
        stats = StatsCollector(fields, [StatsMode(StatsKind.FULL)] * len(fields))
        stats.update(self._context.partitions.values(list({e.partition: None for e in entries})))
        added = sum(entry.kind is FileKind.ADD for entry in entries)
        buckets = [entry.bucket for entry in entries]
        levels = [entry.file.level for entry in entries]
        return ManifestFile(
            name=name,
            size_bytes=size_bytes,
            added_count=added,
            deleted_count=len(entries) - added,
            schema_id=self._context.schema.id,
            partition_stats=stats.finish(),
            bucket_min=min(buckets),
            bucket_max=max(buckets),
            level_min=min(levels),
            level_max=max(levels),
        )

    def _write_list(
        self, manifests: Sequence[ManifestFile], written: _Written
    ) -> tuple[str, int]:
        name = manifest_list_name(self._name, self._list_count)
        self._list_count += 1
        compression = self._context.options.manifest_compression
        data = metadata.encode_manifest_list(manifests, compression)
        self._put_fresh(name, data, written)
        return name, len(data)

    def _index_manifest(
        self,
        change: _Change,
        latest: Snapshot | None,
        cleared: set[bytes],
        written: _Written,
    ) -> str | None:
        before = self._context.history.index_entries(latest)
        replaced = {(e.partition, e.bucket, e.file.index_type) for e in change.indexes}
        kept = [
            entry
            for entry in before
            if entry.partition not in cleared
            and (entry.partition, entry.bucket, entry.file.index_type) not in replaced
        ]
        if len(kept) == len(before) and not change.indexes:
            return None if latest is None else latest.index_manifest
        entries = [*kept, *change.indexes]
        if not entries:
            return None
        name = index_manifest_name(self._name, self._index_count)
        self._index_count += 1
        compression = self._context.options.manifest_compression
        self._put_fresh(name, metadata.encode_index_manifest(entries, compression), written)
        return name

    def _put_fresh(self, name: str, data: bytes, written: _Written) -> None:
        path = self._context.layout.manifest(name)
        written.paths.append(path)
        self._context.store.put(path, data)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inherited:
    """What a snapshot takes over from the one before it."""

    total_record_count: int | None = None
    schema_id: int = 0
    watermark: int | None = None
    statistics: str | None = None
    next_row_id: int = 0

    @staticmethod
    def of(latest: Snapshot | None) -> _Inherited:
        if latest is None:
            return _Inherited()
        return _Inherited(
            total_record_count=latest.total_record_count,
            schema_id=latest.schema_id,
            watermark=latest.watermark,
            statistics=latest.statistics,
            next_row_id=latest.next_row_id or 0,
        )


def _later(before: int | None, given: int | None) -> int | None:
    known = [mark for mark in (before, given) if mark is not None]
    return max(known, default=None)


def _remove(context: TableContext, written: _Written) -> None:
    """Remove what a failed attempt wrote; what cannot be removed is an orphan, not a fault."""
    for path in written.paths:
        with suppress(LakecoreError, OSError):
            context.store.delete(path)


def _check_once(delta: Sequence[ManifestEntry]) -> None:
    """That no file comes twice: a table that holds one twice cannot be read."""
    added = Counter(entry.identity for entry in delta if entry.kind is FileKind.ADD)
    twice = [identity.name for identity, count in added.items() if count > 1]
    if twice:
        raise InvalidRequest("the messages bring a data file twice", files=twice)


def _already_there(entry: ManifestEntry) -> AlreadyExists:
    return AlreadyExists(
        "the messages were committed before: a file they bring is in the table",
        file=entry.file.name,
        bucket=entry.bucket,
    )


# --- messages -> changes ------------------------------------------------------------------------


def _append_change(request: CommitRequest) -> _Change:
    overwrite = request.overwrite is not None
    return _Change(
        kind=CommitKind.OVERWRITE if overwrite else CommitKind.APPEND,
        delta=_entries(request.messages, FileKind.ADD, lambda m: m.new_files),
        changelog=_entries(request.messages, FileKind.ADD, lambda m: m.changelog_files),
        indexes=_index_entries(request.messages, lambda m: m.new_index_files),
        base_snapshot_id=_base(request.messages),
    )


def _compact_change(request: CommitRequest) -> _Change:
    before = _entries(request.messages, FileKind.DELETE, lambda m: m.compact_before)
    after = _entries(request.messages, FileKind.ADD, lambda m: m.compact_after)
    return _Change(
        kind=CommitKind.COMPACT,
        delta=[*before, *after],
        changelog=_entries(request.messages, FileKind.ADD, lambda m: m.compact_changelog_files),
        indexes=_index_entries(request.messages, lambda m: m.compact_index_files),
        base_snapshot_id=_base(request.messages),
    )


def _entries(
    messages: Sequence[CommitMessage],
    kind: FileKind,
    files: Callable[[CommitMessage], Sequence[DataFile]],
) -> list[ManifestEntry]:
    return [
        ManifestEntry(
            kind=kind,
            partition=message.partition,
            bucket=message.bucket,
            total_buckets=message.total_buckets,
            file=file,
        )
        for message in messages
        for file in files(message)
    ]


def _index_entries(
    messages: Sequence[CommitMessage], files: Callable[[CommitMessage], Sequence[IndexFile]]
) -> list[IndexEntry]:
    entries = [
        IndexEntry(partition=message.partition, bucket=message.bucket, file=file)
        for message in messages
        for file in files(message)
    ]
    seen: dict[tuple[bytes, int, str], int] = defaultdict(int)
    for entry in entries:
        seen[entry.partition, entry.bucket, entry.file.index_type] += 1
    if any(count > 1 for count in seen.values()):
        raise InvalidRequest(
            "two messages bring an index file of the same bucket; let one writer own a bucket"
        )
    return entries


def _base(messages: Sequence[CommitMessage]) -> int | None:
    """The oldest snapshot that any message was made from; None if one was made from nothing."""
    bases = [message.base_snapshot_id for message in messages]
    return None if None in bases else min((b for b in bases if b is not None), default=None)
