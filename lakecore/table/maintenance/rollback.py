"""Rollback: an earlier snapshot becomes the latest one again.

https://paimon.apache.org/docs/master/maintenance/manage-snapshots/#rollback-to-snapshot

Later snapshots, tags and long-lived changelogs are removed, with the files that nothing else
references. The schema stays the newest. A tag may be older than the earliest snapshot: its snapshot
is restored. The steps:

1. Prove that the target is whole: every file that it names exists.
2. Create a record of what will be removed (`format/metadata.py`). End here if there is one, if a
   fast-forward has begun or was interrupted, or if an expiry has begun to delete the target: of two
   verbs that run at the same time, one sees the other. The expiry counts also if a tag keeps the
   target, because the expiry would delete the snapshot file of step 3.
3. Restore the target if only a tag keeps it: first EARLIEST, so that what is there is listed.
4. Delete the hint LATEST, so that readers list the snapshots; then the snapshots between the target
   and the latest one.
5. Delete the latest snapshot. **This step decides**: readers see the old latest snapshot before it,
   and the target after it.
6. Write LATEST. Delete the tags of removed snapshots, and later long-lived changelogs.
7. Find the files of everything that was removed. Delete those that no remaining state references.
8. Delete the record.

A failure after step 5 is logged. After a crash, the next rollback or expiry first finishes the
recorded one. If another writer has committed on top of the old latest snapshot since, the rollback
is given up, and the snapshots that step 4 deleted are written again from the record.

INVARIANT: files are deleted after everything that names them.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import polars as pl

from lakecore.errors import (
    CommitConflict,
    CorruptTable,
    InvalidRequest,
    LakecoreError,
    NotFound,
)
from lakecore.format import metadata
from lakecore.format.metadata import RollbackRecord, decode_rollback, encode_rollback
from lakecore.io.parallel import delete_all, read_all
from lakecore.io.stores.store import has_file
from lakecore.model.manifest import FileKind
from lakecore.model.retention import FilesDeleted, RolledBack
from lakecore.table.context import TableContext, require_table
from lakecore.table.maintenance.consumers import list_consumers
from lakecore.table.maintenance.deletion import (
    Deletion,
    Stays,
    clean_up_after,
    decide,
    delete_files_of,
    existing_snapshot,
    expired_during,
    fast_forward_of,
    is_at,
    keepers,
    require_whole,
    settled,
)
from lakecore.table.maintenance.reachable import (
    KEY,
    Keepers,
    State,
    as_tagged,
    branch_names,
    changelogs_of,
    entry_frame,
    metadata_of,
    other_branches,
    states,
    tags_of,
)
from lakecore.table.reads.time_travel import Travel, resolve
from lakecore.table.reads.told import told_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.snapshot import Snapshot, Tag

log = logging.getLogger("lakecore.rollback")


def rollback_to(context: TableContext, travel: Travel, *, dry_run: bool = False) -> RolledBack:
    """Make a snapshot the latest one again.

    Raises NotFound if the snapshot is not there; CorruptTable, with nothing changed, if one of its
    files is missing or a manifest cannot be read.
    """
    if travel == Travel():
        raise InvalidRequest(
            "name the target of the rollback: snapshot_id, tag or timestamp",
            table=context.identifier,
        )
    require_table(context)
    if not dry_run:
        finish_rollback(context)
    latest = context.history.latest_snapshot()
    if latest is None:
        raise NotFound("the table has no snapshot to roll back to", table=context.identifier)
    target = _target(context, travel)
    require_whole(context, target)
    consumers = list_consumers(context)
    ahead = sorted(each.consumer_id for each in consumers if each.next_snapshot > target.id + 1)
    removal = _removal(context, target)
    files: FilesDeleted | None = FilesDeleted()
    if removal.is_empty and context.history.snapshot_if_there(target.id) == target:
        pass
    elif dry_run:
        own, *others = _kept(context)
        stays = [each for each in own if each.snapshot.id <= target.id]
        plan = _files_of(context, removal.record, [stays, *others])
        files = None if plan is None else plan.counts
    elif context.publication.references is not None:
        context.publication.references.rollback(context.layout.branch, target.id, travel.tag)
    else:
        files = _carry_out(context, _begun(context, removal.record))
        log.info(
            "rolled back table=%s snapshot=%d before=%d", context.identifier, target.id, latest.id
        )
    return RolledBack(
        snapshot_id=target.id,
        previous_snapshot_id=latest.id,
        snapshots_removed=len(removal.record.removed),
        tags_removed=tuple(tag.name for tag in removal.tags),
        changelogs_removed=removal.changelogs,
        files=files or FilesDeleted(),
        consumers_ahead=tuple(ahead),
        is_complete=files is not None,
        dry_run=dry_run,
    )


def _begun(context: TableContext, record: RollbackRecord) -> RollbackRecord:
    """Carry out step 2 of a rollback (see the module). Returns the record as it is then."""
    store, path, target = context.store, context.layout.rollback_record, record.target
    made = True  # a reply that is lost is one of this call, if its bytes are there
    data = encode_rollback(record)

    def make() -> None:
        nonlocal made
        made = store.put_if_absent(path, data)

    decide(make, lambda: is_at(context, path, data), table=context.identifier)
    if not made:
        raise CommitConflict(
            "another process rolls the table back; call rollback_to again", table=context.identifier
        )
    try:
        if (branch := fast_forward_of(context)) in branch_names(context):
            raise CommitConflict(
                "the table is being fast-forwarded, or that was interrupted; call fast_forward "
                "again, then rollback_to",
                branch=branch,
                table=context.identifier,
            )
        # A fast-forward or a rollback that has ended may have removed it.
        if not _is_kept(context, target):
            raise expired_during(context, target.id, then=_end_of_expiry(context))
        now = _removal(context, target).record
        if now != record:
            store.put(path, encode_rollback(now))
    except (LakecoreError, OSError):
        with suppress(LakecoreError, OSError):
            store.delete(path)
        raise
    return now


def _end_of_expiry(context: TableContext) -> str:
    """What lets a target come back that a tag keeps: the expiry of its snapshot must have ended."""
    listed = context.history.snapshot_ids()
    kept = listed[-1] - listed[0] + 1 if listed else 1
    call = f"expire_snapshots(retain_max={kept}, retain_min={kept})"
    return f"if a tag keeps it, an expiry runs or was interrupted: call {call}, and repeat"


def _forget(context: TableContext, record: RollbackRecord) -> None:
    """Delete the record of a rollback, unless it is that of another one by now."""
    path = context.layout.rollback_record
    with suppress(NotFound):
        if decode_rollback(context.store.read(path), path).target == record.target:
            context.store.delete(path)


def finish_rollback(context: TableContext) -> None:
    """Finish an interrupted rollback. Does nothing if there is none."""
    path = context.layout.rollback_record
    try:
        record = decode_rollback(context.store.read(path), path)
    except NotFound:
        return
    except CorruptTable:
        # The crash came while the record was written, which is before the first change.
        context.store.delete(path)
        return
    latest = context.history.latest_snapshot()
    committed = latest is None or latest not in (*record.removed, record.target)
    if not committed and _is_kept(context, record.target):
        _carry_out(context, record)
    elif _is_given_up(context, record):
        _bring_back(context, record)
        _forget(context, record)
    else:
        if record.target.is_same(context.history.snapshot_if_there(record.target.id)):
            _remove_tags(context, record)
        _clean_up(context, record)
    log.info("finished a rollback table=%s snapshot=%d", context.identifier, record.target.id)


def _is_kept(context: TableContext, target: Snapshot) -> bool:
    """Whether the target still exists, as a snapshot or as the snapshot of a tag.

    The snapshot of a tag does not while an expiry has left snapshots below EARLIEST: it may run,
    and delete what step 3 restores.
    """
    if target.is_same(context.history.listed_snapshot(target.id)):
        return True
    earliest = context.history.earliest_snapshot_id()
    # An expiry deletes the snapshot before EARLIEST last.
    last = target.id if earliest is None else earliest - 1
    if target.id <= last and has_file(context.store, context.layout.snapshot(last)):
        return False
    return any(target.is_same(tag.snapshot) for tag in tags_of(context.history))


def _is_given_up(context: TableContext, record: RollbackRecord) -> bool:
    """Whether the snapshot that a rollback was to remove last is there."""
    newest = max(record.removed, key=lambda each: each.id, default=record.target)
    return newest.id > record.target.id and newest.is_same(
        context.history.snapshot_if_there(newest.id)
    )


def _bring_back(context: TableContext, record: RollbackRecord) -> None:
    """Write again the snapshots that a rollback has removed before it was given up.

    If the target has expired since, the files of those after it may be deleted: they stay away.
    """
    if record.target.is_same(context.history.listed_snapshot(record.target.id)):
        for snapshot in record.removed:
            if snapshot.id > record.target.id:
                data = metadata.encode_snapshot(snapshot)
                context.store.put_if_absent(context.layout.snapshot(snapshot.id), data)


# --- what goes ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Removal:
    record: RollbackRecord
    tags: Sequence[Tag]
    changelogs: int

    @property
    def is_empty(self) -> bool:
        return not (self.record.removed or self.record.kept_by)


def _target(context: TableContext, travel: Travel) -> Snapshot:
    if travel.snapshot_id is not None:
        return existing_snapshot(context, travel.snapshot_id)
    snapshot, _ = resolve(context, travel)
    assert snapshot is not None, "a named state exists, or an error was raised"
    return snapshot


def _removal(context: TableContext, target: Snapshot) -> _Removal:
    history = context.history
    # An expiry that ends here moves EARLIEST back: then more snapshots are listed.
    ids = [number for number in history.stored_snapshot_ids() if number >= target.id]
    there = [each for each in read_all(history.snapshot_if_there, ids) if each is not None]
    removed = tuple(each for each in there if each != target)
    tags = _tags_above(context, target)
    changelogs = [each for each in changelogs_of(history) if each.id > target.id]
    kept_by = (*(tag.snapshot for tag in tags), *changelogs)
    record = RollbackRecord(target=target, removed=removed, kept_by=kept_by)
    return _Removal(record, tags, len(changelogs))


def _tags_above(context: TableContext, target: Snapshot) -> list[Tag]:
    return [tag for tag in tags_of(context.history) if tag.snapshot.id > target.id]


# --- the steps ------------------------------------------------------------------------------------


def _carry_out(context: TableContext, record: RollbackRecord) -> FilesDeleted | None:
    """Do steps 3 to 8. Returns None if files were left to the removal of orphan files."""
    store, layout, target = context.store, context.layout, record.target
    _restore(context, target)
    store.delete(layout.latest_hint)
    out = [each for each in record.removed if each.id != target.id]
    if out:
        latest = max(out, key=lambda each: each.id)
        between = [each for each in out if each is not latest]
        read_all(lambda each: _delete_snapshot(context, each), between)
        # On local disk, a write makes earlier deletions in its directory durable.
        store.put(layout.rollback_record, encode_rollback(record))
        decide(
            lambda: _delete_snapshot(context, latest),
            lambda: not latest.is_same(context.history.snapshot_if_there(latest.id)),
            table=context.identifier,
        )
    files: FilesDeleted | None = None
    with clean_up_after(context, "the rollback"):
        store.put(layout.latest_hint, str(target.id).encode())
        _remove_tags(context, record)
        _remove_changelogs(context, target)
        files = _clean_up(context, _with_stragglers(context, record))
    return files  # noqa: RET504 - after a failure in the block, it is None


def _delete_snapshot(context: TableContext, snapshot: Snapshot) -> None:
    """Delete the file of a snapshot, unless another snapshot has taken its number."""
    if snapshot.is_same(context.history.snapshot_if_there(snapshot.id)):
        context.store.delete(context.layout.snapshot(snapshot.id))


def _remove_tags(context: TableContext, record: RollbackRecord) -> None:
    """Delete the tags of the removed snapshots."""
    gone = [
        tag
        for tag in tags_of(context.history)
        if tag.snapshot.id > record.target.id
        and any(map(tag.snapshot.is_same, (*record.removed, *record.kept_by)))
    ]
    for tag in reversed(gone):
        context.store.delete(context.layout.tag(tag.name))
        if context.options.tag_create_success_file:
            context.store.delete(context.layout.tag_success(tag.name))
    context.publication.note_tags(context.history, gone=[tag.name for tag in gone])


def _restore(context: TableContext, target: Snapshot) -> None:
    history, store, path = context.history, context.store, context.layout.snapshot(target.id)
    earliest = history.earliest_snapshot_id()
    if earliest is None or earliest > target.id:
        history.write_earliest_hint(target.id)
        if history.snapshot_if_there(target.id) != target:
            store.put(path, metadata.encode_snapshot(target))
    elif not target.is_same(history.snapshot_if_there(target.id)):
        raise CommitConflict(
            "another process has rolled the table back to an older snapshot",
            table=context.identifier,
        )


def _with_stragglers(context: TableContext, record: RollbackRecord) -> RollbackRecord:
    """Also remove the snapshots that were committed on top of a removed one during the rollback.

    Snapshots that follow the target without a gap were committed on top of the target, and stay.
    """
    history, target = context.history, record.target
    ids = set(history.stored_snapshot_ids())
    on_top = next(number for number in count(target.id + 1) if number not in ids)
    late = sorted(number for number in ids if number > on_top)
    found = [each for each in read_all(history.snapshot_if_there, late) if each is not None]
    for snapshot in reversed(found):
        context.store.delete(context.layout.snapshot(snapshot.id))
    return RollbackRecord(target=target, removed=(*record.removed, *found), kept_by=record.kept_by)


def _remove_changelogs(context: TableContext, target: Snapshot) -> None:
    layout, store = context.layout, context.store
    ids = context.history.changelog_ids()
    above = [number for number in ids if number > target.id]
    if not above:
        return
    # Without EARLIEST, readers would list what an interrupted expiry has left below it.
    left = set(context.history.changelog_ids(also_expired=True)) - set(ids)
    delete_all(store.delete, [layout.changelog(number) for number in sorted(left)])
    if len(above) == len(ids):
        store.delete(layout.changelog_latest_hint)
        store.delete(layout.changelog_earliest_hint)
    else:
        last = max(number for number in ids if number <= target.id)
        store.put(layout.changelog_latest_hint, str(last).encode())
    delete_all(store.delete, [layout.changelog(number) for number in reversed(above)])


def _clean_up(context: TableContext, record: RollbackRecord) -> FilesDeleted | None:
    """Carry out steps 7 and 8 of a rollback (see the module)."""

    def plan() -> Deletion | None:
        return _files_of(context, record, _kept(context))

    def plan_again(_: Keepers) -> Deletion | None:
        if record.target.is_same(context.history.snapshot_if_there(record.target.id)):
            _remove_tags(context, record)
        return plan()

    found = settled(context, keepers(context), plan(), plan_again)
    if found is not None:
        delete_files_of(context, found)
    _forget(context, record)
    return None if found is None else found.counts


# --- files ----------------------------------------------------------------------------------------


def _kept(context: TableContext) -> list[list[State]]:
    """The states of each branch, first those of this one."""
    return [[*states(each)] for each in (context.history, *other_branches(context))]


def _files_of(
    context: TableContext, record: RollbackRecord, kept: Sequence[Sequence[State]]
) -> Deletion | None:
    """The files that only removed states reference; None if a kept state cannot be read.

    `kept`: the states of each branch that stay.
    """
    candidates = _candidates(context, record)
    stays = Stays(context, candidates)
    try:
        stays.add([as_tagged(context.history, record.target)])
        for states_of_branch in kept:
            stays.add(states_of_branch)
    except CorruptTable as error:
        log.warning(
            "a remaining state cannot be read, so no file is deleted: table=%s reason=%s",
            context.identifier,
            told_by(error, context),
        )
        return None
    gone = metadata_of(context, (*record.removed, *record.kept_by), partly=True)
    is_changelog = pl.col("_FILE_NAME").str.starts_with(context.options.changelog_file_prefix)
    data, changelog = candidates.filter(~is_changelog), candidates.filter(is_changelog)
    return stays.without(data, changelog, gone)


def _candidates(context: TableContext, record: RollbackRecord) -> pl.DataFrame:
    """The data and changelog files of everything that is removed, each once.

    Unreadable states are omitted: they may be the reason for the rollback.
    """
    frames = [entry_frame(context.history, ())]
    before: int | None = record.target.id
    for snapshot in record.removed:
        frames += _added(context, snapshot, whole=before != snapshot.id - 1)
        before = snapshot.id
    for snapshot in record.kept_by:
        frames += _added(context, snapshot, whole=True)
    return pl.concat(frames).unique(KEY, keep="first", maintain_order=True)


def _added(context: TableContext, snapshot: Snapshot, *, whole: bool) -> list[pl.DataFrame]:
    """The data and changelog files that a snapshot adds; with `whole`, all files that it holds."""
    history = context.history
    name, size = snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size
    frames = []
    for changelog in (False, True):
        try:
            if changelog:
                manifests = history.manifest_list(name, size)
            else:
                manifests = (history.manifests if whole else history.delta_manifests)(snapshot)
            frames.append(entry_frame(history, manifests))
        except CorruptTable as error:
            log.warning(
                "some files were not deleted: table=%s reason=%s", context.identifier, error
            )
    return [frame.filter(pl.col("_KIND") == FileKind.ADD) for frame in frames]
