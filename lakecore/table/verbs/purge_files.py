"""Purge: removes all rows, the history, and every file that the table no longer needs.

The steps are Paimon's: delete branches, tags and consumers; truncate the table; expire the
long-lived changelogs and all snapshots but the newest; delete orphan files. After a crash, some
steps are done; the next call does the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.model.retention import Purged
from lakecore.plan.retention import Retention
from lakecore.table.maintenance import branches, tags
from lakecore.table.maintenance.consumers import delete_consumer, list_consumers
from lakecore.table.maintenance.expire_changelogs import expire_changelogs
from lakecore.table.maintenance.expire_snapshots import expire_snapshots
from lakecore.table.maintenance.orphans import remove_orphan_files
from lakecore.table.maintenance.reachable import branch_names, tags_of
from lakecore.table.writes import overwrite
from lakecore.table.writes.batch_write import clear_partitions

if TYPE_CHECKING:
    from lakecore.table.context import TableContext

__all__ = ["purge_files"]

_ALL = 2**31 - 1


def purge_files(context: TableContext) -> Purged:
    """Remove all rows, and delete all files of earlier snapshots."""
    gone_branches = branch_names(context)
    for name in gone_branches:
        branches.delete_branch(context, name)
    gone_tags = tuple(tag.name for tag in tags_of(context.history))
    for name in gone_tags:
        tags.delete_tag(context, name)
    gone_consumers = tuple(consumer.consumer_id for consumer in list_consumers(context))
    for name in gone_consumers:
        delete_consumer(context, name)
    result = clear_partitions(context, overwrite.everything, "TRUNCATE")
    now_ms = context.ambient.now_ms() + 1
    only_last = Retention(retain_max=1, retain_min=1, older_than_ms=now_ms, max_deletes=_ALL)
    expired = expire_snapshots(context, only_last, dry_run=False)
    expire_changelogs(context, only_last, all_of_them=True, dry_run=False)
    orphans = remove_orphan_files(context, now_ms, force=True, dry_run=False)
    return Purged(
        snapshot_id=result.snapshot_id,
        branches=gone_branches,
        tags=gone_tags,
        consumers=gone_consumers,
        snapshots_expired=expired.snapshots_expired,
        orphan_files=orphans.files,
    )
