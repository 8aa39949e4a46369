"""Removes the deletion vectors of files that a compaction of a table without a key replaces.

A compaction of a table with data evolution keeps deleted rows at their positions, so the new file
gets the vectors of the files that it replaces.

Several messages of a step may replace files whose vectors are in one index file, so the index files
are written once for all messages of a bucket, just before the commit. (A compaction of a table with
a key also marks rows, and writes its vectors itself: `compact_bucket.py`.)
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.plan.row_ids import anchor_of, by_row_ids
from lakecore.table.vectors.bucket_vectors import BucketVectors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import CommitMessage
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext


def without_vectors(
    context: TableContext, snapshot: Snapshot | None, messages: Sequence[CommitMessage]
) -> list[CommitMessage]:
    """The messages, with the changes of index files added to the first message of each bucket.

    `snapshot` must be the one that the compactions have read. On failure, the index files that were
    written are removed.
    """
    if context.schema.primary_keys:
        return list(messages)
    buckets: dict[tuple[bytes, int], list[int]] = defaultdict(list)
    for at, message in enumerate(messages):
        if any(index is not None for _, index in message.vectors_read or ()):
            buckets[message.partition, message.bucket].append(at)
    done = list(messages)
    written: list[BucketVectors] = []
    try:
        for (partition, bucket), inside in buckets.items():
            vectors = BucketVectors.of(context, snapshot, partition, bucket)
            written.append(vectors)
            for at in inside:
                vectors.drop(file.name for file in messages[at].compact_before)
                if context.options.data_evolution_enabled:
                    _keep_marks(vectors, messages[at])
            files = vectors.write()
            done[inside[0]] = replace(
                messages[inside[0]],
                compact_index_files=files.added,
                compact_deleted_index_files=files.deleted,
            )
    except BaseException:
        for vectors in written:
            vectors.abort()
        raise
    return done


def _keep_marks(vectors: BucketVectors, message: CommitMessage) -> None:
    """Mark the deleted rows of the replaced files in the new file."""
    (after,) = message.compact_after
    for group in by_row_ids(message.compact_before):
        positions = vectors.positions(anchor_of(group).name)
        moved = (group[0].first_row_id or 0) - (after.first_row_id or 0)
        vectors.mark(after.name, positions + moved)
