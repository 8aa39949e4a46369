"""Expiry of snapshots: deletes the oldest, with all files that nothing else references.

https://paimon.apache.org/docs/master/maintenance/manage-snapshots/

1. `plan/retention.py` decides which snapshots expire: the range [earliest, end).
2. Data files that the deltas of (earliest, end] delete and do not add again are deleted, unless a
   tag, another branch or a long-lived changelog references them.
3. Changelog files of the expired snapshots are deleted, unless they are kept as long-lived
   changelogs.
4. Metadata of the expired snapshots is deleted, unless the snapshot `end`, a tag or a branch
   references it.
5. The changelogs are kept if that is due, and the hint EARLIEST is written, unless another expiry
   has moved it further. **This step decides**: readers do not list the snapshots below it any more,
   and no verb leads back to them.
6. If a rollback or a fast-forward has begun meanwhile, or a rollback that has ended has removed
   the snapshot `end`, the hint is written back, and the expiry ends. If tags or branches have
   changed, the deletions are planned again. Whoever tags, or leads back to, an expiring snapshot
   reads EARLIEST after a write of its own, which step 6 looks for: one of the two sees the other.
   A rollback that begins later may lead to a tag of an expiring snapshot: nothing is deleted then,
   and a later expiry continues.
7. Files are deleted in the order of `deletion.py`, then the snapshot files. The last of them is
   deleted alone at the end: as long as it exists, an interrupted expiry has left something.

The record of a fast-forward that was there before keeps the newest snapshot of its branch.

A failure after step 6 is logged. After a crash, the next run also expires the snapshots that are
left below EARLIEST. They may belong to another history than the snapshot `end` (after a
fast-forward), so the files of `end` are checked too. If the snapshot `end`, a tag or a branch
cannot be read, nothing is deleted. If the delta of an expiring snapshot cannot be read, the data
files that it names stay.

INVARIANT: all deletions are planned before the first file is deleted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from lakecore.errors import CommitConflict, CorruptTable, NotFound
from lakecore.format.layout import SNAPSHOT_PREFIX
from lakecore.io.history import numbers
from lakecore.io.parallel import delete_all, read_all
from lakecore.io.progress import WorkBar
from lakecore.io.stores.store import has_file
from lakecore.model.files import FileSource
from lakecore.model.retention import ExpiredChangelogs, ExpiredSnapshots, FilesDeleted
from lakecore.options import ChangelogProducer, TableOptions
from lakecore.plan.retention import Retention, end_of_changelogs, end_of_snapshots
from lakecore.table.context import TableContext, require_table, with_bar
from lakecore.table.maintenance.consumers import list_consumers
from lakecore.table.maintenance.deletion import (
    NO_KEEPERS,
    Deletion,
    Stays,
    changes_in,
    clean_up_after,
    decide,
    delete_files_of,
    fast_forward_of,
    is_alone,
    keepers,
    planned,
    settled,
)
from lakecore.table.maintenance.reachable import (
    KEY,
    Keepers,
    Metadata,
    StateKind,
    as_tagged,
    branch_names,
    changelog_states,
    entry_frame,
    history_of,
    metadata_of,
    states,
    tags_near,
)
from lakecore.table.maintenance.rollback import finish_rollback
from lakecore.table.reads.told import told_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.snapshot import Snapshot

log = logging.getLogger("lakecore.expire")
_IN_ORDER = 100
"""How many of the snapshots that expire at once are deleted one after another."""


def retention_of(context: TableContext) -> Retention:
    """The retention options of snapshots."""
    options = context.options
    return Retention(
        retain_max=options.snapshot_num_retained_max,
        retain_min=options.snapshot_num_retained_min,
        older_than_ms=context.ambient.now_ms() - options.snapshot_time_retained_ms,
        max_deletes=options.snapshot_expire_limit,
    )


def keeps_changelogs(options: TableOptions) -> bool:
    """Whether changelogs live longer than snapshots: an option `changelog.*` keeps more."""
    longest, least = options.changelog_num_retained_max, options.changelog_num_retained_min
    time_ms = options.changelog_time_retained_ms
    return (
        (longest is not None and longest > options.snapshot_num_retained_max)
        or (least is not None and least > options.snapshot_num_retained_min)
        or (time_ms is not None and time_ms > options.snapshot_time_retained_ms)
    )


def expire_snapshots(
    context: TableContext,
    keep: Retention | None = None,
    *,
    dry_run: bool = False,
    latest_id: int | None = None,
) -> ExpiredSnapshots:
    """Expire the oldest snapshots, by default according to the table options.

    `latest_id` is the newest snapshot, if the caller has just committed it.

    Raises CorruptTable, with nothing deleted, if the first snapshot to stay, a tag, a branch or a
    consumer cannot be read; StorageError if the storage fails before anything is deleted. A later
    failure is logged, and makes the result incomplete: a later call continues the work.
    """
    with WorkBar() as bar:
        keep = retention_of(context) if keep is None else keep
        return _expire(with_bar(context, bar), keep, bar, latest_id, dry_run=dry_run)


def _expire(
    context: TableContext, keep: Retention, bar: WorkBar, latest_id: int | None, *, dry_run: bool
) -> ExpiredSnapshots:
    history = context.history
    latest = latest_id
    if latest is None:
        latest = history.latest_snapshot_id()
        require_table(context)
    earliest = None if latest is None else history.earliest_snapshot_id()
    if latest is None or earliest is None:
        return ExpiredSnapshots(dry_run=dry_run)
    end, consumer = _end(context, earliest, latest, keep)
    first = _left_below(context, earliest)
    if first < earliest:
        # An interrupted expiry has left snapshots; they go on expiring once all of them are due.
        due = _end(context, first, latest, keep)[0]
        first = first if due >= earliest else earliest
    if end > earliest and not dry_run and has_file(context.store, context.layout.rollback_record):
        finish_rollback(context)
        return _expire(context, keep, bar, None, dry_run=dry_run)
    forward = fast_forward_of(context) if end > first else None
    if forward is not None:
        end = min(end, _kept_for(context, forward) or end)
    snapshots = _snapshots(context, bar, first, end) if end > first else []
    if not snapshots or snapshots[-1].id != end or len(snapshots) == 1:
        # Nothing expires, or another process expires the same snapshots.
        if not dry_run:
            history.keep_earliest_hint(latest)
        return ExpiredSnapshots(
            earliest_snapshot_id=earliest, held_by_consumer=consumer, dry_run=dry_run
        )
    work = _Expiry(
        context,
        bar,
        tuple(snapshots),
        earliest,
        keeps=keeps_changelogs(context.options),
        is_mixed=first < earliest or forward is not None,
        forward=forward,
    )
    return work.run(consumer, dry_run=dry_run)


def _kept_for(context: TableContext, branch: str) -> int | None:
    """The newest snapshot of a branch, if the table has it, too: a fast-forward may lead to it."""
    if branch not in branch_names(context):
        return None
    newest = history_of(context, branch).latest_snapshot()
    if newest is None or not newest.is_same(context.history.listed_snapshot(newest.id)):
        return None
    return newest.id


def _left_below(context: TableContext, earliest: int) -> int:
    """The first snapshot file of those that directly precede `earliest`, or `earliest` itself."""
    store, layout = context.store, context.layout
    if earliest == 1 or not has_file(store, layout.snapshot(earliest - 1)):
        return earliest
    names = (status.path.rpartition("/")[2] for status in store.list(layout.snapshot_dir))
    there = {*numbers(names, SNAPSHOT_PREFIX)}
    while earliest - 1 in there:
        earliest -= 1
    return earliest


def _end(
    context: TableContext, earliest: int, latest: int, keep: Retention
) -> tuple[int, str | None]:
    """The first snapshot that stays, and the consumer that prevents further expiry, if any."""

    def times_of(ids: Sequence[int]) -> list[int | None]:
        found = read_all(context.history.snapshot_if_there, ids)
        return [None if each is None else each.time_ms for each in found]

    free = end_of_snapshots(earliest, latest, keep, None, times_of)
    only_changelogs = context.options.consumer_changelog_only and keeps_changelogs(context.options)
    if free == earliest or only_changelogs:
        return free, None
    consumers = list_consumers(context)
    slowest = min(consumers, key=lambda each: each.next_snapshot, default=None)
    if slowest is None or slowest.next_snapshot >= free:
        return free, None
    return max(slowest.next_snapshot, earliest), slowest.consumer_id


def _snapshots(context: TableContext, bar: WorkBar, earliest: int, end: int) -> list[Snapshot]:
    """The existing snapshots from `earliest` to `end`, both included."""
    ids = range(earliest, end + 1)
    read = bar.counting(context.history.snapshot_if_there, "snapshots found", len(ids))
    found = read_all(read, ids)
    return [each for each in found if each is not None]


@dataclass(frozen=True, slots=True)
class _Expiry:
    """One run; `snapshots` holds those that expire, followed by the first that stays.

    `is_mixed`: the expiring snapshots may belong to another history than the first that stays.
    `forward`: the branch of a fast-forward that had begun before.
    """

    context: TableContext
    bar: WorkBar
    snapshots: tuple[Snapshot, ...]
    earliest: int  # the first snapshot that readers list
    keeps: bool  # whether changelogs outlive their snapshots
    is_mixed: bool
    forward: str | None

    def run(self, consumer: str | None, *, dry_run: bool) -> ExpiredSnapshots:
        context, expiring = self.context, self.snapshots[:-1]
        # They are listed after the step that decides, too: most tables have none, then or now.
        seen = NO_KEEPERS if is_alone(context) and not dry_run else keepers(context)
        try:
            plan: Deletion | None = planned(partial(self._plan, seen))
            is_overtaken = not (dry_run or self._mark())
        except CorruptTable:
            if context.history.listed_snapshot(self.snapshots[-1].id) is not None:
                raise
            is_overtaken = True
        if is_overtaken:  # another process has removed the first snapshot to stay
            return ExpiredSnapshots(
                earliest_snapshot_id=context.history.earliest_snapshot_id(), dry_run=dry_run
            )
        is_complete = True
        if not dry_run:
            plan = settled(context, seen, plan, self._plan_alone)
            is_complete = False
        counts = FilesDeleted() if plan is None else plan.counts
        if plan is not None and not dry_run:
            with clean_up_after(context, "the expiry"):
                delete_files_of(context, plan)
                self._delete_snapshots()
                is_complete = True
            log.info(
                "expired table=%s snapshots=%d earliest=%d data_files=%d manifests=%d",
                context.identifier,
                len(expiring),
                self.snapshots[-1].id,
                counts.data_files,
                counts.manifests,
            )
        return ExpiredSnapshots(
            snapshots_expired=len(expiring),
            earliest_snapshot_id=self.snapshots[-1].id,
            changelogs_kept=len(expiring) if self.keeps else 0,
            files=counts,
            held_by_consumer=consumer,
            unreadable_snapshots=() if plan is None else plan.unreadable,
            is_complete=is_complete,
            dry_run=dry_run,
        )

    # --- planning ---------------------------------------------------------------------------------

    def _plan_alone(self, seen: Keepers) -> Deletion | None:
        """The plan; None beside a rollback."""
        return None if seen.is_rolled_back else self._plan(seen)

    def _plan(self, seen: Keepers) -> Deletion:
        context, history = self.context, self.context.history
        expiring, end = self.snapshots[:-1], self.snapshots[-1]
        # Without a changelog producer, the files that a snapshot added are its changelog.
        added_is_changelog = (
            self.keeps and context.options.changelog_producer is ChangelogProducer.NONE
        )
        data, unreadable = self._deleted_files(keep_appended=added_is_changelog)
        changelog = self._changelog_files() if not self.keeps else data.clear()
        stays = Stays(context, data, changelog)
        stays.add([as_tagged(history, end)], data=self.is_mixed)
        stays.add(tags_near(history, end.id, seen.tags))
        stays.add_branches(seen.branches)
        if not self.keeps:  # changelogs from before a change of the option stay readable
            stays.add(changelog_states(history))
        metadata = metadata_of(
            context, expiring, data=not added_is_changelog, changelog=not self.keeps, partly=True
        )
        return stays.without(data, changelog, metadata, unreadable)

    def _deleted_files(self, *, keep_appended: bool) -> tuple[pl.DataFrame, tuple[int, ...]]:
        """The files that the deltas after the first expiring snapshot delete and do not add again.

        With `keep_appended`, only files that compactions wrote are included, not those of writers.
        """
        history = self.context.history

        def read(snapshot: Snapshot) -> pl.DataFrame | None:
            try:
                return changes_in(entry_frame(history, history.delta_manifests(snapshot)))
            except CorruptTable as error:
                log.warning(
                    "the data files that a snapshot deletes are kept: its manifests cannot be "
                    "read. table=%s snapshot=%d reason=%s",
                    self.context.identifier,
                    snapshot.id,
                    told_by(error, self.context),
                )
                return None

        later = self.snapshots[1:]
        frames = read_all(self.bar.counting(read, "snapshots read", len(later)), later)
        unreadable = tuple(
            each.id for each, frame in zip(later, frames, strict=True) if frame is None
        )
        empty = changes_in(entry_frame(history, ()))
        changes = pl.concat([empty, *(frame for frame in frames if frame is not None)])
        last = changes.group_by(KEY, maintain_order=True).last()
        gone = last.filter(~pl.col("added"))
        if keep_appended:
            appended = pl.col("_FILE_SOURCE").fill_null(int(FileSource.APPEND)) == FileSource.APPEND
            gone = gone.filter(~appended)
        return gone.drop("added"), unreadable

    def _changelog_files(self) -> pl.DataFrame:
        """The changelog files of the expiring snapshots; those that cannot be listed stay."""
        history = self.context.history
        frames = [changes_in(entry_frame(history, ()))]
        for snapshot in self.snapshots[:-1]:
            name = snapshot.changelog_manifest_list
            try:
                manifests = history.manifest_list(name, snapshot.changelog_manifest_list_size)
                frames.append(changes_in(entry_frame(history, manifests)))
            except CorruptTable:
                continue
        return pl.concat(frames).filter("added").drop("added")

    # --- deletion ---------------------------------------------------------------------------------

    def _mark(self) -> bool:
        """Carry out the step that decides (see the module).

        Returns False, with the hint written back, if the first snapshot to stay is gone; or if
        another expiry, which lets more snapshots expire, has decided.
        """
        context, history = self.context, self.context.history
        layout, store = context.layout, context.store
        expiring, end = self.snapshots[:-1], self.snapshots[-1].id
        if (before := history.earliest_snapshot_id() or self.earliest) > end:
            return False

        def keep_changelog(snapshot: Snapshot) -> None:
            store.put(layout.changelog(snapshot.id), store.read(layout.snapshot(snapshot.id)))

        if self.keeps:
            read_all(keep_changelog, expiring)
            store.put(layout.changelog_latest_hint, str(expiring[-1].id).encode())
        decide(
            lambda: history.write_earliest_hint(end),
            lambda: history.earliest_snapshot_id() == end,
            table=context.identifier,
        )
        if has_file(store, layout.rollback_record) or fast_forward_of(context) not in (
            None,
            self.forward,
        ):
            history.write_earliest_hint(before)
            raise CommitConflict(
                "the table is being rolled back or fast-forwarded; expire its snapshots afterwards",
                table=context.identifier,
            )
        # A rollback may have ended since the plan was begun: its record is gone, and so is `end`.
        is_there = self.snapshots[-1].is_same(history.snapshot_if_there(end))
        if not is_there:
            history.write_earliest_hint(before)
        return is_there

    def _delete_snapshots(self) -> None:
        """Delete the snapshots; the last ones in their order.

        A committer whose base still exists after its commit relies on it: then the number of its
        snapshot was not used and deleted before. The base was the newest one when it was read.
        """
        layout, store = self.context.layout, self.context.store
        paths = [layout.snapshot(snapshot.id) for snapshot in self.snapshots[:-1]]
        delete_all(store.delete, paths[:-_IN_ORDER], bar=self.bar)
        for path in paths[-_IN_ORDER:]:
            store.delete(path)


# --- expire changelogs ---------------------------------------------------------------------------
# Expiry of long-lived changelogs, which outlive their snapshots.
#
# https://paimon.apache.org/docs/master/maintenance/manage-snapshots/
#
# An expired snapshot keeps its changelog if an option `changelog.*` keeps more than the option
# `snapshot.*` of the same name. Which files expire together with a long-lived changelog:
#
# - with a changelog producer: the changelog files of the snapshot;
# - without one: the files that the delta of the snapshot deletes. (The files that a snapshot added
#   are its changelog. Earlier changelogs, which added the deleted files, have expired before.)
#
# 1. `plan/retention.py` decides which changelogs expire; the newest always stays.
# 2. Files and manifests are found and deleted as in `expire_snapshots.py`. Files that the earliest
#    snapshot, the first changelog to stay, a tag or another branch needs are kept.
# 3. The hint EARLIEST of the changelogs is written. **This step decides**: readers do not list the
#    changelogs below it any more. If none stays, all changelogs are deleted instead.
# 4. The files are deleted, then the changelogs. After a crash, the next run expires the changelogs
#    that are left below EARLIEST, too; if none stays, the removal of orphan files does the rest.


def changelog_retention_of(context: TableContext) -> Retention:
    """The retention options of changelogs; by default, the options of snapshots apply."""
    options = context.options
    most, least = options.changelog_num_retained_max, options.changelog_num_retained_min
    time_ms = options.changelog_time_retained_ms
    kept_ms = options.snapshot_time_retained_ms if time_ms is None else time_ms
    return Retention(
        retain_max=options.snapshot_num_retained_max if most is None else most,
        retain_min=options.snapshot_num_retained_min if least is None else least,
        older_than_ms=context.ambient.now_ms() - kept_ms,
        max_deletes=options.snapshot_expire_limit,
    )


def expire_changelogs(
    context: TableContext,
    keep: Retention | None = None,
    *,
    all_of_them: bool = False,
    dry_run: bool = False,
) -> ExpiredChangelogs:
    """Expire the oldest long-lived changelogs, by default according to the table options.

    With `all_of_them`, all changelogs that no consumer needs expire. Raises CorruptTable, with
    nothing deleted, if something that stays cannot be read.
    """
    keep = changelog_retention_of(context) if keep is None else keep
    history = context.history
    require_table(context)
    ids = history.changelog_ids()
    latest = history.latest_snapshot_id()
    if not ids or latest is None:
        return ExpiredChangelogs(dry_run=dry_run)
    end, consumer = _changelogs_end(context, ids, latest, None if all_of_them else keep)
    there = history.changelog_ids(also_expired=True)
    expiring = _changelogs(context, [number for number in there if number < end])
    left = [number for number in ids if number >= end]
    result = ExpiredChangelogs(
        earliest_changelog_id=left[0] if left else None, held_by_consumer=consumer, dry_run=dry_run
    )
    if not expiring:
        return result
    seen = keepers(context)
    plan = planned(partial(_plan, context, expiring, left, seen))
    if not dry_run:
        changelogs = [context.layout.changelog(each.id) for each in expiring]
        if left:
            _mark(context, left[0])
        else:
            context.store.delete(context.layout.changelog_latest_hint)
            context.store.delete(context.layout.changelog_earliest_hint)
            delete_all(context.store.delete, changelogs)
        plan = settled(context, seen, plan, partial(_plan, context, expiring, left))
        delete_files_of(context, plan)
        if left:
            delete_all(context.store.delete, changelogs)
        log.info(
            "expired table=%s changelogs=%d earliest=%s data_files=%d",
            context.identifier,
            len(expiring),
            result.earliest_changelog_id,
            plan.counts.data_files,
        )
    return replace(
        result,
        changelogs_expired=len(expiring),
        files=plan.counts,
        unreadable_changelogs=plan.unreadable,
    )


def _changelogs_end(
    context: TableContext, ids: Sequence[int], latest: int, keep: Retention | None
) -> tuple[int, str | None]:
    """The first changelog that stays, and the consumer that prevents further expiry, if any."""

    def times_of(some: Sequence[int]) -> list[int | None]:
        found = {each.id: each.time_ms for each in _changelogs(context, some)}
        return [found.get(number) for number in some]

    free = ids[-1] + 1
    if keep is not None:
        free = end_of_changelogs(ids[0], ids[-1], latest, keep, times_of)
    slowest = min(list_consumers(context), key=lambda each: each.next_snapshot, default=None)
    if free <= ids[0] or slowest is None or slowest.next_snapshot >= free:
        return free, None
    return max(slowest.next_snapshot, ids[0]), slowest.consumer_id


def _changelogs(context: TableContext, ids: Sequence[int]) -> list[Snapshot]:
    """The changelogs with these ids that exist."""

    def read(number: int) -> Snapshot | None:
        try:
            return context.history.changelog(number)
        except NotFound:
            return None

    return [each for each in read_all(read, ids) if each is not None]


def _plan(
    context: TableContext, expiring: Sequence[Snapshot], left: Sequence[int], seen: Keepers
) -> Deletion:
    history = context.history
    data, changelog, unreadable = _files(context, expiring)
    earliest = history.earliest_snapshot_id()
    first = None if earliest is None else history.snapshot_if_there(earliest)
    stays = Stays(context, data, changelog)
    stays.add(tags_near(history, expiring[-1].id + 1, seen.tags))
    stays.add_branches(seen.branches)
    if first is not None:
        stays.add([as_tagged(history, first)], data=False)
    if earliest is not None and earliest <= expiring[-1].id:
        # After a rollback to a tag, snapshots that have a changelog exist again.
        stays.add(each for each in states(history) if each.kind is StateKind.SNAPSHOT)
    lists = _lists(context, expiring) - _lists(context, _changelogs(context, left[:1]))
    return stays.without(data, changelog, lists, unreadable)


def _files(
    context: TableContext, expiring: Sequence[Snapshot]
) -> tuple[pl.DataFrame, pl.DataFrame, tuple[int, ...]]:
    """Data files, changelog files, and the changelogs whose manifests cannot be read."""
    history = context.history
    data, changelog = [changes_in(entry_frame(history, ()))], [changes_in(entry_frame(history, ()))]
    unreadable = []
    for each in expiring:
        name, size = each.changelog_manifest_list, each.changelog_manifest_list_size
        try:
            if name is not None:
                found = changes_in(entry_frame(history, history.manifest_list(name, size)))
                changelog.append(found.filter("added"))
            elif history.store.exists(context.layout.manifest(each.delta_manifest_list)):
                found = changes_in(entry_frame(history, history.delta_manifests(each)))
                data.append(found.filter(~pl.col("added")))
        except CorruptTable as error:
            log.warning(
                "the data files of a changelog are kept: its manifests cannot be read. "
                "table=%s changelog=%d reason=%s",
                context.identifier,
                each.id,
                told_by(error, context),
            )
            unreadable.append(each.id)
    return pl.concat(data).drop("added"), pl.concat(changelog).drop("added"), tuple(unreadable)


def _lists(context: TableContext, changelogs: Sequence[Snapshot]) -> Metadata:
    """The manifests that changelogs own; indexes and statistics were deleted with the snapshots."""
    own = [replace(each, index_manifest=None, statistics=None) for each in changelogs]
    produced = [each for each in own if each.changelog_manifest_list is not None]
    added = [each for each in own if each.changelog_manifest_list is None]
    return metadata_of(context, produced, data=False, partly=True) | metadata_of(
        context, added, changelog=False, partly=True
    )


def _mark(context: TableContext, earliest: int) -> None:
    """Carry out the step that decides (see the module)."""
    hint = context.layout.changelog_earliest_hint
    decide(
        lambda: context.store.put(hint, str(earliest).encode()),
        lambda: context.history.changelog_ids()[:1] == (earliest,),
        table=context.identifier,
    )
