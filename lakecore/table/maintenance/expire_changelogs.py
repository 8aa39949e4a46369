"""Expiry of long-lived changelogs, which outlive their snapshots.

https://paimon.apache.org/docs/master/maintenance/manage-snapshots/

An expired snapshot keeps its changelog if an option `changelog.*` keeps more than the option
`snapshot.*` of the same name. Which files expire together with a long-lived changelog:

- with a changelog producer: the changelog files of the snapshot;
- without one: the files that the delta of the snapshot deletes. (The files that a snapshot added
  are its changelog. Earlier changelogs, which added the deleted files, have expired before.)

1. `plan/retention.py` decides which changelogs expire; the newest always stays.
2. Files and manifests are found and deleted as in `expire_snapshots.py`. Files that the earliest
   snapshot, the first changelog to stay, a tag or another branch needs are kept.
3. The hint EARLIEST of the changelogs is written. **This step decides**: readers do not list the
   changelogs below it any more. If none stays, all changelogs are deleted instead.
4. The files are deleted, then the changelogs. After a crash, the next run expires the changelogs
   that are left below EARLIEST, too; if none stays, the removal of orphan files does the rest.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from lakecore.errors import CorruptTable, NotFound
from lakecore.io.parallel import delete_all, read_all
from lakecore.model.retention import ExpiredChangelogs
from lakecore.plan.retention import Retention, end_of_changelogs
from lakecore.table.context import require_table
from lakecore.table.maintenance.consumers import list_consumers
from lakecore.table.maintenance.deletion import (
    Deletion,
    changes_in,
    delete_files_of,
    metadata_left,
)
from lakecore.table.maintenance.reachable import (
    Metadata,
    Reach,
    entry_frame,
    metadata_of,
    other_branches,
    states,
    tags_near,
    tags_of,
)
from lakecore.table.maintenance.steps import decide
from lakecore.table.reads.told import told_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

log = logging.getLogger("lakecore.expire")


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
    end, consumer = _end(context, ids, latest, None if all_of_them else keep)
    there = history.changelog_ids(also_expired=True)
    expiring = _changelogs(context, [number for number in there if number < end])
    left = [number for number in ids if number >= end]
    result = ExpiredChangelogs(
        earliest_changelog_id=left[0] if left else None, held_by_consumer=consumer, dry_run=dry_run
    )
    if not expiring:
        return result
    plan = _plan(context, expiring, left)
    if not dry_run:
        changelogs = [context.layout.changelog(each.id) for each in expiring]
        if left:
            _mark(context, left[0])
        else:
            context.store.delete(context.layout.changelog_latest_hint)
            context.store.delete(context.layout.changelog_earliest_hint)
            delete_all(context.store.delete, changelogs)
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


def _end(
    context: TableContext, ids: Sequence[int], latest: int, keep: Retention | None
) -> tuple[int, str | None]:
    """The first changelog that stays, and the consumer that prevents further expiry, if any."""

    def times_of(some: Sequence[int]) -> list[int | None]:
        found = {each.id: each.time_ms for each in _changelogs(context, some)}
        return [found.get(number) for number in some]

    free = ids[-1] + 1
    if keep is not None:
        free = end_of_changelogs(ids[0], ids[-1], latest, keep, None, times_of)
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


def _plan(context: TableContext, expiring: Sequence[Snapshot], left: Sequence[int]) -> Deletion:
    history = context.history
    data, changelog, unreadable = _files(context, expiring)
    earliest = history.earliest_snapshot_id()
    first = None if earliest is None else history.snapshot_if_there(earliest)
    near = tags_near(history, tags_of(history), expiring[-1].id + 1)
    others = other_branches(context)
    candidates = pl.concat([data, changelog])
    if len(candidates):
        reach = Reach(history, candidates)
        for snapshot in near:
            reach.add_live(snapshot)
        for branch in others:
            reach.add_branch(branch)
        if earliest is not None and earliest <= expiring[-1].id:
            # After a rollback to a tag, snapshots that have a changelog exist again.
            reach.add_states(each for each in states(history) if each.kind == "snapshot")
        data, changelog = reach.without_reached(data), reach.without_reached(changelog)
    stays = metadata_of(context, [*near, *([] if first is None else [first])])
    for branch in others:
        stays |= metadata_of(context, [state.snapshot for state in states(branch)])
    stays |= _lists(context, _changelogs(context, left[:1]))
    return Deletion(
        data=data,
        changelog=changelog,
        metadata=_lists(context, expiring) - stays,
        unreadable=unreadable,
    )


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
    return metadata_left(context, produced, data=False, changelog=True) | metadata_left(
        context, added, data=True, changelog=False
    )


def _mark(context: TableContext, earliest: int) -> None:
    """Carry out the step that decides (see the module)."""
    hint = context.layout.changelog_earliest_hint
    decide(
        lambda: context.store.put(hint, str(earliest).encode()),
        lambda: context.history.changelog_ids()[:1] == (earliest,),
        table=context.identifier,
    )
