"""The methods of a table that repair or tidy its metadata."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.io.parallel import read_all
from lakecore.model.files import CommitMessage
from lakecore.model.retention import Purged
from lakecore.model.snapshot import CommitResult, Snapshot
from lakecore.options.kinds import show_size
from lakecore.plan.retention import Retention
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.commits.commit_manifests import merge_is_useful
from lakecore.table.context import TableContext, require_table
from lakecore.table.maintenance import branches, tags
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.maintenance.consumers import clear_consumers
from lakecore.table.maintenance.deletion import clean_up_after
from lakecore.table.maintenance.expire_snapshots import expire_changelogs, expire_snapshots
from lakecore.table.maintenance.orphans import remove_orphan_files
from lakecore.table.maintenance.reachable import branch_names, tags_of
from lakecore.table.vectors import BucketVectors
from lakecore.table.writes import batch_write
from lakecore.table.writes.batch_write import author, clear_partitions, nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.manifest import ManifestEntry


# --- compact manifests ---------------------------------------------------------------------------
# Merge all manifests of the newest snapshot that are small or name deleted files.
#
# Commits merge manifests from time to time, by options; the verb merges them at once. The new
# snapshot has the same live files.
#
# https://paimon.apache.org/docs/master/flink/procedures/


def compact_manifests(context: TableContext) -> CommitResult:
    """Merge the manifests in a COMPACT snapshot, which is not made if there is nothing to merge."""
    require_table(context)
    options = replace(
        context.options, manifest_merge_min_count=1, manifest_full_compaction_threshold_size_bytes=1
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


# --- unexisting files ----------------------------------------------------------------------------
# Removes data files that do not exist from the newest snapshot.
#
# If a data file was deleted by mistake, reads of the table fail until no manifest names the file.
# The rows of the file are lost; older rows of the same keys, in other files, become visible again.
#
# https://paimon.apache.org/docs/master/flink/procedures/


def remove_unexisting_files(context: TableContext, *, dry_run: bool) -> tuple[str, ...]:
    """Remove the missing files from the newest snapshot. Returns their paths, sorted.

    Raises an error, with nothing changed, if the storage does not answer for a file.
    """
    require_table(context)
    snapshot = context.history.latest_snapshot()
    if snapshot is None:
        return ()
    live = list(context.history.live_entries(snapshot))

    def is_there(entry: ManifestEntry) -> bool:
        return context.store.exists(_path(context, entry))

    missing = [
        entry for entry, found in zip(live, read_all(is_there, live), strict=True) if not found
    ]
    if missing and not dry_run:
        _commit(context, snapshot, missing)
    return tuple(sorted(_path(context, entry) for entry in missing))


def _path(context: TableContext, entry: ManifestEntry) -> str:
    directory = context.partitions.path(entry.partition)
    return context.layout.data_file(directory, entry.bucket, entry.file)


def _commit(context: TableContext, snapshot: Snapshot, missing: Sequence[ManifestEntry]) -> None:
    buckets: dict[tuple[bytes, int, int], list[ManifestEntry]] = defaultdict(list)
    for entry in missing:
        buckets[entry.partition, entry.bucket, entry.total_buckets].append(entry)
    messages: list[CommitMessage] = []
    changed: list[BucketVectors] = []

    def abort() -> None:
        for vectors in changed:
            vectors.abort()

    try:
        for (partition, bucket, total_buckets), entries in sorted(buckets.items()):
            files = tuple(entry.file for entry in entries)
            names = [file.name for file in files]
            vectors = BucketVectors.of(context, snapshot, partition, bucket)
            changed.append(vectors)
            vectors.drop(names)
            indexes = vectors.write()
            messages.append(
                CommitMessage(
                    partition=partition,
                    bucket=bucket,
                    total_buckets=total_buckets,
                    deleted_files=files,
                    new_index_files=indexes.added,
                    deleted_index_files=indexes.deleted,
                    vectors_read=vectors.index_of(names),
                    base_snapshot_id=snapshot.id,
                    base_snapshot_uuid=snapshot.uuid,
                )
            )
    except BaseException:
        abort()
        raise
    request = CommitRequest(messages=messages, user=author(context).user, overwrite=nothing)
    commit_and_maintain(context, request, on_failure=abort)


# --- purge files ---------------------------------------------------------------------------------
# Purge: removes all rows, the history, and every file that the table no longer needs.
#
# 1. Check that no branch is in use.
# 2. Truncate the table. **This decides** (`maintenance/deletion.py`).
# 3. Delete branches, tags and consumers; expire the long-lived changelogs and all snapshots but the
#    newest; delete orphan files. After a failure or a crash, the next call does the rest.
#
# Paimon deletes branches, tags and consumers first: a process that died there left the rows,
# without the history.

_ALL = 2**31 - 1


def purge_files(context: TableContext) -> Purged:
    """Remove all rows, and delete all files of earlier snapshots."""
    for name in branch_names(context):
        branches.check_not_in_use(context, name, "delete")
    result = clear_partitions(context, batch_write.everything, "TRUNCATE")
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
