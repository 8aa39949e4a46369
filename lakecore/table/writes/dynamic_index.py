"""The hash index of a partition with dynamic buckets, by which a writer assigns keys to buckets.

An index file lists the hashes of the keys of one bucket. A writer loads the index files of a
partition with its first rows. For each bucket that got new keys, it writes a complete new file.

INVARIANT: the index comes from the snapshot that the messages name. If a concurrent commit changed
the index, a key could get two buckets. Then the commit of the messages is refused
(`plan/conflicts.py`, rule 7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.format.hash_index import decode_hashes, encode_hashes
from lakecore.model.files import HASH_INDEX, IndexFile
from lakecore.plan.dynamic_bucket import (
    Assignment,
    DynamicBucketRule,
    HashIndexState,
    assign_dynamic,
)
from lakecore.table.stored_rows.split_files import missing_is_corrupt

if TYPE_CHECKING:
    import numpy as np

    from lakecore.model.manifest import IndexEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.options import TableOptions
    from lakecore.table.context import TableContext


class DynamicIndex:
    """The hash index of a partition; `grown` are the buckets that got new keys."""

    def __init__(self, context: TableContext, partition: bytes, snapshot: Snapshot | None) -> None:
        """The index at a snapshot; empty if there is no snapshot."""
        self._context = context
        self._partition_path = context.partitions.path(partition)
        hashes: dict[int, np.ndarray] = {}
        for entry in context.history.index_entries(snapshot):
            if entry.partition == partition and entry.file.index_type == HASH_INDEX:
                hashes[entry.bucket] = read_hashes(context, entry)
        self._state = HashIndexState.of(hashes)
        self._rule = bucket_rule(context.options)
        self.grown: set[int] = set()

    def assign(self, hashes: np.ndarray) -> Assignment:
        """Assign a bucket to each row by the hash of its key. New keys are added to the index."""
        assignment = assign_dynamic(self._state, hashes, self._rule)
        self._state = assignment.state
        self.grown |= set(assignment.new_hashes)
        return assignment

    def write(self, bucket: int) -> tuple[IndexFile, str]:
        """The new index file of a bucket, and its path."""
        context = self._context
        data, file = encode_hashes(self._state.hashes_of(bucket), context.ambient.new_uuid())
        path = context.layout.index_file(file.name, self._partition_path, bucket)
        context.store.put(path, data)
        return file, path


def read_hashes(context: TableContext, entry: IndexEntry) -> np.ndarray:
    """The hashes of a hash index file. Raises CorruptTable if it is missing or damaged."""
    partition_path = context.partitions.path(entry.partition)
    path = context.layout.live_index_file(partition_path, entry.bucket, entry.file)
    with missing_is_corrupt(path):
        return decode_hashes(context.store.read(path), entry.file, path)


def bucket_rule(options: TableOptions) -> DynamicBucketRule:
    """The largest size and the largest number of dynamic buckets."""
    most = options.dynamic_bucket_max_buckets
    return DynamicBucketRule(
        target_row_count=options.dynamic_bucket_target_row_num,
        buckets_max=None if most < 0 else most,
        initial_buckets=options.dynamic_bucket_initial_buckets or 1,
    )
