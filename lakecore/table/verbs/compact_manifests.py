"""Merge all manifests of the newest snapshot that are small or name deleted files.

Commits merge manifests from time to time, by options; this does it at once. The new snapshot has
the same live files.

https://paimon.apache.org/docs/master/flink/procedures/
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.model.snapshot import CommitResult
from lakecore.options.kinds import show_size
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.commits.merge_manifests import merge_is_useful
from lakecore.table.context import require_table
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.writes.batch_write import author

if TYPE_CHECKING:
    from lakecore.table.context import TableContext

__all__ = ["compact_manifests", "manifests_summary"]


def compact_manifests(context: TableContext) -> CommitResult:
    """Merge the manifests, in a COMPACT snapshot. Makes none if there is nothing to merge."""
    require_table(context)
    options = replace(
        context.options,
        manifest_merge_min_count=1,
        manifest_full_compaction_threshold_size_bytes=1,
    )
    merging = replace(context, options=options)
    latest = context.history.latest_snapshot()
    if latest is None or not merge_is_useful(merging, context.history.manifests(latest)):
        return CommitResult(snapshot_ids=())
    user = author(context).user
    request = CommitRequest(messages=(), user=user, merges_manifests=True)
    return commit_and_maintain(merging, request)


def manifests_summary(context: TableContext) -> str:
    """The number of manifests that a merge would read, as text in the form of Paimon's dry run."""
    require_table(context)
    latest = context.history.latest_snapshot()
    if latest is None:
        return "Dry run: no snapshot exists."
    manifests = context.history.manifests(latest)
    if not manifests:
        return "Dry run: 0 manifest files."
    target = context.options.manifest_target_file_size_bytes
    deleting = [each.deleted_count for each in manifests if each.deleted_count]
    small = sum(each.size_bytes < target for each in manifests)
    size = show_size(sum(each.size_bytes for each in manifests))
    return (
        f"Dry run: {len(manifests)} manifest files ({size}), {sum(deleting)} deleted entries in "
        f"{len(deleting)} files, {small} undersized files (< {show_size(target)})."
    )
