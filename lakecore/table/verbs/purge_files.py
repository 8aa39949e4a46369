"""Purge: removes all rows, the history, and every file that the table no longer needs.

1. Check that no branch is in use.
2. Truncate the table. **This decides** (`maintenance/steps.py`).
3. Delete branches, tags and consumers; expire the long-lived changelogs and all snapshots but the
   newest; delete orphan files. After a failure or a crash, the next call does the rest.

Paimon deletes branches, tags and consumers first: a process that died there left the rows, without
the history.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.model.retention import Purged
from lakecore.plan.retention import Retention
from lakecore.table.maintenance import branches, tags
from lakecore.table.maintenance.consumers import clear_consumers
from lakecore.table.maintenance.expire_changelogs import expire_changelogs
from lakecore.table.maintenance.expire_snapshots import expire_snapshots
from lakecore.table.maintenance.orphans import remove_orphan_files
from lakecore.table.maintenance.reachable import branch_names, tags_of
from lakecore.table.maintenance.steps import clean_up_after
from lakecore.table.writes import overwrite
from lakecore.table.writes.batch_write import clear_partitions

if TYPE_CHECKING:
    from lakecore.table.context import TableContext

__all__ = ["purge_files"]

_ALL = 2**31 - 1


def purge_files(context: TableContext) -> Purged:
    """Remove all rows, and delete all files of earlier snapshots."""
    for name in branch_names(context):
        branches.check_not_in_use(context, name, "delete")
    result = clear_partitions(context, overwrite.everything, "TRUNCATE")
    purged = Purged(is_complete=False)
    with clean_up_after(context, "the purge"):
        purged = _without_history(context)
    return replace(purged, snapshot_id=result.snapshot_id)


def _without_history(context: TableContext) -> Purged:
    gone_branches = branch_names(context)
    for name in gone_branches:
        branches.delete_branch(context, name)
    gone_tags = tuple(tag.name for tag in tags_of(context.history))
    for name in gone_tags:
        tags.delete_tag(context, name)
    # A damaged consumer is deleted, too: it is not read.
    gone_consumers = clear_consumers(context)
    now_ms = context.ambient.now_ms() + 1
    only_last = Retention(retain_max=1, retain_min=1, older_than_ms=now_ms, max_deletes=_ALL)
    expired = expire_snapshots(context, only_last, dry_run=False)
    expire_changelogs(context, only_last, all_of_them=True, dry_run=False)
    orphans = remove_orphan_files(context, now_ms, force=True, dry_run=False)
    return Purged(
        branches=gone_branches,
        tags=gone_tags,
        consumers=gone_consumers,
        snapshots_expired=expired.snapshots_expired,
        orphan_files=orphans.files,
        is_complete=expired.is_complete,
    )
