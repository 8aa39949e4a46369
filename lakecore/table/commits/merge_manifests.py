"""Computes the base manifest list of the next snapshot, and merges small manifests when due.

`plan/manifests.py` has the rules; this module applies them, in the order of the manifests:

1. a *minor* merge reads a group of neighbours, cancels ADD with DELETE, and writes the rest;
2. a *full* merge first reads all deletions, and then each manifest once. Manifests that need no
   change are kept. The remaining entries of the others are collected, sorted by partition and
   written before the next kept manifest. If they are too few for a manifest of their own, the next
   kept manifest is rewritten together with them. Otherwise a small manifest would stay between
   large ones, and each full merge would rewrite it.

INVARIANT: the files of a bucket stay in commit order, because for equal sequence numbers the later
commit wins. Entries are processed as columns, and at most a share of the budget is held. If a table
needs more, it is sorted in parts.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import polars as pl

from lakecore.plan.entries import Deletions, cancel, in_order_of_partitions
from lakecore.plan.manifests import (
    full_merge_is_due,
    hull_of,
    may_hold,
    must_change,
    neighbours_to_merge,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakecore.memory import Lease
    from lakecore.model.manifest import ManifestFile
    from lakecore.table.context import TableContext

    Write = Callable[[pl.DataFrame], list[ManifestFile]]

_BYTES_IN_MEMORY = 16
"""Bytes of memory for each byte of a manifest: decompressed, decoded, and encoded again."""
_READERS = 8


def merge_manifests(
    context: TableContext, manifests: Sequence[ManifestFile], write: Write
) -> list[ManifestFile]:
    """The manifests after the merge; `write` writes entries as new manifests."""
    target = context.options.manifest_target_file_size_bytes
    threshold = context.options.manifest_full_compaction_threshold_size_bytes
    if full_merge_is_due(manifests, target_bytes=target, threshold_bytes=threshold):
        merge = _FullMerge(context, manifests, write)
        if merge.is_useful:
            return merge.run()
    merged: list[ManifestFile] = []
    for group in neighbours_to_merge(
        manifests, target_bytes=target, count_min=context.options.manifest_merge_min_count
    ):
        merged += group if len(group) == 1 else _merged(context, group, write)
    return merged


def merge_is_useful(context: TableContext, manifests: Sequence[ManifestFile]) -> bool:
    """Whether `merge_manifests` would write a manifest."""
    options = context.options
    target = options.manifest_target_file_size_bytes
    threshold = options.manifest_full_compaction_threshold_size_bytes
    is_due = full_merge_is_due(manifests, target_bytes=target, threshold_bytes=threshold)
    if is_due and _FullMerge(context, manifests, lambda _entries: []).is_useful:
        return True
    groups = neighbours_to_merge(
        manifests, target_bytes=target, count_min=options.manifest_merge_min_count
    )
    return any(len(group) > 1 for group in groups)


def _merged(
    context: TableContext, group: Sequence[ManifestFile], write: Write
) -> list[ManifestFile]:
    with _lease(context, sum(manifest.size_bytes for manifest in group)):
        entries = cancel(pl.concat(list(_frames(context, group))))
        return write(in_order_of_partitions(entries, context.partitions))


class _FullMerge:
    """One full merge, in the order of its manifests."""

    def __init__(
        self, context: TableContext, manifests: Sequence[ManifestFile], write: Write
    ) -> None:
        self._context = context
        self._write = write
        self._target = context.options.manifest_target_file_size_bytes
        deleting = [manifest for manifest in manifests if manifest.deleted_count]
        with _lease(context, sum(manifest.size_bytes for manifest in deleting)):
            self._deletions = Deletions(_frames(context, deleting))
        hit = self._may_be_hit(manifests)
        self._manifests = [
            (manifest, must_change(manifest, self._target) or may_be_hit)
            for manifest, may_be_hit in zip(manifests, hit, strict=True)
        ]
        self._out: list[ManifestFile] = []
        self._gathered: list[pl.DataFrame] = []
        self._size_bytes = 0

    @property
    def is_useful(self) -> bool:
        """Whether more than one manifest must be read."""
        return sum(read for _, read in self._manifests) > 1

    def run(self) -> list[ManifestFile]:
        """The manifests after the merge."""
        lease = _lease(self._context, sum(m.size_bytes for m, read in self._manifests if read))
        with lease:
            # With less room than two target sizes, small manifests would remain.
            room = max(2 * self._target, lease.size_bytes // _BYTES_IN_MEMORY)
            frames = _frames(self._context, [m for m, read in self._manifests if read])
            for manifest, read in self._manifests:
                if read:
                    self._take(manifest, next(frames))
                elif self._is_small:
                    self._take(manifest, self._context.history.entry_columns(manifest))
                else:
                    self._keep(manifest)
                if self._size_bytes >= room:
                    self._flush()
            self._flush()
        self._deletions.check_done()
        return self._out

    def _may_be_hit(self, manifests: Sequence[ManifestFile]) -> Sequence[bool]:
        deleted = self._deletions.partitions
        if not deleted or not self._context.partitions.fields:
            return [bool(deleted)] * len(manifests)
        hull = hull_of(self._context.partitions.values(deleted))
        return [bool(may) for may in may_hold(hull, manifests, self._context.partitions)]

    @property
    def _is_small(self) -> bool:
        return 0 < self._size_bytes < self._target

    def _take(self, manifest: ManifestFile, entries: pl.DataFrame) -> None:
        left = self._deletions.take(entries)
        unchanged = left.height == entries.height and not must_change(manifest, self._target)
        if unchanged and not self._is_small:
            self._keep(manifest)
        elif not left.is_empty():
            self._gathered.append(left)
            self._size_bytes += -(-manifest.size_bytes * left.height // entries.height)

    def _keep(self, manifest: ManifestFile) -> None:
        self._flush()
        self._out.append(manifest)

    def _flush(self) -> None:
        if self._gathered:
            entries = pl.concat(self._gathered)
            self._out += self._write(in_order_of_partitions(entries, self._context.partitions))
        self._gathered, self._size_bytes = [], 0


def _lease(context: TableContext, size_bytes: int) -> Lease:
    least = min(2 * context.options.manifest_target_file_size_bytes, size_bytes)
    return context.budget.acquire_up_to(size_bytes * _BYTES_IN_MEMORY, least * _BYTES_IN_MEMORY)


def _frames(context: TableContext, manifests: Sequence[ManifestFile]) -> Iterator[pl.DataFrame]:
    """The entries of each manifest, in order; small neighbours are read together."""
    target = context.options.manifest_target_file_size_bytes
    read = context.history.entry_columns
    if len(manifests) <= 1:
        yield from map(read, manifests)
        return
    with ThreadPoolExecutor(_READERS) as pool:
        batch: list[ManifestFile] = []
        for manifest in manifests:
            size_bytes = sum(each.size_bytes for each in batch) + manifest.size_bytes
            if batch and (len(batch) == _READERS or size_bytes > target):
                yield from pool.map(read, batch)
                batch = []
            batch.append(manifest)
        yield from pool.map(read, batch)
