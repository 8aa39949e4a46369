"""Removes data files that do not exist from the newest snapshot.

If a data file was deleted by mistake, reads of the table fail until no manifest names the file. The
rows of the file are lost; older rows of the same keys, in other files, become visible again.

https://paimon.apache.org/docs/master/flink/procedures/
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from lakecore.io.parallel import read_all
from lakecore.model.files import CommitMessage
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.context import require_table
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.vectors.bucket_vectors import BucketVectors
from lakecore.table.writes.batch_write import author
from lakecore.table.writes.overwrite import nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

__all__ = ["remove_unexisting_files"]


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
